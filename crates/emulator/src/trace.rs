//! Packet traces: what crosses a link, as pcapng.
//!
//! The forwarding thread only copies packets into blocks of memory; a thread of its own writes them.
//! A packet that finds no room, because the disk is slower than the link, is counted and left out.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration as Wall;

use ontempo_foundation::Time;
use ontempo_runtime::{End, pcapng};
use ontempo_scenario::Layout;

/// Bytes of a block, and blocks on their way to the disk.
const BLOCK: usize = 1 << 18;
const MAX_BLOCKS: usize = 128;

/// Bytes of a packet's block beside the packet itself, at most.
const HEADERS: usize = 40;

/// Bytes that are written at a time: once the run is cancelled, the disk has [`PATIENCE`] for the last.
const PIECE: usize = 1 << 14;

/// Interval at which the end of a trace is looked for, and for how many of these a disk that takes
/// nothing is waited for once the run is cancelled: 1 s.
const STEP: Wall = Wall::from_millis(50);
const PATIENCE: u32 = 20;

/// Packets are recorded whole.
const NO_LIMIT: u32 = 0;

/// A trace in progress, to be finished after the run.
#[must_use = "a trace is whole only when it was finished"]
#[derive(Debug)]
pub struct Trace {
    writing: JoinHandle<io::Result<()>>,
    counts: Arc<Counts>,
    cancelled: Arc<AtomicBool>,
}

/// Packets of a finished trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// In the trace.
    pub packets: u64,
    /// Left out because the disk was too slow.
    pub missed: u64,
}

#[derive(Debug, Default)]
struct Counts {
    packets: AtomicU64,
    missed: AtomicU64,
    /// Blocks on their way to the disk.
    waiting: AtomicUsize,
}

/// Why a trace is not whole.
#[derive(Debug)]
pub enum TraceError {
    /// The run was cancelled, and the rest of its trace not written.
    Cancelled,
    /// The same, and the disk took nothing for 1 s: its thread ends with the program.
    Hangs,
    /// A write failed, such as on a full disk.
    Write(io::Error),
}

impl Trace {
    /// Waits until all is written; to be called after the run. If that is cancelled, also meanwhile, it
    /// ends soon, though the disk hangs.
    ///
    /// # Errors
    /// If the run was cancelled, or a write failed.
    pub fn finish(self) -> Result<Traced, TraceError> {
        let is_cancelled = || self.cancelled.load(Ordering::Relaxed);
        let mut silent = 0;
        while !self.writing.is_finished() {
            // The thread that writes leaves after the write that it is in.
            silent += u32::from(is_cancelled());
            if silent > PATIENCE {
                return Err(TraceError::Hangs);
            }
            thread::sleep(STEP);
        }
        let is_cancelled = is_cancelled();
        let written = self.writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.map_err(TraceError::Write)?;
        if is_cancelled {
            return Err(TraceError::Cancelled);
        }
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Traced { packets: read(&self.counts.packets), missed: read(&self.counts.missed) })
    }
}

/// The forwarding thread's side of a trace.
#[derive(Debug)]
pub(crate) struct Tap {
    blocks: Sender<Vec<u8>>,
    block: Vec<u8>,
    counts: Arc<Counts>,
    /// The end of the run: later departures are not written.
    until: Time,
}

impl Tap {
    /// Begins a trace of the link `name` in `out`, of a run that `cancelled` ends.
    ///
    /// # Errors
    /// If `out` cannot be written, or the system refuses a thread.
    pub(crate) fn new(
        name: &str,
        layout: &Layout,
        until: Time,
        mut out: File,
        cancelled: Arc<AtomicBool>,
    ) -> io::Result<(Self, Trace)> {
        let mut head = Vec::new();
        pcapng::begin(&mut head, name, NO_LIMIT)?;
        pcapng::names(&mut head, &names(layout))?;
        out.write_all(&head)?;
        let (blocks, filled) = channel();
        let counts = Arc::new(Counts::default());
        let (counted, is_in_vain) = (counts.clone(), cancelled.clone());
        let writing = thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || write(out, &filled, &counted, &is_in_vain))?;
        let trace = Trace { writing, counts: counts.clone(), cancelled };
        Ok((Self { blocks, block: Vec::with_capacity(BLOCK), counts, until }, trace))
    }

    /// `packet` begins its transmission at `starts`.
    pub(crate) fn departs(&mut self, starts: Time, packet: &[u8]) {
        if starts > self.until {
            return;
        }
        if self.block.len() + packet.len() + HEADERS > BLOCK && !self.pass_on() {
            self.counts.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Writing to memory does not fail.
        let _ = pcapng::packet(&mut self.block, starts, packet, packet.len() as u32);
        self.counts.packets.fetch_add(1, Ordering::Relaxed);
    }

    /// Passes the block on; false if there is no room for it.
    fn pass_on(&mut self) -> bool {
        // Only this thread adds to them.
        if self.counts.waiting.load(Ordering::Relaxed) >= MAX_BLOCKS {
            return false;
        }
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        self.send(block)
    }

    /// Whether the thread that writes has not ended.
    fn send(&self, block: Vec<u8>) -> bool {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        self.blocks.send(block).is_ok()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // One more than may wait: the disk may hang. A thread that has ended has an error to tell.
        let block = std::mem::take(&mut self.block);
        self.send(block);
    }
}

fn write(
    mut out: File,
    filled: &Receiver<Vec<u8>>,
    counts: &Counts,
    is_in_vain: &AtomicBool,
) -> io::Result<()> {
    for block in filled {
        for piece in block.chunks(PIECE) {
            // The files of a cancelled run are removed.
            if is_in_vain.load(Ordering::Relaxed) {
                return Ok(());
            }
            out.write_all(piece)?;
        }
        counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    if is_in_vain.load(Ordering::Relaxed) { Ok(()) } else { out.sync_all() }
}

/// The hosts' names by address, in both versions of IP.
fn names(layout: &Layout) -> Vec<(IpAddr, String)> {
    let of_flow = |(number, flow): (usize, &ontempo_scenario::LaidFlow)| {
        let name = format!("{}.{}", layout.groups[flow.group], flow.index);
        let ends = [(End::source(number), "source"), (End::sink(number), "sink")];
        ends.into_iter().flat_map(move |(end, side)| {
            let name = format!("{name}.{side}");
            [(end.v4().into(), name.clone()), (end.v6().into(), name)]
        })
    };
    layout.flows.iter().enumerate().flat_map(of_flow).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;

    use super::*;

    const SCENARIO: &str = r#"
duration = "5 s"
topology = { kind = "dumbbell", bottleneck = { rate = "8 Mbit/s", delay = "10 ms" }, access = { rate = "1 Gbit/s", delay = "1 ms" } }
flows = { a = { application = { kind = "cbr", rate = "1 Mbit/s" }, transport = { kind = "udp" } } }
"#;

    /// What a trace to a pipe that is full of blocks comes to once the run is cancelled.
    fn cancelled(writer: io::PipeWriter) -> Result<Traced, TraceError> {
        let layout = ontempo_scenario::parse(SCENARIO, "s.toml").unwrap().layout(1).unwrap();
        let out = File::from(OwnedFd::from(writer));
        let cancelled = Arc::<AtomicBool>::default();
        let (mut tap, trace) =
            Tap::new("bottleneck", &layout, Time::NEVER, out, cancelled.clone()).unwrap();
        let counts = trace.counts.clone();
        for _ in 0..MAX_BLOCKS * BLOCK / 60_000 * 2 {
            tap.departs(Time::ZERO, &[0; 60_000]);
        }
        assert!(counts.missed.load(Ordering::Relaxed) > 0, "the memory has no end");
        assert!(counts.waiting.load(Ordering::Relaxed) <= MAX_BLOCKS);
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(tap);
            cancelled.store(true, Ordering::Relaxed);
            done.send(trace.finish())
        });
        ended.recv_timeout(Wall::from_secs(20)).expect("it ends")
    }

    #[test]
    fn a_trace_to_a_disk_that_hangs_ends_once_the_run_is_cancelled() {
        // A pipe that nobody reads takes 64 KiB, and then nothing.
        let (reader, writer) = io::pipe().unwrap();
        assert!(matches!(cancelled(writer), Err(TraceError::Hangs)));
        drop(reader);
    }

    #[test]
    fn a_trace_to_a_slow_disk_is_left_once_the_run_is_cancelled_and_is_not_whole() {
        let (mut reader, writer) = io::pipe().unwrap();
        let slow = thread::spawn(move || {
            // Below 256 KiB a second. It ends with the writer.
            while reader.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                thread::sleep(Wall::from_millis(30));
            }
        });
        assert!(matches!(cancelled(writer), Err(TraceError::Cancelled)));
        slow.join().unwrap();
    }
}
