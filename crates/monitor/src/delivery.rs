//! What `ontempo send`, `receive` and `relay` deliver, as written and read.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::document::{Document, Kind};
use super::publish::{ReportFolder, Writer};
use super::report::{MAX_TEXT_LEN, cut};

/// The version of a document. A reader takes those up to its own; fields that it does not know are
/// passed over, and those that an older program does not write have a default. A new version is one in
/// which a field means something else.
pub const DELIVERY_VERSION: u32 = 1;

/// Maximum flows of a process: a relay has one for itself and one for each stream.
pub const MAX_FLOWS: usize = 64;

/// Maximum peers of a flow, and maximum paths.
pub const MAX_PATHS: usize = 8;

/// Maximum bytes of a document: [`MAX_FLOWS`] with the longest texts, escaped.
pub const MAX_DELIVERY_LEN: usize = 512 << 10;

/// Upper bounds of the buckets of delays, seconds; the last bucket has none.
pub const DELAY_BOUNDS_S: [f64; 12] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0];

/// Maximum of a rate or a time, bit/s or seconds: above any that is.
pub(crate) const MAX_AMOUNT: f64 = 1e13;

/// Buckets of delays.
pub const DELAY_BUCKETS: usize = DELAY_BOUNDS_S.len() + 1;

/// All flows of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryReport {
    /// [`DELIVERY_VERSION`] of the program that wrote it.
    pub version: u32,
    /// Process id.
    pub process: u32,
    /// Start of the process, in clock ticks since the host's: field 22 of `/proc/PID/stat`.
    pub started: u64,
    /// Its flows.
    pub flows: Vec<FlowReport>,
    /// Flows beyond [`MAX_FLOWS`].
    #[serde(default)]
    pub left_out: u64,
}

/// What a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowRole {
    /// `ontempo send`.
    #[default]
    Sender,
    /// `ontempo receive`.
    Receiver,
    /// `ontempo relay` as a whole.
    Relay,
    /// A stream of a relay.
    Stream,
}

impl FlowRole {
    /// Its name, as metrics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Relay => "relay",
            Self::Stream => "stream",
        }
    }
}

/// A sender, a receiver, a relay, or a stream of a relay. Counters are since its program started, or
/// since the current stream or connection began: then they begin anew at 0. `None` and 0 where a role
/// has no such figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowReport {
    /// A number unique in the process.
    pub id: u32,
    /// What it is.
    pub role: FlowRole,
    /// The stream's name at a relay; may be empty.
    pub name: String,
    /// Where the media come from, at a receiver where they go; of a relay its address. Of a file its
    /// name, without folders.
    pub place: String,
    /// Something has flowed in the last seconds.
    pub flowing: bool,
    /// Addresses of the other ends that are known.
    pub peers: Vec<String>,
    /// What came in over the last second, in bits per second: of a sender's source, else of the network.
    pub input_bps: f64,
    /// What went out: into the network, at a receiver to its target. `None` of a stream.
    pub output_bps: Option<f64>,
    /// The bit rate that the path bears.
    pub target_bps: Option<f64>,
    /// Round trip, seconds.
    pub round_trip_s: Option<f64>,
    /// Share of what was lost in the last second, 0 to 1: of packets at a sender, of datagrams at a
    /// receiver.
    pub loss: Option<f64>,
    /// The latency that was asked for, seconds; `None` with full reliability.
    pub latency_s: Option<f64>,
    /// Bytes that came in.
    pub input_bytes: u64,
    /// Bytes that went out.
    pub output_bytes: Option<u64>,
    /// Units: of a sender those sent, else those received.
    pub units: u64,
    /// Units that came after their deadline; at a sender, as the receiver reports.
    pub late_units: u64,
    /// Units dropped at their deadline; at a sender also those that its buffer did not hold, of a stream
    /// those for which there was no memory.
    pub dropped_units: u64,
    /// Datagrams given out whole; at a sender, as the receiver reports.
    pub whole_datagrams: Option<u64>,
    /// Datagrams given out with a part missing.
    pub damaged_datagrams: Option<u64>,
    /// Datagrams missing altogether.
    pub missing_datagrams: Option<u64>,
    /// Packets acknowledged or lost.
    pub packets: Option<u64>,
    /// Packets declared lost. What was in them is sent again, unless its deadline has passed.
    pub lost_packets: Option<u64>,
    /// Bytes of these packets.
    pub lost_bytes: Option<u64>,
    /// Connections after the first.
    pub reconnections: u64,
    /// Paths, if there are several.
    pub paths: Vec<PathReport>,
    /// Viewers of a relay, or of a stream.
    pub viewers: Option<ViewersReport>,
    /// Delays of units, at a receiver.
    pub delays: Option<DelayReport>,
}

/// One path of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathReport {
    /// Its number, from 1.
    pub path: u32,
    /// The other end's address.
    pub peer: String,
    /// It answers; `None` at a receiver.
    pub up: Option<bool>,
    /// The stream goes over it now; `None` at a receiver.
    pub carries: Option<bool>,
    /// Round trip, seconds.
    pub round_trip_s: Option<f64>,
    /// Bytes sent over it, at a receiver received.
    pub bytes: u64,
    /// Packets acknowledged or lost.
    pub packets: Option<u64>,
    /// Packets declared lost.
    pub lost_packets: Option<u64>,
}

/// Viewers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ViewersReport {
    /// How many there are.
    pub count: u64,
    /// Share of datagrams that are damaged or missing, 0 to 1, at the median viewer.
    pub median_bad_share: Option<f64>,
    /// The same at the worst.
    pub worst_bad_share: Option<f64>,
    /// Units received late, of all together.
    pub late_units: u64,
    /// Units dropped, of all together.
    pub dropped_units: u64,
}

/// Delays of units: from their entry into the sender's send queue, or a relay's, to their complete
/// arrival here. The receiver gives them out later, at their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayReport {
    /// How many were at most as long as each of [`DELAY_BOUNDS_S`], and how many there are.
    pub cumulative: [u64; DELAY_BUCKETS],
    /// Their sum, seconds.
    pub sum_s: f64,
}

impl DeliveryReport {
    /// A document that is read: of the first [`MAX_FLOWS`] flows, with texts of at most
    /// [`MAX_TEXT_LEN`].
    pub(crate) fn bounded(process: u32, started: u64, mut flows: Vec<FlowReport>) -> Self {
        let left_out = flows.len().saturating_sub(MAX_FLOWS) as u64;
        flows.truncate(MAX_FLOWS);
        for flow in &mut flows {
            cut(&mut flow.name);
            cut(&mut flow.place);
            flow.peers.truncate(MAX_PATHS);
            flow.paths.truncate(MAX_PATHS);
        }
        Self { version: DELIVERY_VERSION, process, started, flows, left_out }
    }
}

impl Document for DeliveryReport {
    const KIND: Kind = Kind::Delivery;

    fn written_by(&self) -> (u32, u64) {
        (self.process, self.started)
    }

    fn count(&self) -> usize {
        self.flows.len()
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=DELIVERY_VERSION).contains(&self.version) {
            let known = DELIVERY_VERSION;
            return Err(format!("version: {}; this program knows {known}", self.version));
        }
        if self.flows.len() > MAX_FLOWS {
            return Err(format!("{} flows; {MAX_FLOWS} at most", self.flows.len()));
        }
        let mut ids = BTreeSet::new();
        for flow in &self.flows {
            if !ids.insert(flow.id) {
                return Err(format!("two flows with the id {}", flow.id));
            }
            flow.check().map_err(|why| format!("flow {}: {why}", flow.id))?;
        }
        Ok(())
    }
}

impl FlowReport {
    fn check(&self) -> Result<(), String> {
        for (what, text) in [("name", &self.name), ("place", &self.place)] {
            if text.len() > MAX_TEXT_LEN {
                return Err(format!("{what}: {} bytes; {MAX_TEXT_LEN} at most", text.len()));
            }
        }
        for (what, count) in [("peers", self.peers.len()), ("paths", self.paths.len())] {
            if count > MAX_PATHS {
                return Err(format!("{what}: {count}; {MAX_PATHS} at most"));
            }
        }
        let of_paths = self.paths.iter().map(|path| &path.peer);
        if self.peers.iter().chain(of_paths).any(|peer| peer.parse::<SocketAddr>().is_err()) {
            return Err("peers: no address with a port".to_owned());
        }
        let mut numbers = BTreeSet::new();
        if !self.paths.iter().all(|path| numbers.insert(path.path)) {
            return Err("paths: two of one number".to_owned());
        }
        let shares =
            self.viewers.map(|viewers| [viewers.median_bad_share, viewers.worst_bad_share]);
        let shares = shares.into_iter().flatten().chain([self.loss]).flatten();
        if !shares.into_iter().all(|share| (0.0..=1.0).contains(&share)) {
            return Err("loss: a share is from 0 to 1".to_owned());
        }
        let of_paths = self.paths.iter().map(|path| path.round_trip_s);
        let rates = [Some(self.input_bps), self.output_bps, self.target_bps];
        let times = [self.round_trip_s, self.latency_s, self.delays.map(|delays| delays.sum_s)];
        let amounts = rates.into_iter().chain(times).chain(of_paths).flatten();
        // Also not what is no number.
        if !amounts.into_iter().all(|amount| (0.0..=MAX_AMOUNT).contains(&amount)) {
            return Err("a rate or a time is negative or too large".to_owned());
        }
        if self.delays.is_some_and(|delays| !delays.cumulative.is_sorted()) {
            return Err("delays: they do not rise".to_owned());
        }
        Ok(())
    }
}

/// Publishes the flows of this process. The last document is removed on drop, and when the process ends
/// normally.
#[derive(Debug)]
pub struct DeliveryPublisher(Writer);

impl DeliveryPublisher {
    /// A publisher to `folder`.
    pub fn new(folder: ReportFolder) -> Self {
        Self(Writer::new(folder, Kind::Delivery))
    }

    /// Replaces the document atomically. Flows beyond [`MAX_FLOWS`] are left out.
    ///
    /// # Errors
    /// As [`Publisher::publish`](super::Publisher::publish).
    pub fn publish(&mut self, flows: Vec<FlowReport>) -> io::Result<()> {
        let report = DeliveryReport::bounded(self.0.place.process, self.0.started, flows);
        self.0.replace(&serde_json::to_vec(&report)?)
    }
}

/// Reads a document of a process's, as a collector does.
///
/// # Errors
/// A sentence if the bytes are none, or that of another process, or not within the bounds.
pub fn read_delivery(bytes: &[u8], process: u32) -> Result<DeliveryReport, String> {
    super::document::parse(bytes, process)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::flow;
    use super::*;

    fn long(id: u32) -> FlowReport {
        let address = || "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".to_owned();
        let path = |path| PathReport {
            path,
            peer: address(),
            up: Some(false),
            carries: Some(false),
            round_trip_s: Some(f64::MIN_POSITIVE),
            bytes: u64::MAX,
            packets: Some(u64::MAX),
            lost_packets: Some(u64::MAX),
        };
        FlowReport {
            name: "\u{1}".repeat(300),
            place: "é".repeat(300),
            peers: (0..20).map(|_| address()).collect(),
            paths: (1..20).map(path).collect(),
            delays: Some(DelayReport { cumulative: [u64::MAX; DELAY_BUCKETS], sum_s: 1e-300 }),
            input_bytes: u64::MAX,
            output_bytes: Some(u64::MAX),
            ..flow(id)
        }
    }

    #[test]
    fn what_is_published_is_within_the_bounds() {
        let report = DeliveryReport::bounded(1, u64::MAX, (0..80).map(long).collect());
        assert_eq!(report.check(), Ok(()));
        assert_eq!((report.flows.len(), report.left_out), (MAX_FLOWS, 16));
        let bytes = serde_json::to_vec(&report).unwrap();
        assert!(bytes.len() < MAX_DELIVERY_LEN, "{} bytes", bytes.len());
        assert_eq!(read_delivery(&bytes, 1), Ok(report));
    }

    #[test]
    fn what_is_not_is_refused_with_the_field() {
        let refused = |change: fn(&mut FlowReport)| {
            let mut one = flow(2);
            change(&mut one);
            let report = DeliveryReport::bounded(1, 1, vec![flow(1)]);
            DeliveryReport { flows: vec![flow(1), one], ..report }.check().err()
        };
        assert_eq!(refused(|_| {}), None);
        for (change, sentence) in [
            ((|one| one.id = 1) as fn(&mut FlowReport), "two flows with the id 1"),
            (|one| one.place = "x".repeat(256), "flow 2: place: 256 bytes; 255 at most"),
            (
                |one| one.peers = vec!["\u{1b}[H".to_owned()],
                "flow 2: peers: no address with a port",
            ),
            (|one| one.peers = vec!["[::1]:1".to_owned(); 9], "flow 2: peers: 9; 8 at most"),
            (|one| one.loss = Some(1.5), "flow 2: loss: a share is from 0 to 1"),
            (|one| one.input_bps = -1.0, "flow 2: a rate or a time is negative or too large"),
            (
                |one| one.output_bps = Some(1e308),
                "flow 2: a rate or a time is negative or too large",
            ),
            (|one| one.paths.push(one.paths[0].clone()), "flow 2: paths: two of one number"),
            (
                |one| one.delays.as_mut().unwrap().cumulative[0] = u64::MAX,
                "flow 2: delays: they do not rise",
            ),
        ] {
            assert_eq!(refused(change).as_deref(), Some(sentence));
        }
    }

    #[test]
    fn older_documents_and_those_with_more_fields_are_read_and_newer_versions_are_not() {
        let read = |text: &str| read_delivery(text.as_bytes(), 7);
        // As a first version with fewer fields might have written it.
        let old = r#"{"version":1,"process":7,"started":3,"flows":[{"id":1,"role":"relay"}]}"#;
        assert_eq!(read(old).unwrap().flows[0].role, FlowRole::Relay);
        let more = old.replace("\"id\"", "\"new\":{\"a\":[]},\"id\"");
        assert_eq!(read(&more), read(old));
        let newer = old.replace("\"version\":1", "\"version\":2");
        assert_eq!(read(&newer).unwrap_err(), "is no report: version: 2; this program knows 1");
        assert!(read(&old.replace("relay", "spy")).unwrap_err().contains("unknown variant `spy`"));
        assert!(
            read(&old.replace("\"process\":7", "\"process\":8"))
                .unwrap_err()
                .ends_with("of process 8")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_delivery(&bytes, 7);
        }

        /// A document in which something is put in place of something else.
        #[test]
        fn a_damaged_document_is_refused_or_within_the_bounds(
            at in any::<prop::sample::Index>(), length in 0_usize..12,
            put in prop::sample::select(vec!["", "-", "1e300", "null", "[]", "{}", "\"\"", "99999999999999999999"]),
        ) {
            let report = DeliveryReport::bounded(7, 3, vec![flow(1), flow(2)]);
            let text = serde_json::to_string(&report).unwrap();
            let begin = at.index(text.len());
            let end = (begin + length).min(text.len());
            prop_assume!(text.is_char_boundary(begin) && text.is_char_boundary(end));
            let damaged = format!("{}{put}{}", &text[..begin], &text[end..]);
            if let Ok(read) = read_delivery(damaged.as_bytes(), 7) {
                prop_assert_eq!(read.check(), Ok(()));
            }
        }
    }
}
