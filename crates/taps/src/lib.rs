//! The Transport Services API (RFC 9622) over the APIs that are there: its words, and no more.
//!
//! A [`Preconnection`] has endpoints, transport properties and whom to trust; it initiates a
//! [`Connection`] of units over QUIC ([`ontempo_transport::live`]) or listens for some. Those of
//! [`qos`] do so with QoS sockets, over the protocol that the properties select. What a transport
//! does not have is refused by its name ([`PropertyError`]), never ignored. Nothing is polled and no
//! thread is started but those of the APIs below; all calls block, and have a variant with a limit.
//!
//! The mapping, property by property, and the same words in Python: `docs/taps.md`.
//!
//! Both ends in one program:
//!
//! ```
//! use ontempo_foundation::Duration;
//! use ontempo_taps::{
//!     LocalEndpoint, MessageProperties, Preconnection, Preference, RemoteEndpoint,
//!     SecurityParameters, TransportProperties,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transport =
//!     TransportProperties { reliability: Preference::Prefer, ..Default::default() };
//! let here = LocalEndpoint { address: "127.0.0.1".to_owned(), port: 0 };
//! let listening = Preconnection {
//!     local: Some(here),
//!     transport: transport.clone(),
//!     ..Default::default()
//! };
//! let listener = listening.listen()?;
//!
//! let security = SecurityParameters {
//!     trust: Some(ontempo_transport::Trust::Fingerprint(listener.fingerprint())),
//!     token: Some(listener.token().to_vec()),
//!     ..Default::default()
//! };
//! let there = RemoteEndpoint { host: "127.0.0.1".to_owned(), port: listener.local().port() };
//! let initiating =
//!     Preconnection { remote: Some(there), transport, security, ..Default::default() };
//! let near = initiating.initiate()?; // the event Ready
//! let far = listener.accept().ok_or("it was stopped")?; // the event ConnectionReceived
//!
//! let properties = MessageProperties {
//!     msg_lifetime: Some(Duration::from_secs(5)),
//!     is_final: true,
//!     ..Default::default()
//! };
//! near.send(&b"a frame"[..], &properties)?; // the event Sent
//! let message = far.receive()?.ok_or("no message")?; // the event Received
//! assert_eq!(&message.data[..], b"a frame");
//! assert!(far.receive()?.is_none());
//! # std::thread::scope(|both| {
//! #     both.spawn(|| near.close());
//! #     far.close();
//! # });
//! # Ok(())
//! # }
//! ```

mod connection;
mod endpoints;
mod error;
mod events;
mod group;
mod listener;
mod message;
mod preconnection;
mod properties;
pub mod qos;
mod selection;

pub use connection::{Connection, ConnectionState};
pub use endpoints::{LocalEndpoint, RemoteEndpoint, SecurityParameters};
pub use error::{Aborted, EstablishmentError, PropertyError, SendError};
pub use events::{Event, Events};
pub use listener::{Incoming, Listener};
pub use message::{ChecksumLength, Message, MessageProperties};
pub use preconnection::Preconnection;
pub use properties::{CapacityProfile, ConnectionProperties, MultipathPolicy, Scheduler};
pub use selection::{Direction, Multipath, Preference, TransportProperties};
