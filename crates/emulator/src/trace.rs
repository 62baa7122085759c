//! Packet traces: what crosses a link, as pcapng.
//!
//! The forwarding thread only copies packets into blocks of memory; a thread of its own writes them.
//! A packet that finds no room, because the disk is slower than the link, is counted and left out.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use ontempo_foundation::Time;
use ontempo_runtime::{End, pcapng};
use ontempo_scenario::Layout;

/// Bytes of a block, and blocks on their way to the disk.
const BLOCK: usize = 1 << 18;
const MAX_BLOCKS: usize = 128;

/// Bytes of a packet's block beside the packet itself, at most.
const HEADERS: usize = 40;

/// Packets are recorded whole.
const NO_LIMIT: u32 = 0;

/// A trace in progress, to be finished after the run.
#[must_use = "a trace is whole only when it was finished"]
#[derive(Debug)]
pub struct Trace {
    writing: JoinHandle<io::Result<()>>,
    counts: Arc<Counts>,
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
}

impl Trace {
    /// Waits until all is written; to be called after the run.
    ///
    /// # Errors
    /// If a write failed, such as on a full disk.
    pub fn finish(self) -> io::Result<Traced> {
        self.writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Traced { packets: read(&self.counts.packets), missed: read(&self.counts.missed) })
    }
}

/// The forwarding thread's side of a trace.
#[derive(Debug)]
pub(crate) struct Tap {
    blocks: SyncSender<Vec<u8>>,
    block: Vec<u8>,
    counts: Arc<Counts>,
    /// The end of the run: later departures are not written.
    until: Time,
}

impl Tap {
    /// Begins a trace of the link `name` in `out`.
    ///
    /// # Errors
    /// If `out` cannot be written, or the system refuses a thread.
    pub(crate) fn new(
        name: &str,
        layout: &Layout,
        until: Time,
        mut out: File,
    ) -> io::Result<(Self, Trace)> {
        let mut head = Vec::new();
        pcapng::begin(&mut head, name, NO_LIMIT)?;
        pcapng::names(&mut head, &names(layout))?;
        out.write_all(&head)?;
        let (blocks, filled) = sync_channel(MAX_BLOCKS);
        let writing =
            thread::Builder::new().name("trace".to_owned()).spawn(move || write(out, &filled))?;
        let counts = Arc::new(Counts::default());
        let trace = Trace { writing, counts: counts.clone() };
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
        let block = std::mem::take(&mut self.block);
        match self.blocks.try_send(block) {
            Ok(()) => {
                self.block = Vec::with_capacity(BLOCK);
                true
            }
            Err(TrySendError::Full(block) | TrySendError::Disconnected(block)) => {
                self.block = block;
                false
            }
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // After the run there is time to wait. A thread that has ended has an error to tell.
        let _ = self.blocks.send(std::mem::take(&mut self.block));
    }
}

fn write(mut out: File, filled: &Receiver<Vec<u8>>) -> io::Result<()> {
    for block in filled {
        out.write_all(&block)?;
    }
    out.sync_all()
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
