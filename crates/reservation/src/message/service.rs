//! TSpec, flowspec and ADSPEC: the objects of integrated services (RFC 2210).

use core::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::wire::Reader;

const SERVICE_GENERAL: u8 = 1;
const SERVICE_GUARANTEED: u8 = 2;
const SERVICE_CONTROLLED_LOAD: u8 = 5;
const PARAMETER_TOKEN_BUCKET: u8 = 127;
const PARAMETER_GUARANTEED: u8 = 130;
/// Words of a token bucket and of an RSpec, without their headers.
const BUCKET_WORDS: u16 = 5;
const RSPEC_WORDS: u16 = 2;
/// RFC 2215: hops, bandwidth, latency, MTU.
const GENERAL_PARAMETERS: [u8; 4] = [4, 6, 8, 10];
/// RFC 2212: Ctot, Dtot, Csum, Dsum.
const GUARANTEED_PARAMETERS: [u8; 4] = [133, 134, 135, 136];
const BREAK: u8 = 0x80;
/// Latency is not known (RFC 2215 section 3.3.3).
pub const LATENCY_UNKNOWN: u32 = u32::MAX;

/// Infinity as JSON, which has none: null.
mod unbounded {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f32, to: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        Ok(Option::<f32>::deserialize(from)?.unwrap_or(f32::INFINITY))
    }
}

/// The traffic of a flow: a token bucket with a peak rate (parameter 127 of RFC 2215).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficSpec {
    /// r: mean rate in bytes a second, zero or more.
    pub rate: f32,
    /// b: bucket depth in bytes, zero or more.
    pub burst: f32,
    /// p: peak rate in bytes a second; infinite where it is unknown.
    #[serde(with = "unbounded")]
    pub peak: f32,
    /// m: minimum policed unit, in bytes: smaller packets count as this.
    pub smallest: u32,
    /// M: maximum packet size, in bytes of IP.
    pub largest: u32,
}

impl TrafficSpec {
    /// Equal or less in every parameter (RFC 2211, RFC 2212: ordering); a larger minimum policed
    /// unit is less.
    pub fn within(&self, other: &Self) -> bool {
        self.rate <= other.rate
            && self.burst <= other.burst
            && self.peak <= other.peak
            && self.smallest >= other.smallest
            && self.largest <= other.largest
    }

    /// The least upper bound (LUB) of RFC 2211 and RFC 2212. M is the smaller of both, so that no
    /// packet exceeds the MTU of a link.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        Self {
            rate: self.rate.max(other.rate),
            burst: self.burst.max(other.burst),
            peak: self.peak.max(other.peak),
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.min(other.largest),
        }
    }

    /// The greatest lower bound (GLB).
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            rate: self.rate.min(other.rate),
            burst: self.burst.min(other.burst),
            peak: self.peak.min(other.peak),
            smallest: self.smallest.max(other.smallest),
            largest: self.largest.min(other.largest),
        }
    }

    /// The traffic of both flows together (RFC 2210 section 3: summation for shared styles).
    #[must_use]
    pub fn sum(&self, other: &Self) -> Self {
        Self {
            rate: self.rate + other.rate,
            burst: self.burst + other.burst,
            peak: self.peak + other.peak,
            smallest: self.smallest.min(other.smallest),
            largest: self.largest.max(other.largest),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_header(out, PARAMETER_TOKEN_BUCKET, 0, BUCKET_WORDS);
        for value in [self.rate, self.burst, self.peak] {
            out.extend(value.to_be_bytes());
        }
        out.extend(self.smallest.to_be_bytes());
        out.extend(self.largest.to_be_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        expect_header(from, PARAMETER_TOKEN_BUCKET, BUCKET_WORDS)?;
        let (rate, burst) = (from.amount()?, from.amount()?);
        if rate.is_infinite() || burst.is_infinite() {
            return None;
        }
        let peak = from.amount()?;
        Some(Self { rate, burst, peak, smallest: from.u32()?, largest: from.u32()? })
    }

    pub(super) fn put_object(&self, out: &mut Vec<u8>) {
        put_version(out, BUCKET_WORDS + 2);
        put_header(out, SERVICE_GENERAL, 0, BUCKET_WORDS + 1);
        self.put(out);
    }

    pub(super) fn read_object(body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        expect_version(&mut from, BUCKET_WORDS + 2)?;
        expect_header(&mut from, SERVICE_GENERAL, BUCKET_WORDS + 1)?;
        let read = Self::read(&mut from)?;
        from.end(read)
    }
}

/// A flowspec: the service and its parameters that a receiver requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowSpec {
    /// As over an unloaded network (RFC 2211).
    ControlledLoad(TrafficSpec),
    /// Within a bound of queueing delay (RFC 2212).
    Guaranteed {
        /// The traffic.
        traffic: TrafficSpec,
        /// R: rate of the RSpec, in bytes a second; at least r.
        rate: f32,
        /// S: slack term of the RSpec, in microseconds (RFC 2212).
        slack: u32,
    },
}

impl FlowSpec {
    /// The traffic that the service is for.
    pub fn traffic(&self) -> &TrafficSpec {
        match self {
            Self::ControlledLoad(traffic) | Self::Guaranteed { traffic, .. } => traffic,
        }
    }

    /// The rate to be set aside, in bytes a second.
    pub fn reserved_rate(&self) -> f32 {
        match self {
            Self::ControlledLoad(traffic) => traffic.rate,
            Self::Guaranteed { traffic, rate, .. } => rate.max(traffic.rate),
        }
    }

    /// With this traffic in place of its own.
    #[must_use]
    pub fn with_traffic(&self, new: TrafficSpec) -> Self {
        match *self {
            Self::ControlledLoad(_) => Self::ControlledLoad(new),
            Self::Guaranteed { rate, slack, .. } => Self::Guaranteed { traffic: new, rate, slack },
        }
    }

    /// The least upper bound, which serves both; `None` where the services differ (RFC 2210
    /// section 3.2: a service conflict).
    pub fn merge(&self, other: &Self) -> Option<Self> {
        self.combine(other, TrafficSpec::merge, f32::max, u32::min)
    }

    /// The greatest lower bound; `None` where the services differ.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        self.combine(other, TrafficSpec::meet, f32::min, u32::max)
    }

    fn combine(
        &self,
        other: &Self,
        traffic: fn(&TrafficSpec, &TrafficSpec) -> TrafficSpec,
        rates: fn(f32, f32) -> f32,
        slacks: fn(u32, u32) -> u32,
    ) -> Option<Self> {
        match (self, other) {
            (Self::ControlledLoad(one), Self::ControlledLoad(two)) => {
                Some(Self::ControlledLoad(traffic(one, two)))
            }
            (
                Self::Guaranteed { traffic: one, rate: rate_one, slack: slack_one },
                Self::Guaranteed { traffic: two, rate: rate_two, slack: slack_two },
            ) => Some(Self::Guaranteed {
                traffic: traffic(one, two),
                rate: rates(*rate_one, *rate_two),
                slack: slacks(*slack_one, *slack_two),
            }),
            _ => None,
        }
    }

    /// Whether no parameter exceeds that of `other`.
    pub fn within(&self, other: &Self) -> bool {
        let resources = match (self, other) {
            (Self::Guaranteed { slack: one, .. }, Self::Guaranteed { slack: two, .. }) => {
                one >= two
            }
            (Self::ControlledLoad(_), Self::ControlledLoad(_)) => true,
            _ => false,
        };
        resources
            && self.traffic().within(other.traffic())
            && self.reserved_rate() <= other.reserved_rate()
    }
}

impl PartialOrd for FlowSpec {
    /// Less is a request that the other serves, too; `None` where neither serves the other.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.within(other), other.within(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

impl FlowSpec {
    pub(super) fn put_object(&self, out: &mut Vec<u8>) {
        let rspec = if matches!(self, Self::Guaranteed { .. }) { RSPEC_WORDS + 1 } else { 0 };
        put_version(out, BUCKET_WORDS + 2 + rspec);
        match self {
            Self::ControlledLoad(traffic) => {
                put_header(out, SERVICE_CONTROLLED_LOAD, 0, BUCKET_WORDS + 1);
                traffic.put(out);
            }
            Self::Guaranteed { traffic, rate, slack } => {
                put_header(out, SERVICE_GUARANTEED, 0, BUCKET_WORDS + 1 + rspec);
                traffic.put(out);
                put_header(out, PARAMETER_GUARANTEED, 0, RSPEC_WORDS);
                out.extend(rate.to_be_bytes());
                out.extend(slack.to_be_bytes());
            }
        }
    }

    pub(super) fn read_object(body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let words = from.array::<4>()?;
        let service = from.0.first().copied()?;
        from.0 = body;
        if words[0] >> 4 != 0 {
            return None;
        }
        let read = match service {
            SERVICE_CONTROLLED_LOAD => {
                expect_version(&mut from, BUCKET_WORDS + 2)?;
                expect_header(&mut from, service, BUCKET_WORDS + 1)?;
                Self::ControlledLoad(TrafficSpec::read(&mut from)?)
            }
            SERVICE_GUARANTEED => {
                expect_version(&mut from, BUCKET_WORDS + RSPEC_WORDS + 3)?;
                expect_header(&mut from, service, BUCKET_WORDS + RSPEC_WORDS + 2)?;
                let traffic = TrafficSpec::read(&mut from)?;
                expect_header(&mut from, PARAMETER_GUARANTEED, RSPEC_WORDS)?;
                let rate = from.amount().filter(|rate| rate.is_finite())?;
                Self::Guaranteed { traffic, rate, slack: from.u32()? }
            }
            _ => return None,
        };
        from.end(read)
    }
}

/// ADSPEC: the characteristics of the path, collected hop by hop from the sender (OPWA).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdSpec {
    /// Some node on the path does not reserve.
    pub broken: bool,
    /// Nodes that reserve.
    pub hops: u32,
    /// The least bandwidth of a link, in bytes a second.
    #[serde(with = "unbounded")]
    pub bandwidth: f32,
    /// Sum of the minimum path latencies, in microseconds; [`LATENCY_UNKNOWN`] where one is
    /// unknown.
    pub latency: u32,
    /// The largest packet that passes, in bytes.
    pub mtu: u32,
    /// Guaranteed service, where the path may have it.
    pub guaranteed: Option<GuaranteedAd>,
    /// Controlled load, where the path may have it: whether a node does not offer it.
    pub controlled_load_broken: Option<bool>,
}

/// Guaranteed service along the path (RFC 2212): error terms in bytes (C) and microseconds (D).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuaranteedAd {
    /// Some node does not offer it.
    pub broken: bool,
    /// Sum of C from the sender on, in bytes.
    pub c_total: u32,
    /// Sum of D from the sender on, in microseconds.
    pub d_total: u32,
    /// Sum of C since the last reshaping point, in bytes.
    pub c_since: u32,
    /// Sum of D since the last reshaping point, in microseconds.
    pub d_since: u32,
}

impl AdSpec {
    pub(super) fn put_object(&self, out: &mut Vec<u8>) {
        let begins = out.len();
        put_version(out, 0);
        put_header(out, SERVICE_GENERAL, flag(self.broken), 8);
        let bandwidth = self.bandwidth.to_bits();
        let values = [self.hops, bandwidth, self.latency, self.mtu];
        put_parameters(out, GENERAL_PARAMETERS, values);
        if let Some(ad) = &self.guaranteed {
            put_header(out, SERVICE_GUARANTEED, flag(ad.broken), 8);
            let values = [ad.c_total, ad.d_total, ad.c_since, ad.d_since];
            put_parameters(out, GUARANTEED_PARAMETERS, values);
        }
        if let Some(broken) = self.controlled_load_broken {
            put_header(out, SERVICE_CONTROLLED_LOAD, flag(broken), 0);
        }
        let words = ((out.len() - begins) / 4 - 1) as u16; // at most 20
        out[begins + 2..begins + 4].copy_from_slice(&words.to_be_bytes());
    }

    /// Unknown services and parameters are skipped.
    pub(super) fn read_object(body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        expect_version(&mut from, u16::try_from(body.len() / 4).ok()?.checked_sub(1)?)?;
        let (service, flags, words) = header(&mut from)?;
        if service != SERVICE_GENERAL {
            return None;
        }
        let mut general = Reader(from.take(usize::from(words) * 4)?);
        let [hops, bandwidth, latency, mtu] = parameters(&mut general, GENERAL_PARAMETERS)?;
        let bandwidth = f32::from_bits(bandwidth);
        if bandwidth.is_nan() || bandwidth.is_sign_negative() {
            return None;
        }
        let broken = flags & BREAK != 0;
        let mut read = Self {
            broken,
            hops,
            bandwidth,
            latency,
            mtu,
            guaranteed: None,
            controlled_load_broken: None,
        };
        while !from.0.is_empty() {
            let (service, flags, words) = header(&mut from)?;
            let mut fragment = Reader(from.take(usize::from(words) * 4)?);
            let broken = flags & BREAK != 0;
            match service {
                SERVICE_GUARANTEED => {
                    let values = parameters(&mut fragment, GUARANTEED_PARAMETERS)?;
                    let [c_total, d_total, c_since, d_since] = values;
                    let ad = GuaranteedAd { broken, c_total, d_total, c_since, d_since };
                    read.guaranteed = Some(ad);
                }
                SERVICE_CONTROLLED_LOAD => read.controlled_load_broken = Some(broken),
                _ => {}
            }
        }
        Some(read)
    }
}

fn flag(broken: bool) -> u8 {
    if broken { BREAK } else { 0 }
}

/// The first word of each object of RFC 2210: version 0 and how many words follow.
fn put_version(out: &mut Vec<u8>, words: u16) {
    out.extend([0, 0]);
    out.extend(words.to_be_bytes());
}

/// A service's or a parameter's header.
fn put_header(out: &mut Vec<u8>, number: u8, flags: u8, words: u16) {
    out.extend([number, flags]);
    out.extend(words.to_be_bytes());
}

fn put_parameters(out: &mut Vec<u8>, numbers: [u8; 4], values: [u32; 4]) {
    for (number, value) in numbers.into_iter().zip(values) {
        put_header(out, number, 0, 1);
        out.extend(value.to_be_bytes());
    }
}

fn header(from: &mut Reader<'_>) -> Option<(u8, u8, u16)> {
    Some((from.u8()?, from.u8()?, from.u16()?))
}

fn expect_version(from: &mut Reader<'_>, words: u16) -> Option<()> {
    let (version, _, length) = header(from)?;
    (version >> 4 == 0 && length == words).then_some(())
}

fn expect_header(from: &mut Reader<'_>, number: u8, words: u16) -> Option<()> {
    let (read, _, length) = header(from)?;
    (read == number && length == words).then_some(())
}

/// The values of the numbered parameters, each of one word, in any order; others are passed over.
fn parameters(from: &mut Reader<'_>, numbers: [u8; 4]) -> Option<[u32; 4]> {
    let mut values = [None; 4];
    while !from.0.is_empty() {
        let (number, _, words) = header(from)?;
        let body = from.take(usize::from(words) * 4)?;
        if let Some(place) = numbers.iter().position(|&known| known == number) {
            values[place] = Some(u32::from_be_bytes(body.try_into().ok()?));
        }
    }
    let [a, b, c, d] = values;
    Some([a?, b?, c?, d?])
}
