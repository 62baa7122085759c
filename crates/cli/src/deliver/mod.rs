//! `ontempo send`, `receive` and `relay`: media between an encoder and players.

mod documents;
mod paths;
mod receive;
mod relay;
mod send;
mod serve;
mod status_line;
mod watch;

use std::path::Path;

use ontempo_place::read_own;
use ontempo_session::Error;
use ontempo_transport::{CloseReason, Configuration, Qlog, QlogError};

use crate::access::unreadable;
use crate::failure::{Failure, environment};
use crate::output::write_stderr;
use crate::place::is_of_another_user;
use crate::signals::is_stopped;

use documents::Documents;
pub(crate) use receive::{identity, receive};
pub(crate) use relay::relay;
pub(crate) use send::send;

/// The port that error messages suggest.
const EXAMPLE_PORT: u16 = 4433;

/// Configuration of a connection, with a qlog trace in the directory `qlog` if given.
fn configuration(qlog: Option<&Path>, documents: Documents) -> Result<Configuration, Failure> {
    let on_error = move |error: &QlogError| {
        let sentence = format!("{error}; delivery continues without a trace");
        documents.say("warning", &sentence);
        write_stderr(&sentence);
    };
    let writer = qlog.map(|directory| Qlog::in_directory(directory, on_error));
    let qlog = writer.transpose().map_err(|error: QlogError| {
        let sentence = format!("--qlog: {error}");
        if is_of_another_user(&error.error) {
            Failure::Input(sentence)
        } else {
            environment(sentence)
        }
    })?;
    Ok(Configuration { qlog, ..ontempo_session::configuration() })
}

/// Maps a session error to a failure and its exit code.
fn failure(error: Error) -> Failure {
    match error {
        Error::Transport(error) if error.is_misconfigured() => {
            Failure::Input(advised(error.to_string(), error.close_reason()))
        }
        Error::Transport(error) => {
            Failure::Environment(advised(error.to_string(), error.close_reason()))
        }
        Error::EndedByReceiver(ref closed) => {
            Failure::Environment(advised(error.to_string(), Some(closed.reason)))
        }
        error => environment(error),
    }
}

/// A sentence with what its reader can do about it.
fn advised(sentence: String, reason: Option<CloseReason>) -> String {
    let advice = match reason {
        Some(CloseReason::NoAnswer | CloseReason::TimedOut | CloseReason::Reset) => {
            "start ontempo receive there, check address and port, and let UDP to this port through \
             firewalls"
        }
        Some(CloseReason::WrongToken) => {
            "paste the URL that the receiver prints now, or give both sides the same --token-file; a \
             receiver that is started without one makes a new token"
        }
        Some(CloseReason::Busy) => {
            "end that sender, or start a receiver at another port for this one"
        }
        Some(CloseReason::IncompatibleVersion | CloseReason::Unsupported) => {
            "install the same version of ontempo at both sides"
        }
        _ => return sentence,
    };
    format!("{sentence}; {advice}")
}

/// The content of a file that decides whom to trust.
fn read(path: &Path, option: &str) -> Result<Vec<u8>, Failure> {
    let named = format!("{option} {}", path.display());
    read_own(path, 0, is_stopped).map_err(|error| unreadable(&named, &error))
}
