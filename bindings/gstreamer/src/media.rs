//! What the elements carry: caps, and the datagrams of a buffer of MPEG-TS or RTP.

use std::fmt;

use gstreamer as gst;
use ontempo_media::{Chunker, Elementary, rtp};

/// Bytes of a packet of a transport stream, and its first.
const PACKET: usize = 188;
const SYNC: u8 = 0x47;

/// Bytes of a datagram made of a buffer: seven packets of a transport stream.
const CHUNK: usize = 7 * PACKET;

/// The most that a datagram has.
const MAX_DATAGRAM: usize = 65_535;

/// What is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    TransportStream,
    Rtp,
    Elementary(Elementary),
}

impl Format {
    /// Of what a datagram is that is none of an elementary stream.
    pub(crate) fn of(datagram: &[u8]) -> Option<Self> {
        if datagram.first() == Some(&SYNC) && datagram.len().is_multiple_of(PACKET) {
            Some(Self::TransportStream)
        } else {
            rtp::header(datagram).map(|_| Self::Rtp)
        }
    }

    /// Of caps.
    pub(crate) fn of_caps(caps: &gst::CapsRef) -> Option<Self> {
        match caps.structure(0)?.name().as_str() {
            "video/mpegts" => Some(Self::TransportStream),
            "application/x-rtp" => Some(Self::Rtp),
            other => {
                let found = Elementary::ALL.into_iter().find(|one| media_type(*one) == other);
                found.map(Self::Elementary)
            }
        }
    }

    /// The one that all of these caps are; `None` if they may be several.
    pub(crate) fn of_all(caps: &gst::Caps) -> Option<Self> {
        let mut all = (0..caps.size()).map(|place| {
            let one = caps.structure(place)?.to_owned();
            Self::of_caps(&gst::Caps::builder_full().structure(one).build())
        });
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    /// How the stream is coded, if it is an elementary one.
    pub(crate) fn coding(self) -> Option<Elementary> {
        match self {
            Self::Elementary(coding) => Some(coding),
            Self::TransportStream | Self::Rtp => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TransportStream => f.write_str("MPEG-TS"),
            Self::Rtp => f.write_str("RTP"),
            Self::Elementary(coding) => coding.fmt(f),
        }
    }
}

/// Caps of a transport stream.
pub(crate) fn transport_stream() -> gst::Caps {
    gst::Caps::builder("video/mpegts").field("systemstream", true).build()
}

/// What GStreamer calls frames of this coding.
fn media_type(coding: Elementary) -> &'static str {
    match coding {
        Elementary::H264 => "video/x-h264",
        Elementary::H265 => "video/x-h265",
        Elementary::Av1 => "video/x-av1",
        Elementary::Aac => "audio/mpeg",
        Elementary::Opus => "audio/x-opus",
    }
}

/// Caps of an elementary stream: forms that need nothing beside the frames, a frame in each buffer.
pub(crate) fn elementary_caps(coding: Elementary) -> gst::Caps {
    let caps = gst::Caps::builder(media_type(coding));
    match coding {
        Elementary::H264 | Elementary::H265 => {
            caps.field("stream-format", "byte-stream").field("alignment", "au").build()
        }
        Elementary::Av1 => caps
            .field("stream-format", "obu-stream")
            .field("alignment", gst::List::new(["tu", "frame"]))
            .build(),
        Elementary::Aac => caps
            .field("mpegversion", gst::List::new([2, 4]))
            .field("stream-format", "adts")
            .field("framed", true)
            .build(),
        Elementary::Opus => caps.build(),
    }
}

/// Caps of pads of which there may be several: elementary streams alone.
pub(crate) fn caps_of_frames() -> gst::Caps {
    let mut caps = gst::Caps::new_empty();
    if let Some(caps) = caps.get_mut() {
        Elementary::ALL.into_iter().for_each(|coding| caps.append(elementary_caps(coding)));
    }
    caps
}

/// Caps of the elements' pads that are always there.
pub(crate) fn all_caps() -> gst::Caps {
    let mut caps = transport_stream();
    caps.merge(gst::Caps::new_empty_simple("application/x-rtp"));
    caps.merge(caps_of_frames());
    caps
}

/// Cuts buffers into datagrams.
pub(crate) struct Cutter {
    format: Format,
    /// Whole packets of buffers that come together.
    packets: Vec<u8>,
    /// Holds what is no whole packet yet, of buffers that are cut elsewhere than between packets.
    chunker: Option<Chunker>,
}

impl Cutter {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, packets: Vec::new(), chunker: None }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Calls `take` for each datagram of a buffer. Packets that fill none are kept for the next buffer of
    /// those that come together.
    pub(crate) fn cut(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        if self.format == Format::Rtp {
            return bytes.chunks(MAX_DATAGRAM).for_each(take);
        }
        let is_aligned = bytes.first() == Some(&SYNC) && bytes.len().is_multiple_of(PACKET);
        if !is_aligned || self.chunker.is_some() {
            self.flush(&mut take);
            let chunker = self.chunker.get_or_insert_with(|| Chunker::new(CHUNK as u16));
            chunker.push(bytes);
            while let Some(datagram) = chunker.poll() {
                take(datagram);
            }
            return;
        }
        for packet in bytes.chunks(PACKET) {
            self.packets.extend_from_slice(packet);
            if self.packets.len() == CHUNK {
                self.flush(&mut take);
            }
        }
    }

    /// The last of the buffers that come together was cut.
    pub(crate) fn flush(&mut self, mut take: impl FnMut(&[u8])) {
        if !self.packets.is_empty() {
            take(&self.packets);
            self.packets.clear();
        }
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(&[u8])) {
        self.flush(&mut take);
        if let Some(mut chunker) = self.chunker.take() {
            chunker.finish();
            while let Some(datagram) = chunker.poll() {
                take(datagram);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(cutter: &mut Cutter, bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        for buffer in bytes.chunks(PACKET) {
            cutter.cut(buffer, |datagram| lengths.push(datagram.len()));
        }
        cutter.flush(|datagram| lengths.push(datagram.len()));
        lengths
    }

    #[test]
    fn packets_that_come_together_fill_datagrams() {
        let bytes: Vec<u8> =
            (0..10 * PACKET).map(|at| if at % PACKET == 0 { SYNC } else { 0 }).collect();
        let mut cutter = Cutter::new(Format::TransportStream);
        assert_eq!(cut(&mut cutter, &bytes), [7 * PACKET, 3 * PACKET]);
        assert_eq!(cut(&mut Cutter::new(Format::Rtp), &bytes), [PACKET; 10]);
    }

    #[test]
    fn buffers_of_any_length_lose_nothing() {
        let bytes: Vec<u8> =
            (0..100 * PACKET).map(|at| if at % PACKET == 0 { SYNC } else { 7 }).collect();
        let mut cutter = Cutter::new(Format::TransportStream);
        let mut all = Vec::new();
        for part in bytes.chunks(1_000) {
            cutter.cut(part, |datagram| all.extend_from_slice(datagram));
        }
        cutter.finish(|datagram| all.extend_from_slice(datagram));
        assert!(all == bytes, "{} of {} bytes", all.len(), bytes.len());
    }
}
