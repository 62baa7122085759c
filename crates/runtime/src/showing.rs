//! What a viewer sees of a film that a flow carries: which frames arrive, when, and which of them can
//! be decoded.

use std::sync::Arc;

use ontempo_foundation::{Duration, Time};
use ontempo_media::{Film, FrameKind};

/// A gap between pictures is a freeze if it is longer than three mean gaps, and by more than this
/// longer than one (W3C, Identifiers for WebRTC's Statistics API, `freezeCount`).
const FREEZE: Duration = Duration::from_millis(150);

/// What has arrived of a film.
#[derive(Debug)]
pub struct Showing {
    film: Arc<Film>,
    start: Time,
    /// By frame: the packets that have arrived, and when the last did.
    frames: Vec<(u32, Time)>,
    /// By frame: when its last packet was given to the transport, where that is not as due.
    given: Vec<Time>,
}

/// The same, of a film that arrives as a stream of bytes.
#[derive(Debug)]
pub struct ShownStream {
    showing: Showing,
    /// The next datagram of the film, and the bytes up to its end.
    next: u64,
    end: u64,
}

/// A frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShownFrame {
    /// Its number, from 0 over all rounds of the film.
    pub number: u64,
    /// What it is.
    pub kind: FrameKind,
    /// Bytes of the elementary stream.
    pub size: u32,
    /// When its last packet was given to the transport.
    pub sent: Time,
    /// From then until all of it had been given to the receiving application; `None`: never.
    pub latency: Option<Duration>,
    /// The least latency of a player at which it can be decoded: the largest of its own and of those
    /// that it depends on. `None`: never.
    pub decodable: Option<Duration>,
}

/// The film as a player shows it that waits for a fixed latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shown {
    /// Pictures sent, and those that can be decoded on time.
    pub pictures: (u64, u64),
    /// Frames of sound sent, and those on time.
    pub sound: (u64, u64),
    /// Freezes of the picture.
    pub freezes: u64,
    /// The longest of them.
    pub longest: Duration,
    /// All of them together.
    pub frozen: Duration,
}

impl Showing {
    /// Of a film that begins at `start`.
    pub fn new(film: Arc<Film>, start: Time) -> Self {
        Self { film, start, frames: Vec::new(), given: Vec::new() }
    }

    /// The film.
    pub fn film(&self) -> &Arc<Film> {
        &self.film
    }

    /// Datagram `number` was given to the transport at `now`. Datagrams of which this is not told were given
    /// when they were due.
    pub fn given(&mut self, now: Time, number: u64) {
        let Some(sent) = self.film.datagram(number) else { return };
        for frame in self.film.frames(&sent).flatten() {
            let Ok(frame) = usize::try_from(frame) else { continue };
            if self.given.len() <= frame {
                self.given.resize(frame + 1, Time::ZERO);
            }
            self.given[frame] = now.max(self.given[frame]);
        }
    }

    /// Datagram `number` has been given to the receiving application, or of its transport packets those
    /// whose bit is set in `packets`; each packet once.
    pub fn arrived(&mut self, now: Time, number: u64, packets: u64) {
        let Some(sent) = self.film.datagram(number) else { return };
        for (place, frame) in self.film.frames(&sent).enumerate() {
            let Some(frame) = frame.and_then(|frame| usize::try_from(frame).ok()) else { continue };
            if packets >> place & 1 == 0 {
                continue;
            }
            if self.frames.len() <= frame {
                self.frames.resize(frame + 1, (0, Time::ZERO));
            }
            let (count, last) = &mut self.frames[frame];
            *count += 1;
            *last = now.max(*last);
        }
    }

    /// Bytes of the transport stream given to the transport from `from` on and before `until`.
    pub fn bytes(&self, from: Time, until: Time) -> u64 {
        let mut bytes = 0;
        for number in 0.. {
            let Some(datagram) = self.film.datagram(number) else { break };
            let at = self.start + datagram.at;
            if at >= until {
                break;
            }
            bytes += if at >= from { datagram.size() as u64 } else { 0 };
        }
        bytes
    }

    /// The frames that are sent whole from `from` on and before `until`, in the order of sending.
    pub fn shown(&self, from: Time, until: Time) -> Vec<ShownFrame> {
        let table = &self.film.table().frames;
        let each = table.len() as u64;
        let mut decodable: Vec<Option<Duration>> = Vec::new();
        let mut shown = Vec::new();
        for number in 0.. {
            let Some(last) = self.film.last_datagram_of(number) else { break };
            let sent = self.start + last;
            // Frames of sound and pictures overlap by less than a round.
            if sent >= until + self.film.period() {
                break;
            }
            let frame = &table[(number % each) as usize];
            let record = self.frames.get(number as usize);
            let whole = record.filter(|(count, _)| *count == self.film.packets_of(number));
            let due = sent;
            let sent = self.given.get(number as usize).map_or(sent, |given| sent.max(*given));
            let latency = whole.map(|(_, arrived)| arrived.since(sent));
            let round = number - number % each;
            let needs = frame
                .depends_on
                .iter()
                .map(|on| decodable.get((round + u64::from(*on)) as usize).copied().flatten());
            let least = needs.fold(latency, |most, one| Some(most?.max(one?)));
            decodable.push(least);
            if due >= from && due < until {
                let (kind, size) = (frame.kind, frame.size);
                shown.push(ShownFrame { number, kind, size, sent, latency, decodable: least });
            }
        }
        shown
    }
}

impl ShownStream {
    /// Of nothing yet.
    pub fn new(showing: Showing) -> Self {
        let end = size_of(&showing, 0);
        Self { showing, next: 0, end }
    }

    /// The first `bytes` of the stream have been given to the receiving application.
    pub fn arrived_up_to(&mut self, now: Time, bytes: u64) {
        while self.end <= bytes {
            self.showing.arrived(now, self.next, u64::MAX);
            self.next += 1;
            self.end += size_of(&self.showing, self.next);
        }
    }

    /// What has arrived.
    pub fn showing(&self) -> &Showing {
        &self.showing
    }

    /// The same, for datagrams that arrive by themselves.
    pub fn showing_mut(&mut self) -> &mut Showing {
        &mut self.showing
    }
}

/// Bytes of a datagram of the film.
fn size_of(showing: &Showing, number: u64) -> u64 {
    showing.film().datagram(number).map_or(u64::MAX / 2, |datagram| datagram.size() as u64)
}

impl Shown {
    /// The film for a player that shows each frame `latency` after it was sent. Frames that are due
    /// after `until` are not counted.
    pub fn of(frames: &[ShownFrame], latency: Duration, until: Time) -> Self {
        let mut shown = Self::default();
        let due = frames.iter().filter(|frame| frame.sent + latency <= until);
        let (mut first, mut last_sent): (Option<Time>, Option<Time>) = (None, None);
        let mut gaps: Vec<Duration> = Vec::new();
        let mut before: Option<Time> = None;
        for frame in due {
            let is_on_time = frame.decodable.is_some_and(|least| least <= latency);
            let counts =
                if frame.kind == FrameKind::Sound { &mut shown.sound } else { &mut shown.pictures };
            counts.0 += 1;
            counts.1 += u64::from(is_on_time);
            if frame.kind == FrameKind::Sound {
                continue;
            }
            first = first.or(Some(frame.sent));
            last_sent = Some(frame.sent);
            if is_on_time {
                let since = before.or(first).unwrap_or(frame.sent);
                gaps.push(frame.sent.since(since));
                before = Some(frame.sent);
            }
        }
        let (Some(first), Some(last)) = (first, last_sent) else { return shown };
        gaps.push(last.since(before.unwrap_or(first)));
        let mean = last.since(first) / shown.pictures.0.saturating_sub(1).max(1);
        let limit = (mean * 3).max(mean + FREEZE);
        for gap in gaps.into_iter().filter(|gap| *gap > limit) {
            shown.freezes += 1;
            shown.longest = shown.longest.max(gap);
            shown.frozen += gap;
        }
        shown
    }
}

/// A quantile of the latencies of the frames that arrived; `None` if none did.
pub fn latency_quantile(frames: &[ShownFrame], share: f64) -> Option<Duration> {
    let mut latencies: Vec<Duration> = frames.iter().filter_map(|frame| frame.latency).collect();
    latencies.sort_unstable();
    let place = (share * latencies.len() as f64).ceil() as usize;
    latencies.get(place.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use ontempo_media::{Codec, Frame, FrameTable, Sending};

    use super::*;

    const EACH: Duration = Duration::from_millis(40);

    /// Ten pictures in 0.4 s, of which each depends on the one before and the first on none.
    fn film() -> Arc<Film> {
        let frames = (0..10u32).map(|number| Frame {
            made: EACH * u64::from(number),
            kind: if number == 0 { FrameKind::Key } else { FrameKind::Reference },
            size: 3_000,
            depends_on: if number == 0 { vec![] } else { vec![number - 1] },
        });
        let period = Duration::from_millis(400);
        let table = FrameTable { codec: Codec::H264, frames: frames.collect(), period };
        Arc::new(Film::new(table, &Sending::Bursts))
    }

    fn end(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    /// Each datagram arrives `delay` after its sending but those that `lost` names.
    fn received(delay: impl Fn(u64) -> Option<Duration>, until: Time) -> Showing {
        let film = film();
        let mut showing = Showing::new(film.clone(), Time::ZERO);
        for number in 0.. {
            let datagram = film.datagram(number).expect("it has datagrams");
            let at = Time::ZERO + datagram.at;
            if at >= until {
                return showing;
            }
            if let Some(delay) = delay(number) {
                showing.arrived(at + delay, number, u64::MAX);
            }
        }
        showing
    }

    #[test]
    fn a_film_that_arrives_whole_is_decodable_from_its_delay_on() {
        let delay = Duration::from_millis(90);
        let showing = received(|_| Some(delay), end(4.0));
        let frames = showing.shown(Time::ZERO, end(4.0));
        assert_eq!(frames.len(), 100);
        assert!(frames.iter().all(|frame| frame.decodable == Some(delay)));
        let on_time = Shown::of(&frames, delay, end(4.0));
        // The last frames are due after the end.
        assert_eq!((on_time.pictures, on_time.freezes), ((98, 98), 0));
        let late = Shown::of(&frames, delay - Duration::from_millis(1), end(4.0));
        assert_eq!(late.pictures.1, 0);
        assert_eq!((late.freezes, late.frozen), (1, EACH * 97));
        assert_eq!(latency_quantile(&frames, 0.99), Some(delay));
    }

    #[test]
    fn a_lost_packet_costs_the_frames_that_depend_on_its_frame_until_the_next_key() {
        let delay = Duration::from_millis(10);
        let film = film();
        // A datagram of the fourth picture.
        let lost = (0..).find(|number| {
            let datagram = film.datagram(*number).expect("it has datagrams");
            film.frames(&datagram).flatten().any(|frame| frame == 3)
        });
        let showing = received(|number| (Some(number) != lost).then_some(delay), end(1.2));
        let frames = showing.shown(Time::ZERO, end(1.2));
        let whole = |frame: &&ShownFrame| frame.latency.is_some();
        assert_eq!(frames.iter().filter(whole).count(), 29);
        let shown = Shown::of(&frames, Duration::from_millis(100), end(2.0));
        assert_eq!(shown.pictures, (30, 23));
        // From the third picture to the eleventh.
        assert_eq!((shown.freezes, shown.longest, shown.frozen), (1, EACH * 8, EACH * 8));
    }

    #[test]
    fn a_frame_that_was_given_late_is_as_old_as_its_giving() {
        let (delay, late) = (Duration::from_millis(90), Duration::from_millis(7));
        let mut showing = received(|_| Some(delay), end(0.4));
        let film = film();
        let of_third = |number: &u64| {
            let datagram = film.datagram(*number).expect("it has datagrams");
            film.frames(&datagram).flatten().any(|frame| frame == 3)
        };
        for number in (0..40).filter(of_third) {
            let datagram = film.datagram(number).expect("it has datagrams");
            showing.given(Time::ZERO + datagram.at + late, number);
        }
        let frames = showing.shown(Time::ZERO, end(0.4));
        assert_eq!(frames.len(), 10);
        assert_eq!(frames[2].latency, Some(delay));
        assert_eq!(
            (frames[3].latency, frames[3].sent),
            (Some(delay - late), Time::ZERO + EACH * 3 + late)
        );
    }

    #[test]
    fn a_late_frame_makes_those_after_it_decodable_no_sooner() {
        let slow = Duration::from_millis(300);
        let showing = received(
            |number| Some(if number == 0 { slow } else { Duration::from_millis(10) }),
            end(0.4),
        );
        let frames = showing.shown(Time::ZERO, end(0.4));
        assert_eq!(frames[5].latency, Some(Duration::from_millis(10)));
        // The first picture's last packet is in its second datagram or later.
        assert!(frames.iter().all(|frame| frame.decodable == Some(slow)));
    }
}
