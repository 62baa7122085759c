//! QoS sockets for Python's event loops.
//!
//! The sockets of `ontempo_qos` wait. Here threads do that for them, one for each
//! direction of a connection that is used and one for each listener, and the loop is told as it is
//! told of [`live`](crate::live) connections. `python/ontempo/qos` makes coroutines of that.

mod carried;
mod connection;
mod event;
mod figures;
mod listener;
mod specification;

use std::io::{self, ErrorKind};

use ontempo_qos::SetupError;
use ontempo_transport::{CloseReason, Closed, live};
use pyo3::PyErr;

pub(crate) use connection::{QosLink, qos_connect};
pub(crate) use event::QosEvents;
pub(crate) use listener::{QosDoor, qos_bind};
pub(crate) use specification::{qos_check, qos_read};

mod errors {
    use pyo3::import_exception;

    pub(super) use crate::live::errors::{
        BindError, ClosedError, IdentityError, NotConnectedError, UnitError,
    };

    import_exception!(ontempo.qos.errors, DisagreementError);
    import_exception!(ontempo.qos.errors, SpecificationError);
}

/// What QUIC said.
fn inside(error: &io::Error) -> Option<&live::Error> {
    error.get_ref()?.downcast_ref()
}

/// Why a connection is over.
fn closed(error: &io::Error) -> Closed {
    if let Some(live::Error::Closed(closed)) = inside(error) {
        return closed.clone();
    }
    let reason = match error.kind() {
        ErrorKind::ConnectionReset => CloseReason::Reset,
        ErrorKind::TimedOut => CloseReason::TimedOut,
        _ => CloseReason::Transport,
    };
    Closed::found(reason, error.to_string())
}

/// Why there is no connection, where QUIC has said so.
fn close_reason(error: &SetupError) -> Option<&'static str> {
    let SetupError::Io(error) = error else { return None };
    inside(error)?.close_reason().map(CloseReason::name)
}

/// The exception that a failed set-up is.
fn failure(error: &SetupError) -> PyErr {
    let sentence = error.to_string();
    match error {
        SetupError::Contradiction(_) => errors::SpecificationError::new_err(sentence),
        SetupError::Disagreement(_) => errors::DisagreementError::new_err(sentence),
        SetupError::Io(error) if matches!(inside(error), Some(live::Error::Identity(_))) => {
            errors::IdentityError::new_err(sentence)
        }
        _ => errors::NotConnectedError::new_err((sentence, close_reason(error))),
    }
}
