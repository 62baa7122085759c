//! The traffic class byte: DSCP in its upper six bits, ECN in its lower two.

use std::fmt;
use std::str::FromStr;

/// Explicit congestion notification (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not-ECT: the sender does not react to marks.
    #[default]
    NotCapable,
    /// ECT(1): identifies L4S traffic (RFC 9331).
    Capable1,
    /// ECT(0): a router may mark instead of dropping.
    Capable0,
    /// CE: a router has marked the packet.
    Congestion,
}

impl Ecn {
    /// The lower two bits of the traffic class.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotCapable => 0,
            Self::Capable1 => 1,
            Self::Capable0 => 2,
            Self::Congestion => 3,
        }
    }

    /// ECN of a traffic class byte.
    pub const fn of(class: u8) -> Self {
        match class & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congestion,
        }
    }
}

/// A differentiated services code point, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dscp(u8);

/// Names of code points: RFC 2474, 2597 (AF), 3246 (EF), 8622 (LE).
const NAMES: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
    ("default", 0),
];

impl Dscp {
    /// AF41: interactive and broadcast video (RFC 4594, section 4.3).
    pub const VIDEO: Self = Self(34);

    /// The code point with this number; `None` above 63.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 64 { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// DSCP of a traffic class byte.
    pub const fn of(class: u8) -> Self {
        Self(class >> 2)
    }

    /// The traffic class byte.
    pub const fn with(self, ecn: Ecn) -> u8 {
        self.0 << 2 | ecn.bits()
    }
}

/// Not a code point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDscp(String);

impl fmt::Display for UnknownDscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no DSCP: write 0 to 63, or a name such as af41 or ef", self.0)
    }
}

impl std::error::Error for UnknownDscp {}

impl FromStr for Dscp {
    type Err = UnknownDscp;

    fn from_str(text: &str) -> Result<Self, UnknownDscp> {
        let name = text.trim().to_ascii_lowercase();
        let named = NAMES.iter().find(|(known, _)| *known == name).map(|&(_, number)| number);
        named
            .or_else(|| name.parse().ok())
            .and_then(Self::new)
            .ok_or_else(|| UnknownDscp(text.to_owned()))
    }
}
