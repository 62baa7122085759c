//! A film in datagrams: given at its times to the network, or to a program that carries it, and
//! recognised where it comes out again.
//!
//! Frames of a film are filled with one byte, so that packets of different frames may be alike. So each
//! packet of a frame is numbered in its filling before it is given away, and one that comes out counts
//! once, if all its bytes are those that were given.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;

use ontempo_foundation::{Duration, Time};
use ontempo_media::Film;
use ontempo_media::ts::PACKET;
use ontempo_runtime::{Arrivals, Showing};
use socket2::SockAddr;

use super::sending::Sending;
use super::{Receiver, UdpSockets};
use crate::sys;

/// How long to wait if the kernel accepts no more.
const RETRY: Duration = Duration::from_millis(1);

/// The largest datagram that may come out.
const MAX_DATAGRAM: usize = 65_536;

/// Bytes of a number, of [`BITS`] each.
const DIGITS: usize = 8;
/// Bits in a byte of a number. With the highest bit set and the next not set, no byte is part of a start code
/// of pictures, or of the sync word of sound.
const BITS: u32 = 6;
const MARK: u8 = 0x80;

/// A packet with as much payload ends in filling: headers and marks at its beginning are shorter. One with
/// less has stuffing before it.
const FILLED: usize = 64;

/// Bits of a packet's place in its datagram.
const PLACE_BITS: u32 = 3;

/// Where the flow's datagrams go in, and how it is called.
pub(crate) struct Way {
    pub(crate) sockets: UdpSockets,
    /// The program's input; `None` if the socket is connected.
    pub(crate) to: Option<SockAddr>,
    /// The transport and its congestion controller, as the tables name them.
    pub(crate) name: (&'static str, Option<String>),
}

/// Both ends of a film.
pub(crate) struct FilmFlow {
    pub(crate) way: Way,
    film: Arc<Film>,
    start: Time,
    stop: Time,
    /// The next datagram to be given.
    next: u64,
    scratch: Vec<u8>,
    /// The datagram that came out last, as it was given.
    expected: (u64, Vec<u8>),
    inlet: Vec<u8>,
    arrived: Arrivals,
    showing: Showing,
    /// Whether the kernel took no more, and not all that was due since is given.
    is_blocked: bool,
    /// Datagrams that the kernel dropped before they were read here.
    overflowed: u64,
    receiver: Receiver,
}

impl FilmFlow {
    pub(crate) fn new(way: Way, film: Arc<Film>, (start, stop): (Time, Time)) -> Self {
        let showing = Showing::new(Arc::clone(&film), start);
        Self {
            way,
            film,
            start,
            stop,
            next: 0,
            scratch: Vec::new(),
            expected: (u64::MAX, Vec::new()),
            inlet: vec![0; MAX_DATAGRAM],
            arrived: Arrivals::default(),
            showing,
            is_blocked: false,
            overflowed: 0,
            receiver: Receiver::default(),
        }
    }

    /// Gives what is due by `now`; returns when to call again.
    pub(super) fn on_time(&mut self, now: Time, sending: &mut Sending) -> Time {
        while let Some(datagram) = self.film.datagram(self.next) {
            let due = self.start + datagram.at;
            if due >= self.stop {
                return Time::NEVER;
            }
            if due > now {
                self.is_blocked = false;
                return due;
            }
            self.scratch.clear();
            write(&self.film, self.next, &mut self.scratch);
            let called = sending.now();
            let source = &self.way.sockets.source;
            let sent = match &self.way.to {
                Some(to) => source.send_to(&self.scratch, to),
                None => source.send(&self.scratch),
            };
            if sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                self.is_blocked = true;
                return now + RETRY;
            }
            // On any other error the datagram counts as given, and does not arrive.
            if !self.is_blocked {
                sending.note(called, due);
            }
            self.showing.given(called, self.next);
            self.next += 1;
        }
        Time::NEVER
    }

    /// When to call again.
    pub(super) fn next(&self, now: Time) -> Time {
        if self.is_blocked {
            return now + RETRY;
        }
        let due = self.film.datagram(self.next).map(|datagram| self.start + datagram.at);
        due.filter(|due| *due < self.stop).unwrap_or(Time::NEVER)
    }

    /// Reads what has come out; `now` asks the clock.
    pub(super) fn receive(&mut self, now: impl Fn() -> Time) {
        let mut inlet = std::mem::take(&mut self.inlet);
        while let Ok(read) = sys::receive_stamped(self.way.sockets.sink.as_fd(), &mut inlet) {
            let came = Time::ZERO + now().since(Time::ZERO).saturating_sub(read.age);
            self.overflowed = self.overflowed.max(u64::from(read.lost));
            for packet in inlet[..read.length].chunks_exact(PACKET) {
                self.came(came, packet);
            }
        }
        self.inlet = inlet;
    }

    fn came(&mut self, now: Time, packet: &[u8]) {
        let Some(number) = number_in(packet) else { return };
        let (datagram, place) = (number >> PLACE_BITS, number & ((1 << PLACE_BITS) - 1));
        if datagram >= self.next {
            return;
        }
        if self.expected.0 != datagram {
            self.expected.0 = datagram;
            self.expected.1.clear();
            write(&self.film, datagram, &mut self.expected.1);
        }
        let given = self.expected.1.chunks_exact(PACKET).nth(place as usize);
        if given == Some(packet) && self.arrived.add(number) {
            self.showing.arrived(now, datagram, 1 << place);
        }
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, now: Time) {
        self.receive(|| now);
    }

    pub(crate) fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(crate) fn showing(&self) -> &Showing {
        &self.showing
    }

    /// Datagrams that came out and were lost before they were read, by this program's fault.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

/// Datagram `number` of a film, with its packets numbered, behind the bytes in `out`.
fn write(film: &Film, number: u64, out: &mut Vec<u8>) {
    let Some(datagram) = film.datagram(number) else { return };
    let from = out.len();
    film.write(&datagram, out);
    let packets = out[from..].chunks_exact_mut(PACKET);
    for (place, (packet, frame)) in packets.zip(film.frames(&datagram)).enumerate() {
        if frame.is_some()
            && let Some(digits) = filling(packet).and_then(|at| packet.get_mut(at..at + DIGITS))
        {
            let number = number << PLACE_BITS | place as u64;
            for (digit, byte) in digits.iter_mut().enumerate() {
                *byte = MARK | (number >> (BITS * digit as u32)) as u8 & ((1 << BITS) - 1);
            }
        }
    }
}

/// Where in a packet the number is: at the end of what fills its frame, or of the stuffing before that.
fn filling(packet: &[u8]) -> Option<usize> {
    let has_field = packet.get(3)? & 0x20 != 0;
    let payload = if has_field { 5 + usize::from(*packet.get(4)?) } else { 4 };
    let end = if payload + FILLED <= PACKET { PACKET } else { payload.min(PACKET) };
    end.checked_sub(DIGITS)
}

/// The number of a packet; `None` if it has none.
fn number_in(packet: &[u8]) -> Option<u64> {
    let at = filling(packet)?;
    let digits = packet.get(at..at + DIGITS)?;
    digits.iter().rev().try_fold(0, |number, digit| {
        (digit & !((1 << BITS) - 1) == MARK)
            .then(|| number << BITS | u64::from(digit & ((1 << BITS) - 1)))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ontempo_foundation::Rate;
    use ontempo_media::{Codec, Frame, FrameKind, FrameTable, Kind, Sending, TransportStreamIndex};

    use super::*;

    /// Pictures of all sizes, and sound.
    fn film(sending: &Sending) -> Film {
        let frame = |number: u32| {
            let kind = match number % 20 {
                0 => FrameKind::Key,
                1 | 3 => FrameKind::Sound,
                _ => FrameKind::Reference,
            };
            let depends_on = vec![];
            let made = Duration::from_millis(10) * u64::from(number);
            Frame { made, kind, size: 1 + number * 3, depends_on }
        };
        let period = Duration::from_secs(4);
        let frames = (0..400).map(frame).collect();
        Film::new(FrameTable { codec: Codec::H264, frames, period }, sending)
    }

    #[test]
    fn each_packet_of_a_frame_is_known_by_its_number_and_the_stream_is_as_it_was() {
        let rate = Rate::from_bits_per_sec(4_000_000);
        for sending in [Sending::Bursts, Sending::Paced { rate, stuffing: true }] {
            let film = film(&sending);
            let (mut plain, mut numbered) = (Vec::new(), Vec::new());
            let mut known = BTreeSet::new();
            for number in 0..2_000 {
                let datagram = film.datagram(number).expect("it has datagrams");
                film.write(&datagram, &mut plain);
                let from = numbered.len();
                write(&film, number, &mut numbered);
                let packets = numbered[from..].chunks_exact(PACKET);
                for (place, (packet, frame)) in packets.zip(film.frames(&datagram)).enumerate() {
                    if frame.is_some() {
                        let own = number << PLACE_BITS | place as u64;
                        assert_eq!(number_in(packet), Some(own));
                        assert!(known.insert(packet.to_vec()), "two packets are alike");
                    }
                }
            }
            let read = |bytes: &[u8]| -> Vec<(Kind, usize)> {
                let index = TransportStreamIndex::read(bytes).expect("a transport stream");
                index.units.iter().map(|unit| (unit.kind, unit.size)).collect()
            };
            assert_eq!(read(&plain), read(&numbered));
        }
    }

    #[test]
    fn what_is_no_packet_of_a_film_has_no_number_or_one_that_was_not_given() {
        for bytes in [vec![], vec![0x47; 3], vec![0xff; PACKET], vec![0x47, 0, 0, 0x20, 255]] {
            assert_eq!(number_in(&bytes), None);
        }
        let mut far = vec![0xbf; PACKET];
        (far[3], far[4]) = (0x10, 0);
        assert_eq!(number_in(&far), Some((1 << 48) - 1));
    }
}
