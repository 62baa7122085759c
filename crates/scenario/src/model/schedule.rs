//! How links change during a run.

use ontempo_foundation::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults;

/// How rate, delay or loss of a link change during a run. What a schedule does not give stays as the
/// link's own fields say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "kind",
    deny_unknown_fields,
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case"
)]
pub enum ScheduleSpec {
    /// Values from a CSV table. Its first line names the columns: `time_s` (or `time_ms`), and at
    /// least one of `rate_bps` (or `rate_kbps`, `rate_mbps`), `delay_s` (or `delay_ms`) and `loss`
    /// (a probability, 0 to 1). A value holds until a later row has another; an empty cell changes
    /// nothing. Lines that begin with `#` are skipped.
    Csv {
        /// The file, relative to the one that names it, of at most 32 MiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The table itself, instead of a file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Begin anew after this time, which is later than the last row; where not given, the last
        /// row holds to the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repeat_every: Option<Duration>,
    },
    /// A trace of mahimahi: each line is a time in whole milliseconds at which up to 1,500 bytes
    /// leave. A packet may use the rest of one opportunity and a part of the next; what no waiting
    /// packet uses is lost. The trace begins anew after its last line.
    Mahimahi {
        /// The file, relative to the one that names it, of at most 32 MiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The trace itself, instead of a file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A pair of traces of CellReplay (Sentosa et al., NSDI 2025), of one direction of a cellular link:
    /// what it does under light load, and under heavy load. Give each as a file or as a text. The
    /// base delay takes the place of the link's `delay`. The queue is a drop-tail one.
    Cellreplay {
        /// The file of the light trace, relative to the one that names it, of at most 32 MiB. Each line,
        /// of three or more, is a time, the base delay, and the opportunities of a packet train since its
        /// first packet, all in whole milliseconds. It begins anew at the time of its last line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        light: Option<String>,
        /// The light trace itself, instead of a file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        light_text: Option<String>,
        /// The file of the heavy trace, a mahimahi trace, relative to the one that names it, of at most
        /// 32 MiB. What finds no opportunity of its train passes the queue before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heavy: Option<String>,
        /// The heavy trace itself, instead of a file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heavy_text: Option<String>,
        /// How long the stage of the light trace has been empty when another train begins (mm-cellular's
        /// `long-to-short-timer`, F of CellReplay's calibration): a packet begins a train if, with the
        /// present base delay, it is due more than this after the last release, in whole milliseconds.
        #[serde(default)]
        timer: Duration,
        /// What leaves at one opportunity of either trace. CellReplay records with packets of 1,400
        /// bytes.
        #[serde(default = "defaults::cellreplay_opportunity")]
        opportunity: Bytes,
    },
    /// Steps that begin anew after the last.
    Periodic {
        /// The steps, in order.
        steps: Vec<PeriodicStep>,
    },
    /// A Markov chain: the link stays in a state for an exponentially distributed time and then
    /// goes to any of the others with equal probability. It begins in the first. Drawn from the
    /// stream `link NAME schedule`, the same for both directions of a duplex link.
    Markov {
        /// The states, two or more.
        states: Vec<MarkovState>,
    },
    /// Rate, delay and loss that vary at random around the link's own. Drawn from the streams
    /// `link NAME schedule rate I`, `link NAME schedule delay I` and
    /// `link NAME schedule episode I`, the same for both directions of a duplex link.
    Random {
        /// Where the values come from, for readers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Factors of the rate, multiplied together.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rate: Vec<RateVariation>,
        /// The factors do not take the rate below this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_rate: Option<Rate>,
        /// The factors do not take the rate above this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_rate: Option<Rate>,
        /// Delays that are added to the link's own, which must be a fixed one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        delay: Vec<DelayVariation>,
        /// Times in which the link is worse.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        episodes: Vec<Episode>,
    },
}

/// A random factor of a rate: its logarithm is normally distributed with mean 0, and changes in
/// steps as an autoregressive process of order 1 (an Ornstein-Uhlenbeck process, sampled). The
/// link's rate is therefore the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RateVariation {
    /// Time from step to step.
    pub every: Duration,
    /// Standard deviation of the natural logarithm.
    pub deviation: f64,
    /// Time after which the correlation of the logarithm has fallen to 1/e; each step is drawn
    /// independently where not given.
    #[serde(default)]
    pub correlation_time: Duration,
}

/// A random delay in addition to a link's own: `median` times a factor as of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DelayVariation {
    /// Time from step to step.
    pub every: Duration,
    /// The median.
    pub median: Duration,
    /// Standard deviation of the natural logarithm.
    pub deviation: f64,
    /// Time after which the correlation of the logarithm has fallen to 1/e; each step is drawn
    /// independently where not given.
    #[serde(default)]
    pub correlation_time: Duration,
}

/// Times in which a link is worse: handovers, outages, contention, the traffic of others. Give
/// `gap` or `every`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Episode {
    /// Mean time from the end of one to the start of the next, exponentially distributed. The
    /// first starts after such a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Duration>,
    /// Time from start to start; the first starts with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// With `every`: the probability, 0 to 1, that it takes place.
    #[serde(default = "defaults::unity")]
    pub probability: f64,
    /// How long one lasts on average, exponentially distributed.
    pub length: Duration,
    /// Whether each lasts as long as `length`.
    #[serde(default)]
    pub fixed_length: bool,
    /// Factor of the rate meanwhile, 0 to 1; 0 for an outage.
    #[serde(default = "defaults::unity")]
    pub rate: f64,
    /// Delay meanwhile, in addition.
    #[serde(default)]
    pub delay: Duration,
    /// The probability, 0 to 1, that a packet is lost meanwhile; by the link's own `loss` where
    /// not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// A step of a periodic schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PeriodicStep {
    /// How long it lasts.
    #[serde(rename = "for")]
    pub lasts: Duration,
    /// The rate meanwhile; `"0 bit/s"` for none. The link's own where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The delay meanwhile; the link's own where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The probability, 0 to 1, that a packet is lost meanwhile; by the link's own `loss` where
    /// not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// A state of a Markov chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MarkovState {
    /// How long the link stays in it, on average.
    pub mean_time: Duration,
    /// The rate in it; `"0 bit/s"` for none. The link's own where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The delay in it; the link's own where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The probability, 0 to 1, that a packet is lost in it; by the link's own `loss` where not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// A time in which nothing leaves a link. A packet in transmission waits and goes on; the queue
/// fills and drops at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Outage {
    /// When it begins, before the end of the run.
    pub at: Duration,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub lasts: Duration,
}

/// A change of a link at a time of the run. It replaces what the link's `schedule` says from then
/// on; outages stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Event {
    /// When, before the end of the run. Of events at the same time the last in the file holds.
    pub at: Duration,
    /// The link, one direction: `bottleneck` or `reverse` of a dumbbell, `hop 0` or
    /// `hop 0 reverse` of a parking lot, `FROM -> TO` of a graph or of a flow's host.
    pub link: String,
    /// What changes.
    pub set: LinkChange,
}

/// New values of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkChange {
    /// The rate from now on; `"0 bit/s"` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The delay from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The probability, 0 to 1, that a packet is lost from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}
