//! The interface between a transport and a congestion controller: events in, window, pacing
//! rate and burst out.

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};

use crate::recovery::DeliveryRates;

/// A congestion window: a fractional number of packets.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Window(f64);

impl Window {
    /// The smallest window after a reduction, in packets (RFC 5681, section 3.1, equation 4).
    pub const FLOOR: Self = Self(2.0);

    /// A window of `packets`.
    pub const fn of_packets(packets: f64) -> Self {
        Self(packets)
    }

    /// The window in packets.
    pub const fn packets(self) -> f64 {
        self.0
    }

    /// The window after an idle time of `timeouts` RTOs: halved for each, but not below `initial`,
    /// unless it was smaller (RFC 2861, section 3.1; Linux's `tcp_cwnd_restart`).
    pub(super) fn decayed(self, initial: f64, timeouts: u64) -> Self {
        let floor = initial.min(self.0);
        let mut window = self.0;
        for _ in 0..timeouts {
            if window <= floor {
                break;
            }
            window /= 2.0;
        }
        Self(window.max(floor))
    }

    /// How many whole packets may be in flight; at least one.
    #[inline]
    pub fn whole_packets(self) -> u64 {
        // Through a signed number, which the processor converts in one instruction; the sign is never there.
        (self.0 as i64).max(1) as u64
    }

    /// The window in bytes, for packets of `size`.
    pub fn bytes(self, size: Bytes) -> Bytes {
        Bytes::new((self.0 * size.get() as f64) as u64)
    }
}

/// Initial parameters of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Size of a full packet on the wire.
    pub packet_size: Bytes,
    /// Window at the start and after an idle restart.
    pub initial_window: Window,
    /// Initial slow-start threshold; `f64::INFINITY` packets if unknown.
    pub initial_ssthresh: Window,
    /// Whether ACKs echo timestamps (RFC 7323). Only CUBIC of Linux 2.6 uses it: without
    /// timestamps it has no minimum RTT.
    pub timestamps: bool,
}

impl Default for Start {
    /// Packets of 1,000 bytes, a window of 2 (RFC 2581; ns-2's default), no threshold, timestamps.
    fn default() -> Self {
        Self {
            packet_size: Bytes::new(1000),
            initial_window: Window(2.0),
            initial_ssthresh: Window(f64::INFINITY),
            timestamps: true,
        }
    }
}

/// A packet was sent to the network.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Time of the event.
    pub now: Time,
    /// Its number, in the order of first transmission.
    pub packet: u64,
    /// Its size in full packets.
    pub size: f64,
    /// Packets in flight, this one included.
    pub in_flight: f64,
}

/// An acknowledgement arrived.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Time of the event.
    pub now: Time,
    /// Packets that it newly acknowledged.
    pub packets: f64,
    /// The raw RTT of the last packet acknowledged; `None` if the packet was
    /// retransmitted (Karn's rule) or nothing new was acknowledged. Another one where the
    /// controller asks for it ([`PertSamples`](super::PertSamples)).
    pub rtt: Option<Duration>,
    /// The transport's SRTT (RFC 6298), zero before the first sample.
    pub srtt: Duration,
    /// The highest packet number acknowledged so far.
    pub acked: u64,
    /// The number of the next new packet.
    pub next: u64,
    /// Packets in flight after this acknowledgement.
    pub in_flight: f64,
    /// True during a loss episode, and for a duplicate ACK, which may begin one: a window
    /// does not grow then (RFC 5681, section 3.1: growth is for ACKs of new data).
    pub in_recovery: bool,
    /// True if losses were being repaired before this acknowledgement: in a loss episode, or after a
    /// timeout (Linux: `TCP_CA_Recovery`, `TCP_CA_Loss`).
    pub repairs: bool,
    /// True if the window limited the sender: it had more to send, or used most of it. The window
    /// does not grow otherwise (RFC 7661; RFC 9002, section 7.8).
    pub window_limited: bool,
}

/// A packet was found lost, or a congestion mark (ECN) came back.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Time of the event.
    pub now: Time,
    /// The number of the lost (or marked) packet.
    pub packet: u64,
    /// The number of the next new packet.
    pub next: u64,
    /// Packets in flight when the loss was detected.
    pub in_flight: f64,
}

/// The retransmission timer expired.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// Time of the event.
    pub now: Time,
    /// The number of the next new packet.
    pub next: u64,
    /// Packets in flight when the timer expired.
    pub in_flight: f64,
    /// True for the second and later expiries of the same packet, which must not reduce
    /// ssthresh again (RFC 5681, section 3.1).
    pub repeated: bool,
}

/// A controller's state for probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// Congestion window.
    pub cwnd: Window,
    /// Slow-start threshold; infinite before the first reduction.
    pub ssthresh: Window,
    /// PERT's additive increase in packets per round trip.
    pub alpha: Option<f64>,
    /// The smoothed queueing delay that a delay-based controller sees.
    pub queueing_delay: Option<Duration>,
    /// The largest queueing delay that it takes to be possible (PERT's `maxq`).
    pub largest_queueing_delay: Option<Duration>,
    /// The SRTT of a controller with its own estimator (PERT), corrected for
    /// self-induced delay if its samples are.
    pub smoothed_rtt: Option<Duration>,
    /// Early responses: window reductions on delay, before any loss.
    pub early_responses: u64,
    /// Window reductions of any kind.
    pub reductions: u64,
    /// What the path is estimated to bear of this flow, in data that arrive: a rate that an encoder can
    /// be told. `None` of a controller without such an estimate, and before the first.
    pub bears: Option<Rate>,
}

/// A congestion controller.
///
/// A caller reports events in the order in which they happen and then applies the controller's
/// results. [`on_loss`](Self::on_loss) may be called once per lost packet: a controller that
/// reacts once per window of data holds a [`RecoveryPoint`].
pub trait CongestionControl {
    /// The samples of the delivery rate, of a controller whose law is of them; `None`, as by default, of
    /// the others. The caller tells them what becomes of packets, calls [`on_sent`](Self::on_sent) for
    /// each packet, paces at the controller's rate, and leaves the window of loss episodes to the
    /// controller. After a timeout it calls [`on_timeout`](Self::on_timeout) when the packets taken for
    /// lost are no longer in flight.
    fn delivery_rates(&mut self) -> Option<&mut DeliveryRates> {
        None
    }
    /// The handshake took `rtt`; told to controllers with [`delivery_rates`](Self::delivery_rates).
    fn on_handshake(&mut self, _now: Time, _rtt: Duration) {}
    /// A packet was sent, or sent again.
    fn on_sent(&mut self, _sent: &Sent) {}
    /// An acknowledgement arrived.
    fn on_ack(&mut self, ack: &Ack);
    /// A packet was found lost by duplicate or selective acknowledgements.
    fn on_loss(&mut self, loss: &Loss);
    /// A congestion mark came back; by default it counts as a loss (RFC 3168, section 6.1.2).
    fn on_ecn(&mut self, mark: &Loss) {
        self.on_loss(mark);
    }
    /// The retransmission timer expired.
    fn on_timeout(&mut self, timeout: &Timeout);
    /// The last timeout was spurious (RFC 4015): window and threshold are no smaller than `before` it.
    /// What else the timeout has changed stays (Linux's `tcp_undo_cwnd_reduction`).
    fn on_spurious_timeout(&mut self, _before: &Snapshot) {}
    /// Nothing was sent for longer than an RTO: restart from the
    /// initial window, with ssthresh unchanged (RFC 5681, section 4.1).
    fn on_idle_restart(&mut self);
    /// Nothing was sent for longer than `timeouts` RTOs: halve the window for each of them, down to
    /// the initial window (RFC 2861, section 3.1; Linux's `tcp_cwnd_restart`). A controller without
    /// such a rule restarts.
    fn on_idle_decay(&mut self, _timeouts: u64) {
        self.on_idle_restart();
    }
    /// The congestion window.
    fn window(&self) -> Window;
    /// The pacing rate; `None` leaves pacing to the transport.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// How many packets may be sent back to back under pacing.
    fn burst(&self) -> Packets {
        Packets::new(1)
    }
    /// The state for a probe.
    fn snapshot(&self) -> Snapshot;
}

/// Reports only the first loss per window of data, until all packets outstanding at
/// that loss are acknowledged (RFC 6582, section 3.2 "recover"; RFC 9002, section 7.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryPoint {
    /// The first packet number not yet sent at the last reaction.
    end: u64,
}

impl RecoveryPoint {
    /// True if `loss` begins a new episode, which then lasts until `loss.next`.
    #[inline]
    pub fn begins_with(&mut self, loss: &Loss) -> bool {
        let begins = loss.packet >= self.end;
        if begins {
            self.end = loss.next;
        }
        begins
    }

    /// A timeout begins a new episode, whatever was lost before.
    pub fn restart(&mut self, next: u64) {
        self.end = next;
    }
}
