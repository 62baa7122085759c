//! Addresses of the command line, and sockets bound to them.

use std::net::SocketAddr;

use ontempo_foundation::AddressError;
use ontempo_udp::{Socket, SocketOptions};

use crate::failure::{Failure, environment};

/// The first address of `HOST:PORT`.
pub(crate) fn resolve(text: &str, option: &str) -> Result<SocketAddr, Failure> {
    ontempo_foundation::resolve(text).map_err(|error| match error {
        AddressError::Written(what) => Failure::Input(format!("{option}{text}: {what}")),
        AddressError::Unknown(what) => Failure::Environment(format!("{option}{what}")),
    })
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
