//! Connections for Python's event loops: `ontempo_transport::live` without blocking calls.
//!
//! No call blocks. Each object has a key; a [`Waker`] lists the keys of the objects that have
//! changed and should be polled again. `python/ontempo/live` makes coroutines from it.

mod bridge;
mod connection;
mod flow;
mod identity;
mod listener;
mod options;
mod statistics;

use ontempo_transport::Closed;
use ontempo_transport::live::Error;
use pyo3::PyErr;

pub(crate) use bridge::{Notifier, PendingResult, Waker, lock};
pub(crate) use connection::{LiveConnecting, LiveConnection, address, begin, parts, token};
pub(crate) use flow::{LiveReceiveFlow, LiveSendFlow};
pub(crate) use identity::{Identity, Trust};
pub(crate) use listener::{LiveListener, bind};
pub(crate) use options::{check_options, choice, congestion, default_options};

pub(crate) mod errors {
    use pyo3::import_exception;

    import_exception!(ontempo.live.errors, BindError);
    import_exception!(ontempo.live.errors, ClosedError);
    import_exception!(ontempo.live.errors, EndpointError);
    import_exception!(ontempo.live.errors, IdentityError);
    import_exception!(ontempo.live.errors, NotConnectedError);
    import_exception!(ontempo.live.errors, UnitError);
}

/// Name of the close reason, its application error code, and the peer's words.
pub(crate) fn reasons(closed: Closed) -> (&'static str, Option<u64>, String) {
    (closed.reason.name(), closed.reason.code(), closed.said)
}

/// The Python exception for an error.
fn failure(error: Error) -> PyErr {
    let sentence = error.to_string();
    match error {
        Error::Bind(_) => errors::BindError::new_err(sentence),
        Error::Identity(_) => errors::IdentityError::new_err(sentence),
        Error::NotConnected { closed, .. } => {
            let (reason, code, said) = reasons(closed);
            errors::NotConnectedError::new_err((sentence, reason, code, said))
        }
        Error::Closed(closed) => {
            let (reason, code, said) = reasons(closed);
            errors::ClosedError::new_err((sentence, reason, code, said))
        }
        Error::Unit(_) => errors::UnitError::new_err(sentence),
        // The error type is non-exhaustive.
        _ => errors::EndpointError::new_err(sentence),
    }
}

/// The exception for a connection that this side has closed.
pub(crate) fn closed() -> PyErr {
    over(&Closed::by_this_side())
}

/// The exception for a connection that was closed or lost.
pub(crate) fn over(closed: &Closed) -> PyErr {
    failure(Error::Closed(closed.clone()))
}
