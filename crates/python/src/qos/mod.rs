//! QoS sockets for Python's event loops.
//!
//! The sockets of `ontempo_qos` block. Threads call them here, one for each used direction of a
//! connection and one for each listener, and notify the event loop as [`live`](crate::live)
//! connections do. `python/ontempo/qos` makes coroutines from it.

mod connection;
mod event;
mod listener;
mod specification;
mod statistics;
mod transport;

use std::io::{self, ErrorKind};

use ontempo_qos::SetupError;
use ontempo_transport::{CloseReason, Closed, live};
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

use crate::live::reasons;

pub(crate) use connection::{QosChannel, qos_connect};
pub(crate) use event::QosEvents;
pub(crate) use listener::{QosAcceptor, qos_bind};
pub(crate) use specification::{qos_check, qos_read};

mod errors {
    use pyo3::import_exception;

    pub(super) use crate::live::errors::{
        BindError, ClosedError, IdentityError, NotConnectedError, UnitError,
    };

    import_exception!(ontempo.qos.errors, DisagreementError);
    import_exception!(ontempo.qos.errors, SpecificationError);
}

/// The error of a QUIC connection inside an I/O error, if there is one.
fn quic_error(error: &io::Error) -> Option<&live::Error> {
    error.get_ref()?.downcast_ref()
}

/// The close reason for an I/O error.
fn closed(error: &io::Error) -> Closed {
    if let Some(live::Error::Closed(closed)) = quic_error(error) {
        return closed.clone();
    }
    let reason = match error.kind() {
        ErrorKind::ConnectionReset => CloseReason::Reset,
        ErrorKind::TimedOut => CloseReason::TimedOut,
        _ => CloseReason::Transport,
    };
    Closed::found(reason, error.to_string())
}

/// How a QUIC connection ended whose set-up failed, if one did.
fn close_reason(error: &SetupError) -> Option<Closed> {
    let error = match error {
        SetupError::NotAdmitted(closed) => return Some(closed.clone()),
        SetupError::Io(error) => error,
        _ => return None,
    };
    match quic_error(error)? {
        live::Error::NotConnected { closed, .. } | live::Error::Closed(closed) => {
            Some(closed.clone())
        }
        _ => None,
    }
}

/// The exception for a failed set-up.
fn failure(error: &SetupError) -> PyErr {
    let sentence = error.to_string();
    match error {
        SetupError::Contradiction(_) => errors::SpecificationError::new_err(sentence),
        SetupError::CongestionNotChoosable(_) | SetupError::NotReliable => {
            PyValueError::new_err(sentence)
        }
        SetupError::Disagreement(_) => errors::DisagreementError::new_err(sentence),
        SetupError::Io(error) if matches!(quic_error(error), Some(live::Error::Identity(_))) => {
            errors::IdentityError::new_err(sentence)
        }
        _ => match close_reason(error).map(reasons) {
            Some((reason, code, said)) => {
                errors::NotConnectedError::new_err((sentence, reason, code, said))
            }
            None => errors::NotConnectedError::new_err(sentence),
        },
    }
}
