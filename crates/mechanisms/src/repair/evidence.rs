//! What acknowledgements tell of the packets in flight.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use super::Piece;

/// A packet is lost if one sent so many later has arrived (RFC 9002, section 6.1.1).
const FEWEST_LATER: u64 = 3;

/// The most that reordering raises it to.
const MOST_LATER: u64 = 64;

/// It falls by half after so many round trips without a packet that was taken for lost and had arrived
/// (RFC 8985, section 6.2, step 4: 16 recoveries).
const CALM_ROUND_TRIPS: u64 = 16;

/// A packet is lost, too, if a later one has arrived and it was sent 9/8 of a round trip ago (RFC 9002,
/// section 6.1.2).
const TIME_THRESHOLD: (u64, u64) = (9, 8);

/// The granularity of timers (RFC 9002, section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Packets are remembered for so many round trips after they were taken for lost.
const REMEMBERED: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unknown,
    Lost,
    Arrived,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    packet: u64,
    at: Time,
    piece: Piece,
    fate: Fate,
}

/// The pieces in flight, in the order of sending.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    sent: VecDeque<Sent>,
    highest: Option<u64>,
    /// How many later packets are evidence of a loss.
    later: u64,
    /// When it last rose or fell.
    settled: Time,
}

impl Default for Evidence {
    fn default() -> Self {
        Self { sent: VecDeque::new(), highest: None, later: FEWEST_LATER, settled: Time::ZERO }
    }
}

impl Evidence {
    pub(super) fn on_sent(&mut self, now: Time, packet: u64, piece: Piece) {
        self.sent.push_back(Sent { packet, at: now, piece, fate: Fate::Unknown });
    }

    /// The pieces of a packet that has arrived.
    pub(super) fn on_acknowledged(&mut self, now: Time, packet: u64) -> Vec<Piece> {
        let highest = self.highest.map_or(packet, |highest| highest.max(packet));
        self.highest = Some(highest);
        let first = self.sent.partition_point(|sent| sent.packet < packet);
        let mut pieces = Vec::new();
        for sent in self.sent.range_mut(first..).take_while(|sent| sent.packet == packet) {
            if sent.fate == Fate::Lost {
                self.later = (highest - packet + 1).clamp(self.later, MOST_LATER);
                self.settled = now;
            }
            if sent.fate != Fate::Arrived {
                sent.fate = Fate::Arrived;
                pieces.push(sent.piece);
            }
        }
        pieces
    }

    /// The pieces of packets that are now taken for lost.
    pub(super) fn lost(&mut self, now: Time, rtt: Duration) -> Vec<Piece> {
        if now.since(self.settled) > rtt * CALM_ROUND_TRIPS {
            self.later = (self.later / 2).max(FEWEST_LATER);
            self.settled = now;
        }
        while let Some(first) = self.sent.front()
            && (first.fate == Fate::Arrived
                || first.fate == Fate::Lost && first.at + rtt * REMEMBERED <= now)
        {
            self.sent.pop_front();
        }
        let Some(highest) = self.highest else { return Vec::new() };
        let (later, patience) = (self.later, self.patience(rtt));
        let mut lost = Vec::new();
        for sent in self.sent.iter_mut().take_while(|sent| sent.packet < highest) {
            if sent.fate != Fate::Unknown {
                continue;
            }
            if sent.packet + later > highest && sent.at + patience > now {
                break;
            }
            sent.fate = Fate::Lost;
            lost.push(sent.piece);
        }
        lost
    }

    /// After what time a packet is lost of which a later one has arrived.
    pub(super) fn patience(&self, rtt: Duration) -> Duration {
        let (many, of) = TIME_THRESHOLD;
        // Reordering by more packets than usual makes time a bad witness, too.
        let (many, of) = if self.later > FEWEST_LATER { (many + 3, of) } else { (many, of) };
        Duration::from_nanos(rtt.as_nanos() / of * many).max(rtt + GRANULARITY)
    }

    /// When the next packet is lost by time, if nothing arrives before.
    pub(super) fn next_loss(&self, rtt: Duration) -> Time {
        let Some(highest) = self.highest else { return Time::NEVER };
        let before = |sent: &&Sent| sent.packet < highest;
        let unknown = self.sent.iter().take_while(before).find(|sent| sent.fate == Fate::Unknown);
        unknown.map_or(Time::NEVER, |sent| sent.at + self.patience(rtt))
    }
}
