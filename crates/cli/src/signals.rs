//! Ctrl-C and the signals to terminate.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// Ctrl-C, and the signal to terminate.
const TO_END: [i32; 2] = [SIGINT, SIGTERM];

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
