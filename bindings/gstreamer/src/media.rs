//! What the elements carry: caps, and the datagrams of a buffer.

use std::fmt;

use gstreamer as gst;
use ontempo_media::{Chunker, rtp};

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
}

impl Format {
    /// Of what a datagram is.
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
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TransportStream => "MPEG-TS",
            Self::Rtp => "RTP",
        })
    }
}

/// Caps of a transport stream.
pub(crate) fn transport_stream() -> gst::Caps {
    gst::Caps::builder("video/mpegts").field("systemstream", true).build()
}

/// Caps of the elements' pads.
pub(crate) fn all_caps() -> gst::Caps {
    let mut caps = transport_stream();
    caps.merge(gst::Caps::new_empty_simple("application/x-rtp"));
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
