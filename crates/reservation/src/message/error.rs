use core::fmt;

/// Why bytes are not an RSVP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Fewer bytes than the common header, or than its RSVP Length.
    Truncated,
    /// More bytes than the RSVP Length of the common header.
    Trailing,
    /// Not version 1.
    Version(u8),
    /// The checksum does not match.
    Checksum,
    /// No message that we know: its type.
    MessageType(u8),
    /// An object's length is below 4, no multiple of 4, or reaches beyond the message.
    ObjectLength(u8),
    /// An object's contents do not fit its class and C-Type: its class.
    Malformed(u8),
    /// An object that the message must have is missing: its class.
    Missing(u8),
    /// An object that a message has once is there again: its class.
    Repeated(u8),
    /// An object that this message has no place for: its class.
    Misplaced(u8),
    /// Addresses of IPv4 and of IPv6 in one message.
    MixedFamilies,
    /// A bundle within a bundle (RFC 2961 section 3.2 forbids it).
    NestedBundle,
    /// The style and its flow descriptors do not agree.
    Descriptors,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message ends before the length in its header"),
            Self::Trailing => f.write_str("bytes follow after the length in the header"),
            Self::Version(version) => write!(f, "RSVP version {version} is not 1"),
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::MessageType(kind) => write!(f, "message type {kind} is unknown"),
            Self::ObjectLength(class) => write!(
                f,
                "an object of class {class} has a length that is no multiple of 4 or does not fit"
            ),
            Self::Malformed(class) => write!(f, "the object of class {class} is malformed"),
            Self::Missing(class) => write!(f, "the object of class {class} is missing"),
            Self::Repeated(class) => write!(f, "the object of class {class} is there twice"),
            Self::Misplaced(class) => {
                write!(f, "an object of class {class} has no place in this message")
            }
            Self::MixedFamilies => f.write_str("addresses of IPv4 and IPv6 are mixed"),
            Self::NestedBundle => f.write_str("a bundle lies within a bundle"),
            Self::Descriptors => f.write_str("the flow descriptors do not fit the style"),
        }
    }
}

impl core::error::Error for ParseError {}

/// A message that its 16-bit length field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Bytes that it would take.
    pub bytes: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message of {} bytes is longer than RSVP's 65535", self.bytes)
    }
}

impl core::error::Error for TooLong {}
