//! SIGINT (Ctrl-C) and SIGTERM.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// The signals that stop a command.
const STOP_SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Interval at which the stop flag is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

fn failed(error: io::Error) -> Failure {
    Failure::Environment(format!("cannot handle signals: {error}"))
}

/// That of [`stop_flag`].
static STOPPED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A flag that SIGINT and SIGTERM set.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = STOPPED.get_or_init(Arc::default);
    set_by(&STOP_SIGNALS, flag)?;
    Ok(Arc::clone(flag))
}

/// Whether the flag is set; false without one.
pub(crate) fn is_stopped() -> bool {
    STOPPED.get().is_some_and(|flag| flag.load(Relaxed))
}

/// Makes each of these signals set `flag`, in place of its default action.
pub(crate) fn set_by(signals: &[i32], flag: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(flag)).map_err(failed)?;
    }
    Ok(())
}

/// A stream that becomes readable on SIGINT or SIGTERM.
pub(crate) fn stop_stream() -> Result<UnixStream, Failure> {
    stream_of(&STOP_SIGNALS)
}

/// A stream that becomes readable on each of these signals; it does not block.
pub(crate) fn stream_of(signals: &[i32]) -> Result<UnixStream, Failure> {
    let (stream, signalled) = UnixStream::pair().map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    for signal in signals {
        let end = signalled.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(*signal, end).map_err(failed)?;
    }
    Ok(stream)
}

/// Sleeps for `time`, or until stopped.
pub(crate) fn pause(time: Duration, stopped: &AtomicBool) {
    let until = Instant::now() + time;
    while !stopped.load(Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(POLL_INTERVAL));
    }
}

/// The result of `work`, or `None` if stopped before. For calls that no signal interrupts, such as
/// accept: `work` runs in a thread, which ends with the process.
pub(crate) fn unless_stopped<T: Send + 'static>(
    stopped: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || sender.send(work()));
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) if !stopped.load(Relaxed) => {}
            Err(_) => return None,
        }
    }
}
