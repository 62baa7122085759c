//! A stream: its source, what is kept of it for new viewers, and its viewers.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use ontempo_foundation::{Duration, Time};
use ontempo_media::Kind;
use ontempo_session::message::{Label, Report};
use ontempo_transport::{ConnectionId, FlowConfig, FlowId, Reliability};

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
}

/// The connection of a stream's source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    pub(crate) connection: ConnectionId,
    pub(crate) flow: FlowId,
    pub(crate) reports: Option<FlowId>,
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
    /// Its source has ended it; then viewers have this long to report.
    Ended(Time),
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The source's session: a secret of the source.
    pub(crate) session: u128,
    /// What viewers see of it, with a session of the relay's own.
    pub(crate) label: Label,
    pub(crate) config: FlowConfig,
    pub(crate) stage: Stage,
    pub(crate) source: Option<From>,
    pub(crate) viewers: BTreeSet<ConnectionId>,
    pub(crate) round: Round,
    /// Last reports of viewers that are gone, once it has ended.
    pub(crate) done: Vec<Report>,
    /// The number above those of all units so far.
    pub(crate) next: u64,
    pub(crate) has_keys: bool,
    /// Units since the last key frame, with the tables before it.
    start: VecDeque<Relayed>,
    start_bytes: u64,
    /// False if `start` does not begin at a key frame, or some of it did not fit.
    is_start_whole: bool,
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    /// Units that came after their deadline, and units for which there was no memory.
    pub(crate) late: u64,
    pub(crate) refused: u64,
}

impl Stream {
    pub(crate) fn new(session: u128, label: Label, config: FlowConfig, source: From) -> Self {
        Self {
            session,
            label,
            config,
            stage: Stage::Live,
            source: Some(source),
            viewers: BTreeSet::new(),
            round: Round::default(),
            done: Vec::new(),
            next: 0,
            has_keys: false,
            start: VecDeque::new(),
            start_bytes: 0,
            is_start_whole: true,
            units: 0,
            bytes: 0,
            late: 0,
            refused: 0,
        }
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.config.reliability == Reliability::Full
    }

    /// When viewers of a stream that ends now must have reported.
    pub(crate) fn report_limit(&self, now: Time) -> Time {
        let spare = if self.is_reliable() { 30 } else { 3 };
        now + self.label.latency + Duration::from_secs(spare)
    }

    /// Keeps a unit for new viewers, at most `most` bytes since the last key frame.
    pub(crate) fn keep(&mut self, unit: &Relayed, most: u64) {
        self.next = self.next.max(unit.number + 1);
        if unit.is_key() {
            self.has_keys = true;
            let tables = self.start.iter().rev().take(MAX_TABLES);
            let count = tables.take_while(|unit| unit.is_table()).count();
            self.start.drain(..self.start.len() - count);
            self.start_bytes = self.start.iter().map(|unit| unit.data.len() as u64).sum();
            self.is_start_whole = true;
        }
        self.start_bytes += unit.data.len() as u64;
        self.start.push_back(unit.clone());
        while self.start_bytes > most || self.start.len() > MAX_START {
            let Some(oldest) = self.start.pop_front() else { return };
            self.start_bytes -= oldest.data.len() as u64;
            self.is_start_whole = false;
        }
    }

    /// With what a viewer that comes now begins: `None` if it has to wait for a key frame.
    pub(crate) fn start(&self, now: Time) -> Option<Vec<Relayed>> {
        if !self.has_keys && self.is_start_whole && self.is_reliable() {
            return Some(self.start.iter().cloned().collect());
        }
        if !self.has_keys {
            return Some(Vec::new());
        }
        let is_due = |unit: &Relayed| unit.deadline.is_none_or(|deadline| deadline > now);
        let is_useful = self.is_start_whole && self.start.iter().all(is_due);
        is_useful.then(|| self.start.iter().cloned().collect())
    }

    /// Forgets what is kept for new viewers.
    pub(crate) fn clear(&mut self) {
        self.start.clear();
        (self.start_bytes, self.is_start_whole) = (0, false);
    }

    /// Bytes kept for new viewers.
    pub(crate) fn kept(&self) -> u64 {
        self.start_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(number: u64, kind: Kind, deadline: Option<Time>) -> Relayed {
        let data = Bytes::from(vec![0; 100]);
        let (priority, continues, depends_on) = (kind.priority(), None, Vec::new());
        Relayed { number, data, deadline, priority, continues, depends_on }
    }

    fn stream(reliability: Reliability) -> Stream {
        let label = Label::of(1, Duration::from_millis(200), Duration::from_millis(50));
        let config = FlowConfig { reliability, ..FlowConfig::default() };
        let mut stream = Stream::new(1, label, config, source());
        stream.source = None;
        stream
    }

    fn source() -> From {
        let flow = FlowId { outgoing: false, number: 0 };
        let mut endpoint = ontempo_transport::Endpoint::new(Default::default(), [1; 32]);
        let at = "10.0.0.1:1".parse().expect("an address");
        let trust = ontempo_transport::Trust::Insecure;
        let token = ontempo_transport::Token::anyone();
        let connection = endpoint.connect(Time::ZERO, at, "a", &trust, token).expect("it begins");
        From { connection, flow, reports: None, base: 0 }
    }

    fn numbers(start: Option<Vec<Relayed>>) -> Option<Vec<u64>> {
        start.map(|units| units.iter().map(|unit| unit.number).collect())
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
