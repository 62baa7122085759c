//! Media over real networks: application data units over QUIC, packets spaced over UDP, the socket API.

pub mod monitor;
pub mod qos;
