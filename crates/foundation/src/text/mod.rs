//! Units as text: `"30 ms"`, `"25 Mbit/s"`, `"1000 bytes"`, `"150 packets"`.
//!
//! Each type is written as its `Display` text, which parses back to the same value.
//! Numbers are decimal and parsed exactly, without floating point; a duration
//! is rounded to a nanosecond and a rate to a bit per second, but bytes and packets must be
//! whole. A bare number is an error that names the missing unit.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::{Bytes, Duration, MessageRate, Packets, Percent, Rate};

#[cfg(test)]
mod tests;

/// The quantity that a text expresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A span of time.
    Duration,
    /// A data rate.
    Rate,
    /// A number of bytes.
    Bytes,
    /// A number of packets.
    Packets,
    /// A rate of messages.
    MessageRate,
    /// A fraction in per cent.
    Percent,
}

impl Quantity {
    const ALL: [Self; 6] =
        [Self::Duration, Self::Rate, Self::Bytes, Self::Packets, Self::MessageRate, Self::Percent];

    /// Its units, each with the number of smallest units that it contains.
    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Duration => &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("min", 60_000_000_000),
                ("h", 3_600_000_000_000),
                ("\u{b5}s", 1_000),
                ("\u{3bc}s", 1_000),
            ],
            Self::Rate => {
                &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)]
            }
            Self::Bytes => &[
                ("bytes", 1),
                ("byte", 1),
                ("B", 1),
                ("kB", 1_000),
                ("MB", 1_000_000),
                ("GB", 1_000_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
            ],
            Self::Packets => &[("packets", 1), ("packet", 1)],
            Self::MessageRate => &[("messages/s", 1_000), ("message/s", 1_000)],
            Self::Percent => &[("%", 1_000)],
        }
    }

    /// The units, as an error message lists them.
    const fn unit_list(self) -> &'static str {
        match self {
            Self::Duration => "ns, us, ms, s, min, h",
            Self::Rate => "bit/s, kbit/s, Mbit/s, Gbit/s",
            Self::Bytes => "bytes, kB, MB, GB, KiB, MiB, GiB",
            Self::Packets => "packets",
            Self::MessageRate => "messages/s",
            Self::Percent => "%",
        }
    }

    /// The unit that an error message suggests if none was given.
    const fn usual_unit(self) -> &'static str {
        match self {
            Self::Duration => "ms",
            Self::Rate => "Mbit/s",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::MessageRate => "messages/s",
            Self::Percent => "%",
        }
    }

    /// The quantity's name, with its article.
    const fn name(self) -> &'static str {
        match self {
            Self::Duration => "a duration",
            Self::Rate => "a rate",
            Self::Bytes => "a number of bytes",
            Self::Packets => "a number of packets",
            Self::MessageRate => "a rate of messages",
            Self::Percent => "a share",
        }
    }

    /// A valid text.
    const fn example(self) -> &'static str {
        match self {
            Self::Duration => "30 ms",
            Self::Rate => "25 Mbit/s",
            Self::Bytes => "1000 bytes",
            Self::Packets => "150 packets",
            Self::MessageRate => "60 messages/s",
            Self::Percent => "5 %",
        }
    }

    /// Whether a fraction of the smallest unit is rounded, rather than refused.
    const fn rounds(self) -> bool {
        matches!(self, Self::Duration | Self::Rate | Self::MessageRate | Self::Percent)
    }

    fn largest(self) -> &'static str {
        match self {
            Self::Duration => "584 years",
            Self::Rate => "18446744073 Gbit/s",
            Self::Bytes => "18446744073 GB",
            Self::Packets => "18446744073709551615 packets",
            Self::MessageRate => "18446744073709551 messages/s",
            Self::Percent => "100 %",
        }
    }
}

/// Why a text is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    wanted: Quantity,
    problem: UnitProblem,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitProblem {
    /// It does not begin with a number.
    NotANumber,
    /// The number is negative.
    Negative,
    /// No unit follows the number.
    MissingUnit,
    /// No quantity has this unit.
    UnknownUnit(String),
    /// The unit belongs to another quantity.
    OtherQuantity(Quantity),
    /// The value does not fit into 64 bits.
    TooLarge,
    /// Not zero, but rounds to zero.
    TooSmall,
    /// A fraction of a byte or of a packet.
    NotWhole,
}

impl UnitError {
    /// The expected quantity.
    pub fn wanted(&self) -> Quantity {
        self.wanted
    }

    /// What is wrong.
    pub fn problem(&self) -> &UnitProblem {
        &self.problem
    }

    /// The error for the bare number `number` in place of a text with a unit.
    pub fn bare_number(wanted: Quantity, number: impl fmt::Display) -> Self {
        Self { text: number.to_string(), wanted, problem: UnitProblem::MissingUnit }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, wanted, problem } = self;
        let (name, example) = (wanted.name(), wanted.example());
        match problem {
            UnitProblem::NotANumber => {
                write!(f, "`{text}` does not begin with a number; ")?;
                write!(f, "{name} is needed, such as \"{example}\"")
            }
            UnitProblem::Negative => {
                write!(f, "`{text}` is negative; {name} is zero or more")
            }
            UnitProblem::MissingUnit => {
                let unit = wanted.usual_unit();
                write!(f, "missing unit: write \"{text} {unit}\", not {text}")
            }
            UnitProblem::UnknownUnit(unit) => {
                write!(f, "`{text}` has the unknown unit `{unit}`; ")?;
                write!(f, "{name} is written in {}", wanted.unit_list())
            }
            UnitProblem::OtherQuantity(found) => {
                write!(f, "`{text}` is {}; {name} is needed, such as \"{example}\"", found.name())
            }
            UnitProblem::TooLarge => {
                write!(f, "`{text}` is too large; {name} is at most {}", wanted.largest())
            }
            UnitProblem::TooSmall => {
                let (smallest, _) = wanted.units()[0];
                write!(f, "`{text}` is too small; {name} is zero or at least 1 {smallest}")
            }
            UnitProblem::NotWhole => {
                write!(f, "`{text}` is not whole; {name} such as \"{example}\" is needed")
            }
        }
    }
}

impl core::error::Error for UnitError {}

/// Parses `text` into a count of the smallest units of `wanted`.
fn parse(text: &str, wanted: Quantity) -> Result<u64, UnitError> {
    let fail = |problem| UnitError { text: text.trim().to_owned(), wanted, problem };
    let (negative, unsigned) = match text.trim().strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.trim()),
    };
    let (number, unit) = split_number(unsigned);
    let number = Decimal::parse(number).ok_or_else(|| fail(UnitProblem::NotANumber))?;
    if negative {
        return Err(fail(UnitProblem::Negative));
    }
    if unit.is_empty() {
        return Err(fail(UnitProblem::MissingUnit));
    }
    let scale = |quantity: Quantity| {
        quantity.units().iter().find(|(name, _)| *name == unit).map(|&(_, scale)| scale)
    };
    let Some(scale) = scale(wanted) else {
        let other = Quantity::ALL.into_iter().find(|quantity| scale(*quantity).is_some());
        return Err(fail(other.map_or_else(
            || UnitProblem::UnknownUnit(unit.to_owned()),
            UnitProblem::OtherQuantity,
        )));
    };
    let (whole, remainder) = number.times(scale).ok_or_else(|| fail(UnitProblem::TooLarge))?;
    match remainder {
        Remainder::None => Ok(whole),
        _ if !wanted.rounds() => Err(fail(UnitProblem::NotWhole)),
        Remainder::BelowHalf if whole == 0 => Err(fail(UnitProblem::TooSmall)),
        Remainder::BelowHalf => Ok(whole),
        Remainder::HalfOrMore => whole.checked_add(1).ok_or_else(|| fail(UnitProblem::TooLarge)),
    }
}

/// Splits `"1.5 s"` into `"1.5"` and `"s"`. An `e` belongs to the number only if digits
/// follow it.
fn split_number(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count()
    };
    let mut end = digits(0);
    if end > 0 && matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    (&text[..end], text[end..].trim_start())
}

/// A decimal number, `mantissa * 10^exponent`; exact except for a fraction of more than 25
/// digits, for which `inexact` is set.
struct Decimal {
    mantissa: u128,
    exponent: i32,
    inexact: bool,
}

enum Remainder {
    None,
    BelowHalf,
    HalfOrMore,
}

impl Decimal {
    const MAX_DIGITS: usize = 25;

    /// `None` if `text` is not a number; too large a number becomes the largest.
    fn parse(text: &str) -> Option<Self> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        if digits.ends_with('.') {
            return None;
        }
        let whole = whole.trim_start_matches('0');
        let mut number = Self { mantissa: 0, exponent, inexact: false };
        for (place, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
            let in_fraction = place >= whole.len();
            if place < Self::MAX_DIGITS {
                number.mantissa = number.mantissa * 10 + u128::from(digit - b'0');
                number.exponent = number.exponent.saturating_sub(i32::from(in_fraction));
            } else {
                number.inexact |= digit != b'0';
                number.exponent = number.exponent.saturating_add(i32::from(!in_fraction));
            }
        }
        Some(number)
    }

    /// The number times `scale`: its whole part and the remainder. `None` if
    /// it does not fit into 64 bits.
    fn times(&self, scale: u64) -> Option<(u64, Remainder)> {
        if self.mantissa == 0 {
            let none = if self.inexact { Remainder::BelowHalf } else { Remainder::None };
            return Some((0, none));
        }
        // The mantissa has at most 25 digits and the scale at most 13: both factors are
        // reduced by powers of ten first, so that the product fits into 128 bits.
        let (mut mantissa, mut scale, mut exponent) =
            (self.mantissa, u128::from(scale), self.exponent);
        while exponent < 0 && scale.is_multiple_of(10) {
            (scale, exponent) = (scale / 10, exponent + 1);
        }
        while exponent < 0 && mantissa.is_multiple_of(10) {
            (mantissa, exponent) = (mantissa / 10, exponent + 1);
        }
        if exponent >= 0 {
            let power = 10u128.checked_pow(exponent.unsigned_abs())?;
            let product = mantissa.checked_mul(scale)?.checked_mul(power)?;
            let remainder = if self.inexact { Remainder::BelowHalf } else { Remainder::None };
            return Some((u64::try_from(product).ok()?, remainder));
        }
        let Some(divisor) = 10u128.checked_pow(exponent.unsigned_abs()) else {
            return Some((0, Remainder::BelowHalf));
        };
        let product = mantissa.checked_mul(scale)?;
        let remainder = match product % divisor {
            0 if !self.inexact => Remainder::None,
            rest if rest >= divisor / 2 => Remainder::HalfOrMore,
            _ => Remainder::BelowHalf,
        };
        Some((u64::try_from(product / divisor).ok()?, remainder))
    }
}

/// Reads a string, or explains that a bare number lacks its unit.
struct TextVisitor<T> {
    quantity: Quantity,
    parse: fn(&str) -> Result<T, UnitError>,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} such as \"{}\"", self.quantity.name(), self.quantity.example())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Err(E::custom(UnitError::bare_number(self.quantity, number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Err(E::custom(UnitError::bare_number(self.quantity, number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Err(E::custom(UnitError::bare_number(self.quantity, number)))
    }
}

macro_rules! text_unit {
    ($unit:ident, $doc:literal, $pattern:literal, [$($example:literal),*]) => {
        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let quantity = Quantity::$unit;
                deserializer.deserialize_any(TextVisitor { quantity, parse: Self::from_str })
            }
        }

        impl JsonSchema for $unit {
            fn schema_name() -> Cow<'static, str> {
                stringify!($unit).into()
            }

            fn schema_id() -> Cow<'static, str> {
                concat!("ontempo::", stringify!($unit)).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "description": $doc,
                    "pattern": $pattern,
                    "examples": [$($example),*],
                })
            }
        }
    };
}

text_unit!(
    Duration,
    "A span of time: a number and its unit.",
    r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(ns|us|µs|μs|ms|s|min|h)\s*$",
    ["30 ms", "1.5 s", "50 us", "10 ns", "2 min", "1 h"]
);
text_unit!(
    Rate,
    "A data rate: a number and its unit, or `unlimited`.",
    r"^\s*([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(bit/s|kbit/s|Mbit/s|Gbit/s)|unlimited)\s*$",
    ["25 Mbit/s", "300 kbit/s", "1.5 Gbit/s", "800 bit/s", "unlimited"]
);
text_unit!(
    Bytes,
    "A number of bytes with its unit.",
    r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*(bytes?|B|kB|MB|GB|KiB|MiB|GiB)\s*$",
    ["1000 bytes", "1 byte", "500 kB", "1.5 MB", "64 KiB"]
);
text_unit!(
    Packets,
    "A number of packets.",
    r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*packets?\s*$",
    ["150 packets", "1 packet"]
);

text_unit!(
    MessageRate,
    "A rate of messages with its unit.",
    r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*messages?/s\s*$",
    ["60 messages/s", "23.976 messages/s"]
);
text_unit!(
    Percent,
    "A share in per cent, at most all of it.",
    r"^\s*[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*%\s*$",
    ["5 %", "0.1 %"]
);

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, Quantity::Duration).map(Self::from_nanos)
    }
}

fn too_large(text: &str, wanted: Quantity) -> UnitError {
    UnitError { text: text.trim().to_owned(), wanted, problem: UnitProblem::TooLarge }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        match Self::from_bits_per_sec(parse(text, Quantity::Rate)?) {
            Self::UNLIMITED => Err(too_large(text, Quantity::Rate)),
            rate => Ok(rate),
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, Quantity::Bytes).map(Self::new)
    }
}

impl FromStr for Packets {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, Quantity::Packets).map(Self::new)
    }
}

impl FromStr for MessageRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, Quantity::MessageRate).map(Self::from_thousandths)
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let thousandths = parse(text, Quantity::Percent)?;
        match u32::try_from(thousandths) {
            Ok(thousandths) if thousandths <= Self::ALL.as_thousandths() => {
                Ok(Self::from_thousandths(thousandths))
            }
            _ => Err(too_large(text, Quantity::Percent)),
        }
    }
}
