//! A stream: its source, what is kept of it for new viewers, and its viewers.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
use ontempo_media::Kind;
use ontempo_session::message::{Label, Report};
use ontempo_transport::{ConnectionId, FlowConfig, FlowId, Reliability};

use crate::inbox::Key;
use crate::keys::Keys;
use crate::round::Round;

/// Units of tables directly before a key frame, with which a new viewer begins: those of MPEG-TS.
const MAX_TABLES: usize = 4;

/// Units kept for a new viewer, beside their bytes.
const MAX_START: usize = 1_024;

/// A unit on its way to viewers; copies share the payload.
#[derive(Clone, Debug)]
pub(crate) struct Relayed {
    /// Its number in the stream.
    pub(crate) number: u64,
    pub(crate) data: Bytes,
    pub(crate) deadline: Option<Time>,
    pub(crate) priority: u8,
    /// The unit that it continues, and those that it depends on: numbers in the stream.
    pub(crate) continues: Option<u64>,
    /// See `continues`.
    pub(crate) depends_on: Vec<u64>,
}

impl Relayed {
    /// Decoding can begin with it.
    pub(crate) fn is_key(&self) -> bool {
        self.priority == Kind::Key.priority() && self.continues.is_none()
    }

    fn is_table(&self) -> bool {
        self.priority == Kind::Tables.priority()
    }

    /// It is of a picture.
    pub(crate) fn is_picture(&self) -> bool {
        [Kind::Key, Kind::Frame, Kind::Disposable].iter().any(|one| one.priority() == self.priority)
    }

    /// Its deadline is in future.
    pub(crate) fn is_due_after(&self, now: Time) -> bool {
        self.deadline.is_none_or(|deadline| deadline > now)
    }
}

/// With what a viewer begins.
#[derive(Debug, Default)]
pub(crate) struct Start {
    pub(crate) units: Vec<Relayed>,
    /// It gets nothing before the next key frame.
    pub(crate) awaits_key: bool,
    /// Key frames that it does not get: what depends on them is none of its either.
    pub(crate) without: Vec<u64>,
}

/// The connection of a stream's source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    /// The thread that has it.
    pub(crate) worker: usize,
    pub(crate) connection: ConnectionId,
    pub(crate) flow: FlowId,
    pub(crate) reports: Option<FlowId>,
    /// When it got its place.
    pub(crate) since: Time,
    /// The stream's number of the flow's unit 0.
    pub(crate) base: u64,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its source sends.
    Live,
    /// Its source has been away since then, and may come back.
    Away(Time),
    /// It has ended, and its viewers have until then to report. A source that has sent all may come back for
    /// that.
    Ended { until: Time, is_complete: bool },
}

/// When viewers of a stream that ends now must have reported.
pub(crate) fn report_limit(now: Time, label: &Label, config: &FlowConfig) -> Time {
    let spare = if config.reliability == Reliability::Full { 30 } else { 3 };
    now + label.latency + Duration::from_secs(spare)
}

/// A stream as a thread has it: with viewers of its own. All threads keep the same units for new ones.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) key: Key,
    /// What viewers see of it, with a session of the relay's own.
    pub(crate) label: Label,
    pub(crate) config: FlowConfig,
    /// Its source has ended it.
    pub(crate) has_ended: bool,
    /// It has ended, and nothing more is counted of what its viewers report.
    pub(crate) is_counted: bool,
    pub(crate) viewers: BTreeSet<ConnectionId>,
    pub(crate) round: Round,
    /// Last reports of viewers that are gone, once it has ended.
    pub(crate) done: Vec<Report>,
    /// The number above those of all units so far.
    pub(crate) next: u64,
    pub(crate) has_keys: bool,
    /// Of several elementary streams, the last key frames.
    keys: Option<Keys>,
    /// Units since the last key frame, or since the first of those of several streams, with the tables before it.
    start: VecDeque<Relayed>,
    start_bytes: u64,
    /// False if `start` does not begin at a key frame, or some of it did not fit.
    is_start_whole: bool,
}

impl Stream {
    pub(crate) fn new(key: Key, label: Label, config: FlowConfig) -> Self {
        let is_of_several = label.elementary.is_some_and(|codings| codings.only().is_none());
        Self {
            key,
            label,
            config,
            has_ended: false,
            is_counted: false,
            viewers: BTreeSet::new(),
            round: Round::default(),
            done: Vec::new(),
            next: 0,
            has_keys: false,
            keys: is_of_several.then(Keys::default),
            start: VecDeque::new(),
            start_bytes: 0,
            is_start_whole: true,
        }
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.config.reliability == Reliability::Full
    }

    /// Keeps a unit for new viewers, at most `most` bytes since the last key frame.
    pub(crate) fn keep(&mut self, unit: &Relayed, most: u64) {
        self.next = self.next.max(unit.number + 1);
        if unit.is_key() {
            self.has_keys = true;
            if let Some(keys) = &mut self.keys {
                keys.note(unit);
            }
            self.trim(unit);
            self.is_start_whole = true;
        }
        self.start_bytes += unit.data.len() as u64;
        self.start.push_back(unit.clone());
        while self.start_bytes > most || self.start.len() > MAX_START {
            let Some(oldest) = self.start.pop_front() else { return };
            self.start_bytes -= oldest.data.len() as u64;
            self.is_start_whole = false;
            if let Some(keys) = &mut self.keys {
                keys.forget(oldest.number);
            }
        }
    }

    /// Drops what no new viewer needs as this key frame comes: what is before it, and before the last key frame of
    /// each other stream, but for what these need.
    fn trim(&mut self, key: &Relayed) {
        let others = self.keys.as_ref().map(Keys::needed).unwrap_or_default();
        let is_first = |unit: &Relayed| unit.is_key() && others.contains(&unit.number);
        let first = self.start.iter().position(is_first).unwrap_or(self.start.len());
        let before = self.start.iter().take(first).rev().take(MAX_TABLES);
        let tables = first - before.take_while(|unit| unit.is_table()).count();
        let is_of_several = self.keys.is_some();
        let is_needed = |number| {
            is_of_several && (key.depends_on.contains(&number) || others.contains(&number))
        };
        let head: Vec<_> = self.start.drain(..tables).filter(|u| is_needed(u.number)).collect();
        head.into_iter().rev().for_each(|unit| self.start.push_front(unit));
        self.start_bytes = self.start.iter().map(|unit| unit.data.len() as u64).sum();
    }

    /// With what a viewer that comes now begins.
    pub(crate) fn start(&self, now: Time) -> Start {
        if !self.has_keys {
            let all = self.start.iter().filter(|_| self.is_start_whole && self.is_reliable());
            return Start { units: all.cloned().collect(), ..Start::default() };
        }
        if let Some(keys) = self.keys.as_ref().filter(|_| !self.is_reliable()) {
            return keys.start(now, &self.start);
        }
        let is_useful = self.is_start_whole && self.start.iter().all(|u| u.is_due_after(now));
        let all = self.start.iter().filter(|_| is_useful);
        Start { units: all.cloned().collect(), awaits_key: !is_useful, ..Start::default() }
    }

    /// A unit goes to nobody: who comes from now on has missed something.
    pub(crate) fn miss(&mut self) {
        self.clear();
        self.next = self.next.max(1);
    }

    /// Forgets what is kept for new viewers.
    pub(crate) fn clear(&mut self) {
        self.start.clear();
        (self.start_bytes, self.is_start_whole) = (0, false);
        if let Some(keys) = &mut self.keys {
            keys.clear();
        }
    }

    /// Bytes kept for new viewers.
    pub(crate) fn kept(&self) -> u64 {
        self.start_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inbox::Named;

    fn unit(number: u64, kind: Kind, deadline: Option<Time>) -> Relayed {
        let data = Bytes::from(vec![0; 100]);
        let (priority, continues, depends_on) = (kind.priority(), None, Vec::new());
        Relayed { number, data, deadline, priority, continues, depends_on }
    }

    fn stream(reliability: Reliability) -> Stream {
        let label = Label::of(1, Duration::from_millis(200), Duration::from_millis(50));
        let config = FlowConfig { reliability, ..FlowConfig::default() };
        Stream::new(Arc::new(Named { name: None, number: 1 }), label, config)
    }

    fn numbers(start: Start) -> Option<Vec<u64>> {
        (!start.awaits_key).then(|| start.units.iter().map(|unit| unit.number).collect())
    }

    #[test]
    fn a_viewer_begins_with_the_last_key_frame_and_the_tables_before_it() {
        let mut stream = stream(Reliability::Full);
        let kinds = [Kind::Key, Kind::Frame, Kind::Tables, Kind::Key, Kind::Frame, Kind::Sound];
        for (number, kind) in kinds.into_iter().enumerate() {
            stream.keep(&unit(number as u64, kind, None), 10_000);
        }
        assert_eq!(numbers(stream.start(Time::ZERO)), Some(vec![2, 3, 4, 5]));
    }

    #[test]
    fn a_viewer_begins_with_a_key_frame_s_first_unit_though_it_has_several() {
        let mut stream = stream(Reliability::Full);
        for number in 0u64..3 {
            let continues = number.checked_sub(1);
            stream.keep(&Relayed { continues, ..unit(number, Kind::Key, None) }, 10_000);
        }
        assert_eq!(numbers(stream.start(Time::ZERO)), Some(vec![0, 1, 2]));
    }

    #[test]
    fn what_is_due_or_does_not_fit_is_not_sent_to_a_viewer_that_then_waits_for_the_next_key_frame()
    {
        let at = Time::from_nanos;
        let mut stream = stream(Reliability::Deadline);
        stream.keep(&unit(0, Kind::Key, Some(at(100))), 10_000);
        stream.keep(&unit(1, Kind::Frame, Some(at(200))), 10_000);
        assert_eq!(numbers(stream.start(at(99))), Some(vec![0, 1]));
        assert_eq!(numbers(stream.start(at(100))), None);
        stream.keep(&unit(2, Kind::Key, Some(at(300))), 150);
        assert_eq!(numbers(stream.start(at(250))), Some(vec![2]));
        stream.keep(&unit(3, Kind::Frame, Some(at(400))), 150);
        assert_eq!((numbers(stream.start(at(250))), stream.kept()), (None, 100));
    }

    #[test]
    fn a_stream_without_key_frames_begins_anywhere_and_a_whole_one_at_its_beginning() {
        let mut live = stream(Reliability::Deadline);
        live.keep(&unit(0, Kind::Datagram, None), 10_000);
        assert_eq!(numbers(live.start(Time::ZERO)), Some(vec![]));
        let mut whole = stream(Reliability::Full);
        (0..3).for_each(|number| whole.keep(&unit(number, Kind::Datagram, None), 10_000));
        assert_eq!(numbers(whole.start(Time::ZERO)), Some(vec![0, 1, 2]));
    }
}
