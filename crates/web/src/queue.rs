//! What waits for one viewer, and what of it is left out.
//!
//! The rules are those of the send queue, for whole frames: one that is past its time is not sent; where a picture
//! that others need is left out, so are those that follow, up to the next key picture. Sound is small, and is left out
//! by its time alone.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::frame::{Frame, Place};

/// Maximum bytes of memory of the frames that wait for a viewer: some seconds of a stream of 8 Mbit/s.
pub(crate) const MAX_QUEUED: usize = 4 << 20;

/// The frames that wait for a viewer.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<(Arc<Frame>, bool)>,
    bytes: usize,
    /// A picture that others need is missing: only a key picture helps.
    awaits_key: bool,
    /// The last picture, and the last frame of sound, that were sent.
    previous: [Option<u32>; 2],
    /// Frames left out.
    dropped: u64,
}

impl Queue {
    /// Begins with these frames, all since a key picture and not to be shown; where there are none, it waits for a
    /// key picture.
    pub(crate) fn new(since_key: &[Arc<Frame>]) -> Self {
        let waiting = since_key.iter().map(|frame| (Arc::clone(frame), true)).collect();
        let bytes = since_key.iter().map(|frame| frame.cost()).sum();
        let awaits_key = since_key.is_empty();
        Self { waiting, bytes, awaits_key, previous: [None; 2], dropped: 0 }
    }

    /// Adds a frame. Where there is no room, all pictures that wait are left out.
    pub(crate) fn push(&mut self, frame: &Arc<Frame>) {
        if self.bytes + frame.cost() > MAX_QUEUED {
            self.dropped += self.waiting.len() as u64;
            self.waiting.clear();
            self.bytes = 0;
            self.awaits_key = true;
        }
        if self.bytes + frame.cost() > MAX_QUEUED {
            // Larger than all that may wait.
            self.dropped += 1;
            self.awaits_key |= !frame.is_disposable;
            return;
        }
        self.bytes += frame.cost();
        self.waiting.push_back((Arc::clone(frame), false));
    }

    /// The next frame, if one is left at `now` that came less than `lifetime` ago; microseconds.
    pub(crate) fn pop(&mut self, now: i64, lifetime: i64) -> Option<(Arc<Frame>, Place)> {
        while let Some((frame, is_catch_up)) = self.waiting.pop_front() {
            self.bytes -= frame.cost();
            if !frame.is_sound() && frame.is_key {
                self.awaits_key = false;
            }
            let is_useless = !frame.is_sound() && self.awaits_key;
            let is_past = !is_catch_up && now.saturating_sub(frame.due) > lifetime;
            if is_useless || is_past {
                self.dropped += 1;
                self.awaits_key |= !frame.is_sound() && !frame.is_disposable;
                continue;
            }
            let last = &mut self.previous[usize::from(frame.is_sound())];
            let previous = last.replace(frame.number).unwrap_or(frame.number);
            return Some((frame, Place { previous, is_catch_up }));
        }
        None
    }

    /// Frames left out so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ontempo_media::StreamCoding;
    use proptest::prelude::*;

    use super::*;

    const LIFETIME: i64 = 400_000;

    fn frame(number: u32, due: i64, is_sound: bool, is_key: bool, size: usize) -> Arc<Frame> {
        let stream_type = if is_sound { 0x0f } else { 0x1b };
        Arc::new(Frame {
            coding: StreamCoding { is_sound, stream_type, channel_code: 0 },
            number,
            shown: due,
            timeline: 0,
            due,
            late: 0,
            is_key,
            is_disposable: is_sound,
            is_damaged: false,
            bytes: Bytes::from(vec![0; size]),
        })
    }

    fn picture(number: u32, due: i64) -> Arc<Frame> {
        frame(number, due, false, number.is_multiple_of(10), 1_000)
    }

    fn numbers(queue: &mut Queue, now: i64) -> Vec<(u32, u32)> {
        let next = || queue.pop(now, LIFETIME).map(|(frame, place)| (frame.number, place.previous));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_viewer_begins_at_a_key_picture() {
        let mut queue = Queue::new(&[]);
        (7..13).for_each(|number| queue.push(&picture(number, 0)));
        assert_eq!(numbers(&mut queue, 0), [(10, 10), (11, 10), (12, 11)]);
    }

    #[test]
    fn a_viewer_that_comes_midway_gets_what_it_needs_to_decode_however_old_it_is() {
        let group = [picture(0, 0), picture(1, 40_000)];
        let mut queue = Queue::new(&group);
        queue.push(&picture(2, 9_000_000));
        let late = 9_000_000;
        let got: Vec<_> = std::iter::from_fn(|| queue.pop(late, LIFETIME)).collect();
        let places: Vec<_> = got.iter().map(|(one, at)| (one.number, at.is_catch_up)).collect();
        assert_eq!(places, [(0, true), (1, true), (2, false)]);
    }

    #[test]
    fn after_a_picture_past_its_time_pictures_wait_for_a_key_and_sound_does_not() {
        let mut queue = Queue::new(&[]);
        queue.push(&picture(0, 0));
        assert_eq!(numbers(&mut queue, 0), [(0, 0)]);
        queue.push(&picture(1, 0));
        queue.push(&frame(0, LIFETIME, true, true, 100));
        (2..12).for_each(|number| queue.push(&picture(number, LIFETIME)));
        let now = LIFETIME + 1;
        assert_eq!(numbers(&mut queue, now), [(0, 0), (10, 0), (11, 10)]);
        assert_eq!(queue.dropped(), 9);
    }

    proptest! {
        #[test]
        fn what_waits_is_bounded_and_what_is_sent_is_in_order(
            steps in prop::collection::vec((0usize..2_000_000, any::<bool>(), 0i64..900_000), 1..200),
        ) {
            let mut queue = Queue::new(&[]);
            let (mut now, mut numbers, mut last) = (0, [0u32; 2], [None; 2]);
            for (size, is_sound, pause) in steps {
                let number = &mut numbers[usize::from(is_sound)];
                queue.push(&frame(*number, now, is_sound, is_sound || *number % 5 == 0, size));
                *number += 1;
                prop_assert!(queue.bytes <= MAX_QUEUED);
                now += pause;
                if let Some((frame, place)) = queue.pop(now, LIFETIME) {
                    let last = &mut last[usize::from(frame.is_sound())];
                    prop_assert_eq!(place.previous, last.unwrap_or(frame.number));
                    prop_assert!(last.is_none_or(|before| before < frame.number));
                    *last = Some(frame.number);
                    prop_assert!(now - frame.due <= LIFETIME);
                }
            }
            while queue.pop(now, i64::MAX).is_some() {}
            prop_assert_eq!(queue.bytes, 0);
        }
    }
}
