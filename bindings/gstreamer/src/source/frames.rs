//! Datagrams of an elementary stream as buffers with times and caps.

use std::collections::VecDeque;
use std::str::FromStr;

use gstreamer as gst;
use ontempo_media::{
    Elementary, ElementaryDatagram, ElementaryFrame, FrameAssembler, FrameKind, FrameTimes,
};

use super::queue::Item;
use crate::media::elementary_caps;

/// What is pushed next.
pub(super) enum Ready {
    Caps(gst::Caps),
    Buffer(gst::Buffer),
}

/// Makes buffers of datagrams.
#[derive(Default)]
pub(super) struct Frames {
    coding: Option<Elementary>,
    assembler: FrameAssembler,
    description: String,
    timeline: Timeline,
    /// The next frame does not follow the last.
    is_discontinuous: bool,
    /// It was said that this stream has datagrams that are none of it.
    pub(super) is_warned: bool,
    pub(super) ready: VecDeque<Ready>,
}

impl Frames {
    /// Takes a datagram of a stream of this coding.
    ///
    /// # Errors
    /// A sentence: it describes no such stream.
    pub(super) fn push(&mut self, coding: Elementary, item: &Item) -> Result<(), String> {
        if self.coding != Some(coding) || item.is_discontinuous {
            self.assembler = FrameAssembler::default();
            self.is_discontinuous = true;
        }
        if self.coding != Some(coding) {
            (self.coding, self.description) = (Some(coding), String::new());
            self.is_warned = false;
        }
        match ElementaryDatagram::read(&item.data) {
            Ok(ElementaryDatagram::Description(text)) if text == self.description => {}
            Ok(ElementaryDatagram::Description(text)) => {
                let described = gst::Caps::from_str(text)
                    .ok()
                    .filter(|caps| caps.is_fixed() && caps.is_subset(&elementary_caps(coding)));
                let caps = described.ok_or_else(|| {
                    let shown: String = text.escape_debug().take(200).collect();
                    format!("the sender's caps are none of {coding}: {shown}")
                })?;
                self.description = text.to_owned();
                self.ready.push_back(Ready::Caps(caps));
            }
            // A decoder can begin nowhere else than behind a description.
            Ok(ElementaryDatagram::Part(_)) if self.description.is_empty() => {}
            Ok(ElementaryDatagram::Part(part)) => {
                if let Some(frame) = self.assembler.push(&part) {
                    let buffer = self.buffer(frame, item);
                    self.ready.push_back(Ready::Buffer(buffer));
                }
            }
            Err(error) => return Err(format!("the sender sends {error}")),
        }
        Ok(())
    }

    fn buffer(&mut self, frame: ElementaryFrame, item: &Item) -> gst::Buffer {
        let ElementaryFrame { kind, times, data, follows_loss } = frame;
        let begins = std::mem::take(&mut self.is_discontinuous);
        if begins {
            self.timeline.restart();
        }
        let (pts, dts) = self.timeline.place(&times, kind, item.at, item.is_timed);
        let mut flags = match kind {
            FrameKind::Key | FrameKind::Sound => gst::BufferFlags::empty(),
            FrameKind::Reference => gst::BufferFlags::DELTA_UNIT,
            FrameKind::Disposable => gst::BufferFlags::DELTA_UNIT | gst::BufferFlags::DROPPABLE,
        };
        if begins || follows_loss {
            flags |= gst::BufferFlags::DISCONT;
        }
        let mut buffer = gst::Buffer::from_mut_slice(data);
        if let Some(buffer) = buffer.get_mut() {
            buffer.set_pts(pts);
            buffer.set_dts(dts);
            buffer.set_duration(
                times.duration.map(|time| gst::ClockTime::from_nseconds(time.as_nanos())),
            );
            buffer.set_flags(flags);
        }
        buffer
    }
}

/// A jump of the sender's times, ns: a new beginning.
const JUMP: i64 = 1_000_000_000;

/// Half of the time for which the fastest frame counts, ns.
const HALF: i64 = 15_000_000_000;

/// Maps the sender's times to running time here. The frame of the last 15 to 30 s that came fastest is where
/// it would have come without the latency, so that the clocks may drift apart.
#[derive(Debug, Default)]
struct Timeline {
    /// The least difference of this half of the time and of the one before.
    least: [Option<i64>; 2],
    since: i64,
    last: i64,
}

impl Timeline {
    fn restart(&mut self) {
        *self = Self::default();
    }

    fn offset(&self) -> Option<i64> {
        self.least.iter().flatten().min().copied()
    }

    /// The time of the frame that came at `at`, and that of its decoding. Of a stream that is not delivered in
    /// time, the first frame alone counts.
    fn place(
        &mut self,
        times: &FrameTimes,
        kind: FrameKind,
        at: Option<gst::ClockTime>,
        is_timed: bool,
    ) -> (Option<gst::ClockTime>, Option<gst::ClockTime>) {
        let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let Some(shown) = times.shown.map(|time| signed(time.as_nanos())) else {
            return (at, None);
        };
        let before = signed(times.decoded_before.unwrap_or_default().as_nanos());
        let decoded = shown.saturating_sub(before);
        if let Some(at) = at.map(|at| signed(at.nseconds())) {
            let difference = at.saturating_sub(decoded);
            let known = self.offset();
            if known.is_some_and(|offset| is_timed && offset.abs_diff(difference) > JUMP as u64) {
                self.restart();
            }
            if at.saturating_sub(self.since) > HALF && is_timed {
                (self.least, self.since) = ([None, self.least[0]], at);
            }
            if is_timed || known.is_none() {
                let least = self.least[0].unwrap_or(i64::MAX).min(difference);
                self.least[0] = Some(least);
            }
        }
        let Some(offset) = self.offset() else { return (None, None) };
        let mut decoded = decoded.saturating_add(offset);
        // Times of decoding never go back; those of showing do where pictures are shown in another order.
        if times.decoded_before.is_some() || kind == FrameKind::Sound {
            decoded = decoded.max(self.last);
            self.last = decoded;
        }
        let time = |nanos: i64| u64::try_from(nanos).ok().map(gst::ClockTime::from_nseconds);
        (time(decoded.saturating_add(before)), times.decoded_before.and_then(|_| time(decoded)))
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;

    use super::*;

    const KIND: FrameKind = FrameKind::Reference;

    fn ms(time: u64) -> Option<gst::ClockTime> {
        Some(gst::ClockTime::from_mseconds(time))
    }

    fn frame(shown: u64, before: u64) -> FrameTimes {
        FrameTimes {
            shown: Some(Duration::from_millis(shown)),
            decoded_before: Some(Duration::from_millis(before)),
            duration: None,
        }
    }

    #[test]
    fn times_are_those_of_the_sender_from_its_fastest_frame_on() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.place(&frame(5_000, 0), KIND, ms(130), true), (ms(130), ms(130)));
        // 30 ms faster, then late, then with a picture shown after others.
        assert_eq!(timeline.place(&frame(5_040, 0), KIND, ms(140), true), (ms(140), ms(140)));
        assert_eq!(timeline.place(&frame(5_080, 0), KIND, ms(260), true), (ms(180), ms(180)));
        assert_eq!(timeline.place(&frame(5_200, 80), KIND, ms(220), true), (ms(300), ms(220)));
        // While the element is paused.
        assert_eq!(timeline.place(&frame(5_240, 80), KIND, None, true), (ms(340), ms(260)));
    }

    #[test]
    fn a_clock_that_is_slower_than_ours_is_followed_and_a_jump_begins_anew() {
        let mut timeline = Timeline::default();
        let mut last = None;
        // 1 ms a second for ten minutes.
        for second in 0..600 {
            last = timeline.place(&frame(second * 1_000, 0), KIND, ms(second * 1_001), true).0;
        }
        let late = ms(599 * 1_001).zip(last).map(|(at, pts)| at.saturating_sub(pts).mseconds());
        assert!(late.is_some_and(|late| late <= 31), "{late:?}");
        assert_eq!(
            timeline.place(&frame(7, 0), KIND, ms(700_000), true),
            (ms(700_000), ms(700_000))
        );
    }

    #[test]
    fn of_a_stream_that_is_delivered_whole_the_distances_are_kept() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.place(&frame(0, 0), KIND, ms(100), false).0, ms(100));
        assert_eq!(timeline.place(&frame(4_000, 0), KIND, ms(101), false).0, ms(4_100));
    }

    #[test]
    fn pictures_without_a_time_of_decoding_keep_theirs_in_any_order() {
        let mut timeline = Timeline::default();
        let shown = [0, 120, 40, 80].map(|shown| {
            let times = FrameTimes { decoded_before: None, ..frame(shown, 0) };
            timeline.place(&times, KIND, ms(1_000 + shown), true).0
        });
        assert_eq!(shown, [1_000, 1_120, 1_040, 1_080].map(ms));
    }

    fn item(data: Vec<u8>, is_discontinuous: bool) -> Item {
        Item { data, at: ms(0), is_discontinuous, coding: Some(Elementary::H264), is_timed: true }
    }

    #[test]
    fn hostile_descriptions_are_refused_and_frames_before_one_left_out() {
        gst::init().expect("GStreamer");
        let mut frames = Frames::default();
        let mut part = Vec::new();
        ontempo_media::cut_frame(FrameKind::Key, 0, FrameTimes::default(), b"x", |one| {
            part = one.to_vec();
        });
        assert_eq!(frames.push(Elementary::H264, &item(part.clone(), true)), Ok(()));
        assert!(frames.ready.is_empty());
        let h264 = "video/x-h264, stream-format=(string)byte-stream, alignment=(string)au";
        for wrong in [
            "",
            "ANY",
            "video/x-raw",
            "video/x-h264",
            "video/x-h264, stream-format=avc, alignment=au",
            "video/x-h264(memory:DMABuf), stream-format=byte-stream, alignment=au",
            &format!("{h264}, width=[ 1, 2 ]"),
            &format!("{h264}; video/x-raw"),
        ] {
            let text = [b"\0", wrong.as_bytes()].concat();
            let taken = frames.push(Elementary::H264, &item(text, false));
            assert!(taken.is_err() || frames.ready.is_empty(), "{wrong}");
        }
        let text = [b"\0", h264.as_bytes()].concat();
        assert_eq!(frames.push(Elementary::H264, &item(text, false)), Ok(()));
        assert_eq!(frames.push(Elementary::H264, &item(part, false)), Ok(()));
        assert!(matches!(frames.ready.pop_front(), Some(Ready::Caps(_))));
        let Some(Ready::Buffer(buffer)) = frames.ready.pop_front() else { panic!("no buffer") };
        assert!(buffer.flags().contains(gst::BufferFlags::DISCONT));
        assert!(frames.push(Elementary::H264, &item(vec![1], false)).is_err());
    }
}
