//! Groups of flows and the applications that send.

use ontempo_foundation::{Bytes, Duration, Packets, Rate};
use ontempo_media::{GeneratedSound, GeneratorParameters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Transport, defaults};

/// Flows that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowGroup {
    /// How many.
    #[serde(default = "defaults::one")]
    pub count: u32,
    /// Where they begin: `left` or `right` of a dumbbell, a router of a parking lot, a node of
    /// a graph. Where not given: `left` in a dumbbell, the first router of a parking lot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where they end. Where not given: the other side of a dumbbell, the last router of a
    /// parking lot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What sends.
    pub application: Application,
    /// What carries it.
    pub transport: Transport,
    /// When they start: a time, or a range that each flow's start is drawn from.
    #[serde(default)]
    pub start: Start,
    /// When they stop sending; at the end where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
    /// When the address that the receivers see of these flows' senders changes, as a NAT rebinding
    /// changes it (RFC 9000, section 9): what a sender sends from then on has a new address, and what
    /// is sent to an old one is lost. The sender's host does not notice. In ascending order, each
    /// after the start and before the end of the run; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub address_changes: Vec<Duration>,
    /// Start-up delays for which late units are counted (`cbr` only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub playout: Vec<Duration>,
}

/// A moment, or a range that it is drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Start {
    /// At this time.
    At(Duration),
    /// Uniformly between two times, for each flow.
    Between {
        /// The earliest.
        low: Duration,
        /// The latest.
        high: Duration,
    },
}

impl Default for Start {
    fn default() -> Self {
        Self::At(Duration::ZERO)
    }
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Application {
    /// As much as the transport takes, for ever.
    Ftp {},
    /// A given number of bytes, as fast as the transport takes them.
    File {
        /// How many, headers not counted: it takes as many packets as they fill.
        size: Bytes,
    },
    /// Constant bit rate: one packet each interval. Give `rate` or `interval`.
    Cbr {
        /// Bits per second, headers counted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<Rate>,
        /// Time from packet to packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval: Option<Duration>,
    },
    /// Constant bit rate while on, silent while off. An interval between packets that has not passed
    /// when a time on ends goes on in the next.
    OnOff {
        /// Bits per second while on, headers counted.
        rate: Rate,
        /// Mean time on.
        on: Duration,
        /// Mean time off.
        off: Duration,
        /// Tail exponent of Pareto times; exponential times where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<f64>,
    },
    /// A web user: thinks, fetches a page of several objects, thinks again (the model of
    /// Barford and Crovella, SIGMETRICS 1998).
    Http {
        /// Mean time from the end of one page to the request of the next.
        #[serde(default = "defaults::http_think")]
        think: Duration,
        /// Tail exponent of the thinking time, Pareto distributed.
        #[serde(default = "defaults::http_think_shape")]
        think_shape: f64,
        /// Mean number of objects in a page, Pareto distributed.
        #[serde(default = "defaults::http_objects")]
        objects: f64,
        /// Tail exponent of the number of objects.
        #[serde(default = "defaults::http_objects_shape")]
        objects_shape: f64,
        /// Mean size of an object, Pareto distributed.
        #[serde(default = "defaults::http_size")]
        size: Bytes,
        /// Tail exponent of the size.
        #[serde(default = "defaults::http_size_shape")]
        size_shape: f64,
    },
    /// Messages of one packet each. The application makes one, writes it, waits for an interval
    /// and makes the next; while the transport's buffer is full, the write waits.
    Messages {
        /// Time from a message written to the next one.
        interval: Interval,
        /// The most that the transport holds, unsent or unacknowledged (TCP only); no limit where
        /// not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        buffer: Option<Packets>,
    },
    /// Requests to flows of another group, one at a time: the next one follows the answer after
    /// a pause. Both are TCP; flow `i` asks flow `i`.
    Request {
        /// The group that answers, with application `respond`, of as many flows.
        of: String,
        /// Payload of a request.
        size: Bytes,
        /// From an answer's last byte to the next request.
        think: Duration,
    },
    /// Answers to the requests of another group: one message each, of a size drawn uniformly.
    Respond {
        /// The smallest payload of an answer.
        smallest: Bytes,
        /// The largest.
        largest: Bytes,
    },
    /// Application data units (ADUs), all there from the start: a file, an image, a page. Each
    /// is one packet; a receiving application takes them one after the other (rr3216).
    Adus {
        /// How many.
        count: u64,
        /// How long the receiving application takes for one.
        #[serde(default)]
        processing: Duration,
        /// Which others an ADU names as those that it depends on, for a transport that
        /// delivers in partial order; none where not given.
        #[serde(default)]
        depends: Dependencies,
    },
    /// A film: pictures and sound as an encoder gives them out, in a transport stream. What arrives of it
    /// is judged frame by frame. Give one of `file`, `frames`, `frames-text` and `generate`.
    Media {
        /// A transport stream (MPEG-TS), relative to the file that names it, of at most 512 MiB: its
        /// frames, by size, time and what they depend on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The film's table of frames, relative to the file that names it, of at most 32 MiB: CSV with
        /// the columns time_s, type, size_bytes and depends_on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frames: Option<String>,
        /// The table itself, instead of a file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frames_text: Option<String>,
        /// A film that is made up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generate: Option<GeneratedFilm>,
        /// When its packets are given to the transport.
        #[serde(default)]
        sending: MediaSending,
        /// Bits per second of a paced film's transport packets; where not given, a tenth more than
        /// its frames need on average.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mux_rate: Option<Rate>,
        /// Whether null packets fill what the frames of a paced film leave of its rate.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stuffing: bool,
        /// Latencies of players for which the film is judged: a frame is on time if all of it is
        /// there so long after its last packet was given to the transport.
        #[serde(default = "defaults::media_latency")]
        latency: Vec<Duration>,
    },
    /// Any program, in its host's network; emulated only. In its words, `{source}` and `{sink}`
    /// stand for the addresses of the flow's two ends.
    Command {
        /// The program and its arguments, run where the flow begins, from its start on.
        command: Vec<String>,
        /// A program that is run where the flow ends, before any flow starts, such as a server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        peer: Vec<String>,
    },
}

/// A film that is made up: what an encoder with these settings gives out. The defaults are those of a
/// stream of 4 Mbit/s for broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GeneratedFilm {
    /// Bits per second of the pictures, headers of the transport stream not counted.
    pub rate: Rate,
    /// How the pictures are said to be coded.
    pub codec: MediaCodec,
    /// Pictures a second, above 0 and at most 300.
    pub picture_rate: f64,
    /// From one key picture to the next, in pictures.
    pub key_distance: u32,
    /// B pictures between references, 0 to 3.
    pub b_pictures: u32,
    /// Standard deviation of the sizes of one kind of picture relative to their mean, 0 to 10.
    pub variability: f64,
    /// Whether the pictures of each second have as many bytes as those of any other.
    pub constant: bool,
    /// Bits per second of the sound; 0 for none.
    pub sound: Rate,
    /// How long it lasts before it begins anew.
    pub duration: Duration,
    /// Seed of the sizes; the run's seed does not change the film.
    pub seed: u64,
}

impl Default for GeneratedFilm {
    fn default() -> Self {
        let film = GeneratorParameters::default();
        Self {
            rate: film.rate,
            codec: MediaCodec::default(),
            picture_rate: film.picture_rate,
            key_distance: film.key_distance,
            b_pictures: film.b_pictures,
            variability: film.variability,
            constant: film.is_constant,
            sound: GeneratedSound::default().rate,
            duration: film.duration,
            seed: film.seed,
        }
    }
}

/// How pictures are coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MediaCodec {
    /// H.264.
    #[default]
    H264,
    /// HEVC (H.265).
    Hevc,
    /// Another one: only key pictures are marked.
    Unknown,
}

/// When the packets of a film are given to its transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MediaSending {
    /// All packets of a frame at once, as an encoder without a buffer sends.
    #[default]
    Bursts,
    /// At a constant rate, as a multiplexer with a buffer sends.
    Paced,
}

/// A duration drawn uniformly between two bounds, which may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interval {
    /// The shortest.
    pub low: Duration,
    /// The longest.
    pub high: Duration,
}

/// Which ADUs an ADU depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum Dependencies {
    /// On none.
    None {},
    /// Images one after the other: an image's tables come in sequence and before its data, as
    /// JPEG's do; its data come in any order.
    Images {
        /// ADUs of an image, its tables included.
        adus: u64,
        /// How many of them, the first, hold its tables.
        tables: u64,
        /// Whether an image waits for all of the image before it, as in a video.
        #[serde(default)]
        in_sequence: bool,
    },
    /// As listed; an ADU that is not listed depends on none.
    Listed {
        /// One entry an ADU.
        adus: Vec<Dependency>,
    },
}

impl Default for Dependencies {
    fn default() -> Self {
        Self::None {}
    }
}

/// An ADU and those that it depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dependency {
    /// Its number, from 0.
    pub adu: u64,
    /// The numbers of those that it depends on, each less than its own.
    pub on: Vec<u64>,
}
