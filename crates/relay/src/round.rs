//! Units that have come and that not all viewers have been offered.

use std::collections::VecDeque;

use ontempo_transport::ConnectionId;

use crate::stream::Relayed;

/// Units on their way to all viewers: one viewer after the other gets all that have come until then, so
/// that its state is worked on once and not for each unit.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Place of the first unit kept, of all that the stream has had.
    first: u64,
    units: VecDeque<Relayed>,
    /// Viewers that have their turn in this round.
    turns: VecDeque<ConnectionId>,
    /// When it is over, all viewers have had the units before this place.
    covers: u64,
}

impl Round {
    /// The place above those of all units so far: where a viewer begins that comes now.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.units.len() as u64
    }

    /// A unit has come.
    pub(crate) fn push(&mut self, unit: Relayed) {
        self.units.push_back(unit);
    }

    /// The viewer whose turn it is; `None` if all have been offered all. Of `viewers` those are asked
    /// that are there when a round begins: a later one begins behind it.
    pub(crate) fn next<'a>(
        &mut self,
        viewers: impl Iterator<Item = &'a ConnectionId>,
    ) -> Option<ConnectionId> {
        if self.turns.is_empty() {
            let had = (self.covers.saturating_sub(self.first)) as usize;
            self.units.drain(..had.min(self.units.len()));
            self.first = self.first.max(self.covers);
            if self.units.is_empty() {
                return None;
            }
            self.covers = self.end();
            self.turns.extend(viewers);
            if self.turns.is_empty() {
                // Nobody is there.
                self.first = self.covers;
                self.units.clear();
            }
        }
        self.turns.pop_front()
    }

    /// The units from a place on.
    pub(crate) fn units_from(&self, place: u64) -> impl Iterator<Item = &Relayed> {
        let skipped = place.saturating_sub(self.first) as usize;
        self.units.iter().skip(skipped)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use ontempo_foundation::Time;
    use ontempo_transport::{Endpoint, Token, Trust};

    use super::*;

    pub(crate) fn ids(count: usize) -> Vec<ConnectionId> {
        let mut endpoint = Endpoint::new(Default::default(), [1; 32]);
        let at = "10.0.0.1:1".parse().expect("an address");
        let mut connect = |_| {
            let trust = Trust::Insecure;
            endpoint.connect(Time::ZERO, at, "a", &trust, Token::anyone()).expect("it begins")
        };
        (0..count).map(&mut connect).collect()
    }

    fn unit(number: u64) -> Relayed {
        let (data, depends_on) = (Bytes::from_static(b"unit"), Vec::new());
        Relayed { number, data, deadline: None, priority: 0, continues: None, depends_on }
    }

    fn numbers(round: &Round, place: u64) -> Vec<u64> {
        round.units_from(place).map(|unit| unit.number).collect()
    }

    #[test]
    fn each_viewer_gets_each_unit_once_whenever_units_and_viewers_come() {
        let ids = ids(3);
        let (mut round, mut viewers) = (Round::default(), BTreeSet::from([ids[0], ids[1]]));
        let mut places = [0; 3];
        let mut got = [const { Vec::new() }; 3];
        let mut turn =
            |round: &mut Round, viewers: &BTreeSet<ConnectionId>, places: &mut [u64; 3]| {
                let id = round.next(viewers.iter())?;
                let who = ids.iter().position(|known| *known == id).expect("a viewer");
                got[who].extend(numbers(round, places[who]));
                places[who] = round.end();
                Some(())
            };
        round.push(unit(0));
        turn(&mut round, &viewers, &mut places).expect("a turn");
        // One has had its turn when the next unit and another viewer come.
        round.push(unit(1));
        viewers.insert(ids[2]);
        places[2] = round.end();
        round.push(unit(2));
        while turn(&mut round, &viewers, &mut places).is_some() {}
        // Nobody is there for this one, and nothing of it is kept.
        round.push(unit(3));
        let nobody = BTreeSet::new();
        assert!(turn(&mut round, &nobody, &mut places).is_none());
        places = [round.end(); 3];
        round.push(unit(4));
        while turn(&mut round, &viewers, &mut places).is_some() {}
        assert_eq!(got, [vec![0, 1, 2, 4], vec![0, 1, 2, 4], vec![2, 4]]);
        assert!(numbers(&round, 0).is_empty());
    }
}
