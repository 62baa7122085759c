//! What a transport and a congestion controller say to each other: events in, window, pacing
//! rate and burst out.

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};

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

    /// How many whole packets may be in flight; at least one.
    pub fn whole_packets(self) -> u64 {
        (self.0 as u64).max(1)
    }

    /// The window in bytes, for packets of `size`.
    pub fn bytes(self, size: Bytes) -> Bytes {
        Bytes::new((self.0 * size.get() as f64) as u64)
    }
}

/// What a controller is told when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Size of a full packet on the wire.
    pub packet_size: Bytes,
    /// Window at the start and after an idle restart.
    pub initial_window: Window,
    /// Slow-start threshold at the start; `f64::INFINITY` packets where none is known.
    pub initial_ssthresh: Window,
    /// Whether ACKs echo timestamps (RFC 7323). CUBIC of Linux 2.6 alone asks: without them it
    /// knows no least round trip.
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

/// A packet was handed to the network.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub now: Time,
    /// Its number, in the order of first transmission.
    pub packet: u64,
    /// Packets in flight, this one included.
    pub in_flight: f64,
}

/// An acknowledgement arrived.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When.
    pub now: Time,
    /// Packets that it newly acknowledged.
    pub packets: f64,
    /// The raw round-trip time of the last packet acknowledged; `None` where the packet was
    /// retransmitted (Karn's rule) or nothing new was acknowledged.
    pub rtt: Option<Duration>,
    /// The transport's smoothed round-trip time (RFC 6298), zero before the first sample.
    pub srtt: Duration,
    /// The highest packet number acknowledged so far.
    pub acked: u64,
    /// The number that the next new packet will bear.
    pub next: u64,
    /// Packets in flight after this acknowledgement.
    pub in_flight: f64,
    /// True while a loss episode lasts, and for a duplicate ACK, which may begin one: a window
    /// does not grow then (RFC 5681, section 3.1: growth is for ACKs of new data).
    pub in_recovery: bool,
    /// True where the sender had more to send than the window let pass.
    pub window_limited: bool,
}

/// A packet was found lost, or a congestion mark (ECN) came back.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When.
    pub now: Time,
    /// The number of the lost (or marked) packet.
    pub packet: u64,
    /// The number that the next new packet will bear.
    pub next: u64,
    /// Packets in flight when the loss was found.
    pub in_flight: f64,
}

/// The retransmission timer expired.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// When.
    pub now: Time,
    /// The number that the next new packet will bear.
    pub next: u64,
    /// Packets in flight when the timer expired.
    pub in_flight: f64,
    /// True for the second and later expiries of the same packet, which must not reduce
    /// ssthresh again (RFC 5681, section 3.1).
    pub repeated: bool,
}

/// What a probe reads from a controller.
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
    /// The smoothed round-trip time of a controller that keeps its own (PERT), corrected for
    /// self-induced delay where its samples are.
    pub smoothed_rtt: Option<Duration>,
    /// Window reductions made on delay, before any loss.
    pub early_responses: u64,
    /// Window reductions of any kind.
    pub reductions: u64,
}

/// A congestion controller.
///
/// A caller tells events in the order in which they happen and then obeys what the controller
/// answers. [`on_loss`](Self::on_loss) may be told once for each lost packet: a controller that
/// reacts once per window of data holds a [`RecoveryPoint`].
pub trait CongestionControl {
    /// A packet was sent.
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
    /// Nothing was sent for longer than a retransmission timeout: begin again from the
    /// initial window, keeping ssthresh (RFC 5681, section 4.1).
    fn on_idle_restart(&mut self);
    /// How much may be in flight.
    fn window(&self) -> Window;
    /// The rate to pace at; `None` leaves pacing to the transport.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// How many packets may leave back to back under pacing.
    fn burst(&self) -> Packets {
        Packets::new(1)
    }
    /// What a probe reads.
    fn snapshot(&self) -> Snapshot;
}

/// Lets one loss of a window of data through and no other, until all that was outstanding at
/// that loss is acknowledged (RFC 6582, section 3.2 "recover"; RFC 9002, section 7.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryPoint {
    /// The first packet number not yet sent at the last reaction.
    end: u64,
}

impl RecoveryPoint {
    /// True where `loss` begins a new episode, which then lasts until `loss.next`.
    pub fn begins_with(&mut self, loss: &Loss) -> bool {
        let begins = loss.packet >= self.end;
        if begins {
            self.end = loss.next;
        }
        begins
    }

    /// A timeout begins a new episode whatever was lost before.
    pub fn restart(&mut self, next: u64) {
        self.end = next;
    }
}
