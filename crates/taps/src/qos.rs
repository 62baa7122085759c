//! The words of RFC 9622 for QoS sockets ([`ontempo_qos`]): over QUIC, and where security is
//! disabled over TCP or UDP, whichever the properties select.
//!
//! What RFC 9622 has no word for is in [`Preconnection::options`]: the specifications of both
//! directions, reservations, ladders. Both ends give the same properties, so that both select the
//! same protocol.
//!
//! ```
//! use ontempo_taps::{LocalEndpoint, MessageProperties, Preference, RemoteEndpoint};
//! use ontempo_taps::{SecurityParameters, TransportProperties, qos};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Late messages are of no use, and the network has none of our secrets: UDP.
//! let transport = TransportProperties {
//!     reliability: Preference::Avoid,
//!     congestion_control: Preference::NoPreference,
//!     ..Default::default()
//! };
//! let security = SecurityParameters { disabled: true, ..Default::default() };
//! let local = LocalEndpoint { address: "127.0.0.1".to_owned(), port: 0 };
//! let mut one = qos::Preconnection { transport, security, ..Default::default() };
//! assert_eq!(one.protocol()?, qos::Protocol::Udp);
//! let listener = qos::Preconnection { local: Some(local), ..one.clone() }.listen()?;
//! one.remote = Some(RemoteEndpoint {
//!     host: "127.0.0.1".to_owned(),
//!     port: listener.local()?.port(),
//! });
//! let accepting = std::thread::spawn(move || listener.accept());
//! let near = one.initiate()?;
//! let far = accepting.join().map_err(|_| "it failed")??;
//! near.send(b"a sample", &MessageProperties::default())?;
//! let message = far.receive()?.ok_or("no message")?;
//! assert_eq!(message.data, b"a sample");
//! # Ok(())
//! # }
//! ```

mod connection;
mod listener;
mod preconnection;
mod protocol;

pub use connection::{Connection, Message};
pub use listener::Listener;
pub use preconnection::Preconnection;
pub use protocol::Protocol;
