//! `ontempo send` and `ontempo receive`: media between an encoder and a player.

mod figures;
mod receive;
mod send;

use std::fs;
use std::path::Path;

use ontempo_session::Error;
use ontempo_transport::{Configuration, Qlog, QlogError, Token};

use crate::failure::{Failure, environment};
use crate::output::complain;

pub(crate) use receive::{identity, receive};
pub(crate) use send::send;

/// The port that is written where none was.
const USUAL: u16 = 4433;

/// What both sides ask of a connection. Connections are traced in the directory `qlog`, where there
/// is one.
fn configuration(qlog: Option<&Path>) -> Result<Configuration, Failure> {
    let told = |error: &QlogError| complain(&format!("{error}; delivery goes on without it"));
    let traced = qlog.map(|directory| Qlog::in_directory(directory, told));
    let qlog = traced.transpose().map_err(|error| environment(format!("--qlog: {error}")))?;
    Ok(Configuration { qlog, ..ontempo_session::configuration() })
}

/// The failure that an error of a session is.
fn failure(error: Error) -> Failure {
    match error {
        Error::Transport(error) if error.is_misconfigured() => Failure::Input(error.to_string()),
        error => environment(error),
    }
}

pub(crate) fn token(text: Option<&str>) -> Result<Token, Failure> {
    Token::new(text.unwrap_or_default().as_bytes())
        .map_err(|error| Failure::Input(format!("--token: {error}")))
}

fn read(path: &Path, option: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::Environment(format!("{option} {}: cannot read it: {error}", path.display()))
    })
}
