//! An end of a stream in virtual time: its endpoint, its address and what it sends.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use ontempo_foundation::{RandomStream, Time};
use ontempo_transport::{CustomLaw, Endpoint, Poll};

use super::{Datagram, StreamOptions};
use crate::attempts::PLACES;
use crate::configuration;

/// The number of the receiver's network; those of the sender's addresses come after it.
const RECEIVER_NETWORK: u8 = 0;
pub(super) const RECEIVER: SocketAddr = in_network(RECEIVER_NETWORK);

const fn in_network(number: u8) -> SocketAddr {
    SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::new(10, 0, number, 1), 4433))
}

/// The sender's address after so many changes.
pub(super) const fn sender(changes: u8) -> SocketAddr {
    in_network(changes.saturating_add(RECEIVER_NETWORK + 1))
}

/// The number of changes after which the sender has this address.
const fn changes_of(address: SocketAddr) -> u8 {
    let SocketAddr::V4(address) = address else { return 0 };
    address.ip().octets()[2].saturating_sub(RECEIVER_NETWORK + 1)
}

/// An endpoint, and the datagrams that it has made.
pub(super) struct Side {
    pub(super) endpoint: Endpoint,
    pub(super) wake: Time,
    pub(super) out: VecDeque<Datagram>,
    scratch: Vec<u8>,
    /// Something has happened since it was last asked for datagrams.
    pub(super) is_touched: bool,
}

impl Side {
    pub(super) fn new(
        options: &StreamOptions,
        seed: u64,
        name: &str,
        custom: Option<CustomLaw>,
    ) -> Self {
        let configuration = ontempo_transport::Configuration {
            congestion: options.congestion,
            custom,
            connections: if name == "sender" { PLACES } else { configuration().connections },
            ..configuration()
        };
        Self::with(configuration, seed, name)
    }

    /// With this configuration; random choices derive from `seed` and `name`.
    pub(super) fn with(
        configuration: ontempo_transport::Configuration,
        seed: u64,
        name: &str,
    ) -> Self {
        let mut random = RandomStream::new(seed, name);
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&random.next_u64().to_be_bytes());
        }
        let endpoint = Endpoint::new(configuration, bytes);
        let (wake, out, scratch) = (Time::NEVER, VecDeque::new(), Vec::new());
        Self { endpoint, wake, out, scratch, is_touched: true }
    }

    /// The endpoint, to which something is done.
    pub(super) fn touch(&mut self) -> &mut Endpoint {
        self.is_touched = true;
        &mut self.endpoint
    }

    /// Collects what the endpoint sends now.
    pub(super) fn flush(&mut self, now: Time) {
        self.is_touched = false;
        loop {
            match self.endpoint.poll_transmit(now, &mut self.scratch) {
                Poll::Transmit(transmit) => {
                    let segment = transmit.segment.unwrap_or(transmit.size).max(1);
                    for data in self.scratch[..transmit.size].chunks(segment) {
                        let is_ecn_capable = transmit.ecn.is_some();
                        let (data, to) = (data.to_vec(), changes_of(transmit.destination));
                        self.out.push_back(Datagram { data, is_ecn_capable, to });
                    }
                }
                Poll::WaitUntil(at) => {
                    self.wake = at;
                    return;
                }
                Poll::Idle => {
                    self.wake = Time::NEVER;
                    return;
                }
            }
        }
    }
}
