//! Addresses of the command line, and sockets bound to them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use ontempo_udp::{Socket, SocketOptions};

use crate::failure::{Failure, environment};

/// The first address of `HOST:PORT`.
pub(crate) fn resolve(text: &str, option: &str) -> Result<SocketAddr, Failure> {
    let wrong = |what: &str| Failure::Input(format!("{option}{text}: {what}"));
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(wrong("the port is missing: write host.example:4434"));
    };
    if host.is_empty() {
        return Err(wrong("the host is missing: write host.example:4434"));
    }
    let port: u16 = port.parse().map_err(|_| wrong("no port from 1 to 65535"))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Some(Ok(address)) = bare.map(str::parse::<IpAddr>) {
        return Ok(SocketAddr::new(address, port));
    }
    match (host, port).to_socket_addrs() {
        Ok(mut all) => all.next().ok_or_else(|| wrong("this name has no address")),
        Err(error) => Err(Failure::Environment(format!("{option}{host}: no such name: {error}"))),
    }
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
