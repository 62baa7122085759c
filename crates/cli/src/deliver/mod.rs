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
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ontempo_endpoint::live::Error;
use ontempo_endpoint::udp::{Socket, SocketOptions};
use ontempo_endpoint::{Configuration, Token};
use ontempo_foundation::Duration;

use crate::failure::Failure;
use crate::probe::resolve;

pub(crate) use receive::{identity, receive};
pub(crate) use send::send;

/// What a stop by Ctrl-C is told by.
type Stop = Arc<AtomicBool>;

/// Begins the words of a receiver with which a sender need not try again.
const FOR_GOOD: &str = "stop: ";

fn environment(error: impl std::fmt::Display) -> Failure {
    Failure::Environment(error.to_string())
}

/// What both sides want of a connection: a lost path is to be noticed while it matters.
fn configuration() -> Configuration {
    Configuration {
        idle_timeout: Duration::from_secs(4),
        keep_alive: Some(Duration::from_secs(1)),
        greeting_timeout: Duration::from_secs(3),
        ..Configuration::default()
    }
}

/// The failure that an error of a connection is.
fn failure(error: Error) -> Failure {
    match error {
        Error::Identity(_) | Error::Connect(_) => Failure::Input(error.to_string()),
        Error::NotConnected { ref reason, .. }
            if reason.contains("token") || reason.contains("certificate") =>
        {
            Failure::Input(error.to_string())
        }
        other => environment(other),
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

/// A socket at `[ADDRESS]:PORT`; without an address, at every one.
fn socket_at(at: &str, option: &str, options: SocketOptions) -> Result<Socket, Failure> {
    let socket = match at.strip_prefix(':').or_else(|| (!at.contains(':')).then_some(at)) {
        Some(port) => {
            let port = port.parse().map_err(|_| {
                Failure::Input(format!("{option} {at}: `{port}` is no port: write :4433"))
            })?;
            Socket::bind_any(port, options)
        }
        None => Socket::bind(resolve(at, &format!("{option} "))?, options),
    };
    socket.map_err(|error| Failure::Environment(format!("{option} {at}: {error}")))
}

/// A socket that can reach `remote`.
fn socket_for(remote: SocketAddr) -> Result<Socket, Failure> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let address = any.parse().map_err(environment)?;
    Socket::bind(address, SocketOptions::default()).map_err(environment)
}
