use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A point in time: nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of time in nanoseconds; never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// A number of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packets(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `seconds` after the start, rounded to a nanosecond; a negative one is the start.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(nanos_of(seconds))
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SECOND as f64
    }

    /// The duration from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// Longer than any run.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * NANOS_PER_SECOND)
    }

    /// A span of `seconds`, rounded to a nanosecond; a negative one is zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(nanos_of(seconds))
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SECOND as f64
    }

    /// The difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }

    /// The sum, or [`Duration::MAX`] on overflow.
    pub const fn saturating_add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }

    /// The span times a factor of zero or more, rounded to a nanosecond.
    pub fn mul_f64(self, factor: f64) -> Duration {
        Duration((self.0 as f64 * factor).round() as u64)
    }

    /// How many times `other` fits into `self`, as a fraction.
    pub fn ratio(self, other: Duration) -> f64 {
        self.0 as f64 / other.0 as f64
    }
}

fn nanos_of(seconds: f64) -> u64 {
    (seconds * NANOS_PER_SECOND as f64).round() as u64
}

impl Rate {
    /// A rate of `bits` per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(bits)
    }

    /// The rate in bits per second.
    pub const fn as_bits_per_sec(self) -> u64 {
        self.0
    }

    /// The rate in Mbit/s.
    pub fn as_mbit_per_sec(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The rate at which `bytes` are sent in `span`; zero if the span is empty.
    pub fn of(bytes: Bytes, span: Duration) -> Self {
        if span == Duration::ZERO {
            return Self(0);
        }
        let bits = u128::from(bytes.0) * 8 * u128::from(NANOS_PER_SECOND) / u128::from(span.0);
        Self(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// How long `size` occupies a link of this rate, rounded up to a nanosecond.
    /// An unlimited link ([`Rate::UNLIMITED`]) takes no time; a rate of zero takes for ever.
    pub fn time_to_send(self, size: Bytes) -> Duration {
        if self == Self::UNLIMITED {
            return Duration::ZERO;
        }
        let Some(bits_nanos) = size.0.checked_mul(8 * NANOS_PER_SECOND) else {
            return self.time_to_send_large(size);
        };
        match bits_nanos.checked_add(self.0.wrapping_sub(1)) {
            Some(rounded) if self.0 > 0 => Duration(rounded / self.0),
            _ => self.time_to_send_large(size),
        }
    }

    fn time_to_send_large(self, size: Bytes) -> Duration {
        if self.0 == 0 {
            return if size.0 == 0 { Duration::ZERO } else { Duration::MAX };
        }
        let bits_nanos = u128::from(size.0) * 8 * u128::from(NANOS_PER_SECOND);
        Duration(u64::try_from(bits_nanos.div_ceil(u128::from(self.0))).unwrap_or(u64::MAX))
    }

    /// No limit: sending takes no time.
    pub const UNLIMITED: Self = Self(u64::MAX);
}

impl Bytes {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// A number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Packets {
    /// A number of packets.
    pub const fn new(packets: u64) -> Self {
        Self(packets)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, span: Duration) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        self.saturating_add(other)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Duration;
    fn sub(self, other: Duration) -> Duration {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, factor: u64) -> Duration {
        Duration(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    fn div(self, divisor: u64) -> Duration {
        Duration(self.0 / divisor)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Duration>>(spans: I) -> Duration {
        spans.fold(Duration::ZERO, Add::add)
    }
}

macro_rules! counts {
    ($($unit:ident),*) => {$(
        impl Add for $unit {
            type Output = $unit;
            fn add(self, other: $unit) -> $unit { $unit(self.0 + other.0) }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: $unit) { self.0 += other.0; }
        }
        impl Sub for $unit {
            type Output = $unit;
            fn sub(self, other: $unit) -> $unit { $unit(self.0.saturating_sub(other.0)) }
        }
        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: $unit) { *self = *self - other; }
        }
        impl Mul<u64> for $unit {
            type Output = $unit;
            fn mul(self, factor: u64) -> $unit { $unit(self.0 * factor) }
        }
        impl Sum for $unit {
            fn sum<I: Iterator<Item = $unit>>(items: I) -> $unit {
                items.fold($unit(0), Add::add)
            }
        }
    )*};
}
counts!(Bytes, Packets);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration(self.0).fmt(f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scales = [(NANOS_PER_SECOND, "s"), (1_000_000, "ms"), (1_000, "us")];
        display_scaled(f, self.0, &scales, "ns")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UNLIMITED {
            return f.write_str("unlimited");
        }
        let scales = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")];
        display_scaled(f, self.0, &scales, "bit/s")
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets", self.0)
    }
}

/// Messages per second, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageRate(u64);

impl MessageRate {
    /// A rate of `thousandths` of a message per second.
    pub const fn from_thousandths(thousandths: u64) -> Self {
        Self(thousandths)
    }

    /// A rate of whole messages per second.
    pub const fn per_second(messages: u32) -> Self {
        Self(messages as u64 * 1_000)
    }

    /// Thousandths of a message per second.
    pub const fn as_thousandths(self) -> u64 {
        self.0
    }

    /// Messages per second.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// Equation (1): the payload of messages of `size` at this rate; saturates at the largest
    /// rate.
    pub fn throughput(self, size: Bytes) -> Rate {
        let bits = u128::from(self.0) * u128::from(size.get()) * 8 / 1_000;
        Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for MessageRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display_thousandths(f, self.0, "messages/s")
    }
}

/// A fraction in thousandths of a per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u32);

impl Percent {
    /// 100 per cent.
    pub const ALL: Self = Self(100_000);

    /// A fraction in thousandths of a per cent, at most 100 per cent.
    pub const fn from_thousandths(thousandths: u32) -> Self {
        Self(if thousandths < Self::ALL.0 { thousandths } else { Self::ALL.0 })
    }

    /// A fraction in whole per cent, at most 100 per cent.
    pub const fn new(percent: u32) -> Self {
        Self::from_thousandths(percent.saturating_mul(1_000))
    }

    /// Thousandths of a per cent.
    pub const fn as_thousandths(self) -> u32 {
        self.0
    }

    /// In per cent.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        display_thousandths(f, self.0.into(), "%")
    }
}

/// Writes thousandths of a unit, exactly: the text parses back to the same value.
fn display_thousandths(f: &mut fmt::Formatter<'_>, value: u64, unit: &str) -> fmt::Result {
    display_decimal(f, value, 1_000, unit)
}

/// Writes `value` in the largest unit that it reaches, exactly: what is shown parses back.
fn display_scaled(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    scales: &[(u64, &str)],
    smallest: &str,
) -> fmt::Result {
    match scales.iter().find(|(scale, _)| value >= *scale) {
        Some(&(scale, unit)) => display_decimal(f, value, scale, unit),
        None => write!(f, "{value} {smallest}"),
    }
}

/// Writes `value` divided by a power of ten, without zeros at the end.
fn display_decimal(f: &mut fmt::Formatter<'_>, value: u64, scale: u64, unit: &str) -> fmt::Result {
    let (whole, fraction) = (value / scale, value % scale);
    if fraction == 0 {
        return write!(f, "{whole} {unit}");
    }
    let digits = scale.ilog10() as usize;
    let decimals = format!("{fraction:0digits$}");
    write!(f, "{whole}.{} {unit}", decimals.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_time_rounds_up_so_that_a_link_never_exceeds_its_rate() {
        let third = Rate::from_bits_per_sec(3);
        assert_eq!(third.time_to_send(Bytes::new(1)).as_nanos(), 2_666_666_667);
        let fast = Rate::from_bits_per_sec(10_000_000);
        assert_eq!(fast.time_to_send(Bytes::new(1000)), Duration::from_micros(800));
        assert_eq!(Rate::UNLIMITED.time_to_send(Bytes::new(1000)), Duration::ZERO);
        assert_eq!(Rate::from_bits_per_sec(0).time_to_send(Bytes::new(1)), Duration::MAX);
        let terabyte = Bytes::new(1_000_000_000_000);
        assert_eq!(Rate::from_bits_per_sec(8).time_to_send(terabyte).as_nanos(), u64::MAX);
    }

    #[test]
    fn units_are_shown_in_the_largest_unit_they_reach() {
        assert_eq!(Duration::from_millis(30).to_string(), "30 ms");
        assert_eq!(Duration::from_micros(1500).to_string(), "1.5 ms");
        assert_eq!(Duration::ZERO.to_string(), "0 ns");
        assert_eq!(Rate::from_bits_per_sec(25_000_000).to_string(), "25 Mbit/s");
        assert_eq!(Rate::from_bits_per_sec(2_230_000).to_string(), "2.23 Mbit/s");
    }

    #[test]
    fn time_never_runs_below_the_start() {
        assert_eq!(Time::from_secs_f64(-1.0), Time::ZERO);
        assert_eq!(Time::ZERO.since(Time::from_nanos(5)), Duration::ZERO);
    }
}
