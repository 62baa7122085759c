//! Control messages of `sendmsg` and `recvmsg`, as bytes: `man 3 cmsg`.

use std::mem::size_of;

/// Each message begins at a multiple of this (`CMSG_ALIGN`).
const ALIGN: usize = size_of::<usize>();

/// A message's length (with this header), level and type.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// Offset of the level in the header, behind the length.
const LEVEL: usize = size_of::<usize>();

const _: () = assert!(HEADER == LEVEL + 8 && HEADER.is_multiple_of(ALIGN));

/// Space for what is sent (class, address, segment) and received (class, address,
/// segment, time of arrival).
const ROOM: usize = 192;

/// Control messages, aligned as the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; ROOM],
    length: usize,
}

impl Control {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    /// Adds a message; without space for it, it is omitted, which ours never need.
    pub(super) fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let (start, whole) = (self.length, HEADER + data.len());
        let Some(place) = self.bytes.get_mut(start..start + whole.next_multiple_of(ALIGN)) else {
            return;
        };
        place[..LEVEL].copy_from_slice(&whole.to_ne_bytes());
        place[LEVEL..LEVEL + 4].copy_from_slice(&level.to_ne_bytes());
        place[LEVEL + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        place[HEADER..whole].copy_from_slice(data);
        self.length += place.len();
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The whole buffer, for the kernel to write to.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The kernel has written this many bytes.
    pub(super) fn set_length(&mut self, length: usize) {
        self.length = length.min(ROOM);
    }

    /// The messages: level, type and data.
    pub(super) fn messages(&self) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let header = rest.get(..HEADER)?;
            let whole = usize::from_ne_bytes(header[..LEVEL].try_into().ok()?);
            let level = int(&header[LEVEL..])?;
            let kind = int(&header[LEVEL + 4..])?;
            let data = rest.get(HEADER..whole)?;
            rest = rest.get(whole.next_multiple_of(ALIGN)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

/// The C value at the beginning of `bytes`.
pub(super) fn int(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_pushed_is_read_back(
            messages in proptest::collection::vec((any::<i32>(), any::<i32>(), 0usize..24), 0..5)
        ) {
            let mut control = Control::new();
            let data = [7; 24];
            for &(level, kind, length) in &messages {
                control.push(level, kind, &data[..length]);
            }
            let read: Vec<_> =
                control.messages().map(|(level, kind, data)| (level, kind, data.len())).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn whatever_stands_in_the_room_is_read_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), ROOM), length in 0usize..300
        ) {
            let mut control = Control::new();
            control.room().copy_from_slice(&bytes);
            control.set_length(length);
            prop_assert!(control.messages().count() <= ROOM / HEADER);
        }
    }
}
