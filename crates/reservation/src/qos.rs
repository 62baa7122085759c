//! A specification of quality as TSpec, flowspec, DSCP and transport-services properties.
//!
//! The mapping of its parameters (qosockets, II.B) follows RFC 2210 to RFC 2212 (TSpec, RSpec),
//! RFC 4594 (DSCP) and RFC 9622 (transport services).

use core::fmt;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Contradiction, Parameter, Specification};

use crate::message::{AdSpec, FlowSpec, LATENCY_UNKNOWN, TrafficSpec};

/// Why nothing can be reserved for a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreservable {
    /// A reservation needs this parameter.
    Missing(Parameter),
    /// It cannot hold on this path.
    Contradiction(Contradiction),
}

impl fmt::Display for Unreservable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(parameter) => write!(f, "a reservation needs {parameter}"),
            Self::Contradiction(contradiction) => contradiction.fmt(f),
        }
    }
}

impl core::error::Error for Unreservable {}

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

    /// A message's bytes on the network, its smallest and its largest packet: cut into as many
    /// packets as it takes, each with headers.
    fn message(&self, size: Bytes) -> (f64, [u64; 2]) {
        let room = self.mtu.get().saturating_sub(self.headers.get()).max(1);
        let packets = size.get().div_ceil(room).max(1);
        let bytes = size.get() + packets * self.headers.get();
        let last = size.get() - (packets - 1) * room;
        (bytes as f64, [last, size.get().min(room)].map(|size| size + self.headers.get()))
    }
}

/// The traffic (RFC 2210): r is `max_rate`, p `peak_rate` (r without one), b two messages or
/// what a peak lets gather in one message's time, whichever is more; m and M the smallest and the
/// largest packet of a message of `size`: a shorter one has no more packets, and counts no more.
///
/// # Errors
/// Where the specification has neither `max_rate` nor `peak_rate`, or no `size`.
pub fn traffic(asked: &Specification, packing: Packing) -> Result<TrafficSpec, Unreservable> {
    let size = asked.size.value.ok_or(Unreservable::Missing(Parameter::Size))?;
    let rate = asked.max_rate.value.or(asked.peak_rate.value);
    let rate = rate.ok_or(Unreservable::Missing(Parameter::MaxRate))?;
    let (bytes, [smallest, largest]) = packing.message(size);
    let of = |rate: MessageRate| rate.as_f64() * bytes;
    let peak = asked.peak_rate.value.map_or(of(rate), of).max(of(rate));
    // One message is being sent while the next is written (qosockets sends whole messages).
    let burst = (2.0 * bytes).max(largest as f64);
    let largest = u32::try_from(largest).unwrap_or(u32::MAX);
    let smallest = u32::try_from(smallest).unwrap_or(u32::MAX);
    Ok(TrafficSpec { rate: up(of(rate)), burst: up(burst), peak: up(peak), smallest, largest })
}

/// The flowspec: controlled load, or guaranteed service where the specification has `max_delay` and
/// the whole path offers it. Its rate is the least that keeps the bound of RFC 2212.
///
/// # Errors
/// Where the traffic is not known, or the delay is shorter than the path's own latency.
pub fn flowspec(
    asked: &Specification,
    packing: Packing,
    path: Option<&AdSpec>,
) -> Result<FlowSpec, Unreservable> {
    let traffic = traffic(asked, packing)?;
    let offered = path.and_then(|path| Some((path, path.guaranteed.filter(|ad| !ad.broken)?)));
    let (Some(delay), Some((path, ad))) =
        (asked.max_delay.value, offered.filter(|(path, _)| !path.broken))
    else {
        return Ok(FlowSpec::ControlledLoad(traffic));
    };
    let latency = if path.latency == LATENCY_UNKNOWN { 0 } else { path.latency };
    let fixed = Duration::from_micros(u64::from(latency) + u64::from(ad.d_total));
    let queueing = delay.saturating_sub(fixed).as_secs_f64();
    if queueing <= 0.0 {
        let below = Contradiction::BelowLatency { asked: delay, latency: fixed };
        return Err(Unreservable::Contradiction(below));
    }
    let rate = rate_for(&traffic, f64::from(ad.c_total), queueing);
    Ok(FlowSpec::Guaranteed { traffic, rate: up(rate), slack: 0 })
}

/// The code point of the flow's packets where nothing reserves (RFC 4594 table 3, RFC 8837).
pub fn dscp(asked: &Specification) -> Dscp {
    let within =
        |most: u64| asked.max_delay.value.is_some_and(|limit| limit <= Duration::from_millis(most));
    let constant = match (asked.peak_rate.value, asked.max_rate.value) {
        (Some(peak), Some(most)) => peak.as_f64() <= most.as_f64() * 1.1,
        _ => true,
    };
    let small = asked.size.value.is_some_and(|size| size.get() <= 400);
    match () {
        () if within(INTERACTIVE_MS) && constant && small => Dscp::EF,
        () if within(INTERACTIVE_MS) => Dscp::AF41,
        () if asked.jitter.value.is_some() || asked.int_delay.value.is_some() => Dscp::AF31,
        () if asked.max_delay.value.is_some() => Dscp::AF21,
        () if asked.min_rate.value.is_some() => Dscp::AF11,
        () => Dscp::DEFAULT,
    }
}

/// The transport-services properties (RFC 9622), by their names there, with their values.
pub fn transport_properties(asked: &Specification) -> Vec<(&'static str, String)> {
    let payload = |rate: Option<MessageRate>| {
        let rate = rate?.throughput(asked.size.value?);
        Some(rate.as_bits_per_sec().to_string())
    };
    let lossless = asked.loss.value.is_none_or(|loss| loss == Percent::default());
    let permutable = asked.permutable.value.unwrap_or(false);
    let mut properties = vec![
        ("reliability", preference(lossless, "avoid")),
        ("preserveMsgBoundaries", "prefer".to_owned()),
        ("preserveOrder", preference(!permutable, "avoid")),
        ("connCapacityProfile", dscp(asked).capacity_profile().to_owned()),
    ];
    let least = payload(asked.min_rate.value).map(|rate| ("minSendRate", rate));
    let most = payload(asked.peak_rate.value.or(asked.max_rate.value));
    properties.extend(least);
    properties.extend(most.map(|rate| ("maxSendRate", rate)));
    if let Some(delay) = asked.max_delay.value {
        properties.push(("msgLifetime", format!("{} ms", delay.as_nanos() / 1_000_000)));
    }
    if let Some(time) = asked.rec_time.value {
        let seconds = time.as_nanos().div_ceil(1_000_000_000);
        properties.push(("connTimeout", format!("{seconds} s")));
    }
    properties
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

    use ontempo_mechanisms::qos::Term;

    use super::*;
    use crate::message::GuaranteedAd;

    /// NetVideo: 80 messages of 1,280 bytes a second.
    fn video() -> Specification {
        Specification {
            min_rate: Term::coerced(MessageRate::per_second(60)),
            max_rate: Term::coerced(MessageRate::per_second(80)),
            peak_rate: Term::coerced(MessageRate::per_second(100)),
            size: Term::coerced(Bytes::new(1280)),
            max_delay: Term::coerced(Duration::from_millis(100)),
            jitter: Term::coerced(Duration::from_millis(20)),
            loss: Term::coerced(Percent::new(1)),
            permutable: Term::coerced(false),
            ..Specification::default()
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
        let traffic = traffic(&video(), Packing::UDP_IPV4).unwrap();
        assert_eq!((traffic.rate, traffic.peak), (80.0 * 1308.0, 100.0 * 1308.0));
        assert_eq!((traffic.burst, traffic.largest, traffic.smallest), (2616.0, 1308, 1308));
        assert_eq!(dscp(&video()), Dscp::AF41);
        let properties = transport_properties(&video());
        assert!(properties.contains(&("minSendRate", "614400".to_owned())));
    }

    #[test]
    fn a_message_larger_than_a_packet_counts_with_all_its_headers() {
        let image = Specification { size: Term::firm(Bytes::new(58_000)), ..video() };
        let traffic = traffic(&image, Packing::UDP_IPV4).unwrap();
        // 39 times 1,472 bytes and 592.
        assert_eq!((traffic.smallest, traffic.largest), (620, 1500));
        assert_eq!(traffic.burst, 2.0 * (58_000.0 + 40.0 * 28.0));
    }

    #[test]
    fn a_delay_that_the_path_cannot_have_is_refused() {
        let asked = flowspec(&video(), Packing::UDP_IPV4, Some(&path(120_000, 0, 0)));
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("than the path takes without any queue (120 ms)"), "{error}");
        let broken = AdSpec { broken: true, ..path(10_000, 0, 0) };
        let asked = flowspec(&video(), Packing::UDP_IPV4, Some(&broken));
        assert!(matches!(asked, Ok(FlowSpec::ControlledLoad(_))));
    }

    #[test]
    fn what_a_reservation_needs_is_named() {
        let unknown = Specification { size: Term::default(), ..video() };
        let error = traffic(&unknown, Packing::UDP_IPV4).unwrap_err();
        assert_eq!(error.to_string(), "a reservation needs size");
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
