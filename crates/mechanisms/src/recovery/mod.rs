//! Loss recovery: which packet leaves next, and when a loss episode begins and ends.
//!
//! One state machine for four ways of TCP: fast recovery that ends at the first new ACK
//! (RFC 5681), that partial ACKs prolong (RFC 6582), that selective acknowledgements guide
//! (RFC 6675), and that the times of sending guide too (RFC 8985). All share limited transmit
//! (RFC 3042) and the return to the first outstanding packet after a timeout.

mod prr;
mod rack;
mod rates;
mod scoreboard;
#[cfg(test)]
mod tests;
mod watch;

use ontempo_foundation::{Duration, Time};

pub use prr::ProportionalReduction;
pub use rack::Samples;
pub use rates::{DeliveryRates, Lost, RateSample, Repair};
pub use scoreboard::{SackBlock, Scoreboard};
pub use watch::Watch;

use rack::Rack;

use scoreboard::DUPLICATE_THRESHOLD;

/// Added to a probe's timeout for the clock of the sender's timers (`TCP_TIMEOUT_MIN` of Linux at
/// 1,000 ticks a second).
const PROBE_GRANULARITY: Duration = Duration::from_millis(2);

/// How long a tail loss probe waits: two round trips, with `max_ack_delay` more where the receiver
/// may delay the acknowledgement of a single packet; 1 s before the first RTT sample (RFC 8985,
/// section 7.2).
pub fn probe_timeout(
    srtt: Option<Duration>,
    outstanding: u64,
    max_ack_delay: Duration,
) -> Duration {
    let Some(srtt) = srtt else { return Duration::from_secs(1) };
    srtt * 2 + if outstanding == 1 { max_ack_delay } else { PROBE_GRANULARITY }
}

/// How losses are found and repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryStyle {
    /// Fast retransmit and fast recovery, left at the first new ACK (RFC 5681, section 3.2).
    Reno,
    /// Fast recovery that partial ACKs prolong (RFC 6582).
    NewReno,
    /// Selective acknowledgements (RFC 6675).
    #[default]
    Sack,
    /// Selective acknowledgements and the times of sending: RACK-TLP (RFC 8985).
    Rack,
}

impl RecoveryStyle {
    /// Whether selective acknowledgements are used.
    pub fn is_selective(self) -> bool {
        matches!(self, Self::Sack | Self::Rack)
    }
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOutcome {
    /// Packets newly acknowledged, cumulatively or selectively.
    pub newly_acknowledged: u64,
    /// True where the cumulative acknowledgement moved.
    pub advanced: bool,
    /// The lowest lost packet, if a loss episode began; or the last packet, if a tail loss probe
    /// repaired a loss without an episode: notify the congestion controller.
    pub lost: Option<u64>,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPacket {
    /// The next new one.
    New,
    /// This one again.
    Again(u64),
}

/// The sender's loss recovery.
///
/// What each acknowledgement reads comes first, up to the beginning of the scoreboard, so that it fills few cache
/// lines.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct LossRecovery {
    style: RecoveryStyle,
    limited_transmit: bool,
    /// Whether SACK blocks are heeded while what a timeout took for lost is sent again.
    sack_after_timeout: bool,
    /// Set when an episode begins and by partial ACKs: the first packet leaves again at once,
    /// whatever the window (RFC 6675, section 5, step 4.3; RFC 6582, section 3.2).
    retransmit_first: bool,
    /// The times of sending; boxed, so that the other styles cost no more.
    rack: Option<Box<Rack>>,
    /// Set when an episode begins (RFC 6675's RecoveryPoint, RFC 6582's recover), cleared when
    /// the acknowledgement reaches it.
    episode_end: Option<u64>,
    /// After a timeout, duplicate ACKs below this one must not begin an episode. With NewReno the
    /// acknowledgement must cover more than had been sent by then (RFC 6582, section 3.2, step 2,
    /// and section 4.1), with SACK as much (RFC 6675, section 5.1).
    no_episode_below: u64,
    duplicate_acks: u64,
    /// Packets that duplicate ACKs say have left the network, where no SACK says which.
    departed_unnamed: u64,
    /// Partial ACKs of this episode, where they prolong it (RFC 6582).
    partial_acks: u64,
    board: Scoreboard,
}

impl LossRecovery {
    /// Nothing sent yet.
    pub fn new(style: RecoveryStyle, limited_transmit: bool) -> Self {
        Self {
            style,
            limited_transmit,
            sack_after_timeout: true,
            board: Scoreboard::default(),
            episode_end: None,
            no_episode_below: 0,
            duplicate_acks: 0,
            retransmit_first: false,
            departed_unnamed: 0,
            partial_acks: 0,
            rack: (style == RecoveryStyle::Rack).then(Box::default),
        }
    }

    /// With [`RecoveryStyle::Sack`]: SACK blocks that arrive after a timeout, before all that was sent by
    /// then is acknowledged, are not heeded, as in Sack1 of ns-2. Everything is sent again in order.
    /// RFC 6675, section 5.1, heeds them.
    pub fn without_sack_after_timeout(mut self) -> Self {
        self.sack_after_timeout = false;
        self
    }

    /// The lowest packet not cumulatively acknowledged.
    #[inline]
    pub fn first(&self) -> u64 {
        self.board.first()
    }

    /// The next new packet.
    #[inline]
    pub fn next(&self) -> u64 {
        self.board.next()
    }

    /// Packets sent and not cumulatively acknowledged.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.board.outstanding()
    }

    /// Packets that count against the window.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let before_episode = self.episode_end.is_none() && self.duplicate_acks > 0;
        if before_episode && !self.limited_transmit {
            return self.board.outstanding();
        }
        self.board.in_flight().saturating_sub(self.departed_unnamed)
    }

    /// True while a loss episode lasts.
    #[inline]
    pub fn in_recovery(&self) -> bool {
        self.episode_end.is_some()
    }

    /// True while losses are repaired: in an episode, or after a timeout until all that was sent by then
    /// is acknowledged.
    #[inline]
    pub fn repairs(&self) -> bool {
        self.in_recovery() || self.board.first() < self.no_episode_below
    }

    /// Whether new data acknowledged, or the first packet sent again, restarts the
    /// retransmission timer. Of an episode's partial ACKs only the first does, so that a long
    /// one ends by the timer rather than with a packet a round trip (RFC 6582, section 3.2,
    /// step 3, and section 4, the "impatient" variant).
    #[inline]
    pub fn restarts_timer(&self) -> bool {
        self.partial_acks <= 1
    }

    /// How often a packet was found lost since the start, retransmissions counted.
    #[inline]
    pub fn losses(&self) -> u64 {
        self.board.losses()
    }

    /// An acknowledgement arrived: everything below `cumulative` and the packets of `blocks`.
    #[inline]
    pub fn on_ack(&mut self, now: Time, cumulative: u64, blocks: &[SackBlock]) -> AckOutcome {
        if blocks.is_empty()
            && let Some(newly_acknowledged) = self.acknowledge_undisturbed(cumulative)
        {
            return AckOutcome { newly_acknowledged, advanced: true, lost: None };
        }
        self.on_ack_unwatched(now, cumulative, blocks)
    }

    /// As [`on_ack`](Self::on_ack) without blocks, if the acknowledgement moves the lowest packet and nothing
    /// outstanding is lost, repaired or acknowledged out of order: how many packets it acknowledges.
    /// `None` if not, and nothing changes.
    #[inline]
    pub fn acknowledge_undisturbed(&mut self, cumulative: u64) -> Option<u64> {
        let advances = cumulative > self.board.first() && cumulative <= self.board.next();
        (advances && self.is_undisturbed()).then(|| {
            self.duplicate_acks = 0;
            self.departed_unnamed = 0;
            self.board.acknowledge_whole(cumulative)
        })
    }

    /// As [`next_packet`](Self::next_packet) and [`on_sent`](Self::on_sent) right after
    /// [`acknowledge_undisturbed`](Self::acknowledge_undisturbed): the number of a new packet, which is
    /// sent now.
    #[inline]
    pub fn send_undisturbed(&mut self, window: u64, new_available: bool) -> Option<u64> {
        self.retransmit_first = false;
        let may_send = new_available && self.board.in_flight() < window;
        may_send.then(|| self.board.send_new())
    }

    /// Apart, so that the way of most acknowledgements stays short.
    #[inline(never)]
    fn on_ack_unwatched(&mut self, now: Time, cumulative: u64, blocks: &[SackBlock]) -> AckOutcome {
        self.on_ack_watched(now, cumulative, blocks, &mut ())
    }

    /// Whether nothing outstanding is lost, repaired or acknowledged out of order, and nothing sent again
    /// after a timeout: an acknowledgement then only moves the lowest packet.
    #[inline]
    fn is_undisturbed(&self) -> bool {
        self.rack.is_none() && self.board.is_whole() && !self.repairs()
    }

    /// Like [`on_ack`](Self::on_ack); tells `watch` of each packet newly acknowledged or found lost.
    #[inline]
    pub fn on_ack_watched(
        &mut self,
        now: Time,
        cumulative: u64,
        blocks: &[SackBlock],
        watch: &mut impl Watch,
    ) -> AckOutcome {
        if self.rack.is_some() {
            return self.on_ack_by_time(now, cumulative, blocks, watch);
        }
        let first_before = self.board.first();
        let mut outcome = AckOutcome {
            newly_acknowledged: self.board.acknowledge_watched(cumulative, watch),
            ..AckOutcome::default()
        };
        outcome.advanced = self.board.first() > first_before;
        if self.heeds_sack() {
            for block in blocks {
                let newly = self.board.sack_each(*block, |packet| watch.delivered(packet));
                outcome.newly_acknowledged += newly;
            }
        }
        if outcome.advanced {
            self.on_advance(self.board.first() - first_before, watch);
        } else if cumulative == first_before && self.board.outstanding() > 0 {
            self.on_duplicate();
        }
        if self.heeds_sack() {
            self.board.find_losses_watched(watch);
        }
        outcome.lost = self.begin_episode_if_due(watch);
        outcome
    }

    #[inline]
    fn heeds_sack(&self) -> bool {
        let after_timeout = self.board.first() < self.no_episode_below;
        self.style == RecoveryStyle::Sack && (self.sack_after_timeout || !after_timeout)
    }

    fn on_ack_by_time(
        &mut self,
        now: Time,
        cumulative: u64,
        blocks: &[SackBlock],
        watch: &mut impl Watch,
    ) -> AckOutcome {
        let first_before = self.board.first();
        let mut outcome = AckOutcome::default();
        if let Some(rack) = &mut self.rack {
            rack.begin_ack();
            for packet in first_before..cumulative.min(self.board.next()) {
                if !self.board.is_sacked(packet) {
                    rack.on_delivered(now, packet);
                }
            }
            outcome.newly_acknowledged = self.board.acknowledge_watched(cumulative, watch);
            rack.advance(self.board.first());
            for block in blocks {
                let newly = self.board.sack_each(*block, |packet| {
                    rack.on_delivered(now, packet);
                    watch.delivered(packet);
                });
                outcome.newly_acknowledged += newly;
            }
        }
        outcome.advanced = self.board.first() > first_before;
        if outcome.advanced {
            self.on_advance(self.board.first() - first_before, watch);
        } else if cumulative == first_before && self.board.outstanding() > 0 {
            self.on_duplicate();
        }
        outcome.lost = self.find_losses_by_time(now, watch);
        let is_duplicate = !outcome.advanced && outcome.newly_acknowledged == 0;
        if let Some(rack) = &mut self.rack
            && rack.probe_repaired(cumulative, is_duplicate)
            && self.episode_end.is_none()
        {
            outcome.lost = Some(cumulative - 1);
        }
        outcome
    }

    /// Marks what RACK finds lost; the lowest such packet, if that begins an episode.
    fn find_losses_by_time(&mut self, now: Time, watch: &mut impl Watch) -> Option<u64> {
        let after_timeout = self.board.first() < self.no_episode_below;
        let is_certain = self.episode_end.is_some()
            || after_timeout
            || self.board.has_sacked(DUPLICATE_THRESHOLD);
        let rack = self.rack.as_mut()?;
        let board = &mut self.board;
        let lowest = rack.find_losses(now, is_certain, |packet| {
            if board.lose_copies(packet) {
                watch.lost(packet);
            }
        })?;
        if self.episode_end.is_some() || after_timeout {
            return None;
        }
        rack.end_probe();
        self.episode_end = Some(self.board.next());
        self.retransmit_first = true;
        Some(lowest)
    }

    /// The handshake took `rtt`; with RACK, a sample of the smallest RTT. It is that of small packets,
    /// so that a retransmission acknowledged after the RTT of full ones is not taken for the
    /// acknowledgement of an earlier copy (RFC 8985, section 6.2, step 2).
    pub fn on_handshake(&mut self, rtt: Duration) {
        if let Some(rack) = &mut self.rack {
            rack.on_handshake(rtt);
        }
    }

    /// When [`on_reordering_timer`](Self::on_reordering_timer) is due; with RACK only.
    #[inline]
    pub fn reordering_deadline(&self) -> Option<Time> {
        self.rack.as_ref().and_then(|rack| rack.deadline())
    }

    /// Packets that a later one has overtaken have been waited for long enough: the lowest lost one,
    /// if a loss episode began (RFC 8985, section 6.2, step 5).
    pub fn on_reordering_timer(&mut self, now: Time) -> Option<u64> {
        self.on_reordering_timer_watched(now, &mut ())
    }

    /// Like [`on_reordering_timer`](Self::on_reordering_timer); tells `watch` of each packet found
    /// lost.
    pub fn on_reordering_timer_watched(
        &mut self,
        now: Time,
        watch: &mut impl Watch,
    ) -> Option<u64> {
        self.find_losses_by_time(now, watch)
    }

    /// The RTT samples of the last acknowledgement; with RACK only. `None` where it covered only
    /// packets sent more than once (Karn's rule), or none.
    #[inline]
    pub fn samples(&self) -> Option<Samples> {
        self.rack.as_ref().and_then(|rack| rack.samples())
    }

    /// Whether a tail loss probe may be scheduled: something is outstanding, nothing is known to be
    /// lost or out of order, and no probe is under way (RFC 8985, section 7.2); with RACK only.
    #[inline]
    pub fn may_probe(&self) -> bool {
        self.rack.as_ref().is_some_and(|rack| !rack.is_probing())
            && self.board.outstanding() > 0
            && self.episode_end.is_none()
            && self.board.first() >= self.no_episode_below
            && !self.board.has_sacked(1)
    }

    /// The packet with which to probe: a new one where there is one, else the last one again
    /// (RFC 8985, section 7.3). It leaves whatever the window.
    pub fn probe(&self, new_available: bool) -> NextPacket {
        if new_available { NextPacket::New } else { NextPacket::Again(self.board.next() - 1) }
    }

    /// The packet of [`probe`](Self::probe) was sent.
    pub fn on_probe_sent(&mut self, packet: NextPacket) {
        let end = self.board.next();
        if let Some(rack) = &mut self.rack {
            rack.on_probe(end, packet != NextPacket::New);
        }
    }

    #[inline]
    fn on_advance(&mut self, by: u64, watch: &mut impl Watch) {
        self.duplicate_acks = 0;
        let Some(end) = self.episode_end else {
            self.departed_unnamed = 0;
            return;
        };
        let over = self.board.first() >= end || self.style == RecoveryStyle::Reno;
        if over {
            self.episode_end = None;
            self.departed_unnamed = 0;
            self.partial_acks = 0;
        } else if self.style == RecoveryStyle::NewReno {
            // Partial window deflation: all but the retransmitted packet had been counted by
            // their duplicate ACKs (RFC 6582, section 3.2, step 3).
            self.departed_unnamed = self.departed_unnamed.saturating_sub(by - 1);
            self.lose_first(watch);
            self.retransmit_first = true;
            self.partial_acks += 1;
        }
    }

    fn lose_first(&mut self, watch: &mut impl Watch) {
        let first = self.board.first();
        if self.board.lose_first() {
            watch.lost(first);
        }
    }

    #[inline]
    fn on_duplicate(&mut self) {
        self.duplicate_acks += 1;
        if !self.style.is_selective() {
            self.departed_unnamed += 1;
        }
    }

    #[inline]
    fn begin_episode_if_due(&mut self, watch: &mut impl Watch) -> Option<u64> {
        let first = self.board.first();
        let due = self.duplicate_acks >= DUPLICATE_THRESHOLD as u64
            || (self.style == RecoveryStyle::Sack && self.board.first_is_lost());
        if self.episode_end.is_some() || !due || first < self.no_episode_below {
            return None;
        }
        self.lose_first(watch);
        self.episode_end = Some(self.board.next());
        self.retransmit_first = true;
        Some(first)
    }

    /// The packet to send next, if `window` whole packets may be in flight and there is one;
    /// `new_available`: whether the application has a new one.
    #[inline]
    pub fn next_packet(&mut self, window: u64, new_available: bool) -> Option<NextPacket> {
        let lost = self.board.next_lost();
        let is_forced = |packet| packet == self.board.first() || self.rack.is_some();
        if !lost.is_some_and(is_forced) {
            self.retransmit_first = false;
        }
        if self.in_flight() >= window && !self.retransmit_first {
            return None;
        }
        if let Some(packet) = lost {
            return Some(NextPacket::Again(packet));
        }
        if new_available {
            return Some(NextPacket::New);
        }
        if self.style == RecoveryStyle::Sack && self.episode_end.is_some() {
            return self.board.next_doubtful().map(NextPacket::Again);
        }
        None
    }

    /// The packet was sent; returns its number.
    #[inline]
    pub fn on_sent(&mut self, now: Time, packet: NextPacket) -> u64 {
        let number = match packet {
            NextPacket::New => self.board.send_new(),
            NextPacket::Again(number) => {
                self.retransmit_first = false;
                self.board.retransmit(number);
                number
            }
        };
        if let Some(rack) = &mut self.rack {
            rack.on_sent(now, number);
        }
        number
    }

    /// The retransmission timer expired: everything outstanding is sent again, in order, as
    /// the window allows. With RACK, what was sent less than a round trip ago and what is selectively
    /// acknowledged is not (RFC 8985, section 6.3), and the first packet leaves whatever the window.
    pub fn on_timeout(&mut self, now: Time) {
        self.on_timeout_watched(now, &mut ());
    }

    /// Like [`on_timeout`](Self::on_timeout); tells `watch` of each packet taken for lost.
    pub fn on_timeout_watched(&mut self, now: Time, watch: &mut impl Watch) {
        let outstanding = self.board.first()..self.board.next();
        match &mut self.rack {
            None => {
                self.board.lose_all();
                outstanding.for_each(|packet| watch.lost(packet));
            }
            Some(rack) => {
                let board = &mut self.board;
                rack.on_timeout(now, |packet| {
                    if board.lose_copies(packet) {
                        watch.lost(packet);
                    }
                });
            }
        }
        self.episode_end = None;
        // Packets sent again that had arrived already bring duplicate ACKs for all that was sent.
        let more = u64::from(self.style == RecoveryStyle::NewReno);
        self.no_episode_below = self.board.next() + more;
        self.duplicate_acks = 0;
        self.retransmit_first = self.rack.is_some();
        self.departed_unnamed = 0;
        self.partial_acks = 0;
    }

    /// The last timeout was spurious: what it took for lost is in flight again (RFC 4015, section 3).
    pub fn undo_timeout(&mut self) {
        let rack = &mut self.rack;
        self.board.undo_losses(|packet| {
            if let Some(rack) = rack {
                rack.undo_loss(packet);
            }
        });
        if let Some(rack) = rack {
            rack.relist();
        }
        self.no_episode_below = self.board.first();
        self.retransmit_first = false;
    }
}
