//! Datagrams of an elementary stream as buffers with times and caps.

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use gstreamer as gst;
use ontempo_media::{Elementary, ElementaryDatagram, ElementaryFrame, FrameAssembler, FrameKind};

use super::queue::Item;
use super::timeline::{Came, Timeline};
use crate::media::elementary_caps;
use crate::properties::lock;

/// Caps of a text from the network.
///
/// Ranges and lists are not fixed; to find out that nested ones never end, the parser of GStreamer takes a time that
/// doubles with each.
fn parsed(text: &str) -> Option<gst::Caps> {
    if text.contains(['[', '{', '\0']) {
        return None;
    }
    gst::Caps::from_str(text).ok()
}

/// What is pushed next.
pub(super) enum Ready {
    Caps(gst::Caps),
    Buffer(gst::Buffer),
}

/// Makes buffers of datagrams.
pub(super) struct Frames {
    coding: Option<Elementary>,
    assembler: FrameAssembler,
    description: String,
    /// That of all streams.
    timeline: Arc<Mutex<Timeline>>,
    /// The next frame does not follow the last.
    is_discontinuous: bool,
    /// It was said that this stream has datagrams that are none of it.
    pub(super) is_warned: bool,
    pub(super) ready: VecDeque<Ready>,
}

impl Frames {
    /// Of a stream of those that share a timeline.
    pub(super) fn new(timeline: &Arc<Mutex<Timeline>>) -> Self {
        Self {
            coding: None,
            assembler: FrameAssembler::default(),
            description: String::new(),
            timeline: Arc::clone(timeline),
            is_discontinuous: false,
            is_warned: false,
            ready: VecDeque::new(),
        }
    }

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
                let described = parsed(text)
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
        let Item { at, is_timed, epoch, number, .. } = *item;
        let came = Came { epoch, at, is_timed, begins };
        let placed = lock(&self.timeline).place(number, &times, kind, came);
        let mut flags = match kind {
            FrameKind::Key | FrameKind::Sound => gst::BufferFlags::empty(),
            FrameKind::Reference => gst::BufferFlags::DELTA_UNIT,
            FrameKind::Disposable => gst::BufferFlags::DELTA_UNIT | gst::BufferFlags::DROPPABLE,
        };
        if begins || follows_loss || placed.begins {
            flags |= gst::BufferFlags::DISCONT;
        }
        let mut buffer = gst::Buffer::from_mut_slice(data);
        if let Some(buffer) = buffer.get_mut() {
            buffer.set_pts(placed.shown);
            buffer.set_dts(placed.decoded);
            buffer.set_duration(
                times.duration.map(|time| gst::ClockTime::from_nseconds(time.as_nanos())),
            );
            buffer.set_flags(flags);
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use ontempo_media::FrameTimes;

    use super::*;

    fn item(data: Vec<u8>, is_discontinuous: bool) -> Item {
        let (at, coding) = (Some(gst::ClockTime::ZERO), Some(Elementary::H264));
        Item { data, at, is_discontinuous, coding, is_timed: true, epoch: 1, number: 0 }
    }

    #[test]
    fn hostile_descriptions_are_refused_and_frames_before_one_left_out() {
        gst::init().expect("GStreamer");
        let mut frames = Frames::new(&Arc::default());
        let mut part = Vec::new();
        ontempo_media::cut_frame(FrameKind::Key, 0, FrameTimes::default(), b"x", |one| {
            part = one.to_vec();
        })
        .expect("not too long");
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
            &format!("{h264}\0"),
            // Would take for ever.
            &format!("{h264}, width={}", "[".repeat(200)),
            &format!("{h264}, width={}", "{".repeat(200)),
            &format!("{h264}, width={}", "<".repeat(200)),
            &format!("{h264}, width={}", "(".repeat(200)),
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
