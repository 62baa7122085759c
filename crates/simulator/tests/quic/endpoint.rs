//! One QUIC endpoint with its application; all its random choices follow from a seed.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent,
    EcnCodepoint, Endpoint, EndpointConfig, FourTuple, NoneTokenLog, ServerConfig, Transmit,
    TransportConfig, ValidationTokenConfig,
};
use ontempo_foundation::{RandomStream, Time};

use crate::content::Application;
use crate::plaintext::{Plaintext, SeededKey};
use ontempo_transport::quic::Epoch;

/// A UDP datagram in the network.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) payload: Bytes,
    pub(crate) ecn: Option<EcnCodepoint>,
}

/// Connection ids from a named stream instead of the system's entropy.
struct SeededIds(RandomStream);

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.next_u64().to_le_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// An endpoint, its one connection and its application.
pub(crate) struct Node {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    pub(crate) application: Application,
    peer: SocketAddr,
    epoch: Epoch,
    scratch: Vec<u8>,
    /// Its next timer deadline.
    pub(crate) deadline: Time,
}

impl Node {
    /// A client, which connects at its first wake-up.
    pub(crate) fn client(
        seed: u64,
        epoch: Epoch,
        transport: TransportConfig,
        application: Application,
    ) -> Self {
        let mut node = Self::new(seed, "client", 2, None, epoch, application);
        let mut first_id = RandomStream::new(seed, "client first id");
        let first_id = ConnectionId::new(&first_id.next_u64().to_le_bytes());
        let mut config = ClientConfig::new(Arc::new(Plaintext));
        config.transport_config(Arc::new(transport));
        config.initial_dst_cid_provider(Arc::new(move || first_id));
        let connected =
            node.endpoint.connect(epoch.instant(Time::ZERO), config, node.peer, "server");
        node.connection = Some(connected.expect("address and version are valid"));
        node.deadline = Time::ZERO;
        node
    }

    /// A server, which waits for a client.
    pub(crate) fn server(
        seed: u64,
        epoch: Epoch,
        transport: TransportConfig,
        application: Application,
    ) -> Self {
        let mut config = ServerConfig::new(Arc::new(Plaintext), Arc::new(SeededKey(seed)));
        config.transport_config(Arc::new(transport));
        // They hold the time of day, in seconds. Whether they are sent by default depends on a feature
        // (`bloom`) that another crate of the same program may switch on.
        let mut tokens = ValidationTokenConfig::default();
        tokens.log(Arc::new(NoneTokenLog)).sent(0);
        config.validation_token_config(tokens);
        Self::new(seed, "server", 1, Some(Arc::new(config)), epoch, application)
    }

    fn new(
        seed: u64,
        name: &str,
        peer: u8,
        server: Option<Arc<ServerConfig>>,
        epoch: Epoch,
        application: Application,
    ) -> Self {
        let mut random = RandomStream::new(seed, &format!("{name} endpoint"));
        let mut rng_seed = [0; 32];
        for word in rng_seed.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        let ids = RandomStream::new(seed, &format!("{name} connection ids"));
        let mut config = EndpointConfig::new(Arc::new(SeededKey(random.next_u64())));
        config.rng_seed(Some(rng_seed));
        config.cid_generator(Arc::new(move || Box::new(SeededIds(ids.clone()))));
        Self {
            endpoint: Endpoint::new(Arc::new(config), server, false),
            connection: None,
            application,
            peer: SocketAddr::from((Ipv4Addr::new(10, 0, 0, peer), 4433)),
            epoch,
            scratch: Vec::new(),
            deadline: Time::NEVER,
        }
    }

    /// The connection, if there is one.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut().map(|(_, connection)| connection)
    }

    /// A datagram arrived; replies are appended to `out`.
    pub(crate) fn receive(&mut self, now: Time, datagram: Datagram, out: &mut Vec<Datagram>) {
        let instant = self.epoch.instant(now);
        let path = FourTuple::from_remote(self.peer);
        let payload = BytesMut::from(datagram.payload);
        self.scratch.clear();
        match self.endpoint.handle(instant, path, datagram.ecn, payload, &mut self.scratch) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some(connection) = self.connection() {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, instant, &mut self.scratch, None);
                self.connection = Some(accepted.expect("a client's hello is well-formed"));
            }
            Some(DatagramEvent::Response(transmit)) => out.push(self.datagram(&transmit)),
            None => {}
        }
        self.drive(now, out);
    }

    /// The deadline has passed.
    pub(crate) fn wake(&mut self, now: Time, out: &mut Vec<Datagram>) {
        let instant = self.epoch.instant(now);
        if let Some(connection) = self.connection() {
            connection.handle_timeout(instant);
        }
        self.drive(now, out);
    }

    /// Runs stack and application until neither has anything to do or to send.
    fn drive(&mut self, now: Time, out: &mut Vec<Datagram>) {
        let instant = self.epoch.instant(now);
        let Some((handle, mut connection)) = self.connection.take() else {
            return;
        };
        loop {
            let mut worked = false;
            while let Some(event) = connection.poll_endpoint_events() {
                worked = true;
                if let Some(answer) = self.endpoint.handle_event(handle, event) {
                    connection.handle_event(answer);
                }
            }
            while let Some(event) = connection.poll() {
                worked = true;
                self.application.on_event(&event);
            }
            self.application.progress(&mut connection);
            self.scratch.clear();
            while let Some(transmit) =
                connection.poll_transmit(instant, NonZeroUsize::MIN, &mut self.scratch)
            {
                worked = true;
                out.push(self.datagram(&transmit));
                self.scratch.clear();
            }
            if !worked {
                break;
            }
        }
        let deadline = connection.poll_timeout();
        self.deadline = deadline.map_or(Time::NEVER, |deadline| self.epoch.time(deadline));
        self.connection = Some((handle, connection));
    }

    fn datagram(&self, transmit: &Transmit) -> Datagram {
        let payload = Bytes::copy_from_slice(&self.scratch[..transmit.size]);
        Datagram { payload, ecn: transmit.ecn }
    }
}
