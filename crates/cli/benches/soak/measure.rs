//! Resident memory and descriptors of a process over time.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

pub(crate) const HEAD: &str = "\
process                        seconds   MB first   MB last   MB most   kB/min   descriptors   done";

/// A sample: seconds since the start, kilobytes resident, descriptors.
#[derive(Clone, Copy)]
struct Sample(f64, f64, usize);

/// What was seen of a process.
pub(crate) struct Watch {
    name: String,
    samples: Vec<Sample>,
    /// What the load did, in a few words.
    done: String,
}

/// A process that is being watched.
pub(crate) struct Watching {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watch>,
}

impl Watching {
    /// Watches the process once a second until it ends or [`end`](Self::end) is called.
    pub(crate) fn start(name: &str, process: u32) -> Self {
        let (stop, name) = (Arc::new(AtomicBool::new(false)), name.to_owned());
        let seen = stop.clone();
        let thread = spawn(move || {
            let (begun, mut samples) = (Instant::now(), Vec::new());
            while !seen.load(Ordering::Relaxed)
                && let Some((kilobytes, descriptors)) = look(process)
            {
                samples.push(Sample(begun.elapsed().as_secs_f64(), kilobytes, descriptors));
                sleep(Duration::from_secs(1));
            }
            Watch { name, samples, done: String::new() }
        });
        Self { stop, thread }
    }

    pub(crate) fn end(self, done: String) -> Watch {
        self.stop.store(true, Ordering::Relaxed);
        Watch { done, ..self.thread.join().expect("the watch ends") }
    }
}

/// Kilobytes resident and descriptors; `None` once the process has ended.
fn look(process: u32) -> Option<(f64, usize)> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes = resident.trim().trim_end_matches(" kB").parse().ok()?;
    Some((kilobytes, fs::read_dir(format!("/proc/{process}/fd")).ok()?.count()))
}

impl Watch {
    /// The same, with what the load did.
    pub(crate) fn did(self, done: String) -> Self {
        Self { done, ..self }
    }

    /// Kilobytes a minute, and half the width of the 95 % interval, over the last three quarters.
    fn slope(&self) -> Option<(f64, f64)> {
        let last = &self.samples[self.samples.len() / 4..];
        let count = last.len() as f64;
        if last.len() < 10 {
            return None;
        }
        let mean = |of: fn(&Sample) -> f64| last.iter().map(of).sum::<f64>() / count;
        let (time, memory) = (mean(|sample| sample.0), mean(|sample| sample.1));
        let spread: f64 = last.iter().map(|sample| (sample.0 - time).powi(2)).sum();
        let both = last.iter().map(|sample| (sample.0 - time) * (sample.1 - memory)).sum::<f64>();
        let slope = both / spread;
        let rest = |sample: &Sample| sample.1 - memory - slope * (sample.0 - time);
        let error = last.iter().map(|sample| rest(sample).powi(2)).sum::<f64>() / (count - 2.0);
        Some((slope * 60.0, 1.96 * (error / spread).sqrt() * 60.0))
    }

    /// A row of the table that [`HEAD`] begins.
    pub(crate) fn row(&self) -> String {
        let (Some(first), Some(last)) =
            (self.samples.get(self.samples.len() / 4), self.samples.last())
        else {
            return format!("{:30} was never seen; {}", self.name, self.done);
        };
        let most = self.samples.iter().map(|sample| sample.1).fold(0.0, f64::max);
        let slope = self
            .slope()
            .map_or_else(|| "-".to_owned(), |(slope, half)| format!("{slope:.1} ± {half:.1}"));
        format!(
            "{:30} {:7.0} {:10.1} {:9.1} {:9.1}   {slope:12} {:>5} to {:<5} {}",
            self.name,
            last.0,
            first.1 / 1e3,
            last.1 / 1e3,
            most / 1e3,
            first.2,
            last.2,
            self.done
        )
    }
}

/// Bytes of the heap: allocated, and taken from the system; `None` where the C library does not
/// count them.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "mallinfo2(3) is a function of C without arguments")]
pub(crate) fn heap() -> Option<(f64, f64)> {
    // SAFETY: it has no preconditions.
    let all = unsafe { libc::mallinfo2() };
    Some(((all.uordblks + all.hblkhd) as f64, (all.arena + all.hblkhd) as f64))
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn heap() -> Option<(f64, f64)> {
    None
}

/// Gives free memory back to the system.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "malloc_trim(3) is a function of C")]
pub(crate) fn trim() {
    // SAFETY: it has no preconditions.
    let _ = unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn trim() {}

/// What this process holds, in megabytes: resident, allocated, taken from the system.
pub(crate) fn holds() -> String {
    let resident = look(std::process::id()).map_or(0.0, |(kilobytes, _)| kilobytes / 1e3);
    let heap = heap().map(|(live, taken)| {
        format!(", {:.1} allocated, {:.1} from the system", live / 1e6, taken / 1e6)
    });
    format!("{resident:.1} MB resident{}", heap.unwrap_or_default())
}
