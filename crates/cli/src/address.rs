//! Addresses of the command line, and sockets bound to them.

use std::io;
use std::net::SocketAddr;

use ontempo_foundation::AddressError;
use ontempo_qos::SetupError;
use ontempo_session::reach;
pub(crate) use ontempo_session::reach::{Greeting, first_answering};
use ontempo_udp::{Socket, SocketOptions};

use crate::failure::{Failure, environment};

/// The first address of `HOST:PORT`.
pub(crate) fn resolve(text: &str, option: &str) -> Result<SocketAddr, Failure> {
    ontempo_foundation::resolve(text).map_err(|error| unresolved(text, option, error))
}

fn unresolved(text: &str, option: &str, error: AddressError) -> Failure {
    match error {
        AddressError::Written(what) => Failure::Input(format!("{option}{text}: {what}")),
        AddressError::Unknown(what) => Failure::Environment(format!("{option}{what}")),
    }
}

/// All addresses of `HOST:PORT`, in the system's order, each once.
pub(crate) fn resolve_all(text: &str, option: &str) -> Result<Vec<SocketAddr>, Failure> {
    reach::resolve_all(text).map_err(|error| unresolved(text, option, error))
}

/// The first of a name's addresses that answers, tried in turn; the only one of a name that has one,
/// without trying it.
pub(crate) fn answering(
    text: &str,
    option: &str,
    greeting: &Greeting,
) -> Result<SocketAddr, Failure> {
    let all = resolve_all(text, option)?;
    first_answering(&all, greeting)
        .map_err(|why| Failure::Environment(format!("{option}{text}: {why}")))
}

/// Connects to the first address that accepts, one after the other; the error of several names each.
pub(crate) fn connect_in_turn<T>(
    all: &[SocketAddr],
    mut connect: impl FnMut(SocketAddr) -> Result<T, SetupError>,
) -> Result<T, SetupError> {
    let mut failed = Vec::new();
    for &address in all {
        match connect(address) {
            // Any other error is the peer's answer.
            Err(error @ (SetupError::Io(_) | SetupError::Silent)) if all.len() > 1 => {
                failed.push(format!("{address}: {error}"))
            }
            done => return done,
        }
    }
    Err(SetupError::from(io::Error::other(failed.join("; "))))
}

/// A socket bound to `[ADDRESS]:PORT`, or to all addresses. The error for a missing port suggests
/// `example_port`.
pub(crate) fn socket_at(
    at: &str,
    option: &str,
    example_port: u16,
    options: SocketOptions,
) -> Result<Socket, Failure> {
    let socket = match at.strip_prefix(':').or_else(|| (!at.contains(':')).then_some(at)) {
        Some(port) => {
            let port = port.parse().map_err(|_| {
                Failure::Input(format!("{option} {at}: `{port}` is no port: write :{example_port}"))
            })?;
            Socket::bind_any(port, options)
        }
        None => Socket::bind(resolve(at, &format!("{option} "))?, options),
    };
    socket.map_err(|error| Failure::Environment(format!("{option} {at}: {error}")))
}

/// A socket that can reach `remote`.
pub(crate) fn socket_for(remote: SocketAddr) -> Result<Socket, Failure> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let address = any.parse().map_err(environment)?;
    Socket::bind(address, SocketOptions::default()).map_err(environment)
}
