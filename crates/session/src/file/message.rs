//! The messages of a transfer of a file.
//!
//! Each unit of the sender's flow begins with a type byte: 16 for the beginning (offset, 8 bytes,
//! big-endian, and 1 if the receiver's bytes are kept, else 0), 17 for data (offset, then the bytes), 18
//! for the end (length, 8 bytes, and SHA-256, 32 bytes), 19 for a failure (1 if what the receiver has is of
//! no use, else 0, and a sentence). The receiver's [`Reply`] is a unit of its flow of reports, as JSON.
//! Any bytes can be given to the parsers; invalid ones are an error.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use ring::digest::SHA256;
use serde::{Deserialize, Serialize};

use crate::message::{Label, LabelError};

const BEGIN: u8 = 16;
const DATA: u8 = 17;
const END: u8 = 18;
const FAILED: u8 = 19;

/// What the label of a file's flow begins with.
const PREFIX: &str = "ontempo file 1 ";

/// The longest file, bytes: what an offset in a file can say (POSIX, `off_t`).
pub const MAX_LENGTH: u64 = i64::MAX as u64;

/// Maximum bytes of a unit of data.
pub const MAX_DATA: usize = 64 << 10;

/// Bytes before the data in a unit.
pub const DATA_HEADER: usize = 9;

/// Maximum bytes of a sentence.
const MAX_SENTENCE: usize = 400;

/// Which file a sender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Its length, bytes, at most [`MAX_LENGTH`].
    pub length: u64,
    /// When it was changed last, nanoseconds since 1970; 0 if unknown.
    pub modified: u64,
    /// Of the digest of its name, without folders, the first 8 bytes.
    pub name: u64,
}

impl Offer {
    /// The value of [`name`](Self::name) for a file's name.
    pub fn named(name: &[u8]) -> u64 {
        let digest = ring::digest::digest(&SHA256, name);
        digest.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// The label of the flow of a sender that has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLabel {
    /// As for a stream, which it becomes if the receiver does not write to a file.
    pub label: Label,
    /// The file.
    pub offer: Offer,
}

impl fmt::Display for FileLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offer { length, modified, name } = self.offer;
        write!(f, "{PREFIX}{} {length} {modified} {name:016x}", self.label)
    }
}

impl FromStr for FileLabel {
    type Err = LabelError;

    /// # Errors
    /// If it is no such label, what it wraps is none or one of another version, or its length exceeds
    /// [`MAX_LENGTH`].
    fn from_str(text: &str) -> Result<Self, LabelError> {
        const OTHER: LabelError = LabelError::NotMedia;
        let mut words = text.strip_prefix(PREFIX).ok_or(OTHER)?.rsplitn(4, ' ');
        let mut next = || words.next().ok_or(OTHER);
        let (name, modified, length, label) = (next()?, next()?, next()?, next()?);
        let label = label.parse()?;
        let number = |word: &str| word.parse::<u64>().map_err(|_| OTHER);
        let length = Some(number(length)?).filter(|length| *length <= MAX_LENGTH).ok_or(OTHER)?;
        let name = u64::from_str_radix(name, 16).map_err(|_| OTHER)?;
        Ok(Self { label, offer: Offer { length, modified: number(modified)?, name } })
    }
}

/// What a label says: a stream's, or also that of a file.
///
/// # Errors
/// It is neither, or of another version.
pub fn labels(text: &str) -> Result<(Label, Option<Offer>), LabelError> {
    match text.parse() {
        Ok(FileLabel { label, offer }) => Ok((label, Some(offer))),
        Err(LabelError::NotMedia) => text.parse().map(|label| (label, None)),
        Err(error) => Err(error),
    }
}

/// The SHA-256 of a file or of its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub [u8; 32]);

impl From<ring::digest::Digest> for Digest {
    fn from(digest: ring::digest::Digest) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WRONG: &str = "a digest is 64 hexadecimal digits";
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(WRONG)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
        Ok(Self(bytes))
    }
}

/// The receiver's answer to a [`FileLabel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// It does not write to a file: the sender is to send a stream.
    Stream,
    /// It has this many bytes of a file that seems to be the sender's, with this digest.
    File {
        /// Bytes.
        from: u64,
        /// Of these bytes.
        digest: Digest,
    },
}

/// A message of the flow of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Data begin here.
    Begin {
        /// What the receiver has said, or 0.
        offset: u64,
        /// What the receiver has is the beginning of the file.
        is_kept: bool,
    },
    /// A part of the file.
    Data {
        /// Where it is.
        offset: u64,
        /// At least one byte, at most [`MAX_DATA`].
        data: Bytes,
    },
    /// All has been sent.
    End {
        /// The file's length, bytes.
        length: u64,
        /// Of the whole file.
        digest: Digest,
    },
    /// The sender cannot send the rest.
    Failed {
        /// What the receiver has is of no use: the file is another one now.
        is_changed: bool,
        /// Why.
        sentence: String,
    },
}

/// Encodes a message.
pub fn write(content: &FileContent) -> Bytes {
    let mut bytes = Vec::new();
    match content {
        FileContent::Begin { offset, is_kept } => {
            bytes.push(BEGIN);
            bytes.extend(offset.to_be_bytes());
            bytes.push((*is_kept).into());
        }
        FileContent::Data { offset, data } => {
            bytes.extend(data_header(*offset));
            bytes.extend_from_slice(data);
        }
        FileContent::End { length, digest } => {
            bytes.push(END);
            bytes.extend(length.to_be_bytes());
            bytes.extend(digest.0);
        }
        FileContent::Failed { is_changed, sentence } => {
            bytes.extend([FAILED, (*is_changed).into()]);
            bytes.extend(shortened(sentence).as_bytes());
        }
    }
    bytes.into()
}

/// At most [`MAX_SENTENCE`] bytes of it.
fn shortened(sentence: &str) -> &str {
    let end = (0..=MAX_SENTENCE.min(sentence.len())).rev();
    &sentence[..end.into_iter().find(|end| sentence.is_char_boundary(*end)).unwrap_or(0)]
}

/// What comes before data.
pub fn data_header(offset: u64) -> [u8; DATA_HEADER] {
    let mut header = [DATA; DATA_HEADER];
    header[1..].copy_from_slice(&offset.to_be_bytes());
    header
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?)).filter(|it| *it <= MAX_LENGTH)
}

/// Decodes a message.
///
/// # Errors
/// A sentence: the type byte is unknown, or the content is invalid.
pub fn read(bytes: &Bytes) -> Result<FileContent, String> {
    let wrong = |what: &str| Err(format!("{what} that is not one"));
    match bytes.split_first() {
        Some((&BEGIN, rest)) => match (number(rest), rest.get(8..)) {
            (Some(offset), Some([is_kept @ (0 | 1)])) => {
                Ok(FileContent::Begin { offset, is_kept: *is_kept == 1 })
            }
            _ => wrong("a beginning of a file"),
        },
        Some((&DATA, rest)) => match number(rest) {
            Some(offset) if (9..=8 + MAX_DATA).contains(&rest.len()) => {
                Ok(FileContent::Data { offset, data: bytes.slice(DATA_HEADER..) })
            }
            _ => wrong("a part of a file"),
        },
        Some((&END, rest)) => {
            let digest = rest.get(8..).and_then(|digest| digest.try_into().ok());
            match (number(rest), digest) {
                (Some(length), Some(digest)) => {
                    Ok(FileContent::End { length, digest: Digest(digest) })
                }
                _ => wrong("an end of a file"),
            }
        }
        Some((&FAILED, [is_changed @ (0 | 1), sentence @ ..])) => {
            match std::str::from_utf8(sentence) {
                Ok(sentence) if sentence.len() <= MAX_SENTENCE => Ok(FileContent::Failed {
                    is_changed: *is_changed == 1,
                    sentence: sentence.to_owned(),
                }),
                _ => wrong("a failure"),
            }
        }
        _ => Err("a message of an unknown kind".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;
    use proptest::prelude::*;

    use super::*;
    use crate::latency::GRACE;
    use crate::message::VERSION;

    fn content() -> impl Strategy<Value = FileContent> {
        let number = || 0..=MAX_LENGTH;
        prop_oneof![
            (number(), any::<bool>())
                .prop_map(|(offset, is_kept)| FileContent::Begin { offset, is_kept }),
            (number(), proptest::collection::vec(any::<u8>(), 1..2_000))
                .prop_map(|(offset, data)| FileContent::Data { offset, data: data.into() }),
            (number(), any::<[u8; 32]>())
                .prop_map(|(length, bytes)| FileContent::End { length, digest: Digest(bytes) }),
            (any::<bool>(), "\\PC{0,90}")
                .prop_map(|(is_changed, sentence)| FileContent::Failed { is_changed, sentence }),
        ]
    }

    proptest! {
        #[test]
        fn messages_are_read_back_and_no_cut_one_is_taken_for_another(content in content(), cut in 0usize..40) {
            let bytes = write(&content);
            prop_assert_eq!(read(&bytes), Ok(content.clone()));
            let cut = bytes.slice(..bytes.len().saturating_sub(cut + 1));
            if let Ok(other) = read(&cut) {
                prop_assert_eq!(write(&other), cut);
            }
        }

        #[test]
        fn labels_and_replies_are_read_back(
            session: u128, before: u64, length in 0..=MAX_LENGTH, modified: u64, name: u64, bytes: [u8; 32]
        ) {
            let label = Label { before, ..Label::of(session, Duration::from_millis(200), GRACE) };
            let label = FileLabel { label, offer: Offer { length, modified, name } };
            prop_assert_eq!(label.to_string().parse(), Ok(label));
            prop_assert!(label.to_string().len() <= 256);
            let reply = Reply::File { from: length, digest: Digest(bytes) };
            let text = serde_json::to_string(&reply).expect("text");
            prop_assert_eq!(serde_json::from_str::<Reply>(&text).expect("read"), reply);
        }
    }

    #[test]
    fn the_label_of_a_file_of_another_version_names_it() {
        let label = Label::of(1, Duration::from_millis(200), GRACE);
        let label = FileLabel { label, offer: Offer { length: 1, modified: 2, name: 3 } };
        let older = label.to_string().replace(&format!("media {VERSION} "), "media 1 ");
        assert_eq!(older.parse::<FileLabel>(), Err(LabelError::Version(1)));
    }

    #[test]
    fn impossible_lengths_and_offsets_are_refused() {
        let label = Label::of(1, Duration::from_millis(200), GRACE);
        let endless = Offer { length: u64::MAX, modified: 0, name: 0 };
        let label = FileLabel { label, offer: endless }.to_string();
        let refused = Err(LabelError::NotMedia);
        assert_eq!(label.parse::<FileLabel>(), refused);
        assert_eq!(label.replace(&u64::MAX.to_string(), "-1").parse::<FileLabel>(), refused);
        let beyond = FileContent::Data { offset: MAX_LENGTH + 1, data: Bytes::from_static(b"x") };
        let empty = FileContent::Data { offset: 0, data: Bytes::new() };
        let long = FileContent::Data { offset: 0, data: vec![0; MAX_DATA + 1].into() };
        for content in [beyond, empty, long] {
            assert!(read(&write(&content)).is_err());
        }
        assert!(serde_json::from_str::<Reply>(r#"{"file":{"from":-1,"digest":""}}"#).is_err());
    }
}
