//! Configuration of an endpoint.

use std::net::IpAddr;
use std::sync::Arc;

use noq_proto::congestion::ControllerFactory;
use noq_proto::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use ontempo_foundation::{Bytes, Duration, Packets, RandomStream};
pub use ontempo_mechanisms::congestion::{
    Congestion, CongestionName, CustomLaw, ParameterError, UnknownCongestion,
};
use ontempo_mechanisms::congestion::{CongestionControl, Controller, Governor, Start, Window};

use crate::buffers::Buffers;
use crate::qlog::{Qlog, Trace};
use crate::quic::{Epoch, Factory, Pacing, SharedAccount, SpacedFactory, StaticWindow};
pub use crate::wire::Limits;
use crate::wire::{AckRequest, MAX_UNIT_HEADER};

/// Pacing, if the congestion control sets no spacing itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingConfig {
    /// Factor on cwnd per round trip, above 0; above 1 cwnd is the limit,
    /// not the pacing. A rate set by the controller is used unchanged.
    pub gain: f64,
    /// Packets that may be sent back to back after an idle period, at least 1.
    pub burst: Packets,
    /// How much may be sent at once without a preceding idle period: what the rate sends in this
    /// time, in whole packets, at least one and at most 64 KB. Packets of a slow stream are sent
    /// one by one; those of a fast one share a system call. Zero: always one by one.
    pub quantum: Duration,
}

impl Default for PacingConfig {
    /// 1.25 cwnd per round trip (RFC 9002, section 7.7), 4 packets after an idle period, and what
    /// 1 ms sends at once: as Linux sizes its TSO bursts
    /// (`tcp_tso_autosize`, `sk_pacing_shift` 10).
    fn default() -> Self {
        Self { gain: 1.25, burst: Packets::new(4), quantum: Duration::from_millis(1) }
    }
}

/// When a receiver acknowledges, with [`AckRequest::Delayed`] (draft-ietf-quic-ack-frequency).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAcks {
    /// Packets per acknowledgement, at least 1.
    pub every: Packets,
    /// Maximum delay of an acknowledgement; more than a round trip, or than 25 ms if that is
    /// longer, counts as that.
    pub within: Duration,
    /// True: a packet that begins a gap is acknowledged immediately.
    pub gaps: bool,
}

impl Default for DelayedAcks {
    /// Every second packet, within 25 ms, gaps immediately (RFC 9000, section 13.2).
    fn default() -> Self {
        Self { every: Packets::new(2), within: Duration::from_millis(25), gaps: true }
    }
}

/// Configuration of an endpoint's connections.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Congestion control of the sending direction.
    pub congestion: Congestion,
    /// Initial cwnd; ten packets (RFC 6928, RFC 9002, section 7.2).
    pub initial_window: Packets,
    /// A program's own controller in place of `congestion`.
    pub custom: Option<CustomLaw>,
    /// A constant cwnd in place of congestion control, as in the experiment of
    /// rr3216: only for a path without other traffic, since nothing reacts to congestion.
    pub static_window: Option<Packets>,
    /// The round trip that is assumed before one is measured, above 0. A handshake that is not
    /// answered is repeated after three of them, 250 ms by default as a lost connection is called
    /// again, and then after twice as long each time, at most a second. RFC 9002, section 6.2.2, says
    /// 333 ms: of a live stream a second's pictures are late by then. On a longer path the first
    /// packet goes twice.
    pub assumed_round_trip: Duration,
    /// True: round-trip samples are corrected for the delay that a train of packets causes itself,
    /// before the congestion control uses them (thesis, ch. V).
    pub rtt_correction: bool,
    /// Pacing; `None`: packets are sent as cwnd opens.
    pub pacing: Option<PacingConfig>,
    /// Packets of one transmission (GSO), at least 1; pacing may allow fewer.
    pub segments: usize,
    /// True: after a transmission shorter than was allowed a connection is not asked again before
    /// something happens to it, and one without units waits for no pacing. It saves an endpoint of
    /// thousands of slow connections most of its timers.
    pub asks_once: bool,
    /// How the peer is asked to acknowledge.
    pub acknowledge: AckRequest,
    /// Parameters of [`AckRequest::Delayed`].
    pub delayed_acks: DelayedAcks,
    /// Packet reordering threshold: a packet is lost if one sent so many packets later is
    /// acknowledged, at
    /// least 3 (RFC
    /// 9002, section 6.1.1). 64 instead of 3: packets overtake each other on paths with link-layer
    /// retransmission or load balancing, and a spurious loss
    /// costs bandwidth and cwnd; the time threshold still detects a loss after a quarter
    /// of a round trip more.
    pub packet_threshold: u32,
    /// Time threshold in round trips, above 1: a packet is lost if it was sent so long before now
    /// and a later one is acknowledged. RFC 9002, section 6.1.2, recommends 9/8, less than packets
    /// differ on paths with link-layer retransmission; 5/4 leaves them the reordering window of
    /// RFC 8985, section 6.2, a quarter of the least round trip.
    pub time_threshold: f32,
    /// Receive limits of this side.
    pub limits: Limits,
    /// Concurrent streams of the peer: units in transit, or batches of small ones.
    pub streams: u32,
    /// Maximum units of a flow that are queued or not yet acknowledged.
    pub send_units: u64,
    /// Maximum bytes of a flow that are queued or not yet acknowledged.
    pub send_bytes: Bytes,
    /// Small queued units share a stream up to this many bytes. About one
    /// packet: units of one packet are lost together anyway.
    pub batch: Bytes,
    /// Initial UDP payload of a packet in bytes, before path MTU discovery, at least 1,200.
    pub packet_size: u16,
    /// True: path MTU discovery is on.
    pub discover_packet_size: bool,
    /// Idle timeout: a connection is closed after so much silence.
    pub idle_timeout: Duration,
    /// Interval of keep-alive packets; `None`: none.
    pub keep_alive: Option<Duration>,
    /// Timeout of the QUIC handshake and of our own that follows it.
    pub handshake_timeout: Duration,
    /// Interval of clock comparisons.
    pub clock_interval: Duration,
    /// Maximum connections; more are refused. An incoming connection counts once its client has
    /// presented the token, and until then in [`half_open`](Self::half_open). Those that were
    /// accepted may use three quarters of
    /// [`receive_memory`](Self::receive_memory): the rest is for what is received.
    pub connections: usize,
    /// Maximum connections with the token of one source, an address of IPv4 or a prefix of 56 bits of
    /// IPv6; more are refused.
    pub connections_of_host: usize,
    /// Maximum incoming connections that have not presented the token; beyond it clients are
    /// ignored. One source, an address of IPv4 or a prefix of 56 bits of IPv6, may have a sixteenth
    /// of them, and clients whose addresses are not validated an eighth: beyond half of the first
    /// or all of the second, clients must validate their address first (Retry).
    pub half_open: usize,
    /// True: a client must validate its address before any state is kept (Retry).
    pub retry: bool,
    /// Maximum memory of connections and of what they have received and the program has not taken.
    /// Beyond it the connection that holds most, of the source whose connections hold most, is
    /// closed with [`CloseReason::Overloaded`](crate::CloseReason::Overloaded), and no connection
    /// is accepted.
    pub receive_memory: Bytes,
    /// Memory that connections share, also those of other endpoints: a new connection's part replaces
    /// `limits.bytes`, `limits.unit_bytes` and `send_bytes` where they are larger. `None`: each has
    /// what they say.
    pub buffers: Option<Arc<Buffers>>,
    /// Trace of connections; `None`: none.
    pub qlog: Option<Qlog>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            custom: None,
            initial_window: Packets::new(10),
            static_window: None,
            assumed_round_trip: Duration::from_millis(250) / 3,
            rtt_correction: false,
            pacing: Some(PacingConfig::default()),
            segments: 64,
            asks_once: false,
            acknowledge: AckRequest::default(),
            delayed_acks: DelayedAcks::default(),
            packet_threshold: 64,
            time_threshold: 5.0 / 4.0,
            limits: Limits { flows: 16, units: 4096, bytes: 8 << 20, unit_bytes: 4 << 20 },
            streams: 1024,
            send_units: 4096,
            send_bytes: Bytes::new(8 << 20),
            batch: Bytes::new(1100),
            packet_size: 1200,
            discover_packet_size: true,
            idle_timeout: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(3)),
            handshake_timeout: Duration::from_secs(5),
            clock_interval: Duration::from_secs(1),
            connections: 4096,
            connections_of_host: 1024,
            half_open: 512,
            retry: false,
            receive_memory: Bytes::new(160 << 20),
            buffers: None,
            qlog: None,
        }
    }
}

/// cwnd reported to the stack if spacing alone governs.
const SPACED_WINDOW: u64 = 16 << 20;

/// Datagrams are queued in our layer and not in the stack, so that late ones can be dropped: the
/// stack holds no more than one transmission.
pub(crate) const DATAGRAM_BUFFER: usize = 32 << 10;

/// The largest UDP payload of a packet of 1,500 bytes to this address, bytes: path MTU discovery
/// tries no more.
pub(crate) fn largest_payload(remote: IpAddr) -> u16 {
    match remote.to_canonical() {
        IpAddr::V4(_) => 1_500 - 20 - 8,
        IpAddr::V6(_) => 1_500 - 40 - 8,
    }
}

fn std(span: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}

fn var(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

impl Configuration {
    /// That of a connection with a part of the shared buffers, bytes in each direction.
    pub(crate) fn with_buffers(mut self, each: u64) -> Self {
        self.limits.bytes = self.limits.bytes.min(each);
        self.limits.unit_bytes = self.limits.unit_bytes.min(each);
        self.send_bytes = self.send_bytes.min(Bytes::new(each));
        self
    }

    /// Bytes that a peer may send before they are processed.
    pub(crate) fn receive_window(&self) -> u64 {
        self.limits.bytes.saturating_add(MAX_UNIT_HEADER as u64)
    }

    /// The stack's configuration for one connection, whose controller shares `account` and is
    /// traced;
    /// `seed` determines its random choices. `largest`: the largest UDP payload that is tried, bytes.
    pub(crate) fn transport(
        &self,
        epoch: Epoch,
        seed: u64,
        (account, trace): (SharedAccount, &Trace),
        largest: u16,
    ) -> TransportConfig {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(largest);
        let tried = if self.discover_packet_size { largest } else { self.packet_size };
        let mut transport = TransportConfig::default();
        let controllers = self.controllers(epoch, seed, account.clone(), tried);
        let stream = self.receive_window();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(self.streams))
            .stream_receive_window(var(stream))
            .receive_window(var(stream))
            .send_window(self.send_bytes.get())
            .datagram_receive_buffer_size(Some(1 << 20))
            .datagram_send_buffer_size(DATAGRAM_BUFFER)
            .packet_threshold(self.packet_threshold.max(3))
            .time_threshold(self.time_threshold)
            .initial_rtt(std(self.assumed_round_trip))
            .initial_mtu(self.packet_size)
            .mtu_discovery_config(self.discover_packet_size.then_some(discovery))
            .max_idle_timeout(IdleTimeout::try_from(std(self.idle_timeout)).ok())
            .keep_alive_interval(self.keep_alive.map(std))
            .ack_frequency_config(Some(self.ack_frequency()))
            .congestion_controller_factory(trace.of(controllers, epoch, account));
        transport
    }

    /// The peer acknowledges every packet immediately; our own layer thins acknowledgements
    /// out at the receiver.
    fn ack_frequency(&self) -> AckFrequencyConfig {
        let mut config = AckFrequencyConfig::default();
        match self.acknowledge {
            AckRequest::Immediate | AckRequest::Adaptive => config
                .ack_eliciting_threshold(VarInt::from_u32(0))
                .reordering_threshold(VarInt::from_u32(1)),
            // The threshold counts packets that may arrive without an acknowledgement.
            AckRequest::Delayed => config
                .ack_eliciting_threshold(var(self.delayed_acks.every.get().saturating_sub(1)))
                .max_ack_delay(Some(std(self.delayed_acks.within)))
                .reordering_threshold(VarInt::from_u32(self.delayed_acks.gaps.into())),
        };
        config
    }

    fn factory<C>(
        &self,
        make: impl Fn(Start) -> C + Send + Sync + 'static,
        epoch: Epoch,
        account: SharedAccount,
        largest: u16,
    ) -> Arc<dyn ControllerFactory + Send + Sync>
    where
        C: CongestionControl + Clone + Send + Sync + 'static,
    {
        let window = self.initial_window.get().max(1);
        let start = Start { initial_window: Window::of_packets(window as f64), ..Start::default() };
        let (pacing, corrected, log) = (Pacing::Off, self.rtt_correction, None);
        Arc::new(Factory { make, start, largest, pacing, corrected, epoch, account, log })
    }

    fn controllers(
        &self,
        epoch: Epoch,
        seed: u64,
        account: SharedAccount,
        largest: u16,
    ) -> Arc<dyn ControllerFactory + Send + Sync> {
        if let Some(packets) = self.static_window {
            let window = StaticWindow(Window::of_packets(packets.get().max(2) as f64));
            let make = move |_| window;
            return self.factory(make, epoch, account, largest);
        }
        if let Some(law) = self.custom.clone() {
            let make = move |start| {
                Controller::Custom(law.start(start, RandomStream::new(seed, "congestion")))
            };
            return self.factory(make, epoch, account, largest);
        }
        match self.congestion.governor() {
            Governor::Window(law) => {
                let make = move |start| law.start(start, RandomStream::new(seed, "early response"));
                self.factory(make, epoch, account, largest)
            }
            Governor::Spacing(parameters) => {
                Arc::new(SpacedFactory { parameters, window: SPACED_WINDOW, epoch, account })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ontempo_foundation::Rate;
    use ontempo_mechanisms::congestion::{
        Ack, CustomControl, Loss, NewReno, RenoParameters, Snapshot, Timeout, World,
    };

    use super::*;

    const RATE: Rate = Rate::from_bits_per_sec(3_000_000);

    /// NewReno that sets a rate.
    #[derive(Clone, Debug)]
    struct Paced(NewReno);

    impl CongestionControl for Paced {
        fn on_ack(&mut self, ack: &Ack) {
            self.0.on_ack(ack);
        }
        fn on_loss(&mut self, loss: &Loss) {
            self.0.on_loss(loss);
        }
        fn on_timeout(&mut self, timeout: &Timeout) {
            self.0.on_timeout(timeout);
        }
        fn on_idle_restart(&mut self) {
            self.0.on_idle_restart();
        }
        fn window(&self) -> Window {
            self.0.window()
        }
        fn pacing_rate(&self) -> Option<Rate> {
            Some(RATE)
        }
        fn snapshot(&self) -> Snapshot {
            self.0.snapshot()
        }
    }

    impl CustomControl for Paced {
        fn name(&self) -> &str {
            "paced"
        }
        fn boxed(&self) -> Box<dyn CustomControl> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn the_rate_of_a_programs_own_controller_is_kept_whatever_the_size_of_its_packets() {
        let custom =
            CustomLaw::new(|start, _| Paced(NewReno::new(start, RenoParameters::default())));
        let configuration = Configuration { custom: Some(custom), ..Configuration::default() };
        let (epoch, account) = (Epoch::new(), SharedAccount::default());
        let now = Instant::now();
        let factory = configuration.controllers(epoch, 1, account.clone(), 1472);
        let mut controller = factory.build(now, 1200);
        for number in 0..20 {
            controller.on_packet_sent(now, 300, number);
        }
        assert_eq!(account.read().rate, Some(RATE));
        let stack = controller.metrics().pacing_rate;
        assert_eq!(stack, Some(RATE.as_bits_per_sec() / 8));
    }

    #[test]
    fn a_larger_packet_changes_neither_window_nor_rate_of_a_mechanism_that_measures_rates() {
        let windows = |name| {
            let congestion = Congestion::from(name);
            let configuration = Configuration { congestion, ..Configuration::default() };
            let (epoch, account) = (Epoch::new(), SharedAccount::default());
            let factory = configuration.controllers(epoch, 1, account.clone(), 1472);
            let mut controller = factory.build(Instant::now(), 1200);
            let before = (controller.window(), account.read().rate);
            controller.on_mtu_update(1452);
            controller.on_packet_sent(Instant::now(), 1452, 0);
            let after = (controller.window(), account.read().rate);
            (before, after)
        };
        let (before, after) = windows(CongestionName::Bbr);
        assert_eq!(before, after);
        assert!((14_719..=14_720).contains(&before.0), "{}", before.0);
        assert!(before.1.is_some());
        let (before, after) = windows(CongestionName::Cubic);
        assert_eq!((before.0, after.0), (12_000, 14_520));
    }

    #[test]
    fn every_congestion_control_is_found_by_its_name_and_governs() {
        for name in CongestionName::ALL {
            assert_eq!(name.name().parse(), Ok(name));
            let governor = Congestion::from(name).governor();
            let is_own = matches!(governor, Governor::Window(_));
            assert_eq!(is_own, name.runs_in(World::Simulation), "{}", name.name());
        }
        let error = "tahoe".parse::<CongestionName>().expect_err("unknown").to_string();
        assert!(error.contains("`tahoe`") && error.contains("psp-damped"), "{error}");
    }
}
