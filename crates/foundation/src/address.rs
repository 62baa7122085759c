//! Addresses as users write them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Why a text gives no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It is not written as `HOST:PORT`: what is wrong.
    Written(&'static str),
    /// The system knows no such name: its words.
    Unknown(String),
}

/// The first address of `HOST:PORT`; an address of IPv6 stands in brackets.
///
/// # Errors
/// If the text is written otherwise, or the name is unknown.
pub fn resolve(text: &str) -> Result<SocketAddr, AddressError> {
    let wrong = |what| Err(AddressError::Written(what));
    let Some((host, port)) = text.rsplit_once(':') else {
        return wrong("the port is missing: write host.example:4434");
    };
    if host.is_empty() {
        return wrong("the host is missing: write host.example:4434");
    }
    let Ok(port) = port.parse::<u16>() else { return wrong("no port from 1 to 65535") };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Some(Ok(address)) = bare.map(str::parse::<IpAddr>) {
        return Ok(SocketAddr::new(address, port));
    }
    match (host, port).to_socket_addrs() {
        Ok(mut all) => all.next().ok_or(AddressError::Written("this name has no address")),
        Err(error) => Err(AddressError::Unknown(format!("{host}: no such name: {error}"))),
    }
}
