//! A TLS session that records the numbers of received packets.
//!
//! A receiver that decides when to acknowledge needs packet numbers, which the stack does not
//! expose. It passes each packet's number to the key that decrypts it: the key is wrapped.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::BytesMut;
use noq_proto::crypto::rustls::HandshakeData;
use noq_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, Connection, ConnectionId, PathId, Side, TransportError};

/// Numbers of application data packets that were decrypted and not yet collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched(Arc<Opened>);

#[derive(Debug, Default)]
struct Opened {
    numbers: Mutex<Vec<u64>>,
    failed: AtomicU64,
    protocol: OnceLock<Vec<u8>>,
}

/// More than one datagram ever holds; they are collected after each.
const MAX_NUMBERS: usize = 64;

impl Watched {
    /// Moves the numbers to `into`, in the order of arrival.
    pub(crate) fn take(&self, into: &mut Vec<u64>) {
        into.append(&mut self.0.numbers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Packets that failed authentication: damaged, or forged.
    pub(crate) fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// The ALPN that both sides have agreed on, as far as it was asked for and is known.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.0.protocol.get().map(Vec::as_slice)
    }

    fn opened(&self, number: u64) {
        let mut numbers = self.0.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.len() < MAX_NUMBERS {
            numbers.push(number);
        }
    }
}

/// The record of `connection`, whose session must be a watched one.
pub(crate) fn watched(connection: &Connection) -> Watched {
    let data = connection.crypto_session().handshake_data();
    data.and_then(|data| data.downcast::<Watched>().ok())
        .map(|watched| *watched)
        .unwrap_or_default()
}

struct WatchedKey {
    inner: Box<dyn PacketKey>,
    watched: Watched,
}

impl PacketKey for WatchedKey {
    fn encrypt(&self, path: PathId, number: u64, packet: &mut [u8], header_len: usize) {
        self.inner.encrypt(path, number, packet, header_len);
    }

    fn decrypt(
        &self,
        path: PathId,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let opened = self.inner.decrypt(path, number, header, payload);
        match opened {
            Ok(()) => self.watched.opened(number),
            Err(_) => {
                self.watched.0.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        opened
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}

struct WatchedSession {
    inner: Box<dyn Session>,
    watched: Watched,
    /// Number of key sets created: the first is the handshake's, the second the application's.
    keys: u8,
}

impl WatchedSession {
    fn wrap(&self, mut pair: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let watched = self.watched.clone();
        pair.remote = Box::new(WatchedKey { inner: pair.remote, watched });
        pair
    }
}

impl Session for WatchedSession {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    /// Returns the [`Watched`], with the negotiated protocol, instead of the negotiated data.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let data = self.inner.handshake_data();
        let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
        if let Some(protocol) = data.and_then(|data| data.protocol) {
            let _ = self.watched.0.protocol.set(protocol);
        }
        Some(Box::new(self.watched.clone()))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(bytes)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.inner.write_handshake(out)?;
        self.keys += 1;
        if self.keys == 2 {
            keys.packet = self.wrap(keys.packet);
        }
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let pair = self.inner.next_1rtt_keys()?;
        Some(self.wrap(pair))
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// Creates watched sessions of a client.
pub(crate) struct WatchedClient(pub(crate) Arc<dyn ClientConfig>);

impl ClientConfig for WatchedClient {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        ours: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = self.0.start_session(version, server_name, ours)?;
        Ok(Box::new(WatchedSession { inner, watched: Watched::default(), keys: 0 }))
    }
}

/// Creates watched sessions of a server.
pub(crate) struct WatchedServer(pub(crate) Arc<dyn ServerConfig>);

impl ServerConfig for WatchedServer {
    fn initial_keys(&self, version: u32, cid: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(&self, version: u32, ours: &TransportParameters) -> Box<dyn Session> {
        let inner = self.0.start_session(version, ours);
        Box::new(WatchedSession { inner, watched: Watched::default(), keys: 0 })
    }
}
