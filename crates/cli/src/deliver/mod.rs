//! `ontempo send` and `ontempo receive`: media between an encoder and a player.

mod backlog;
mod figures;
mod message;
mod receive;
mod send;
mod session;
mod sink;
mod source;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ontempo_foundation::Duration;
use ontempo_transport::live::Error;
use ontempo_transport::{Configuration, Qlog, QlogError, Token};

use crate::failure::{Failure, environment};
use crate::output::complain;

pub(crate) use receive::{identity, receive};
pub(crate) use send::send;

/// The port that is written where none was.
const USUAL: u16 = 4433;

/// What a stop by Ctrl-C is told by.
type Stop = Arc<AtomicBool>;

/// What both sides want of a connection: a lost path is to be noticed while it matters. Connections
/// are traced in the directory `qlog`, where there is one.
fn configuration(qlog: Option<&Path>) -> Result<Configuration, Failure> {
    let told = |error: &QlogError| complain(&format!("{error}; delivery goes on without it"));
    let traced = qlog.map(|directory| Qlog::in_directory(directory, told));
    let qlog = traced.transpose().map_err(|error| environment(format!("--qlog: {error}")))?;
    Ok(Configuration {
        qlog,
        idle_timeout: Duration::from_secs(4),
        keep_alive: Some(Duration::from_secs(1)),
        greeting_timeout: Duration::from_secs(3),
        ..Configuration::default()
    })
}

/// The failure that an error of a connection is.
fn failure(error: Error) -> Failure {
    if error.is_misconfigured() { Failure::Input(error.to_string()) } else { environment(error) }
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
