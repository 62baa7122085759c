//! `ontempo send`, `receive` and `relay`: media between an encoder and players.

mod documents;
mod paths;
mod published;
mod receive;
mod relay;
mod relay_page;
mod sdp;
mod send;
mod serve;
mod status_line;
mod target;
mod watch;

use std::path::Path;

use ontempo_place::read_own;
use ontempo_session::Error;
use ontempo_transport::{Configuration, Qlog, QlogError};

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
    let sentence = error.advised();
    match error {
        Error::Transport(error) if error.is_misconfigured() => Failure::Input(sentence),
        Error::EndedByReceiver(closed) | Error::EndedByRelay(closed)
            if closed.reason.is_misconfigured() =>
        {
            Failure::Input(sentence)
        }
        Error::Unanswered(_) => Failure::Interrupted(sentence),
        _ => environment(sentence),
    }
}

/// The content of a file that decides whom to trust.
fn read(path: &Path, option: &str) -> Result<Vec<u8>, Failure> {
    let named = format!("{option} {}", path.display());
    read_own(path, 0, is_stopped).map_err(|error| unreadable(&named, &error))
}
