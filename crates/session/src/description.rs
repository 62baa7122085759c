//! The session description (SDP, RFC 8866) of one medium over RTP: carried beside its RTCP, and written for
//! the address at which a player gets the medium.
//!
//! It travels as an RTCP packet of the type APP (RFC 3550, section 6.7) with the name `OnSD`: relays and
//! receivers that do not know it hand it on, and players ignore it. What a peer sends is read anew, line by
//! line: only what describes the medium is kept.

use std::fmt;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// Maximum bytes of a description, so that its packet has at most 1,500.
pub const MAX_DESCRIPTION: usize = 1_400;

/// Maximum bytes of a file that is read: of several media, one is carried.
pub const MAX_FILE: u64 = 16 << 10;

/// What an RTCP packet of a description begins with: version 2, subtype 0; APP.
const APP: [u8; 2] = [0x80, 204];

/// Its name, after the length in words and a source of 0.
const NAME: [u8; 4] = *b"OnSD";

/// Bytes before the text, with its length.
const HEAD: usize = 14;

/// Attributes that describe a medium; others, which could lead a player elsewhere, are left out.
const ATTRIBUTES: [&str; 12] = [
    "rtpmap:",
    "fmtp:",
    "framerate:",
    "framesize:",
    "ptime:",
    "maxptime:",
    "extmap:",
    "ssrc:",
    "rtcp-fb:",
    "tool:",
    "type:",
    "imageattr:",
];

/// The description of one medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    name: String,
    /// What follows `t=`.
    time: String,
    /// Such as `video`.
    medium: String,
    port: u16,
    /// Such as `RTP/AVP 96`.
    formats: String,
    /// Lines `b=` and `a=`.
    lines: Vec<String>,
}

/// Why a text is no description of a medium over RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptionError {
    /// Longer than [`MAX_DESCRIPTION`] bytes, without what is left out.
    Long,
    /// Not text, or with control characters.
    NotText,
    /// It does not begin with `v=0`, or a line has not the form `x=...`.
    NotSdp,
    /// It describes no medium at this port, or several without one there.
    NoMedium(u16),
    /// A medium that is not RTP in the clear (`RTP/AVP`, `RTP/AVPF`) with numbered formats.
    NotRtp,
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long => write!(f, "longer than {MAX_DESCRIPTION} bytes"),
            Self::NotText => f.write_str("not text, or it has control characters"),
            Self::NotSdp => f.write_str("no session description (RFC 8866): v=0, then lines x=..."),
            Self::NoMedium(port) => {
                write!(f, "it describes no medium at port {port} (m=... {port} ...)")
            }
            Self::NotRtp => {
                f.write_str("its medium is not RTP/AVP or RTP/AVPF with formats 0 to 127")
            }
        }
    }
}

impl std::error::Error for DescriptionError {}

/// Control characters, and those that some programs take for the end of a line or that turn its direction.
fn is_control(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl Description {
    /// Reads a description; of several media it takes the one at `port`, and a single one whatever its port
    /// is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &[u8], port: u16) -> Result<Self, DescriptionError> {
        let text = std::str::from_utf8(bytes).map_err(|_| DescriptionError::NotText)?;
        let lines: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
        if lines.iter().any(|line| line.chars().any(is_control)) {
            return Err(DescriptionError::NotText);
        }
        let is_line = |line: &&str| matches!(line.as_bytes(), [b'a'..=b'z', b'=', ..]);
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        if lines.first() != Some(&"v=0") || !lines.iter().all(is_line) {
            return Err(DescriptionError::NotSdp);
        }
        let places: Vec<usize> =
            (0..lines.len()).filter(|place| lines[*place].starts_with("m=")).collect();
        let is_here = |place: &&usize| port_of(lines[**place]) == Some(port);
        let single = places.first().filter(|_| places.len() == 1);
        let place = places.iter().find(is_here).or(single);
        let place = *place.ok_or(DescriptionError::NoMedium(port))?;
        let end = places.iter().copied().find(|other| *other > place).unwrap_or(lines.len());
        let session = &lines[..places[0]];
        let of = |key: &str| session.iter().find_map(|line| line.strip_prefix(key));
        let (medium, formats) = medium(lines[place]).ok_or(DescriptionError::NotRtp)?;
        let kept = |line: &&&str| match line.strip_prefix("a=") {
            Some(attribute) => ATTRIBUTES.iter().any(|one| attribute.starts_with(one)),
            None => line.starts_with("b="),
        };
        let own = lines[place + 1..end].iter().filter(kept).map(|line| (*line).to_owned());
        let time =
            of("t=").filter(|time| time.bytes().all(|one| one == b' ' || one.is_ascii_digit()));
        let description = Self {
            name: of("s=").filter(|name| !name.is_empty()).unwrap_or("-").to_owned(),
            time: time.unwrap_or("0 0").to_owned(),
            medium,
            port: port_of(lines[place]).unwrap_or(port),
            formats,
            lines: own.collect(),
        };
        let length = description.at(SocketAddr::from(([127, 0, 0, 1], port))).len();
        if length <= MAX_DESCRIPTION { Ok(description) } else { Err(DescriptionError::Long) }
    }

    /// The description of the medium as it arrives at this address.
    pub fn at(&self, to: SocketAddr) -> String {
        let (family, address) = match to.ip() {
            // A group's needs a number of hops (RFC 8866, section 5.7).
            IpAddr::V4(group) if group.is_multicast() => ("IP4", format!("{group}/127")),
            IpAddr::V4(address) => ("IP4", address.to_string()),
            IpAddr::V6(address) => ("IP6", address.to_string()),
        };
        let origin = to.ip();
        let (port, Self { name, time, medium, formats, lines, .. }) = (to.port(), self);
        let mut text = format!(
            "v=0\r\no=- 0 0 IN {family} {origin}\r\ns={name}\r\nc=IN {family} {address}\r\nt={time}\r\n\
             m={medium} {port} {formats}\r\n"
        );
        for line in lines {
            // A string takes all.
            let _ = write!(text, "{line}\r\n");
        }
        text
    }

    /// As it travels.
    pub(crate) fn to_packet(&self) -> Vec<u8> {
        let text = self.at(SocketAddr::from(([127, 0, 0, 1], self.port)));
        let words = (HEAD + text.len()).div_ceil(4);
        let mut packet = APP.to_vec();
        packet.extend(u16::try_from(words - 1).unwrap_or_default().to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(NAME);
        packet.extend(u16::try_from(text.len()).unwrap_or_default().to_be_bytes());
        packet.extend(text.as_bytes());
        packet.resize(4 * words, 0);
        packet
    }
}

/// Whether a packet carries a description, of whatever worth.
pub(crate) fn is_description(packet: &[u8]) -> bool {
    packet.starts_with(&APP) && packet.get(8..12) == Some(&NAME)
}

/// What a packet carries that [is one of a description](is_description).
///
/// # Errors
/// What is wrong with it.
pub(crate) fn of_packet(packet: &[u8]) -> Result<Description, DescriptionError> {
    let rest = packet.get(HEAD - 2..).and_then(|rest| rest.split_first_chunk());
    let (length, rest) = rest.ok_or(DescriptionError::NotSdp)?;
    let text = rest.get(..usize::from(u16::from_be_bytes(*length)));
    Description::read(text.ok_or(DescriptionError::NotSdp)?, 0)
}

fn port_of(line: &str) -> Option<u16> {
    line.split(' ').nth(1)?.parse().ok()
}

/// Kind and formats of a line `m=`.
fn medium(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> =
        line.strip_prefix("m=")?.split(' ').filter(|one| !one.is_empty()).collect();
    let [kind, port, profile, formats @ ..] = words.as_slice() else { return None };
    let is_known = ["video", "audio", "text", "application"].contains(kind);
    let is_rtp = ["RTP/AVP", "RTP/AVPF"].contains(profile) && port.parse::<u16>().is_ok();
    let numbers = formats.iter().all(|one| one.parse::<u8>().is_ok_and(|number| number < 128));
    let is_medium = is_known && is_rtp && numbers && !formats.is_empty();
    is_medium.then(|| ((*kind).to_owned(), format!("{profile} {}", formats.join(" "))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As FFmpeg writes it.
    const FFMPEG: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         a=tool:libavformat 59.27.100\r\nm=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
         a=fmtp:96 packetization-mode=1; profile-level-id=F4000D\r\n";

    #[test]
    fn a_description_is_carried_and_written_for_another_address() {
        let read = Description::read(FFMPEG.as_bytes(), 5004).unwrap();
        let packet = read.to_packet();
        assert!(
            is_description(&packet)
                && packet.len().is_multiple_of(4)
                && crate::rtcp::is_rtcp(&packet)
        );
        let carried = of_packet(&packet).unwrap();
        assert_eq!(carried, read);
        assert_eq!(
            carried.at("192.0.2.7:6004".parse().unwrap()),
            "v=0\r\no=- 0 0 IN IP4 192.0.2.7\r\ns=No Name\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\n\
             m=video 6004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
             a=fmtp:96 packetization-mode=1; profile-level-id=F4000D\r\n"
        );
        let there = |to: &str| carried.at(to.parse().unwrap());
        assert!(there("[2001:db8::1]:6004").contains("\r\nc=IN IP6 2001:db8::1\r\n"));
        assert!(there("239.1.1.1:6004").contains("\r\nc=IN IP4 239.1.1.1/127\r\n"));
    }

    #[test]
    fn of_several_media_the_one_at_the_port_is_carried_without_the_others() {
        let two = format!("{FFMPEG}m=audio 5006 RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\n");
        let sound = Description::read(two.as_bytes(), 5006).unwrap();
        let text = sound.at("127.0.0.1:9000".parse().unwrap());
        assert!(text.contains("m=audio 9000 RTP/AVP 97\r\na=rtpmap:97 opus"), "{text}");
        assert!(!text.contains("H264"), "{text}");
        assert_eq!(Description::read(two.as_bytes(), 7000), Err(DescriptionError::NoMedium(7000)));
    }

    #[test]
    fn what_could_lead_a_player_elsewhere_is_left_out() {
        let hostile = format!(
            "{FFMPEG}c=IN IP4 203.0.113.9\r\na=control:rtsp://203.0.113.9/\r\na=rtcp:9 IN IP4 203.0.113.9\r\n\
             a=candidate:1 1 UDP 1 203.0.113.9 9 typ host\r\nk=uri:http://203.0.113.9/\r\n"
        );
        let read = Description::read(hostile.as_bytes(), 5004).unwrap();
        let text = read.at("127.0.0.1:6004".parse().unwrap());
        assert!(!text.contains("203.0.113.9"), "{text}");
    }

    #[test]
    fn what_is_no_description_is_refused_with_the_reason() {
        let of = |text: &str| Description::read(text.as_bytes(), 5004).unwrap_err();
        assert_eq!(of(""), DescriptionError::NotSdp);
        assert_eq!(of("SDP:\nv=0"), DescriptionError::NotSdp);
        assert_eq!(of("v=0\r\nhello"), DescriptionError::NotSdp);
        assert_eq!(of("v=0\r\ns=\u{1b}[2J\r\n"), DescriptionError::NotText);
        assert_eq!(of("v=0\r\ns=a\u{0}b\r\n"), DescriptionError::NotText);
        assert_eq!(of("v=0\r\ns=-\r\n"), DescriptionError::NoMedium(5004));
        assert_eq!(of(&FFMPEG.replace("RTP/AVP", "RTP/SAVP")), DescriptionError::NotRtp);
        assert_eq!(of(&FFMPEG.replace("AVP 96", "AVP 196")), DescriptionError::NotRtp);
        let long = format!("{FFMPEG}a=fmtp:96 {}\r\n", "x".repeat(MAX_DESCRIPTION));
        assert_eq!(of(&long), DescriptionError::Long);
        assert_eq!(Description::read(b"v=0\r\ns=\xff", 1), Err(DescriptionError::NotText));
    }

    proptest! {
        #[test]
        fn no_packet_makes_the_reader_panic_or_gives_more_than_one_may_have(
            bytes in proptest::collection::vec(any::<u8>(), 0..1_500),
            lines in proptest::collection::vec("[a-z]=[ -~]{0,40}", 0..20),
        ) {
            let _ = of_packet(&bytes);
            let text = format!("v=0\r\n{}\r\n{}", lines.join("\r\n"), &FFMPEG[5..]);
            if let Ok(read) = Description::read(text.as_bytes(), 5004) {
                prop_assert!(read.to_packet().len() <= 1_500);
                prop_assert_eq!(of_packet(&read.to_packet()), Ok(read));
            }
        }
    }
}
