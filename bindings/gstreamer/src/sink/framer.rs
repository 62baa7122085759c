//! Buffers of an elementary stream as datagrams.

use std::time::{Duration as Wall, Instant};

use gstreamer as gst;
use ontempo_foundation::Duration;
use ontempo_media::{
    Elementary, ElementaryDatagram, FrameKind, FrameTimes, FrameTooLong, MAX_DESCRIPTION, cut_frame,
};

/// How often a description is sent again at least; that of pictures is with each key picture, too.
const AGAIN: Wall = Wall::from_secs(1);

/// Cuts frames into datagrams: a buffer is one.
pub(super) struct Framer {
    coding: Elementary,
    /// The caps.
    description: String,
    /// When they were sent; `None`: these ones never.
    described: Option<Instant>,
    number: u16,
}

/// What flags say of a frame.
fn kind(coding: Elementary, flags: gst::BufferFlags) -> FrameKind {
    if coding.is_sound() {
        FrameKind::Sound
    } else if !flags.contains(gst::BufferFlags::DELTA_UNIT) {
        FrameKind::Key
    } else if flags.contains(gst::BufferFlags::DROPPABLE) {
        FrameKind::Disposable
    } else {
        FrameKind::Reference
    }
}

/// Times of a buffer; that at which it is shown is running time.
fn times(buffer: &gst::BufferRef, segment: &gst::Segment) -> FrameTimes {
    let span = |time: gst::ClockTime| Duration::from_nanos(time.nseconds());
    let shown = buffer.pts().and_then(|pts| {
        match segment.downcast_ref::<gst::ClockTime>()?.to_running_time_full(pts)? {
            gst::Signed::Positive(time) => Some(span(time)),
            gst::Signed::Negative(_) => Some(Duration::ZERO),
        }
    });
    let before = buffer.pts().zip(buffer.dts()).map(|(pts, dts)| pts.saturating_sub(dts));
    FrameTimes { shown, decoded_before: before.map(span), duration: buffer.duration().map(span) }
}

impl Framer {
    /// # Errors
    /// As [`set_caps`](Self::set_caps).
    pub(super) fn new(coding: Elementary, caps: &gst::CapsRef) -> Result<Self, String> {
        let mut framer = Self { coding, description: String::new(), described: None, number: 0 };
        framer.set_caps(caps)?;
        Ok(framer)
    }

    pub(super) fn coding(&self) -> Elementary {
        self.coding
    }

    /// Sends these caps with the next frame.
    ///
    /// # Errors
    /// A sentence: they are too long.
    pub(super) fn set_caps(&mut self, caps: &gst::CapsRef) -> Result<(), String> {
        let description = caps.to_string();
        if description.len() > MAX_DESCRIPTION {
            return Err(format!(
                "the caps are {} bytes long, {MAX_DESCRIPTION} are carried",
                description.len()
            ));
        }
        if description != self.description {
            (self.description, self.described) = (description, None);
        }
        Ok(())
    }

    /// Sends the caps with the next frame, whatever that is.
    pub(super) fn describe_again(&mut self) {
        self.described = None;
    }

    /// Calls `take` for each datagram of a frame, behind the number of its stream if there are several.
    ///
    /// # Errors
    /// It is too long: it is missing at the receiver.
    pub(super) fn cut(
        &mut self,
        stream: Option<u8>,
        (buffer, frame): (&gst::BufferRef, &[u8]),
        segment: &gst::Segment,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), FrameTooLong> {
        if frame.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let mut take = |datagram: &[u8]| match stream {
            None => take(datagram),
            Some(stream) => {
                bytes.clear();
                bytes.push(stream);
                bytes.extend_from_slice(datagram);
                take(&bytes);
            }
        };
        let kind = kind(self.coding, buffer.flags());
        let is_due = self.described.is_none_or(|at| at.elapsed() > AGAIN);
        if is_due || kind == FrameKind::Key {
            let mut description = Vec::new();
            ElementaryDatagram::Description(&self.description).write(&mut description);
            take(&description);
            self.described = Some(Instant::now());
        }
        let number = self.number;
        self.number = number.wrapping_add(1);
        cut_frame(kind, number, times(buffer, segment), frame, take)
    }
}
