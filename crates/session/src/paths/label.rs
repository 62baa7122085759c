//! The label of a path's flow, and the number before its messages.

use std::fmt;
use std::str::FromStr;

use bytes::{BufMut, Bytes, BytesMut};

use super::MAX_PATHS;
use crate::message::{Label, LabelError};

/// What it begins with.
const PREFIX: &str = "ontempo paths 1 ";

/// The label of a flow of a stream over several paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathLabel {
    /// That of the stream. Its session is the secret by which a connection joins: a sender that does not
    /// know it is another sender.
    pub(crate) label: Label,
    /// The number of the path, from 0, below [`MAX_PATHS`].
    pub(crate) path: usize,
}

impl fmt::Display for PathLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{} {}", self.path, self.label)
    }
}

/// Why a label is none of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathLabelError {
    /// It is another label.
    Other,
    /// Its path or its stream's label is invalid.
    Invalid(LabelError),
}

impl FromStr for PathLabel {
    type Err = PathLabelError;

    fn from_str(text: &str) -> Result<Self, PathLabelError> {
        let rest = text.strip_prefix(PREFIX).ok_or(PathLabelError::Other)?;
        let invalid = PathLabelError::Invalid(LabelError::NotMedia);
        let (path, label) = rest.split_once(' ').ok_or(invalid)?;
        let path = path.parse().ok().filter(|path| *path < MAX_PATHS).ok_or(invalid)?;
        Ok(Self { label: label.parse().map_err(PathLabelError::Invalid)?, path })
    }
}

/// Whether a label is one of a stream over several paths, or pretends to be.
pub fn is_of_path(label: &str) -> bool {
    label.starts_with(PREFIX)
}

/// For tests of any text: what is a path's label is written as it was read.
///
/// # Errors
/// It is not: what was written.
#[doc(hidden)]
pub fn read_back(text: &str) -> Result<(), String> {
    let Ok(label) = text.parse::<PathLabel>() else { return Ok(()) };
    let written = label.to_string();
    if written.parse() == Ok(label) { Ok(()) } else { Err(written) }
}

/// Bytes of the number before a message.
const NUMBER: usize = 4;

/// A message with its number in the stream.
pub(crate) fn numbered(number: u64, message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(NUMBER + message.len());
    bytes.put_u32(number as u32);
    bytes.put_slice(message);
    bytes.freeze()
}

/// The number of a message, the nearest to `near` of those with its low bits, and the message; `None` if
/// it is too short.
pub(super) fn split(near: u64, bytes: &Bytes) -> Option<(u64, Bytes)> {
    let low = u32::from_be_bytes(bytes.get(..NUMBER)?.try_into().ok()?);
    let ahead = low.wrapping_sub(near as u32).cast_signed();
    let number = near.checked_add_signed(ahead.into()).unwrap_or_else(|| low.into());
    Some((number, bytes.slice(NUMBER..)))
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;
    use proptest::prelude::*;

    use super::*;
    use crate::latency::GRACE;

    #[test]
    fn a_label_is_read_back_and_one_of_too_many_paths_is_none() {
        let label = Label { before: 1, ..Label::of(9, Duration::from_millis(200), GRACE) };
        let label = PathLabel { label, path: 3 };
        assert_eq!(label.to_string().parse(), Ok(label));
        let beyond = PathLabel { path: MAX_PATHS, ..label }.to_string();
        let invalid = PathLabelError::Invalid(LabelError::NotMedia);
        assert_eq!(beyond.parse::<PathLabel>(), Err(invalid));
        assert_eq!(label.label.to_string().parse::<PathLabel>(), Err(PathLabelError::Other));
        assert!(label.to_string().parse::<Label>().is_err(), "a receiver of one path refuses it");
    }

    proptest! {
        #[test]
        fn a_number_near_the_last_is_read_back(near in 0u64..1 << 60, step in -0x7fff_ffffi64..0x7fff_ffff) {
            let number = near.saturating_add_signed(step);
            let bytes = numbered(number, b"x");
            prop_assert_eq!(split(near, &bytes), Some((number, Bytes::from_static(b"x"))));
        }

        #[test]
        fn any_bytes_are_split_or_refused(near in any::<u64>(), bytes in any::<Vec<u8>>()) {
            let length = bytes.len();
            prop_assert_eq!(split(near, &Bytes::from(bytes)).is_some(), length >= NUMBER);
        }
    }
}
