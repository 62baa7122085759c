//! Several elementary streams over one connection, as pictures and their sound.
//!
//! A datagram is the number of its stream, one byte below [`MAX_STREAMS`], and then a datagram of an
//! [elementary stream](crate::ElementaryDatagram); a number alone says that its stream has ended. The frames of
//! each are counted by themselves, their times are by one clock. The first byte is never that of a transport
//! stream.

use std::fmt;
use std::str::FromStr;

use super::elementary::Elementary;

/// Maximum streams of a connection: pictures from several cameras, sound in several languages.
pub const MAX_STREAMS: usize = 8;

/// Between the words of the wire.
const AND: char = '+';

/// In the places beyond the count, so that equal lists are equal in all fields.
const REST: Elementary = Elementary::H264;

/// How the elementary streams of a connection are coded, in the order of their numbers: 1 to [`MAX_STREAMS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codings {
    all: [Elementary; MAX_STREAMS],
    count: usize,
}

impl Codings {
    /// `None` if there are none, or more than [`MAX_STREAMS`].
    pub fn new(codings: &[Elementary]) -> Option<Self> {
        let mut all = [REST; MAX_STREAMS];
        all.get_mut(..codings.len())?.copy_from_slice(codings);
        (!codings.is_empty()).then_some(Self { all, count: codings.len() })
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Elementary] {
        &self.all[..self.count]
    }

    /// The only one; `None` if there are several, whose datagrams are [numbered](split_number).
    pub fn only(&self) -> Option<Elementary> {
        match self.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// The words of the wire: those of the [codings](Elementary::word), as `h264+opus`.
    pub fn words(&self) -> String {
        let words: Vec<&str> = self.as_slice().iter().map(|coding| coding.word()).collect();
        words.join(&AND.to_string())
    }
}

impl From<Elementary> for Codings {
    fn from(coding: Elementary) -> Self {
        let mut all = [REST; MAX_STREAMS];
        all[0] = coding;
        Self { all, count: 1 }
    }
}

impl fmt::Display for Codings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, coding) in self.as_slice().iter().enumerate() {
            let between = match place {
                0 => "",
                _ if place + 1 == self.count => " and ",
                _ => ", ",
            };
            write!(f, "{between}{coding}")?;
        }
        Ok(())
    }
}

impl FromStr for Codings {
    type Err = ();

    /// # Errors
    /// A word is none of a coding, or there are more than [`MAX_STREAMS`].
    fn from_str(words: &str) -> Result<Self, ()> {
        let mut all = Vec::new();
        for word in words.split(AND).take(MAX_STREAMS + 1) {
            all.push(word.parse()?);
        }
        Self::new(&all).ok_or(())
    }
}

/// The number of a datagram's stream, and that stream's datagram: empty at its end. `None` if it has no such
/// number.
pub fn split_number(datagram: &[u8]) -> Option<(usize, &[u8])> {
    let (&number, rest) = datagram.split_first()?;
    Some((usize::from(number), rest)).filter(|(number, _)| *number < MAX_STREAMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_what_is_no_list_of_codings_is_refused() {
        for all in [&Elementary::ALL[..1], &Elementary::ALL, &[Elementary::Opus; MAX_STREAMS]] {
            let codings = Codings::new(all).expect("as many as there may be");
            assert_eq!(codings.words().parse(), Ok(codings));
            assert_eq!(codings.as_slice(), all);
        }
        let too_many = ["opus"; MAX_STREAMS + 1].join("+");
        for wrong in ["", "+", "h264+", "h264+vp8", "h264 opus", too_many.as_str()] {
            assert_eq!(wrong.parse::<Codings>(), Err(()), "{wrong}");
        }
        assert_eq!(Codings::new(&[]), None);
        assert_eq!(Codings::from(Elementary::Av1), "av1".parse().expect("a coding"));
    }

    #[test]
    fn a_list_is_told_as_a_person_does() {
        let told = |words: &str| words.parse::<Codings>().expect("codings").to_string();
        assert_eq!(told("av1"), "AV1");
        assert_eq!(told("h264+opus"), "H.264 and Opus");
        assert_eq!(told("h264+aac+opus"), "H.264, AAC and Opus");
    }

    #[test]
    fn a_datagram_begins_with_the_number_of_its_stream() {
        assert_eq!(split_number(&[7, 1, 2]), Some((7, &[1, 2][..])));
        assert_eq!(split_number(&[0]), Some((0, &[][..])));
        assert_eq!(split_number(&[MAX_STREAMS as u8, 1]), None);
        assert_eq!(split_number(&[]), None);
    }
}
