//! Ctrl-C and the signals to terminate.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// Ctrl-C, and the signal to terminate.
const TO_END: [i32; 2] = [SIGINT, SIGTERM];

/// How often it is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn failed(error: io::Error) -> Failure {
    Failure::Environment(format!("cannot watch for signals: {error}"))
}

/// A flag that Ctrl-C and a signal to terminate set.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    set_by(&TO_END, &flag)?;
    Ok(flag)
}

/// Has each of these signals set `flag`, and do nothing else.
pub(crate) fn set_by(signals: &[i32], flag: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(flag)).map_err(failed)?;
    }
    Ok(())
}

/// A stream that can be read once Ctrl-C or a signal to terminate has come.
pub(crate) fn stop_stream() -> Result<UnixStream, Failure> {
    let (stop, signalled) = UnixStream::pair().map_err(failed)?;
    for signal in TO_END {
        let end = signalled.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, end).map_err(failed)?;
    }
    Ok(stop)
}

/// What `work` answers; `None` where it is to stop before that. For what no signal ends, such as to
/// wait for a connection: it has a thread of its own, which ends with the process.
pub(crate) fn unless_stopped<T: Send + 'static>(
    stopped: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (give, take) = mpsc::sync_channel(1);
    thread::spawn(move || give.send(work()));
    loop {
        match take.recv_timeout(LOOK_EVERY) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Timeout) if !stopped.load(Relaxed) => {}
            Err(_) => return None,
        }
    }
}
