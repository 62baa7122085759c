//! The last key frames of several elementary streams.

use std::collections::{BTreeMap, VecDeque};

use ontempo_foundation::Time;
use ontempo_media::{MAX_STREAMS, split_number};
use ontempo_session::message::{Content, read};

use crate::stream::{Relayed, Start};

/// Key frames that are remembered behind which others of their streams have come. What depends on one comes with
/// it, or before the next but for what is late.
const MAX_PAST: usize = 4 * MAX_STREAMS;

/// A key frame.
#[derive(Clone, Debug)]
struct Key {
    number: u64,
    /// What it depends on: what a decoder has to know.
    needs: Vec<u64>,
    /// All since then is kept.
    is_kept: bool,
}

/// The last key frame of each stream. What depends on one is of its stream, so that units that are none are not read.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    last: [Option<Key>; MAX_STREAMS],
    past: VecDeque<u64>,
}

/// The number of a unit's stream.
fn stream_of(unit: &Relayed) -> Option<usize> {
    let Ok(Content::Unit(unit)) = read(unit.number, &unit.data) else { return None };
    split_number(&unit.data).map(|(number, _)| number)
}

impl Keys {
    /// A key frame has come.
    pub(crate) fn note(&mut self, unit: &Relayed) {
        let Some(last) = stream_of(unit).and_then(|stream| self.last.get_mut(stream)) else {
            return;
        };
        let key = Key { number: unit.number, needs: unit.depends_on.clone(), is_kept: true };
        self.past.extend(last.replace(key).map(|before| before.number));
        if self.past.len() > MAX_PAST {
            self.past.pop_front();
        }
    }

    /// A unit is no longer kept.
    pub(crate) fn forget(&mut self, number: u64) {
        for key in self.last.iter_mut().flatten() {
            key.is_kept &= key.number != number && !key.needs.contains(&number);
        }
    }

    /// Nothing is kept any more.
    pub(crate) fn clear(&mut self) {
        self.last.iter_mut().flatten().for_each(|key| key.is_kept = false);
    }

    /// The key frames since which all is kept, and what they need.
    pub(crate) fn needed(&self) -> Vec<u64> {
        let kept = self.last.iter().flatten().filter(|key| key.is_kept);
        kept.flat_map(|key| key.needs.iter().chain([&key.number])).copied().collect()
    }

    /// With what a viewer that comes now begins: of each stream of pictures with its last key frame, or the next
    /// one where a part of what came since is due.
    pub(crate) fn start(&self, now: Time, kept: &VecDeque<Relayed>) -> Start {
        let stream_of_key = |number: u64| {
            let is_it = |key: &Key| key.number == number;
            self.last.iter().position(|key| key.as_ref().is_some_and(is_it))
        };
        let mut useful = [false; MAX_STREAMS];
        for (useful, key) in useful.iter_mut().zip(&self.last) {
            *useful = key.as_ref().is_some_and(|key| key.is_kept);
        }
        let mut streams = BTreeMap::new();
        for unit in kept {
            let of_needed = || unit.depends_on.iter().find_map(|on| streams.get(on).copied());
            if let Some(stream) = stream_of_key(unit.number).or_else(of_needed) {
                streams.insert(unit.number, stream);
                useful[stream] &= unit.is_due_after(now);
            }
        }
        let without = self.last.iter().zip(useful).filter(|(_, useful)| !useful);
        let without = without.filter_map(|(key, _)| key.as_ref().map(|key| key.number));
        let without: Vec<u64> = without.chain(self.past.iter().copied()).collect();
        let is_useful = |unit: &&Relayed| match streams.get(&unit.number) {
            Some(stream) => useful[*stream],
            None => !unit.is_picture() && unit.is_due_after(now),
        };
        let awaits_key = !useful.contains(&true);
        let units = kept.iter().filter(|_| !awaits_key).filter(is_useful);
        Start { units: units.cloned().collect(), awaits_key, without }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ontempo_media::{Kind, Part, Span, Unit};
    use ontempo_session::message;

    use super::*;

    /// A unit of the stream of this number.
    fn unit(number: u64, stream: u8, kind: Kind, depends_on: &[u64]) -> Relayed {
        let data = vec![stream, 0x80];
        let spans = vec![Span { offset: 0, length: 2 }];
        let part =
            Part { datagram: number, length: 2, arrived: Time::ZERO, spans, stuffing: Vec::new() };
        let unit = Unit {
            id: number,
            kind,
            media_time: None,
            slack: None,
            continues: None,
            dependencies: depends_on.to_vec(),
            parts: vec![part],
            data,
        };
        let data: Bytes = message::media(&unit);
        let deadline = Some(Time::from_nanos(1_000 + number));
        let (priority, depends_on) = (kind.priority(), depends_on.to_vec());
        Relayed { number, data, deadline, priority, continues: None, depends_on }
    }

    /// Two films and sound: keys of the first at 1 and 6, of the second at 3 and 9, each behind what describes it.
    fn film() -> Vec<Relayed> {
        vec![
            unit(0, 0, Kind::Tables, &[]),
            unit(1, 0, Kind::Key, &[0]),
            unit(2, 1, Kind::Tables, &[]),
            unit(3, 1, Kind::Key, &[2]),
            unit(4, 2, Kind::Sound, &[]),
            unit(5, 0, Kind::Tables, &[]),
            unit(6, 0, Kind::Key, &[5]),
            unit(7, 1, Kind::Frame, &[2, 3]),
            unit(8, 0, Kind::Frame, &[5, 6]),
            unit(9, 1, Kind::Key, &[2]),
            unit(10, 0, Kind::Frame, &[5, 6, 8]),
        ]
    }

    fn begun(kept: &[Relayed], now: u64) -> (Vec<u64>, Vec<u64>) {
        let mut keys = Keys::default();
        kept.iter().filter(|unit| unit.is_key()).for_each(|key| keys.note(key));
        let start = keys.start(Time::from_nanos(now), &kept.iter().cloned().collect());
        (start.units.iter().map(|unit| unit.number).collect(), start.without)
    }

    #[test]
    fn each_film_begins_with_its_own_last_key_frame() {
        let film = film();
        let (units, without) = begun(&film[..9], 0);
        assert_eq!(units, [0, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(without, [1]);
        let (units, without) = begun(&film, 0);
        assert_eq!(units, [0, 2, 4, 5, 6, 8, 9, 10]);
        assert_eq!(without, [1, 3]);
    }

    #[test]
    fn a_film_whose_group_is_due_waits_for_its_next_key_frame_while_the_other_begins() {
        let (units, without) = begun(&film(), 1_006);
        assert_eq!(units, [9]);
        assert_eq!(without, [6, 1, 3]);
        assert!(begun(&film(), 1_010).0.is_empty());
    }
}
