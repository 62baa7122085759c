//! Loss recovery: which packet leaves next, and when a loss episode begins and ends.
//!
//! One state machine for the three ways that TCP has had: fast recovery that ends at the first
//! new ACK (RFC 5681), that partial ACKs prolong (RFC 6582), and that selective
//! acknowledgements guide (RFC 6675). All three share limited transmit (RFC 3042) and the
//! return to the first outstanding packet after a timeout.

mod scoreboard;

pub use scoreboard::{SackBlock, Scoreboard};

use scoreboard::DUPLICATE_THRESHOLD;

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
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOutcome {
    /// Packets newly acknowledged, cumulatively or selectively.
    pub newly_acknowledged: u64,
    /// True where the cumulative acknowledgement moved.
    pub advanced: bool,
    /// The lowest lost packet, if a loss episode began: notify the congestion controller.
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
#[derive(Clone, Debug)]
pub struct LossRecovery {
    style: RecoveryStyle,
    limited_transmit: bool,
    board: Scoreboard,
    /// Set when an episode begins (RFC 6675's RecoveryPoint, RFC 6582's recover), cleared when
    /// the acknowledgement reaches it.
    episode_end: Option<u64>,
    /// After a timeout, duplicate ACKs below this one must not begin an episode. With NewReno the
    /// acknowledgement must cover more than had been sent by then (RFC 6582, section 3.2, step 2,
    /// and section 4.1), with SACK as much (RFC 6675, section 5.1).
    no_episode_below: u64,
    duplicate_acks: u64,
    /// Set when an episode begins and by partial ACKs: the first packet leaves again at once,
    /// whatever the window (RFC 6675, section 5, step 4.3; RFC 6582, section 3.2).
    retransmit_first: bool,
    /// Packets that duplicate ACKs say have left the network, where no SACK says which.
    departed_unnamed: u64,
    /// Partial ACKs of this episode, where they prolong it (RFC 6582).
    partial_acks: u64,
}

impl LossRecovery {
    /// Nothing sent yet.
    pub fn new(style: RecoveryStyle, limited_transmit: bool) -> Self {
        Self {
            style,
            limited_transmit,
            board: Scoreboard::default(),
            episode_end: None,
            no_episode_below: 0,
            duplicate_acks: 0,
            retransmit_first: false,
            departed_unnamed: 0,
            partial_acks: 0,
        }
    }

    /// The lowest packet not cumulatively acknowledged.
    pub fn first(&self) -> u64 {
        self.board.first()
    }

    /// The next new packet.
    pub fn next(&self) -> u64 {
        self.board.next()
    }

    /// Packets sent and not cumulatively acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.board.outstanding()
    }

    /// Packets that count against the window.
    pub fn in_flight(&self) -> u64 {
        let before_episode = self.episode_end.is_none() && self.duplicate_acks > 0;
        if before_episode && !self.limited_transmit {
            return self.board.outstanding();
        }
        self.board.in_flight().saturating_sub(self.departed_unnamed)
    }

    /// True while a loss episode lasts.
    pub fn in_recovery(&self) -> bool {
        self.episode_end.is_some()
    }

    /// Whether new data acknowledged, or the first packet sent again, restarts the
    /// retransmission timer. Of an episode's partial ACKs only the first does, so that a long
    /// one ends by the timer rather than with a packet a round trip (RFC 6582, section 3.2,
    /// step 3, and section 4, the "impatient" variant).
    pub fn restarts_timer(&self) -> bool {
        self.partial_acks <= 1
    }

    /// An acknowledgement arrived: everything below `cumulative` and the packets of `blocks`.
    pub fn on_ack(&mut self, cumulative: u64, blocks: &[SackBlock]) -> AckOutcome {
        let first_before = self.board.first();
        let mut outcome = AckOutcome {
            newly_acknowledged: self.board.acknowledge(cumulative),
            ..AckOutcome::default()
        };
        outcome.advanced = self.board.first() > first_before;
        if self.style == RecoveryStyle::Sack {
            let newly: u64 = blocks.iter().map(|block| self.board.sack(*block)).sum();
            outcome.newly_acknowledged += newly;
        }
        if outcome.advanced {
            self.on_advance(self.board.first() - first_before);
        } else if cumulative == first_before && self.board.outstanding() > 0 {
            self.on_duplicate();
        }
        if self.style == RecoveryStyle::Sack {
            self.board.find_losses();
        }
        outcome.lost = self.begin_episode_if_due();
        outcome
    }

    fn on_advance(&mut self, by: u64) {
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
            self.board.lose_first();
            self.retransmit_first = true;
            self.partial_acks += 1;
        }
    }

    fn on_duplicate(&mut self) {
        self.duplicate_acks += 1;
        if self.style != RecoveryStyle::Sack {
            self.departed_unnamed += 1;
        }
    }

    fn begin_episode_if_due(&mut self) -> Option<u64> {
        let first = self.board.first();
        let due = self.duplicate_acks >= DUPLICATE_THRESHOLD as u64
            || (self.style == RecoveryStyle::Sack && self.board.first_is_lost());
        if self.episode_end.is_some() || !due || first < self.no_episode_below {
            return None;
        }
        self.board.lose_first();
        self.episode_end = Some(self.board.next());
        self.retransmit_first = true;
        Some(first)
    }

    /// The packet to send next, if `window` whole packets may be in flight and there is one;
    /// `new_available`: whether the application has a new one.
    pub fn next_packet(&mut self, window: u64, new_available: bool) -> Option<NextPacket> {
        let lost = self.board.next_lost();
        if lost.is_none_or(|packet| packet != self.board.first()) {
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
    pub fn on_sent(&mut self, packet: NextPacket) -> u64 {
        match packet {
            NextPacket::New => self.board.send_new(),
            NextPacket::Again(number) => {
                self.retransmit_first = false;
                self.board.retransmit(number);
                number
            }
        }
    }

    /// The retransmission timer expired: everything outstanding is sent again, in order, as
    /// the window allows.
    pub fn on_timeout(&mut self) {
        self.board.lose_all();
        self.episode_end = None;
        // Packets sent again that had arrived already bring duplicate ACKs for all that was sent.
        let more = u64::from(self.style == RecoveryStyle::NewReno);
        self.no_episode_below = self.board.next() + more;
        self.duplicate_acks = 0;
        self.retransmit_first = false;
        self.departed_unnamed = 0;
        self.partial_acks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(style: RecoveryStyle, count: u64) -> LossRecovery {
        let mut recovery = LossRecovery::new(style, true);
        for _ in 0..count {
            recovery.on_sent(NextPacket::New);
        }
        recovery
    }

    #[test]
    fn the_third_duplicate_ack_retransmits_the_first_packet() {
        for style in [RecoveryStyle::Reno, RecoveryStyle::NewReno] {
            let mut recovery = sent(style, 10);
            recovery.on_ack(2, &[]);
            assert_eq!(recovery.on_ack(2, &[]).lost, None);
            assert_eq!(recovery.on_ack(2, &[]).lost, None);
            assert_eq!(recovery.on_ack(2, &[]).lost, Some(2));
            assert_eq!(recovery.next_packet(100, true), Some(NextPacket::Again(2)));
        }
    }

    #[test]
    fn limited_transmit_lets_one_new_packet_out_for_each_of_the_first_two_duplicate_acks() {
        let mut recovery = sent(RecoveryStyle::NewReno, 4);
        assert_eq!(recovery.next_packet(4, true), None);
        recovery.on_ack(0, &[]);
        assert_eq!(recovery.next_packet(4, true), Some(NextPacket::New));
        let mut without = LossRecovery::new(RecoveryStyle::NewReno, false);
        for _ in 0..4 {
            without.on_sent(NextPacket::New);
        }
        without.on_ack(0, &[]);
        assert_eq!(without.next_packet(4, true), None);
    }

    #[test]
    fn a_fast_retransmission_does_not_wait_for_the_window() {
        let mut recovery = sent(RecoveryStyle::Sack, 10);
        recovery.on_ack(0, &[SackBlock { start: 1, end: 4 }]);
        assert_eq!(recovery.next_packet(2, true), Some(NextPacket::Again(0)));
        recovery.on_sent(NextPacket::Again(0));
        assert_eq!(recovery.next_packet(2, true), None);
    }

    #[test]
    fn a_partial_ack_prolongs_newreno_and_ends_reno() {
        for (style, prolonged) in [(RecoveryStyle::NewReno, true), (RecoveryStyle::Reno, false)] {
            let mut recovery = sent(style, 10);
            for _ in 0..3 {
                recovery.on_ack(0, &[]);
            }
            recovery.on_sent(NextPacket::Again(0));
            recovery.on_ack(4, &[]);
            assert_eq!(recovery.in_recovery(), prolonged);
            let next = recovery.next_packet(100, false);
            assert_eq!(next, prolonged.then_some(NextPacket::Again(4)));
        }
    }

    #[test]
    fn only_the_first_partial_ack_of_an_episode_restarts_the_timer() {
        let mut recovery = sent(RecoveryStyle::NewReno, 10);
        for _ in 0..3 {
            recovery.on_ack(0, &[]);
        }
        for (partial, restarts) in [(2, true), (4, false), (6, false), (10, true)] {
            recovery.on_ack(partial, &[]);
            assert_eq!(recovery.restarts_timer(), restarts, "{partial}");
        }
    }

    #[test]
    fn duplicate_acks_of_before_a_timeout_begin_no_episode() {
        let mut recovery = sent(RecoveryStyle::Sack, 10);
        recovery.on_timeout();
        for _ in 0..5 {
            assert_eq!(recovery.on_ack(0, &[SackBlock { start: 5, end: 10 }]).lost, None);
        }
        assert_eq!(recovery.next_packet(1, true), Some(NextPacket::Again(0)));
    }

    /// Lets a sender time out, send everything again, and learn that all of it had arrived but the
    /// first packet; the duplicate ACKs that follow are for packets sent twice. Answers which
    /// packet each of two rounds of duplicate ACKs begins an episode for: at the end of what was
    /// sent by the timeout, and one packet further.
    fn episodes_after_a_timeout(style: RecoveryStyle) -> [Option<u64>; 2] {
        let mut recovery = sent(style, 10);
        recovery.on_timeout();
        while let Some(packet) = recovery.next_packet(100, false) {
            recovery.on_sent(packet);
        }
        for _ in 0..5 {
            recovery.on_sent(NextPacket::New);
        }
        let mut at = |cumulative: u64| {
            recovery.on_ack(cumulative, &[]);
            let mut lost = [0; 3].map(|_| recovery.on_ack(cumulative, &[]).lost);
            lost.sort_unstable();
            lost[2]
        };
        [at(10), at(11)]
    }

    #[test]
    fn after_a_timeout_newreno_waits_for_an_ack_of_more_than_was_sent_by_then() {
        assert_eq!(episodes_after_a_timeout(RecoveryStyle::NewReno), [None, Some(11)]);
    }

    #[test]
    fn after_a_timeout_sack_waits_for_an_ack_of_all_that_was_sent_by_then() {
        assert_eq!(episodes_after_a_timeout(RecoveryStyle::Sack)[0], Some(10));
    }

    #[test]
    fn a_sender_with_sack_repairs_several_losses_in_one_episode() {
        let mut recovery = sent(RecoveryStyle::Sack, 10);
        let lost = recovery.on_ack(0, &[SackBlock { start: 3, end: 6 }]).lost;
        assert_eq!(lost, Some(0));
        for expected in 0..3 {
            assert_eq!(recovery.next_packet(100, true), Some(NextPacket::Again(expected)));
            recovery.on_sent(NextPacket::Again(expected));
        }
        assert_eq!(recovery.on_ack(6, &[]).lost, None);
        assert!(recovery.in_recovery(), "until all that was outstanding is acknowledged");
        recovery.on_ack(10, &[]);
        assert!(!recovery.in_recovery());
        assert_eq!(recovery.in_flight(), 0);
    }

    proptest! {
        /// A sender and a receiver over a path that loses packets at will: every packet
        /// arrives in the end, and the count in flight never exceeds what is outstanding twice.
        #[test]
        fn every_packet_arrives_in_the_end(
            losses in proptest::collection::vec(any::<bool>(), 0..400),
            window in 1u64..40,
            style in prop_oneof![
                Just(RecoveryStyle::Reno), Just(RecoveryStyle::NewReno), Just(RecoveryStyle::Sack)
            ],
        ) {
            let mut recovery = LossRecovery::new(style, true);
            let mut receiver = crate::receive::Reassembly::default();
            let mut losses = losses.into_iter();
            let total = 200;
            let mut wire = std::collections::VecDeque::new();
            for _step in 0..20_000 {
                let new_available = recovery.next() < total;
                if let Some(packet) = recovery.next_packet(window, new_available) {
                    let number = recovery.on_sent(packet);
                    if !losses.next().unwrap_or(false) {
                        wire.push_back(number);
                    }
                } else if let Some(number) = wire.pop_front() {
                    receiver.receive(number);
                    recovery.on_ack(receiver.next(), receiver.blocks());
                } else if recovery.outstanding() > 0 {
                    recovery.on_timeout();
                } else {
                    break;
                }
                prop_assert!(recovery.in_flight() <= 2 * recovery.outstanding());
            }
            prop_assert_eq!(receiver.next(), total);
        }
    }
}
