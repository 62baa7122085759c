//! DCLASS: the DSCPs that a network asks of those who mark packets before it (RFC 2996).

use core::fmt;

use serde::{Deserialize, Serialize};

use super::parts::{Descriptor, Sender};
use super::wire::Reader;

/// A set of DSCPs, 0 to 63. RFC 2996 section 2 gives their order no meaning, and one that is there
/// twice says no more than once; an object is never empty, so that the empty set stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct Dclass(u64);

/// DSCPs from this one on have the precedences 6 and 7, of network control (RFC 2474 section 4.2.2).
const NETWORK_CONTROL: u8 = 48;

impl Dclass {
    /// No DSCP: no object.
    pub const NONE: Self = Self(0);
    /// All that a host may be asked to mark with: neither best effort's 0, nor network control (48 to
    /// 63, CS6 and CS7 among them), which goes ahead of what is reserved.
    pub const MARKABLE: Self = Self(((1 << NETWORK_CONTROL) - 1) & !1);

    /// The set of one; none above 63.
    pub const fn of(dscp: u8) -> Self {
        if dscp < 64 { Self(1 << dscp) } else { Self::NONE }
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Its DSCPs, the least first.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |dscp| self.0 >> dscp & 1 == 1)
    }

    /// The one to mark with where packets are not told apart: the least, which of an AF class has the
    /// least drop precedence (RFC 2597 section 6).
    pub fn first(self) -> Option<u8> {
        self.iter().next()
    }

    /// Those of either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that the other has not.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// A word for each DSCP, in the six high bits of its last byte (RFC 2996 section 2).
    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.extend(self.iter().flat_map(|dscp| [0, 0, 0, dscp << 2]));
    }

    /// At least one word. The bits beside the DSCP are unused: whatever they are, they say nothing.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let mut all = Self::NONE;
        while !from.0.is_empty() {
            let [.., last] = from.array::<4>()?;
            all = all.or(Self::of(last >> 2));
        }
        (!all.is_empty()).then_some(all)
    }
}

/// The names of RFC 2474, 2597 (AF), 3246 (EF) and 8622 (LE), else the number.
impl fmt::Display for Dclass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, dscp) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(" or ")?;
            }
            let (class, rest) = (dscp / 8, dscp % 8);
            match (class, rest) {
                (0, 1) => f.write_str("LE")?,
                (5, 6) => f.write_str("EF")?,
                (_, 0) => write!(f, "CS{class}")?,
                (1..=4, 2 | 4 | 6) => write!(f, "AF{class}{}", rest / 2)?,
                _ => write!(f, "{dscp}")?,
            }
        }
        Ok(())
    }
}

impl From<Dclass> for Vec<u8> {
    fn from(dclass: Dclass) -> Self {
        dclass.iter().collect()
    }
}

impl TryFrom<Vec<u8>> for Dclass {
    type Error = String;

    fn try_from(dscps: Vec<u8>) -> Result<Self, String> {
        dscps.into_iter().try_fold(Self::NONE, |all, dscp| match Self::of(dscp) {
            Self::NONE => Err(format!("{dscp} is no DSCP: they are 0 to 63")),
            one => Ok(all.or(one)),
        })
    }
}

/// A flow descriptor of a RESV, with the DSCPs for packets of its senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Marked {
    /// The flow descriptor.
    pub descriptor: Descriptor,
    /// Its DCLASS object.
    pub dclass: Dclass,
}

impl From<Descriptor> for Marked {
    fn from(descriptor: Descriptor) -> Self {
        Self { descriptor, dclass: Dclass::NONE }
    }
}

/// What senders are asked to mark their packets with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Who; none stands for all of the session.
    pub senders: Vec<Sender>,
    /// One of these; any of them is right.
    pub dscps: Dclass,
}

impl Mark {
    /// Whether it is for this sender's packets.
    pub fn is_for(&self, sender: &Sender) -> bool {
        self.senders.is_empty() || self.senders.contains(sender)
    }

    /// The DSCP, 1 to 47, that a sender marks its packets with; `None` where these ask it for none.
    ///
    /// A daemon passes on only what may be marked with, but who has set the path of another one's socket
    /// must not make a program mark network control either.
    pub fn asked_of(sender: &Sender, marks: &[Self]) -> Option<u8> {
        let mark = marks.iter().find(|mark| mark.is_for(sender))?;
        mark.dscps.and(Dclass::MARKABLE).first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_marked_is_neither_best_effort_nor_network_control() {
        let may = |dscp| !Dclass::of(dscp).and(Dclass::MARKABLE).is_empty();
        let markable: Vec<u8> = (0..64).filter(|dscp| may(*dscp)).collect();
        assert_eq!(markable, (1..48).collect::<Vec<_>>());
        assert_eq!((Dclass::of(64), Dclass::of(255)), (Dclass::NONE, Dclass::NONE));
    }

    #[test]
    fn words_are_read_whatever_their_unused_bits_are_and_written_without_them() {
        let read = Dclass::read(&[9, 9, 9, 34 << 2 | 3, 0, 0, 0, 26 << 2, 0, 0, 1, 26 << 2]);
        let both = Dclass::of(34).or(Dclass::of(26));
        assert_eq!(read, Some(both));
        let mut written = Vec::new();
        both.put(&mut written);
        assert_eq!(written, [0, 0, 0, 26 << 2, 0, 0, 0, 34 << 2]);
        for wrong in [&[][..], &[0, 0, 0], &[0, 0, 0, 136, 0, 0]] {
            assert_eq!(Dclass::read(wrong), None);
        }
    }

    #[test]
    fn of_an_af_class_the_least_drop_precedence_is_marked() {
        let af1 = [14, 10, 12].map(Dclass::of).into_iter().fold(Dclass::NONE, Dclass::or);
        assert_eq!((af1.first(), Dclass::NONE.first()), (Some(10), None));
    }

    #[test]
    fn they_are_shown_by_their_names() {
        let all = [34, 46, 10, 1, 0, 56, 50, 44, 30].map(Dclass::of);
        let all = all.into_iter().fold(Dclass::NONE, Dclass::or);
        assert_eq!(all.to_string(), "CS0 or LE or AF11 or AF33 or AF41 or 44 or EF or 50 or CS7");
        assert_eq!(Dclass::NONE.to_string(), "");
    }

    #[test]
    fn applications_read_a_list_of_numbers() {
        let written = serde_json::to_string(&Dclass::of(34).or(Dclass::of(10))).unwrap();
        assert_eq!(written, "[10,34]");
        assert_eq!(serde_json::from_str::<Dclass>("[34,10,34]").unwrap().iter().count(), 2);
        assert!(serde_json::from_str::<Dclass>("[64]").is_err());
    }
}
