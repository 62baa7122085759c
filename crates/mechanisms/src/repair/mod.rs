//! Repair by deadline: which pieces of data are sent again, when, and in how many copies.
//!
//! A unit of media is sent in pieces, each in a packet. An acknowledgement tells which packets have
//! arrived; a piece all of whose packets are lost is sent again while there is time for it. Where a
//! further repair would come too late, it is sent in several copies, as many as make the loss of the
//! piece rarer than the unit is worth (Hairpin, NSDI 2024: more redundancy on later retransmissions),
//! apart from each other, so that a burst of losses does not take all of them.
//!
//! The struct knows no bytes: units have numbers, their pieces count from 0. A caller tells it what was
//! sent and acknowledged, and asks [`next`](Repair::next) for the piece to send again.

mod evidence;
mod rounds;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Duration, Time};

use evidence::Evidence;
pub use rounds::Worth;
use rounds::{Rounds, copies, gap};

/// A piece of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The unit's number, as the caller has given it.
    pub unit: u64,
    /// Its place in the unit, from 0.
    pub place: u32,
}

/// State of a piece that was sent.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    has_arrived: bool,
    /// Times sent.
    sent: u32,
    /// Of these, packets of which nothing is known.
    outstanding: u32,
    /// Copies that are to be sent.
    due: u32,
}

#[derive(Clone, Debug)]
struct Unit {
    deadline: Time,
    worth: Worth,
    pieces: Vec<State>,
    /// Pieces that have not arrived.
    missing: u32,
}

/// What of many units is sent again.
///
/// Its memory is that of the units that are begun and not forgotten, and of the packets in flight.
#[derive(Clone, Debug, Default)]
pub struct Repair {
    units: BTreeMap<u64, Unit>,
    evidence: Evidence,
    rounds: Rounds,
    /// Copies that may leave now: the nearest deadline first.
    ready: BTreeSet<(Time, Piece)>,
    /// Copies that wait until they are apart from the one before.
    waiting: BTreeSet<(Time, Piece)>,
    /// Units all of whose pieces have arrived since the caller last asked.
    arrived: Vec<u64>,
    /// Pieces sent again, copies included.
    repairs: u64,
}

impl Repair {
    /// A unit of so many pieces is begun; none of them is sent yet. [`Time::NEVER`] for one without a
    /// deadline: what is sent after `deadline` is of no use.
    pub fn begin(&mut self, unit: u64, pieces: u32, deadline: Time) {
        let state = Unit {
            deadline,
            worth: Worth::default(),
            pieces: vec![State::default(); pieces as usize],
            missing: pieces,
        };
        self.units.insert(unit, state);
    }

    /// Others depend on this unit.
    pub fn is_needed(&mut self, unit: u64) {
        if let Some(unit) = self.units.get_mut(&unit) {
            unit.worth = Worth::Needed;
        }
    }

    /// The unit is given up, or nothing more is asked about it.
    pub fn forget(&mut self, unit: u64) {
        self.units.remove(&unit);
    }

    /// Whether a unit is begun and neither arrived nor forgotten.
    pub fn has(&self, unit: u64) -> bool {
        self.units.contains_key(&unit)
    }

    /// Whether it keeps no unit.
    pub fn is_idle(&self) -> bool {
        self.units.is_empty()
    }

    /// Pieces sent again so far, copies included.
    pub fn repairs(&self) -> u64 {
        self.repairs
    }

    /// The share of packets that are lost, 0 to 1, of the last few hundred.
    pub fn loss(&self) -> f64 {
        self.rounds.loss()
    }

    /// A round trip was measured; `smoothed` is its mean (RFC 6298).
    pub fn on_rtt(&mut self, smoothed: Duration) {
        self.rounds.on_rtt(smoothed);
    }

    /// Any packet was sent. Numbers rise with each.
    pub fn on_packet(&mut self, now: Time) {
        self.rounds.on_packet(now);
    }

    /// A piece left in `packet`, whose number is at least that of any before.
    pub fn on_sent(&mut self, now: Time, packet: u64, piece: Piece) {
        let Some(state) = self.state(piece) else { return };
        state.outstanding += 1;
        state.sent += 1;
        let is_again = state.sent > 1;
        self.repairs += u64::from(is_again);
        self.evidence.on_sent(now, packet, piece);
    }

    /// `packet` was acknowledged, whether it had a piece or not. Call [`detect`](Self::detect) after
    /// all packets of one acknowledgement.
    pub fn on_acknowledged(&mut self, now: Time, packet: u64) {
        for piece in self.evidence.on_acknowledged(now, packet) {
            self.rounds.on_fate(false);
            let Some(unit) = self.units.get_mut(&piece.unit) else { continue };
            let Some(state) = unit.pieces.get_mut(piece.place as usize) else { continue };
            state.outstanding = state.outstanding.saturating_sub(1);
            if std::mem::replace(&mut state.has_arrived, true) {
                continue;
            }
            unit.missing -= 1;
            if unit.missing == 0 {
                self.units.remove(&piece.unit);
                self.arrived.push(piece.unit);
            }
        }
    }

    /// Finds what is lost, and decides what of it is sent again. After it
    /// [`next_timeout`](Self::next_timeout) is later than `now`.
    pub fn detect(&mut self, now: Time) {
        for piece in self.evidence.lost(now, self.rounds.rtt()) {
            self.rounds.on_fate(true);
            self.on_lost(now, piece);
        }
        while let Some(&(due, piece)) = self.waiting.first().filter(|(due, _)| *due <= now) {
            self.waiting.remove(&(due, piece));
            self.make_ready(piece);
        }
    }

    fn on_lost(&mut self, now: Time, piece: Piece) {
        let patience = self.evidence.patience(self.rounds.rtt());
        let Some(unit) = self.units.get_mut(&piece.unit) else { return };
        let deadline = unit.deadline;
        let Some(state) = unit.pieces.get_mut(piece.place as usize) else { return };
        state.outstanding = state.outstanding.saturating_sub(1);
        if state.has_arrived || state.outstanding > 0 || state.due > 0 || now >= deadline {
            return;
        }
        let later = self.rounds.later(now, deadline, patience);
        let count = copies(self.rounds.loss(), state.sent, later, unit.worth);
        state.due = count;
        self.make_ready(piece);
        let apart = gap(count, deadline.since(now), self.rounds.packet_interval());
        for copy in 1..count {
            // Of several copies due at one time a set would keep one.
            let due = now + apart * u64::from(copy) + Duration::from_nanos(u64::from(copy));
            self.waiting.insert((due, piece));
        }
    }

    /// The piece to send again now, after [`detect`](Self::detect): that of the nearest deadline.
    pub fn next(&mut self, now: Time) -> Option<Piece> {
        while let Some((deadline, piece)) = self.ready.pop_first() {
            let Some(state) = self.state(piece) else { continue };
            state.due = state.due.saturating_sub(1);
            if !state.has_arrived && now < deadline {
                return Some(piece);
            }
        }
        None
    }

    /// A piece that [`next`](Self::next) has returned was not sent: it is due again.
    pub fn put_back(&mut self, piece: Piece) {
        if let Some(state) = self.state(piece).filter(|state| !state.has_arrived) {
            state.due += 1;
            self.make_ready(piece);
        }
    }

    /// A copy that was waiting may leave; a second one of the same piece is not kept.
    fn make_ready(&mut self, piece: Piece) {
        let Some(unit) = self.units.get_mut(&piece.unit) else { return };
        if !self.ready.insert((unit.deadline, piece))
            && let Some(state) = unit.pieces.get_mut(piece.place as usize)
        {
            state.due = state.due.saturating_sub(1);
        }
    }

    /// Whether a piece may be sent again now.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When [`detect`](Self::detect) or [`next`](Self::next) may have something new.
    pub fn next_timeout(&self) -> Time {
        let copy = self.waiting.first().map_or(Time::NEVER, |(due, _)| *due);
        copy.min(self.evidence.next_loss(self.rounds.rtt()))
    }

    /// A unit all of whose pieces have arrived, each once.
    pub fn next_arrived(&mut self) -> Option<u64> {
        self.arrived.pop()
    }

    fn state(&mut self, piece: Piece) -> Option<&mut State> {
        self.units.get_mut(&piece.unit)?.pieces.get_mut(piece.place as usize)
    }
}
