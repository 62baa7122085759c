//! Media over real networks: application data units over QUIC, packets spaced over UDP, the socket API.

pub mod media;
pub mod monitor;
pub mod qos;
pub mod spaced;
#[cfg(unix)]
pub mod udp;
