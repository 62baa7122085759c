//! A QUIC session without encryption, only for simulation: packets are as long as real
//! ones, readable in a trace, the same in every run, and damage is detected.
//!
//! Headers stay as they are. A packet's tag is a checksum over its number, header and payload,
//! keyed by encryption level, key phase and sender, so the stack must still choose the right
//! keys, through every key update. (There is one path only; the tag does not cover it.) The
//! handshake has the flights of TLS 1.3: a hello from either side, then the server's parameters,
//! then the client's confirmation.

use std::any::Any;

use bytes::BytesMut;
use noq_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey,
    KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, ConnectionId, PathId, Side, TransportError, TransportErrorCode};

use crate::checksum::Checksum;

/// Length of a tag, and of the sample that header protection would take: AES-GCM's.
const TAG: usize = 16;

/// A TLS alert (RFC 8446, section 6): a message that cannot be decoded.
const DECODE_ERROR: u8 = 50;

/// Distinguishes the keys of the encryption levels.
#[derive(Clone, Copy)]
enum Level {
    Initial(ConnectionId),
    Handshake,
    /// With the number of earlier key updates.
    OneRtt(u64),
}

/// The key of one direction at one level.
struct Key(Checksum);

impl Key {
    fn new(level: Level, sender: Side) -> Self {
        let mut key = Checksum::new(0);
        key.word(u64::from(sender.is_client()));
        match level {
            Level::Initial(cid) => key.bytes(&cid),
            Level::Handshake => key.word(1),
            Level::OneRtt(phase) => key.word(2 + phase),
        }
        Self(key)
    }

    fn pair(level: Level, side: Side) -> KeyPair<Box<dyn PacketKey>> {
        let key = |sender| Box::new(Self::new(level, sender)) as Box<dyn PacketKey>;
        KeyPair { local: key(side), remote: key(!side) }
    }

    fn tag(&self, number: u64, header: &[u8], payload: &[u8]) -> [u8; TAG] {
        let mut sum = self.0;
        sum.word(number);
        sum.bytes(header);
        sum.bytes(payload);
        let mut tag = [0; TAG];
        sum.fill(&mut tag);
        tag
    }
}

impl PacketKey for Key {
    fn encrypt(&self, _path: PathId, number: u64, packet: &mut [u8], header_len: usize) {
        let (header, rest) = packet.split_at_mut(header_len);
        let (payload, tag) = rest.split_at_mut(rest.len() - TAG);
        tag.copy_from_slice(&self.tag(number, header, payload));
    }

    fn decrypt(
        &self,
        _path: PathId,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let length = payload.len().checked_sub(TAG).ok_or(CryptoError)?;
        if payload[length..] != self.tag(number, header, &payload[..length]) {
            return Err(CryptoError);
        }
        payload.truncate(length);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    fn confidentiality_limit(&self) -> u64 {
        1 << 23 // AES-GCM's (RFC 9001, section 6.6), so that keys change as often as real ones
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

/// No header protection, though packets are as long as with it.
struct OpenHeader;

impl HeaderKey for OpenHeader {
    fn decrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        TAG
    }
}

fn keys(level: Level, side: Side) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(OpenHeader), remote: Box::new(OpenHeader) },
        packet: Key::pair(level, side),
    }
}

/// The next action of a session, in order for each side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    ClientWritesHello,
    ClientReadsHello,
    ClientTakesHandshakeKeys,
    ClientReadsParameters,
    ClientWritesFinished,

    ServerReadsHello,
    ServerWritesHello,
    ServerWritesParameters,
    ServerReadsFinished,

    Done,
}

/// A handshake without secrets: it carries both sides' transport parameters.
struct PlaintextSession {
    side: Side,
    step: Step,
    ours: TransportParameters,
    theirs: Option<TransportParameters>,
    /// Handshake bytes that are not yet a whole message.
    incoming: Vec<u8>,
    key_phase: u64,
}

impl PlaintextSession {
    fn new(side: Side, ours: TransportParameters) -> Self {
        let step = match side {
            Side::Client => Step::ClientWritesHello,
            Side::Server => Step::ServerReadsHello,
        };
        Self { side, step, ours, theirs: None, incoming: Vec::new(), key_phase: 0 }
    }

    /// A message is its length in two bytes, then its body.
    fn write_message(out: &mut Vec<u8>, body: &[u8]) {
        let length = u16::try_from(body.len()).expect("transport parameters are short");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(body);
    }

    fn write_parameters(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        self.ours.write(&mut body);
        Self::write_message(out, &body);
    }

    /// The body of the next whole message.
    fn next_message(&mut self) -> Option<Vec<u8>> {
        let (length, rest) = self.incoming.split_at_checked(2)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let body = rest.get(..length)?.to_vec();
        self.incoming.drain(..2 + length);
        Some(body)
    }

    fn read_message(&mut self, body: &[u8]) -> Result<(), TransportError> {
        self.step = match self.step {
            Step::ClientReadsHello => Step::ClientTakesHandshakeKeys,
            Step::ServerReadsHello | Step::ClientReadsParameters => {
                self.theirs = Some(TransportParameters::read(self.side, &mut &body[..])?);
                match self.side {
                    Side::Client => Step::ClientWritesFinished,
                    Side::Server => Step::ServerWritesHello,
                }
            }
            Step::ServerReadsFinished => Step::Done,
            _ => {
                let alert = TransportErrorCode::crypto(DECODE_ERROR);
                return Err(TransportError::new(alert, "unexpected message".to_owned()));
            }
        };
        Ok(())
    }
}

impl Session for PlaintextSession {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        keys(Level::Initial(dst_cid), side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.theirs.map(|parameters| Box::new(parameters) as Box<dyn Any>)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        Some(false)
    }

    fn is_handshaking(&self) -> bool {
        // A client is done once it has read all; its last message is still to be written.
        !matches!(self.step, Step::ClientWritesFinished | Step::Done)
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let knew = self.theirs.is_some();
        self.incoming.extend_from_slice(bytes);
        while let Some(body) = self.next_message() {
            self.read_message(&body)?;
        }
        Ok(!knew && self.theirs.is_some())
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.theirs)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let handshake = keys(Level::Handshake, self.side);
        let one_rtt = keys(Level::OneRtt(0), self.side);
        let (next, keys) = match self.step {
            Step::ClientWritesHello => {
                self.write_parameters(out);
                (Step::ClientReadsHello, None)
            }
            Step::ClientTakesHandshakeKeys => (Step::ClientReadsParameters, Some(handshake)),
            Step::ClientWritesFinished => {
                Self::write_message(out, &[]);
                (Step::Done, Some(one_rtt))
            }
            Step::ServerWritesHello => {
                Self::write_message(out, &[]);
                (Step::ServerWritesParameters, Some(handshake))
            }
            Step::ServerWritesParameters => {
                self.write_parameters(out);
                (Step::ServerReadsFinished, Some(one_rtt))
            }
            waiting => (waiting, None),
        };
        self.step = next;
        keys
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.key_phase += 1;
        Some(Key::pair(Level::OneRtt(self.key_phase), self.side))
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(length) = payload.len().checked_sub(TAG) else {
            return false;
        };
        let packet = [header, &payload[..length]].concat();
        payload[length..] == retry_tag(orig_dst_cid, &packet)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let mut sum = Checksum::new(3);
        sum.bytes(label);
        sum.bytes(context);
        sum.fill(output);
        Ok(())
    }
}

fn retry_tag(orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; TAG] {
    let mut sum = Checksum::new(4);
    sum.bytes(&orig_dst_cid);
    sum.bytes(packet);
    let mut tag = [0; TAG];
    sum.fill(&mut tag);
    tag
}

/// The configuration of either side, which is empty.
pub(crate) struct Plaintext;

impl ClientConfig for Plaintext {
    fn start_session(
        &self,
        _version: u32,
        _server_name: &str,
        ours: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(Box::new(PlaintextSession::new(Side::Client, *ours)))
    }
}

impl ServerConfig for Plaintext {
    fn initial_keys(
        &self,
        _version: u32,
        dst_cid: ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        Ok(keys(Level::Initial(dst_cid), Side::Server))
    }

    fn retry_tag(&self, _version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(orig_dst_cid, packet)
    }

    fn start_session(&self, _version: u32, ours: &TransportParameters) -> Box<dyn Session> {
        Box::new(PlaintextSession::new(Side::Server, *ours))
    }
}

/// Signs reset tokens and seals address tokens with a checksum; the seed is the key.
pub(crate) struct SeededKey(pub(crate) u64);

impl HmacKey for SeededKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        let mut sum = Checksum::new(self.0);
        sum.bytes(data);
        sum.fill(signature);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = [0; 32];
        self.sign(data, &mut expected);
        if signature == expected { Ok(()) } else { Err(CryptoError) }
    }
}

impl HandshakeTokenKey for SeededKey {
    fn seal(&self, nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        let mut tag = [0; TAG];
        self.sign(&[&nonce.to_le_bytes(), data.as_slice()].concat(), &mut tag);
        data.extend_from_slice(&tag);
        Ok(())
    }

    fn open<'a>(&self, nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let length = data.len().checked_sub(TAG).ok_or(CryptoError)?;
        let (token, tag) = data.split_at(length);
        let mut expected = [0; TAG];
        self.sign(&[&nonce.to_le_bytes(), token].concat(), &mut expected);
        if *tag == expected { Ok(token) } else { Err(CryptoError) }
    }
}
