//! Frames of sound, as far as their headers tell: AAC in ADTS, MPEG layers I to III.

/// Bytes of a header that is read.
const HEADER: usize = 7;

/// How the frames of a stream of sound are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// AAC (ISO/IEC 13818-7, 6.2).
    Adts,
    /// MPEG-1 and MPEG-2 (ISO/IEC 11172-3, 2.4.1.3; 13818-3).
    Mpeg,
    /// Each PES packet counts as a frame.
    Packets,
}

impl Framing {
    /// By stream_type (ISO/IEC 13818-1, table 2-34).
    pub(super) const fn of(stream_type: u8) -> Self {
        match stream_type {
            0x0f => Self::Adts,
            0x03 | 0x04 => Self::Mpeg,
            _ => Self::Packets,
        }
    }

    fn header(self, bytes: &[u8]) -> Option<Header> {
        match self {
            Self::Adts => adts(bytes.first_chunk()?),
            Self::Mpeg => mpeg(bytes.first_chunk()?),
            Self::Packets => None,
        }
    }
}

/// Of a frame of sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Bytes with the header.
    size: usize,
    samples: u32,
    /// Samples a second.
    rate: u32,
}

fn adts(bytes: &[u8; HEADER]) -> Option<Header> {
    const RATES: [u32; 13] = [
        96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025,
        8_000, 7_350,
    ];
    if bytes[0] != 0xff || bytes[1] & 0xf6 != 0xf0 {
        return None;
    }
    let rate = *RATES.get(usize::from(bytes[2] >> 2 & 0x0f))?;
    let size =
        usize::from(bytes[3] & 3) << 11 | usize::from(bytes[4]) << 3 | usize::from(bytes[5] >> 5);
    let samples = 1_024 * (u32::from(bytes[6] & 3) + 1);
    (size >= HEADER).then_some(Header { size, samples, rate })
}

fn mpeg(bytes: &[u8; HEADER]) -> Option<Header> {
    /// kbit/s of MPEG-1 layers I, II, III, and of MPEG-2 layers I, II and III.
    const RATES: [[u32; 14]; 5] = [
        [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
        [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
        [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
        [32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
        [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
    ];
    if bytes[0] != 0xff || bytes[1] & 0xe0 != 0xe0 {
        return None;
    }
    let (version, layer) = (bytes[1] >> 3 & 3, bytes[1] >> 1 & 3);
    let halved = match version {
        3 => 0,
        2 => 1,
        0 => 2,
        _ => return None,
    };
    let rate = [44_100u32, 48_000, 32_000].get(usize::from(bytes[2] >> 2 & 3))? >> halved;
    let table = match (halved, layer) {
        (_, 0) => return None,
        (0, _) => usize::from(3 - layer),
        (_, 3) => 3,
        _ => 4,
    };
    let place = usize::from(bytes[2] >> 4).checked_sub(1)?;
    let bits = RATES[table].get(place)? * 1_000;
    let padding = u32::from(bytes[2] >> 1 & 1);
    let (samples, size) = match layer {
        3 => (384, (12 * bits / rate + padding) * 4),
        1 if halved > 0 => (576, 72 * bits / rate + padding),
        _ => (1_152, 144 * bits / rate + padding),
    };
    Some(Header { size: usize::try_from(size).ok()?.max(HEADER), samples, rate })
}

/// A frame of sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SoundFrame {
    /// By its stream's clock.
    pub(super) nanos: u64,
    pub(super) size: usize,
}

/// Cuts a stream of sound into frames.
#[derive(Debug)]
pub(super) struct SoundCutter {
    framing: Framing,
    /// The beginning of a frame, at most some thousand bytes.
    rest: Vec<u8>,
    /// When the next frame is due that no time stamp names.
    next: u64,
    /// Pieces in which no header is where one should be.
    pub(super) untold: u64,
}

impl SoundCutter {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, rest: Vec::new(), next: 0, untold: 0 }
    }

    /// Takes the content of a PES packet, and gives the frames that end in it; its time stamp is that of the first frame that begins in it.
    pub(super) fn push(
        &mut self,
        nanos: u64,
        bytes: &[u8],
        mut take: impl FnMut(SoundFrame, &[u8]),
    ) {
        let begin = self.rest.len();
        self.rest.extend_from_slice(bytes);
        let (mut at, mut is_stamped) = (0, false);
        while at < self.rest.len() {
            if at >= begin && !is_stamped {
                (self.next, is_stamped) = (nanos, true);
            }
            let left = &self.rest[at..];
            let may_begin = left[0] == 0xff && self.framing != Framing::Packets;
            let header = match self.framing.header(left) {
                Some(header) if header.size > left.len() => break,
                // Too short to tell.
                None if left.len() < HEADER && may_begin => break,
                header => header,
            };
            let size = header.map_or(left.len(), |header| header.size);
            self.untold += u64::from(header.is_none());
            take(SoundFrame { nanos: self.next, size }, &left[..size]);
            at += size;
            self.next += header.map_or(0, |header| {
                u64::from(header.samples) * 1_000_000_000 / u64::from(header.rate)
            });
        }
        self.rest.drain(..at);
    }

    /// Bytes of a frame that did not end.
    pub(super) fn unfinished(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of `size` bytes of AAC at 48 kHz.
    fn aac(size: usize) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xf1, 3 << 2, (size >> 11) as u8 & 3, (size >> 3) as u8];
        bytes.extend([(size << 5) as u8 | 0x1f, 0xfc]);
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn frames_are_cut_wherever_their_packets_end() {
        let sizes = [100, 7, 300, 50];
        let all: Vec<u8> = sizes.iter().flat_map(|&size| aac(size)).collect();
        for cut in 1..all.len() {
            let (mut cutter, mut frames) = (SoundCutter::new(Framing::Adts), Vec::new());
            cutter.push(1_000_000, &all[..cut], |frame, _| frames.push(frame));
            cutter.push(9_000_000_000, &all[cut..], |frame, _| frames.push(frame));
            assert_eq!(frames.iter().map(|one| one.size).collect::<Vec<_>>(), sizes, "{cut}");
            // The frames that begin in the first packet follow its time, the others that of the second.
            let begun = [0, 100, 107, 407].iter().filter(|&&begin| begin < cut).count();
            let early = frames.iter().filter(|one| one.nanos < 1_000_000_000).count();
            assert_eq!((early, cutter.unfinished(), cutter.untold), (begun, 0, 0), "{cut}");
            assert_eq!(frames[begun - 1].nanos, 1_000_000 + (begun as u64 - 1) * 21_333_333);
        }
    }

    #[test]
    fn headers_of_layers_say_size_and_samples() {
        // Layer II, 48 kHz, 192 kbit/s; layer III, 44.1 kHz, 128 kbit/s, padded; MPEG-2 layer III, 24 kHz.
        let read = |bytes: [u8; 3]| {
            mpeg(&[bytes[0], bytes[1], bytes[2], 0, 0, 0, 0])
                .map(|one| (one.size, one.samples, one.rate))
        };
        assert_eq!(read([0xff, 0xfd, 0xa4]), Some((576, 1_152, 48_000)));
        assert_eq!(read([0xff, 0xfb, 0x92]), Some((418, 1_152, 44_100)));
        assert_eq!(read([0xff, 0xf3, 0x84]), Some((192, 576, 24_000)));
        assert_eq!(read([0xff, 0xf9, 0xa4]), None, "no layer");
        assert_eq!(read([0xff, 0xfd, 0xf4]), None, "no rate");
    }
}
