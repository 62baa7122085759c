//! What an application asks for, and what that is for the network.
//!
//! The parameters are those of qosockets, section II.B; the mapping follows RFC 2210 to RFC 2212
//! (TSpec, RSpec), RFC 4594 (DSCP) and RFC 9622 (transport services).

use core::fmt;

use ontempo_foundation::{Bytes, Duration, Rate};

use crate::message::{AdSpec, FlowSpec, LATENCY_UNKNOWN, TrafficSpec};

/// The quality that one end of a flow asks for; what is `None` does not matter to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Specification {
    /// Least messages a second.
    pub min_rate: Option<Parameter<f64>>,
    /// Most messages a second, in the mean.
    pub max_rate: Parameter<f64>,
    /// Most messages a second at a peak.
    pub peak_rate: Option<Parameter<f64>>,
    /// Largest message.
    pub size: Parameter<Bytes>,
    /// Least delay.
    pub min_delay: Option<Parameter<Duration>>,
    /// Most delay from sending to arrival.
    pub max_delay: Option<Parameter<Duration>>,
    /// Longest time between two received messages.
    pub int_delay: Option<Parameter<Duration>>,
    /// Most difference of the delays of two consecutive messages.
    pub jitter: Option<Parameter<Duration>>,
    /// Most messages lost, in per cent.
    pub loss: Option<Parameter<f64>>,
    /// Longest time to recover a disrupted connection.
    pub rec_time: Option<Parameter<Duration>>,
    /// Messages may be delivered out of order.
    pub permutable: Parameter<bool>,
}

/// A parameter, and whether it may be brought to what both ends accept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter<T> {
    /// What is asked.
    pub value: T,
    /// May be coerced.
    pub coerced: bool,
}

impl<T> Parameter<T> {
    /// A value that may be coerced, as all are in the paper's experiments.
    pub fn coerced(value: T) -> Self {
        Self { value, coerced: true }
    }

    /// A value that may not.
    pub fn fixed(value: T) -> Self {
        Self { value, coerced: false }
    }
}

/// Why a specification cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// A rate is no number above zero.
    Rate(&'static str),
    /// `min_rate` is above `max_rate`.
    RatesCrossed,
    /// `max_rate` is above `peak_rate`.
    PeakBelowMean,
    /// A message has no bytes.
    NoSize,
    /// `min_delay` is above `max_delay`.
    DelaysCrossed,
    /// `loss` is not between 0 and 100.
    Loss,
    /// `int_delay` is shorter than the time between messages at `max_rate`.
    IntervalTooShort,
    /// `max_delay` is below the path's own latency.
    BelowLatency,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(name) => write!(f, "{name} must be a number of messages a second above 0"),
            Self::RatesCrossed => f.write_str("min_rate must be at most max_rate"),
            Self::PeakBelowMean => f.write_str("peak_rate must be at least max_rate"),
            Self::NoSize => f.write_str("size must be at least 1 byte"),
            Self::DelaysCrossed => f.write_str("min_delay must be at most max_delay"),
            Self::Loss => f.write_str("loss must be between 0 and 100 per cent"),
            Self::IntervalTooShort => {
                f.write_str("int_delay must be at least the time between messages at max_rate")
            }
            Self::BelowLatency => {
                f.write_str("max_delay must be above the path's latency without any queueing")
            }
        }
    }
}

impl core::error::Error for Contradiction {}

/// How messages are packets: what the network serves is IP packets, headers counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// IP and transport headers of a packet: 28 bytes for UDP over IPv4, 48 over IPv6.
    pub headers: Bytes,
    /// The largest IP packet.
    pub mtu: Bytes,
}

impl Packing {
    /// UDP over IPv4 in Ethernet's packets.
    pub const UDP_IPV4: Self = Self { headers: Bytes::new(28), mtu: Bytes::new(1500) };

    /// A message's bytes on the network, and its largest packet: cut into as many packets as it
    /// takes, each with headers.
    fn message(&self, size: Bytes) -> (f64, u64) {
        let room = self.mtu.get().saturating_sub(self.headers.get()).max(1);
        let packets = size.get().div_ceil(room).max(1);
        let bytes = size.get() + packets * self.headers.get();
        (bytes as f64, (size.get().min(room)) + self.headers.get())
    }
}

impl Specification {
    /// Whether the parameters can hold together.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), Contradiction> {
        let rates = [
            ("min_rate", self.min_rate.map(|rate| rate.value)),
            ("max_rate", Some(self.max_rate.value)),
            ("peak_rate", self.peak_rate.map(|rate| rate.value)),
        ];
        let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
        for (name, rate) in rates {
            if rate.is_some_and(|rate| !is_rate(rate)) {
                return Err(Contradiction::Rate(name));
            }
        }
        let max_rate = self.max_rate.value;
        if self.min_rate.is_some_and(|rate| rate.value > max_rate) {
            return Err(Contradiction::RatesCrossed);
        }
        if self.peak_rate.is_some_and(|rate| rate.value < max_rate) {
            return Err(Contradiction::PeakBelowMean);
        }
        if self.size.value == Bytes::ZERO {
            return Err(Contradiction::NoSize);
        }
        let delays = self.min_delay.zip(self.max_delay);
        if delays.is_some_and(|(min, max)| min.value > max.value) {
            return Err(Contradiction::DelaysCrossed);
        }
        if self.loss.is_some_and(|loss| !(0.0..=100.0).contains(&loss.value)) {
            return Err(Contradiction::Loss);
        }
        let interval = Duration::from_secs_f64(1.0 / max_rate);
        if self.int_delay.is_some_and(|most| most.value < interval) {
            return Err(Contradiction::IntervalTooShort);
        }
        Ok(())
    }

    /// The traffic (RFC 2210): r is `max_rate`, p `peak_rate` (r without one), b two messages or
    /// what a peak lets gather in one message's time, whichever is more; m and M the packets' size.
    pub fn traffic(&self, packing: Packing) -> TrafficSpec {
        let (bytes, largest) = packing.message(self.size.value);
        let rate = self.max_rate.value * bytes;
        let peak = self.peak_rate.map_or(rate, |peak| peak.value * bytes).max(rate);
        // One message is on its way while the next is written (qosockets sends whole messages).
        let burst = (2.0 * bytes).max(largest as f64);
        let largest = u32::try_from(largest).unwrap_or(u32::MAX);
        let smallest = u32::try_from(packing.headers.get()).unwrap_or(u32::MAX).min(largest);
        TrafficSpec { rate: up(rate), burst: up(burst), peak: up(peak), smallest, largest }
    }

    /// What to reserve: controlled load, or guaranteed service where a delay is asked for and the
    /// whole path offers it. Its rate is the least that keeps the bound of RFC 2212.
    ///
    /// # Errors
    /// Where the delay is shorter than the path's own latency.
    pub fn flowspec(
        &self,
        packing: Packing,
        path: Option<&AdSpec>,
    ) -> Result<FlowSpec, Contradiction> {
        let traffic = self.traffic(packing);
        let offered = path.and_then(|path| Some((path, path.guaranteed.filter(|ad| !ad.broken)?)));
        let (Some(delay), Some((path, ad))) =
            (self.max_delay, offered.filter(|(path, _)| !path.broken))
        else {
            return Ok(FlowSpec::ControlledLoad(traffic));
        };
        let latency = if path.latency == LATENCY_UNKNOWN { 0 } else { path.latency };
        let fixed = Duration::from_micros(u64::from(latency) + u64::from(ad.d_total));
        let queueing = delay.value.saturating_sub(fixed).as_secs_f64();
        if queueing <= 0.0 {
            return Err(Contradiction::BelowLatency);
        }
        let rate = rate_for(&traffic, f64::from(ad.c_total), queueing);
        Ok(FlowSpec::Guaranteed { traffic, rate: up(rate), slack: 0 })
    }

    /// The code point of the flow's packets where nothing reserves (RFC 4594 table 3, RFC 8837).
    pub fn dscp(&self) -> Dscp {
        let within = |limit: Option<Parameter<Duration>>, most: u64| {
            limit.is_some_and(|limit| limit.value <= Duration::from_millis(most))
        };
        let constant = self.peak_rate.is_none_or(|peak| peak.value <= self.max_rate.value * 1.1);
        let small = self.size.value.get() <= 400;
        match () {
            () if within(self.max_delay, INTERACTIVE_MS) && constant && small => Dscp::EF,
            () if within(self.max_delay, INTERACTIVE_MS) => Dscp::AF41,
            () if self.jitter.is_some() || self.int_delay.is_some() => Dscp::AF31,
            () if self.max_delay.is_some() => Dscp::AF21,
            () if self.min_rate.is_some() => Dscp::AF11,
            () => Dscp::DEFAULT,
        }
    }

    /// The transport-services properties (RFC 9622), by their names there, with their values.
    pub fn transport_properties(&self) -> Vec<(&'static str, String)> {
        let payload = |rate: f64| {
            Rate::from_bits_per_sec((rate * self.size.value.get() as f64 * 8.0).ceil() as u64)
                .as_bits_per_sec()
                .to_string()
        };
        let lossless = self.loss.is_none_or(|loss| loss.value == 0.0);
        let mut properties = vec![
            ("reliability", preference(lossless, "avoid")),
            ("preserveMsgBoundaries", "prefer".to_owned()),
            ("preserveOrder", preference(!self.permutable.value, "avoid")),
            ("connCapacityProfile", self.dscp().capacity_profile().to_owned()),
        ];
        if let Some(rate) = self.min_rate {
            properties.push(("minSendRate", payload(rate.value)));
        }
        let most = self.peak_rate.unwrap_or(self.max_rate);
        properties.push(("maxSendRate", payload(most.value)));
        if let Some(delay) = self.max_delay {
            let millis = delay.value.as_nanos() / 1_000_000;
            properties.push(("msgLifetime", format!("{millis} ms")));
        }
        if let Some(time) = self.rec_time {
            let seconds = time.value.as_nanos().div_ceil(1_000_000_000);
            properties.push(("connTimeout", format!("{seconds} s")));
        }
        properties
    }
}

/// ITU-T G.114: up to 150 ms of delay are good for most interactive applications.
const INTERACTIVE_MS: u64 = 150;

fn preference(required: bool, otherwise: &str) -> String {
    if required { "require".to_owned() } else { otherwise.to_owned() }
}

/// To a 32-bit float that is no less.
fn up(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) < value { near.next_up() } else { near }
}

/// The least R whose queueing bound is `bound` seconds (RFC 2212, with C in bytes): for p > R,
/// (b - M) / R * (p - R) / (p - r) + (M + C) / R; for R >= p, (M + C) / R. At least r.
fn rate_for(traffic: &TrafficSpec, c: f64, bound: f64) -> f64 {
    let [rate, peak, burst, largest] =
        [traffic.rate, traffic.peak, traffic.burst, traffic.largest as f32].map(f64::from);
    let above_peak = (largest + c) / bound;
    if above_peak >= peak || peak <= rate {
        return above_peak.max(rate);
    }
    let excess = (burst - largest).max(0.0);
    // Solved for R: excess * (p - R) / (p - r) + M + C = bound * R.
    let needed = if peak.is_finite() {
        (excess * peak / (peak - rate) + largest + c) / (bound + excess / (peak - rate))
    } else {
        (burst + c) / bound
    };
    needed.max(rate)
}

/// A differentiated-services code point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// Best effort.
    pub const DEFAULT: Self = Self(0);
    /// High-throughput data (RFC 4594 section 4.8).
    pub const AF11: Self = Self(10);
    /// Low-latency data (section 4.7).
    pub const AF21: Self = Self(18);
    /// Multimedia streaming (section 4.5).
    pub const AF31: Self = Self(26);
    /// Multimedia conferencing (section 4.3).
    pub const AF41: Self = Self(34);
    /// Telephony (section 4.1).
    pub const EF: Self = Self(46);

    /// The six bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// RFC 9622's capacity profile of the class.
    pub fn capacity_profile(self) -> &'static str {
        match self {
            Self::EF | Self::AF41 => "low-latency-interactive",
            Self::AF31 => "constant-rate-streaming",
            Self::AF21 => "low-latency-non-interactive",
            Self::AF11 => "capacity-seeking",
            _ => "default",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::GuaranteedAd;

    /// NetVideo: 80 messages of 1,280 bytes a second.
    fn video() -> Specification {
        Specification {
            min_rate: Some(Parameter::coerced(60.0)),
            max_rate: Parameter::coerced(80.0),
            peak_rate: Some(Parameter::coerced(100.0)),
            size: Parameter::coerced(Bytes::new(1280)),
            min_delay: None,
            max_delay: Some(Parameter::coerced(Duration::from_millis(100))),
            int_delay: None,
            jitter: Some(Parameter::coerced(Duration::from_millis(20))),
            loss: Some(Parameter::coerced(1.0)),
            rec_time: None,
            permutable: Parameter::coerced(false),
        }
    }

    fn path(latency: u32, c: u32, d: u32) -> AdSpec {
        AdSpec {
            broken: false,
            hops: 3,
            bandwidth: 187_500.0,
            latency,
            mtu: 1500,
            guaranteed: Some(GuaranteedAd { c_total: c, d_total: d, ..GuaranteedAd::default() }),
            controlled_load_broken: Some(false),
        }
    }

    #[test]
    fn the_papers_video_is_a_token_bucket_of_its_packets() {
        let traffic = video().traffic(Packing::UDP_IPV4);
        assert_eq!((traffic.rate, traffic.peak), (80.0 * 1308.0, 100.0 * 1308.0));
        assert_eq!((traffic.burst, traffic.largest, traffic.smallest), (2616.0, 1308, 28));
        assert_eq!(video().dscp(), Dscp::AF41);
        let properties = video().transport_properties();
        assert!(properties.contains(&("minSendRate", "614400".to_owned())));
    }

    #[test]
    fn a_message_larger_than_a_packet_counts_with_all_its_headers() {
        let image = Specification { size: Parameter::fixed(Bytes::new(58_000)), ..video() };
        let traffic = image.traffic(Packing::UDP_IPV4);
        assert_eq!(traffic.largest, 1500);
        assert_eq!(traffic.burst, 2.0 * (58_000.0 + 40.0 * 28.0));
    }

    #[test]
    fn a_delay_that_the_path_cannot_have_is_refused() {
        let asked = video().flowspec(Packing::UDP_IPV4, Some(&path(120_000, 0, 0)));
        assert_eq!(asked, Err(Contradiction::BelowLatency));
        let broken = AdSpec { broken: true, ..path(10_000, 0, 0) };
        let asked = video().flowspec(Packing::UDP_IPV4, Some(&broken));
        assert!(matches!(asked, Ok(FlowSpec::ControlledLoad(_))));
    }

    #[test]
    fn contradictions_are_named() {
        let crossed = Specification { min_rate: Some(Parameter::fixed(90.0)), ..video() };
        assert_eq!(crossed.check(), Err(Contradiction::RatesCrossed));
        let never = Specification { max_rate: Parameter::fixed(f64::NAN), ..video() };
        assert_eq!(never.check(), Err(Contradiction::Rate("max_rate")));
        assert_eq!(video().check(), Ok(()));
    }

    proptest! {
        /// RFC 2212's bound at the rate that was solved for is the bound that was asked for.
        #[test]
        fn the_rate_keeps_the_delay_bound(
            rate in 1e3f32..1e6, peak in 1f32..10.0, burst in 1.5e3f32..1e5, c in 0f64..1e4, bound in 1e-3f64..1.0,
        ) {
            let traffic =
                TrafficSpec { rate, burst, peak: rate * peak, smallest: 64, largest: 1500 };
            let chosen = rate_for(&traffic, c, bound);
            let [r, p, b, m] = [rate, rate * peak, burst, 1500.0].map(f64::from);
            let delay = |reserved: f64| {
                let tail = (m + c) / reserved;
                if reserved >= p { tail } else { (b - m) / reserved * (p - reserved) / (p - r) + tail }
            };
            prop_assert!(chosen >= r);
            prop_assert!(delay(chosen) <= bound * (1.0 + 1e-6), "{} for {bound}", delay(chosen));
            if chosen > r * 1.000_001 {
                prop_assert!(delay(chosen * 0.999) > bound * 0.998, "no less would do");
            }
        }
    }
}
