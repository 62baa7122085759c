//! Frames of sound, as far as their headers tell: AAC in ADTS, MPEG layers I to III, Opus.

use crate::ts::{self, Content, NamedStream};

/// Bytes of a header of AAC or MPEG that is read.
const HEADER: usize = 7;

/// Maximum bytes of a packet of Opus, of all its streams; a PES packet has no more room.
const MAX_OPUS: usize = 60 << 10;

/// Maximum samples of a packet of Opus: 120 ms (RFC 6716, 3.2.5).
const MAX_OPUS_SAMPLES: u32 = 5_760;

/// How the frames of a stream of sound are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// AAC (ISO/IEC 13818-7, 6.2).
    Adts,
    /// MPEG-1 and MPEG-2 (ISO/IEC 11172-3, 2.4.1.3; 13818-3).
    Mpeg,
    /// Opus, each packet behind a control header ("Opus in MPEG-TS", draft 0.1.3, table 6-2).
    Opus,
    /// Each PES packet counts as a frame.
    Packets,
}

impl Framing {
    /// By stream_type (ISO/IEC 13818-1, table 2-34).
    pub(super) const fn of(stream: &NamedStream) -> Self {
        match (stream.stream_type, stream.content) {
            (0x0f, _) => Self::Adts,
            (0x03 | 0x04, _) => Self::Mpeg,
            (ts::PRIVATE, Content::Audio) => Self::Opus,
            _ => Self::Packets,
        }
    }

    /// What begins `bytes`, which are not empty.
    fn look(self, bytes: &[u8]) -> Found {
        let header = match self {
            Self::Packets => None,
            Self::Opus => return opus(bytes),
            Self::Adts => bytes.first_chunk().and_then(adts),
            Self::Mpeg => bytes.first_chunk().and_then(mpeg),
        };
        let may_begin = bytes[0] == 0xff && bytes.len() < HEADER && self != Self::Packets;
        header.map_or(if may_begin { Found::Short } else { Found::Nothing }, Found::Frame)
    }
}

/// What is at a place where a frame should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Frame(Header),
    /// Too short to tell.
    Short,
    /// Something else.
    Nothing,
}

/// Of a frame of sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Bytes with the header.
    size: usize,
    /// Of it bytes that the decoder does not get.
    skip: usize,
    samples: u32,
    /// Samples a second.
    rate: u32,
}

/// Whether a control header of Opus begins here: control_header_prefix.
fn begins_opus(bytes: &[u8]) -> bool {
    matches!(bytes, [0x7f, second, ..] if second & 0xe0 == 0xe0)
}

fn opus(bytes: &[u8]) -> Found {
    if !begins_opus(bytes) {
        return if bytes == [0x7f] { Found::Short } else { Found::Nothing };
    }
    let (flags, mut at, mut length) = (bytes[1], 2, 0);
    loop {
        let Some(&byte) = bytes.get(at) else { return Found::Short };
        length += usize::from(byte);
        at += 1;
        if length > MAX_OPUS {
            return Found::Nothing;
        }
        if byte < 255 {
            break;
        }
    }
    // start_trim, end_trim
    at += 2 * usize::from(flags & 0x10 != 0) + 2 * usize::from(flags & 0x08 != 0);
    if flags & 0x04 != 0 {
        let Some(&extension) = bytes.get(at) else { return Found::Short };
        at += 1 + usize::from(extension);
    }
    // The packet's first bytes tell how long it plays.
    let Some(packet) = bytes.get(at..at + length.min(2)) else { return Found::Short };
    match opus_samples(packet) {
        Some(samples) => {
            Found::Frame(Header { size: at + length, skip: at, samples, rate: 48_000 })
        }
        None => Found::Nothing,
    }
}

/// Samples at 48 kHz of a packet of Opus, of which the first bytes are given (RFC 6716, 3.1 and 3.2).
fn opus_samples(packet: &[u8]) -> Option<u32> {
    let &head = packet.first()?;
    let config = head >> 3;
    let each = match config {
        0..=11 => [480, 960, 1_920, 2_880][usize::from(config & 3)],
        12..=15 => [480, 960][usize::from(config & 1)],
        _ => [120, 240, 480, 960][usize::from(config & 3)],
    };
    let frames = match head & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 0x3f),
    };
    Some(each * frames).filter(|samples| (1..=MAX_OPUS_SAMPLES).contains(samples))
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
    (size >= HEADER).then_some(Header { size, skip: 0, samples, rate })
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
    Some(Header { size: usize::try_from(size).ok()?.max(HEADER), skip: 0, samples, rate })
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
    /// The beginning of a frame, at most some thousand bytes; of Opus, 61 kB.
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
        if !self.rest.is_empty() && self.framing == Framing::Opus && begins_opus(bytes) {
            // The end of that one is missing: multiplexers begin a PES packet with a packet of Opus.
            self.rest.clear();
            self.untold += 1;
        }
        let begin = self.rest.len();
        self.rest.extend_from_slice(bytes);
        let (mut at, mut is_stamped) = (0, false);
        while at < self.rest.len() {
            if at >= begin && !is_stamped {
                (self.next, is_stamped) = (nanos, true);
            }
            let left = &self.rest[at..];
            let header = match self.framing.look(left) {
                Found::Frame(header) if header.size > left.len() => break,
                Found::Short => break,
                Found::Frame(header) => Some(header),
                Found::Nothing => None,
            };
            let skip = header.map_or(0, |header| header.skip);
            let size = header.map_or(left.len(), |header| header.size);
            self.untold += u64::from(header.is_none());
            take(SoundFrame { nanos: self.next, size }, &left[skip..size]);
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

    /// A packet of Opus of `size` bytes, 20 ms, behind its control header with both trims and an extension.
    fn opus_unit(size: usize) -> Vec<u8> {
        let mut bytes = vec![0x7f, 0xfc];
        bytes.extend(std::iter::repeat_n(255, size / 255));
        bytes.extend([(size % 255) as u8, 0, 1, 0, 2, 3, 9, 9, 9]);
        bytes.push(31 << 3);
        bytes.resize(bytes.len() + size - 1, 0x33);
        bytes
    }

    #[test]
    fn packets_of_opus_are_cut_without_their_control_headers_wherever_they_end() {
        let sizes = [3, 255, 700];
        let units = sizes.map(opus_unit);
        let all = units.concat();
        for cut in 1..all.len() {
            let mut cutter = SoundCutter::new(Framing::Opus);
            let mut frames = Vec::new();
            let mut take = |frame: SoundFrame, bytes: &[u8]| frames.push((frame, bytes.len()));
            cutter.push(1_000_000, &all[..cut], &mut take);
            cutter.push(9_000_000_000, &all[cut..], &mut take);
            let begins: Vec<usize> = (1..3).map(|count| units[..count].concat().len()).collect();
            // Where the second piece begins with a packet, nothing was open.
            assert_eq!(frames.iter().map(|one| one.1).collect::<Vec<_>>(), sizes, "{cut}");
            assert_eq!((cutter.unfinished(), cutter.untold), (0, 0), "{cut} of {begins:?}");
            assert_eq!(frames[0].0.nanos, 1_000_000);
            assert_eq!(frames[0].0.size, units[0].len());
        }
    }

    #[test]
    fn a_packet_of_opus_whose_end_is_missing_takes_nothing_from_the_next() {
        let mut cutter = SoundCutter::new(Framing::Opus);
        let (mut sizes, whole) = (Vec::new(), opus_unit(300));
        cutter.push(0, &whole[..200], |_, _| unreachable!());
        cutter.push(20_000_000, &whole, |_, bytes| sizes.push(bytes.len()));
        assert_eq!((sizes, cutter.untold, cutter.unfinished()), (vec![300], 1, 0));
    }

    #[test]
    fn headers_of_opus_say_size_and_samples_and_bad_ones_are_none() {
        // 60 ms of SILK; two frames of 2.5 ms of CELT; five of 20 ms, as the second byte says.
        for (packet, samples) in
            [(&[3u8 << 3][..], 2_880), (&[16 << 3 | 1, 0], 240), (&[31 << 3 | 3, 5], 4_800)]
        {
            assert_eq!(opus_samples(packet), Some(samples));
        }
        for packet in [&[][..], &[31 << 3 | 3], &[31 << 3 | 3, 0], &[31 << 3 | 3, 7]] {
            assert_eq!(opus_samples(packet), None, "{packet:?}");
        }
        assert_eq!(opus(&[0x7f]), Found::Short);
        assert_eq!(opus(&[0x7f, 0x60, 1, 0]), Found::Nothing, "the prefix has 11 bits");
        assert_eq!(opus(&[0x7f, 0xe0, 0]), Found::Nothing, "an empty packet");
        assert_eq!(opus(&[[0x7f, 0xe0].as_slice(), &[255; 300]].concat()), Found::Nothing);
        assert_eq!(opus(&[0x7f, 0xe4, 4, 200]), Found::Short, "an extension");
        assert_eq!(opus(&[0x7f, 0xe0, 255]), Found::Short);
    }
}
