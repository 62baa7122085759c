//! Traffic sources: how many packets a flow's application has offered up to a given time.
//!
//! A source is polled rather than run by events: while the transport lags behind, a constant
//! bit rate costs no event per packet, since the number of packets offered by now is a division.

use std::collections::VecDeque;
use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, RandomStream, Time};
use ontempo_media::Film;

/// The application of a flow, which offers its packets.
#[derive(Clone, Debug)]
pub enum Source {
    /// As many packets as the transport accepts.
    Ftp,
    /// A fixed number of packets.
    File {
        /// Number of packets.
        packets: u64,
    },
    /// One packet per interval.
    Cbr(Cbr),
    /// One packet per interval while on.
    OnOff(Box<OnOff>),
    /// A web user.
    Http(Box<Http>),
    /// Messages of one packet each, from an application that blocks while writing.
    Paced(Box<Paced>),
    /// One message for each prompt.
    Prompted(Box<Prompted>),
    /// A film, written to a stream of bytes.
    Film(Box<FilmSource>),
}

/// A message of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// When the application made it and began to write it.
    pub made: Time,
    /// When the transport had accepted it.
    pub written: Time,
    /// Payload in bytes, without headers.
    pub payload: Bytes,
}

impl Source {
    /// Packets offered until `now`, since the start.
    #[inline]
    pub fn offered(&mut self, now: Time) -> u64 {
        if matches!(self, Self::Ftp) {
            return u64::MAX;
        }
        self.offered_until(now)
    }

    #[inline(never)]
    fn offered_until(&mut self, now: Time) -> u64 {
        match self {
            Self::Ftp => u64::MAX,
            Self::File { packets } => *packets,
            Self::Cbr(cbr) => cbr.offered(now),
            Self::OnOff(on_off) => on_off.offered(now),
            Self::Http(http) => http.offered(now),
            Self::Paced(paced) => paced.offered(now),
            Self::Prompted(prompted) => prompted.offered(now),
            Self::Film(film) => film.offered(now),
        }
    }

    /// The next time at which [`offered`](Self::offered) exceeds its value at `now`;
    /// [`Time::NEVER`] if that depends on acknowledgements.
    #[inline]
    pub fn next_offer(&self, now: Time) -> Time {
        match self {
            Self::Ftp | Self::File { .. } => Time::NEVER,
            Self::Cbr(cbr) => cbr.next_offer(now),
            Self::OnOff(on_off) => on_off.next,
            Self::Http(http) => http.page_begins.unwrap_or(Time::NEVER),
            Self::Paced(paced) => paced.next_offer(),
            Self::Prompted(prompted) => prompted.begins.unwrap_or(Time::NEVER),
            Self::Film(film) => film.next,
        }
    }

    /// Packets below `acknowledged` have arrived; true if a transfer finished with them.
    #[inline]
    pub fn on_acknowledged(&mut self, now: Time, acknowledged: u64) -> bool {
        match self {
            Self::File { packets } => acknowledged == *packets,
            Self::Http(http) => http.on_acknowledged(now, acknowledged),
            Self::Paced(paced) => {
                paced.on_acknowledged(now, acknowledged);
                false
            }
            _ => false,
        }
    }

    /// Makes a prompted source send its next message.
    pub fn prompt(&mut self, now: Time) {
        if let Self::Prompted(prompted) = self {
            prompted.prompt(now);
        }
    }

    /// The message that packet `number` completes, for packets that arrive in order; each message
    /// is returned once. Packets carry `payload` each.
    pub fn completed(&mut self, number: u64, payload: Bytes) -> Option<Message> {
        match self {
            Self::Cbr(_) => {
                self.due(number).map(|due| Message { made: due, written: due, payload })
            }
            Self::Paced(paced) => paced.unread.pop_front(),
            Self::Prompted(prompted) => prompted.completed(number),
            _ => None,
        }
    }

    /// Messages given to the transport that were never [`completed`](Self::completed): those in
    /// packets from `next` up to, but not including, `offered`.
    pub fn incomplete(&self, next: u64, offered: u64, payload: Bytes) -> Vec<Message> {
        match self {
            Self::Cbr(_) => (next..offered)
                .filter_map(|number| self.due(number))
                .map(|due| Message { made: due, written: due, payload })
                .collect(),
            Self::Paced(paced) => paced.unread.iter().copied().collect(),
            Self::Prompted(prompted) => {
                prompted.unread.iter().map(|(_, message)| *message).collect()
            }
            _ => Vec::new(),
        }
    }

    /// When unit `number` of a constant bit rate is due to be sent.
    pub fn due(&self, number: u64) -> Option<Time> {
        match self {
            Self::Cbr(cbr) => Some(cbr.start + cbr.interval * number),
            _ => None,
        }
    }
}

/// A film whose datagrams are written to a stream as they are due. The packet that holds the last byte
/// written is offered at once and whole: what is written next fills it up.
#[derive(Clone, Debug)]
pub struct FilmSource {
    film: Arc<Film>,
    start: Time,
    /// Payload of a packet in bytes.
    payload: u64,
    datagram: u64,
    bytes: u64,
    /// When the next datagram is written.
    next: Time,
}

impl FilmSource {
    /// The film begins at `start`; packets carry `payload` bytes each.
    pub fn new(film: Arc<Film>, start: Time, payload: Bytes) -> Self {
        let next = film.datagram(0).map_or(Time::NEVER, |first| start + first.at);
        Self { film, start, payload: payload.get().max(1), datagram: 0, bytes: 0, next }
    }

    fn offered(&mut self, now: Time) -> u64 {
        while self.next <= now
            && let Some(written) = self.film.datagram(self.datagram)
        {
            self.bytes += written.size() as u64;
            self.datagram += 1;
            let next = self.film.datagram(self.datagram);
            self.next = next.map_or(Time::NEVER, |next| self.start + next.at);
        }
        self.bytes.div_ceil(self.payload)
    }
}

/// A constant bit rate: unit `i` is offered at `start + i * interval`.
#[derive(Clone, Copy, Debug)]
pub struct Cbr {
    pub(crate) start: Time,
    pub(crate) interval: Duration,
}

impl Cbr {
    fn offered(&self, now: Time) -> u64 {
        if now < self.start {
            return 0;
        }
        now.since(self.start).as_nanos() / self.interval.as_nanos() + 1
    }

    fn next_offer(&self, now: Time) -> Time {
        self.start + self.interval * self.offered(now)
    }
}

/// Most times on that one interval may last: shorter ones are not the traffic of any application, and
/// would take a draw each.
const MAX_TIMES_ON: u32 = 1_000;

/// A constant bit rate while on, nothing while off. Times on and off are exponential, or Pareto
/// if a tail exponent is given (Willinger et al., 1997: heavy tails add up to self-similar
/// traffic). An interval that has not passed when a time on ends goes on in the next, so that the mean
/// rate is that of the times on, however short they are.
#[derive(Clone, Debug)]
pub struct OnOff {
    interval: Duration,
    on: Duration,
    off: Duration,
    shape: Option<f64>,
    random: RandomStream,
    offered: u64,
    next: Time,
    on_until: Time,
}

impl OnOff {
    pub(crate) fn new(
        start: Time,
        interval: Duration,
        (on, off): (Duration, Duration),
        shape: Option<f64>,
        random: RandomStream,
    ) -> Self {
        let mut source =
            Self { interval, on, off, shape, random, offered: 0, next: start, on_until: start };
        source.on_until = start + source.draw(on);
        source
    }

    fn draw(&mut self, mean: Duration) -> Duration {
        let seconds = mean.as_secs_f64();
        Duration::from_secs_f64(match self.shape {
            Some(shape) => self.random.pareto(seconds * (shape - 1.0) / shape, shape),
            None => self.random.exponential(seconds),
        })
    }

    fn offered(&mut self, now: Time) -> u64 {
        while self.next <= now {
            self.offered += 1;
            self.next += self.interval;
            for _ in 0..MAX_TIMES_ON {
                if self.next < self.on_until {
                    break;
                }
                let pause = self.draw(self.off);
                self.next += pause;
                self.on_until = self.on_until + pause + self.draw(self.on);
            }
        }
        self.offered
    }
}

/// Makes a message, writes it, waits, makes the next; a write blocks until there is
/// buffer space in the transport.
#[derive(Clone, Debug)]
pub struct Paced {
    interval: (Duration, Duration),
    /// Maximum number of packets in the transport, unsent or unacknowledged.
    buffer: u64,
    payload: Bytes,
    random: RandomStream,
    /// When the next message is made.
    next: Time,
    offered: u64,
    acknowledged: u64,
    /// The next message has been made and waits for buffer space.
    is_blocked: bool,
    /// When the last wait for buffer space ended.
    room_since: Time,
    /// Messages written that have not arrived, oldest first; recorded if packets arrive in order.
    unread: VecDeque<Message>,
    keeps_unread: bool,
}

impl Paced {
    pub(crate) fn new(
        start: Time,
        interval: (Duration, Duration),
        buffer: Option<u64>,
        payload: Bytes,
        keeps_unread: bool,
        random: RandomStream,
    ) -> Self {
        Self {
            interval,
            buffer: buffer.unwrap_or(u64::MAX),
            payload,
            random,
            next: start,
            offered: 0,
            acknowledged: 0,
            is_blocked: false,
            room_since: start,
            unread: VecDeque::new(),
            keeps_unread,
        }
    }

    fn offered(&mut self, now: Time) -> u64 {
        while self.next <= now {
            if self.offered - self.acknowledged >= self.buffer {
                self.is_blocked = true;
                break;
            }
            let written = self.next.max(self.room_since);
            if self.keeps_unread {
                let message = Message { made: self.next, written, payload: self.payload };
                self.unread.push_back(message);
            }
            self.offered += 1;
            let (low, high) = self.interval;
            let wait = if low < high { self.random.duration_between(low, high) } else { low };
            self.next = written + wait;
        }
        self.offered
    }

    fn next_offer(&self) -> Time {
        if self.is_blocked { Time::NEVER } else { self.next }
    }

    fn on_acknowledged(&mut self, now: Time, acknowledged: u64) {
        self.acknowledged = acknowledged;
        if self.is_blocked {
            self.is_blocked = false;
            self.room_since = now;
        }
    }
}

/// One message per prompt, of uniformly distributed size.
#[derive(Clone, Debug)]
pub struct Prompted {
    /// Smallest and largest message in bytes.
    size: (Bytes, Bytes),
    /// Payload of a packet in bytes.
    payload: Bytes,
    random: RandomStream,
    /// When it sends once without a prompt.
    begins: Option<Time>,
    offered: u64,
    /// Messages that have not arrived completely, oldest first, each with the number that follows
    /// its last packet.
    unread: VecDeque<(u64, Message)>,
}

impl Prompted {
    pub(crate) fn new(
        begins: Option<Time>,
        size: (Bytes, Bytes),
        payload: Bytes,
        random: RandomStream,
    ) -> Self {
        Self { size, payload, random, begins, offered: 0, unread: VecDeque::new() }
    }

    fn prompt(&mut self, now: Time) {
        let (least, most) = (self.size.0.get(), self.size.1.get());
        let drawn = self.random.uniform_between(least as f64, most as f64 + 1.0) as u64;
        let size = drawn.clamp(least, most);
        self.offered += size.div_ceil(self.payload.get().max(1));
        let message = Message { made: now, written: now, payload: Bytes::new(size) };
        self.unread.push_back((self.offered, message));
    }

    fn offered(&mut self, now: Time) -> u64 {
        if let Some(begins) = self.begins.filter(|begins| *begins <= now) {
            self.begins = None;
            self.prompt(begins);
        }
        self.offered
    }

    fn completed(&mut self, number: u64) -> Option<Message> {
        let is_whole = self.unread.front().is_some_and(|(end, _)| *end == number + 1);
        if is_whole { self.unread.pop_front().map(|(_, message)| message) } else { None }
    }
}

/// Parameters of a web user (Barford and Crovella, SIGMETRICS 1998).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLaws {
    pub(crate) think: Duration,
    pub(crate) think_shape: f64,
    pub(crate) objects: f64,
    pub(crate) objects_shape: f64,
    /// Mean size of an object in packets.
    pub(crate) size: f64,
    pub(crate) size_shape: f64,
}

/// A web user: thinks, fetches the objects of a page one after the other, thinks again.
///
/// All three distributions are Pareto, truncated at 100 times the mean, so that one draw cannot
/// dominate a run; the mean after truncation is slightly below the configured one.
#[derive(Clone, Debug)]
pub struct Http {
    laws: HttpLaws,
    random: RandomStream,
    offered: u64,
    objects_left: u64,
    page_begins: Option<Time>,
}

impl Http {
    pub(crate) fn new(start: Time, laws: HttpLaws, random: RandomStream) -> Self {
        let mut user = Self { laws, random, offered: 0, objects_left: 0, page_begins: None };
        user.page_begins = Some(start + user.think());
        user
    }

    fn draw(&mut self, mean: f64, shape: f64) -> f64 {
        self.random.pareto(mean * (shape - 1.0) / shape, shape).min(100.0 * mean)
    }

    fn think(&mut self) -> Duration {
        Duration::from_secs_f64(self.draw(self.laws.think.as_secs_f64(), self.laws.think_shape))
    }

    fn begin_object(&mut self) {
        let packets = self.draw(self.laws.size, self.laws.size_shape).ceil() as u64;
        self.offered += packets.max(1);
        self.objects_left -= 1;
    }

    fn offered(&mut self, now: Time) -> u64 {
        if self.page_begins.is_some_and(|begins| begins <= now) {
            self.page_begins = None;
            let objects = self.draw(self.laws.objects, self.laws.objects_shape).round() as u64;
            self.objects_left = objects.max(1);
            self.begin_object();
        }
        self.offered
    }

    fn on_acknowledged(&mut self, now: Time, acknowledged: u64) -> bool {
        if acknowledged < self.offered || self.page_begins.is_some() {
            return false;
        }
        if self.objects_left > 0 {
            self.begin_object();
            return false;
        }
        self.page_begins = Some(now + self.think());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_bit_rate_offers_one_unit_per_interval_and_returns_when_the_next_is_due() {
        let start = Time::from_secs_f64(1.0);
        let mut source = Source::Cbr(Cbr { start, interval: Duration::from_millis(20) });
        assert_eq!(source.offered(Time::from_secs_f64(0.9)), 0);
        assert_eq!(source.next_offer(Time::ZERO), start);
        assert_eq!(source.offered(Time::from_secs_f64(1.05)), 3);
        assert_eq!(source.next_offer(Time::from_secs_f64(1.05)), Time::from_secs_f64(1.06));
        assert_eq!(source.due(3), Some(Time::from_secs_f64(1.06)));
    }

    #[test]
    fn an_application_that_blocks_makes_its_next_message_after_the_one_that_waited() {
        let millis = Duration::from_millis(10);
        let random = RandomStream::new(1, "paced");
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut paced =
            Paced::new(at(0), (millis, millis), Some(2), Bytes::new(1024), true, random);
        assert_eq!(paced.offered(at(5)), 1);
        assert_eq!(paced.offered(at(35)), 2, "the third waits for room from 20 ms on");
        assert_eq!(paced.next_offer(), Time::NEVER);
        paced.on_acknowledged(at(40), 1);
        assert_eq!(paced.offered(at(40)), 3);
        assert_eq!(paced.next_offer(), at(50));
        let third = paced.unread[2];
        assert_eq!((third.made, third.written), (at(20), at(40)));
    }

    #[test]
    fn a_prompted_message_is_complete_with_its_last_packet() {
        let size = (Bytes::new(3000), Bytes::new(3000));
        let random = RandomStream::new(1, "prompted");
        let mut source = Prompted::new(None, size, Bytes::new(1460), random);
        assert_eq!(source.offered(Time::ZERO), 0);
        source.prompt(Time::ZERO);
        assert_eq!(source.offered(Time::ZERO), 3);
        assert_eq!(source.completed(1), None);
        assert_eq!(source.completed(2).map(|message| message.payload), Some(Bytes::new(3000)));
        assert_eq!(source.completed(2), None);
    }

    #[test]
    fn an_on_off_source_is_on_for_its_share_of_the_time() {
        let random = RandomStream::new(3, "on-off");
        let (on, off) = (Duration::from_millis(500), Duration::from_millis(1500));
        let mut source = OnOff::new(Time::ZERO, Duration::from_millis(10), (on, off), None, random);
        let offered = source.offered(Time::from_secs_f64(20_000.0));
        let share = offered as f64 / 2_000_000.0;
        assert!((share - 0.25).abs() < 0.01, "on for {share} of the time");
    }

    #[test]
    fn an_on_off_source_has_its_mean_rate_however_short_its_times_on() {
        let millis = Duration::from_millis;
        let offered = |on, off, shape| {
            let random = RandomStream::new(3, "on-off");
            let mut source = OnOff::new(Time::ZERO, millis(100), (on, off), shape, random);
            source.offered(Time::from_secs_f64(20_000.0))
        };
        for (on, shape) in
            [(millis(350), None), (millis(100), None), (millis(1), None), (millis(100), Some(1.9))]
        {
            let share = offered(on, on, shape) as f64 / 200_000.0;
            assert!((share - 0.5).abs() < 0.01, "on for {share} of the time, {on} each");
        }
        // Without pauses it is a constant bit rate.
        assert_eq!(offered(millis(1), Duration::ZERO, None), 200_001);
        // Bounded work for what is absurd.
        assert!(offered(Duration::from_nanos(1), millis(1), None) > 0);
    }

    #[test]
    fn a_web_user_thinks_between_pages_and_fetches_objects_one_by_one() {
        let laws = HttpLaws {
            think: Duration::from_secs(10),
            think_shape: 1.4,
            objects: 1.7,
            objects_shape: 2.43,
            size: 12.0,
            size_shape: 1.2,
        };
        let mut user = Http::new(Time::ZERO, laws, RandomStream::new(1, "user"));
        let mut now = Time::ZERO;
        for _page in 0..200 {
            now = user.page_begins.expect("a page is due");
            let mut acknowledged = user.offered(now);
            while !user.on_acknowledged(now, acknowledged) {
                let more = user.offered(now);
                assert!(more > acknowledged, "the next object begins when one has arrived");
                acknowledged = more;
            }
            assert!(user.page_begins.expect("it thinks") > now);
        }
        assert!(now.as_secs_f64() > 200.0 * 2.0);
    }
}
