//! What of an endpoint may be set.

use std::sync::Arc;

use noq_proto::congestion::{Bbr3Config, ControllerFactory};
use noq_proto::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use ontempo_foundation::{Bytes, Duration, Packets, RandomStream};
pub use ontempo_mechanisms::congestion::{
    Congestion, CongestionName, ParameterError, UnknownCongestion,
};
use ontempo_mechanisms::congestion::{Governor, Start, Window};

use crate::qlog::{Qlog, Trace};
use crate::quic::{
    Epoch, Factory, ForeignFactory, Pacing, SharedAccount, SpacedFactory, StaticWindow,
};
pub use crate::wire::Limits;
use crate::wire::{AckRequest, MAX_UNIT_HEADER};

/// How packets are spaced, where the congestion control names no distance itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingConfig {
    /// What the window over a round trip is multiplied with, above 0; above 1 lets the window,
    /// not the pacing, be the limit. Where the control names a rate, that is obeyed as it is.
    pub gain: f64,
    /// Packets that may leave back to back after an idle time, at least 1.
    pub burst: Packets,
    /// How much may leave at once also without an idle time before: what the rate sends in this
    /// span, in whole packets, at least one and at most 64 KB. A slow stream's packets leave one by
    /// one; of a fast one many share the cost of a call. Zero: always one by one.
    pub quantum: Duration,
}

impl Default for PacingConfig {
    /// 1.25 windows per round trip (RFC 9002, section 7.7), 4 packets after an idle time, and what
    /// 1 ms sends at once: as Linux sizes what it hands to the network card
    /// (`tcp_tso_autosize`, `sk_pacing_shift` 10).
    fn default() -> Self {
        Self { gain: 1.25, burst: Packets::new(4), quantum: Duration::from_millis(1) }
    }
}

/// When a receiver acknowledges, where [`AckRequest::Delayed`] asks it to (draft-ietf-quic-ack-frequency).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAcks {
    /// Packets to an acknowledgement, at least 1.
    pub every: Packets,
    /// An acknowledgement comes so long after the first packet that it is for at the latest; more
    /// than a round trip, or 25 ms where that is longer, counts as that.
    pub within: Duration,
    /// True: a packet that begins a gap is acknowledged at once.
    pub gaps: bool,
}

impl Default for DelayedAcks {
    /// Every second packet, within 25 ms, gaps at once (RFC 9000, section 13.2).
    fn default() -> Self {
        Self { every: Packets::new(2), within: Duration::from_millis(25), gaps: true }
    }
}

/// All that may be set of an endpoint's connections.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The congestion control of what this side sends.
    pub congestion: Congestion,
    /// The window at the start; ten packets (RFC 6928).
    pub initial_window: Packets,
    /// In place of the congestion control, a window that nothing changes, as in the experiment of
    /// rr3216: for a path that is wholly one's own, since nothing answers congestion then.
    pub static_window: Option<Packets>,
    /// True: round trips are corrected for what a train of packets delays itself by, before the
    /// congestion control sees them (thesis, ch. V).
    pub rtt_correction: bool,
    /// How packets are spaced; `None`: as the window lets them.
    pub pacing: Option<PacingConfig>,
    /// Packets that one transmission may consist of, at least 1; pacing may allow fewer.
    pub segments: usize,
    /// How the peer is asked to acknowledge.
    pub acknowledge: AckRequest,
    /// When, where that is delayed.
    pub delayed_acks: DelayedAcks,
    /// A packet is lost when one sent so many packets later is acknowledged, at least 3 (RFC
    /// 9002, section 6.1.1). Ten, where the standard says 3: reordering of a few packets is
    /// common where links retransmit or packets take several ways, and a packet wrongly held for
    /// lost costs bandwidth and window; the time threshold still finds a loss after an eighth
    /// of a round trip more.
    pub packet_threshold: u32,
    /// A packet is lost when one sent after it is acknowledged so many round trips after its own
    /// sending, above 1 (RFC 9002, section 6.1.2: 9/8).
    pub time_threshold: f32,
    /// What this side is ready to hold of what it receives.
    pub limits: Limits,
    /// Streams that the peer may have open at a time: units under way, or batches of small ones.
    pub streams: u32,
    /// Units of one flow that may wait to be sent or to be known arrived.
    pub send_units: u64,
    /// Bytes of one flow that may wait to be sent or to be known arrived.
    pub send_bytes: Bytes,
    /// Small units that wait share a stream as long as it has at most so many bytes. About one
    /// packet's: units of one packet are lost together anyway.
    pub batch: Bytes,
    /// UDP payload of a packet, before larger ones are found to pass, 1,200 or more.
    pub packet_size: u16,
    /// True: larger packets are tried.
    pub discover_packet_size: bool,
    /// After how long a silent connection is given up.
    pub idle_timeout: Duration,
    /// How often a silent connection says that it is alive; `None`: never.
    pub keep_alive: Option<Duration>,
    /// How long handshake and greeting may take.
    pub greeting_timeout: Duration,
    /// How often the clocks are compared.
    pub clock_interval: Duration,
    /// Connections at a time; more are refused.
    pub connections: usize,
    /// Connections at a time that peers began and that have not shown the token. From half of so
    /// many on clients must prove their address first; beyond all of it they are ignored.
    pub half_open: usize,
    /// True: a client must prove its address before anything is kept of it.
    pub retry: bool,
    /// Where connections are traced; `None`: nowhere.
    pub qlog: Option<Qlog>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            initial_window: Packets::new(10),
            static_window: None,
            rtt_correction: false,
            pacing: Some(PacingConfig::default()),
            segments: 64,
            acknowledge: AckRequest::default(),
            delayed_acks: DelayedAcks::default(),
            packet_threshold: 10,
            time_threshold: 9.0 / 8.0,
            limits: Limits { flows: 16, units: 4096, bytes: 8 << 20, unit_bytes: 4 << 20 },
            streams: 1024,
            send_units: 4096,
            send_bytes: Bytes::new(8 << 20),
            batch: Bytes::new(1100),
            packet_size: 1200,
            discover_packet_size: true,
            idle_timeout: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(3)),
            greeting_timeout: Duration::from_secs(5),
            clock_interval: Duration::from_secs(1),
            connections: 4096,
            half_open: 512,
            retry: false,
            qlog: None,
        }
    }
}

/// The window that the stack is told where spacing alone governs.
const SPACED_WINDOW: u64 = 16 << 20;

/// Datagrams wait with us and not in the stack, so that late ones can be dropped: it keeps no
/// more than one transmission's.
const DATAGRAM_BUFFER: usize = 32 << 10;

fn std(span: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}

fn var(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

impl Configuration {
    /// The stack's settings for one connection, whose controller keeps `account` and is traced;
    /// `seed` decides what is random about it.
    pub(crate) fn transport(
        &self,
        epoch: Epoch,
        seed: u64,
        (account, trace): (SharedAccount, &Trace),
    ) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let controllers = self.controllers(epoch, seed, account.clone());
        let stream = self.limits.bytes.saturating_add(MAX_UNIT_HEADER as u64);
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
            .initial_mtu(self.packet_size)
            .mtu_discovery_config(self.discover_packet_size.then(MtuDiscoveryConfig::default))
            .max_idle_timeout(IdleTimeout::try_from(std(self.idle_timeout)).ok())
            .keep_alive_interval(self.keep_alive.map(std))
            .ack_frequency_config(Some(self.ack_frequency()))
            .congestion_controller_factory(trace.of(controllers, epoch, account));
        transport
    }

    /// Every packet is to be acknowledged at once, where our own layer thins acknowledgements
    /// out at the receiver.
    fn ack_frequency(&self) -> AckFrequencyConfig {
        let mut config = AckFrequencyConfig::default();
        match self.acknowledge {
            AckRequest::Immediate | AckRequest::Adaptive => config
                .ack_eliciting_threshold(VarInt::from_u32(0))
                .reordering_threshold(VarInt::from_u32(1)),
            // The threshold is of packets that may come without an acknowledgement.
            AckRequest::Delayed => config
                .ack_eliciting_threshold(var(self.delayed_acks.every.get().saturating_sub(1)))
                .max_ack_delay(Some(std(self.delayed_acks.within)))
                .reordering_threshold(VarInt::from_u32(self.delayed_acks.gaps.into())),
        };
        config
    }

    fn controllers(
        &self,
        epoch: Epoch,
        seed: u64,
        account: SharedAccount,
    ) -> Arc<dyn ControllerFactory + Send + Sync> {
        let window = self.initial_window.get().max(1);
        let start = Start { initial_window: Window::of_packets(window as f64), ..Start::default() };
        let (pacing, corrected, log) = (Pacing::Off, self.rtt_correction, None);
        if let Some(packets) = self.static_window {
            let window = StaticWindow(Window::of_packets(packets.get().max(2) as f64));
            let make = move |_| window;
            return Arc::new(Factory { make, start, pacing, corrected, epoch, account, log });
        }
        match self.congestion.governor() {
            Governor::Window(law) => {
                let make = move |start| law.start(start, RandomStream::new(seed, "early response"));
                Arc::new(Factory { make, start, pacing, corrected, epoch, account, log })
            }
            Governor::Spacing(parameters) => {
                Arc::new(SpacedFactory { parameters, window: SPACED_WINDOW, epoch, account })
            }
            Governor::Bbr => {
                let mut bbr = Bbr3Config::default();
                bbr.initial_window(window * u64::from(self.packet_size));
                Arc::new(ForeignFactory { inner: Arc::new(bbr), account })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_mechanisms::congestion::World;

    use super::*;

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
