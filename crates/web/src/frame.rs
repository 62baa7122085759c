//! What a viewer gets: coded pictures, sound, and documents, each over a stream of its own.

use bytes::{BufMut, Bytes, BytesMut};
use ontempo_media::StreamCoding;
use ontempo_media::ts::PRIVATE;

/// Bytes of the header of a message.
pub(crate) const HEADER: usize = 40;

/// The first byte of a message.
const DOCUMENT: u8 = 0;
const PICTURE: u8 = 1;
const SOUND: u8 = 2;

/// Flags of a message.
const KEY: u8 = 1;
const CATCH_UP: u8 = 2;
const DISPOSABLE: u8 = 4;
const DAMAGED: u8 = 8;

/// A picture or a frame of sound. Times are microseconds of the server's clock, which begins with the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) coding: StreamCoding,
    /// Counted from 0 for pictures, and for sound.
    pub(crate) number: u32,
    /// When it is shown, by the stream's clock, microseconds.
    pub(crate) shown: i64,
    pub(crate) timeline: u64,
    /// When its last byte was due, the latency after its arrival at the sender and the fastest transit.
    pub(crate) due: i64,
    /// How long after that it came, microseconds.
    pub(crate) late: i64,
    pub(crate) is_key: bool,
    pub(crate) is_disposable: bool,
    pub(crate) is_damaged: bool,
    pub(crate) bytes: Bytes,
}

impl Frame {
    /// Memory that it takes.
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len() + 256
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.coding.is_sound
    }
}

/// A frame as one viewer gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the frame of this kind that the viewer got before; its own number if none.
    pub(crate) previous: u32,
    /// It is from before the viewer came: to be decoded, not to be shown.
    pub(crate) is_catch_up: bool,
}

/// The header of a frame; `docs/browser.md` has its fields.
pub(crate) fn header(frame: &Frame, place: Place, now: i64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADER + 1);
    bytes.put_u8(if frame.is_sound() { SOUND } else { PICTURE });
    bytes.put_u8(frame.coding.stream_type);
    let flags = [
        (frame.is_key, KEY),
        (place.is_catch_up, CATCH_UP),
        (frame.is_disposable, DISPOSABLE),
        (frame.is_damaged, DAMAGED),
    ];
    bytes.put_u8(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
    // Only whether it is another one matters.
    bytes.put_u8((frame.timeline & 0xff) as u8);
    bytes.put_u32(frame.number);
    bytes.put_u32(place.previous);
    bytes.put_i32(i32::try_from(frame.late).unwrap_or(i32::MAX));
    bytes.put_i64(frame.shown);
    bytes.put_i64(frame.due);
    bytes.put_i64(now);
    if frame.coding.is_sound && frame.coding.stream_type == PRIVATE {
        // Opus does not tell its channels.
        bytes.put_u8(frame.coding.channel_code);
    }
    bytes.freeze()
}

/// A document of JSON as a message.
pub(crate) fn document(text: &str, now: i64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEADER + text.len());
    bytes.put_u8(DOCUMENT);
    bytes.put_bytes(0, HEADER - 9);
    bytes.put_i64(now);
    bytes.put_slice(text.as_bytes());
    bytes.freeze()
}
