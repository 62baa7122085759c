//! Streams over paths that bear less than they need, that lose packets, whose packets overtake each other, or that pause,
//! in virtual time.

use std::collections::VecDeque;

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_mechanisms::congestion::CongestionName;
use ontempo_media::{
    Film, FrameKind, GeneratorParameters, RestoredDatagram, Sending, generate, ts::PACKET,
};
use ontempo_session::simulated::{End, Stream, StreamOptions};
use ontempo_transport::{DeliveryOrder, Reliability};

/// Bytes of UDP and IP headers.
const HEADERS: usize = 28;

/// From when frames are counted: after the first group of pictures.
const FROM: Duration = Duration::from_millis(2_100);

/// Seeds whose mean counts: a start differs from seed to seed.
const SEEDS: u64 = 8;

/// Packets that wait for the link at most.
const QUEUE: usize = 100;

/// A link of a rate, with a delay and a queue.
struct Link {
    rate: Rate,
    delay: Duration,
    /// A packet takes up to so much longer, and overtakes others.
    jitter: Duration,
    /// The share of packets that are lost at random.
    loss: f64,
    random: RandomStream,
    /// What is sent then is lost.
    outage: (Time, Time),
    free: Time,
    /// When each packet has left the queue and when it arrives, in the order of arriving.
    packets: VecDeque<(Time, Time, Vec<u8>)>,
}

impl Link {
    fn new(case: &Case, name: &str) -> Self {
        Self {
            rate: Rate::from_bits_per_sec(case.kbit_s * 1_000),
            delay: case.rtt / 2,
            jitter: case.jitter,
            loss: case.loss,
            random: RandomStream::new(case.seed, name),
            outage: case.outage,
            free: Time::ZERO,
            packets: VecDeque::new(),
        }
    }

    fn send(&mut self, now: Time, data: Vec<u8>) {
        let (begins, ends) = self.outage;
        let is_full = self.packets.iter().filter(|(left, ..)| *left > now).count() >= QUEUE;
        if is_full || begins <= now && now < ends {
            return;
        }
        let size = Bytes::new((data.len() + HEADERS) as u64);
        self.free = self.free.max(now) + self.rate.time_to_send(size);
        let more = self.random.duration_between(Duration::ZERO, self.jitter);
        let arrives = self.free + self.delay + more;
        if self.random.chance(self.loss) {
            return;
        }
        let place = self.packets.partition_point(|(_, at, _)| *at <= arrives);
        self.packets.insert(place, (self.free, arrives, data));
    }

    fn next(&self) -> Time {
        self.packets.front().map_or(Time::NEVER, |(_, at, _)| *at)
    }
}

/// What a player has of a film.
struct Player {
    film: Film,
    /// Packets of each frame, and when the last came.
    frames: Vec<(u32, Time)>,
}

impl Player {
    fn take(&mut self, now: Time, restored: &RestoredDatagram) {
        let Some(sent) = self.film.datagram(restored.datagram) else { return };
        let mut all = Vec::new();
        self.film.write(&sent, &mut all);
        let mut there = restored.data.chunks_exact(PACKET).peekable();
        for (packet, frame) in all.chunks_exact(PACKET).zip(self.film.frames(&sent)) {
            if there.next_if(|next| *next == packet).is_some()
                && let Some(frame) = frame
            {
                let frame = frame as usize;
                self.frames.resize(self.frames.len().max(frame + 1), (0, Time::ZERO));
                self.frames[frame] = (self.frames[frame].0 + 1, now);
            }
        }
    }

    /// Shares of pictures and of sound, percent, that can be decoded in time, of frames sent from
    /// [`FROM`] on.
    fn shares(&self, until: Duration, latency: Duration) -> (f64, f64) {
        let table = &self.film.table().frames;
        let (mut decodable, mut counts) = (Vec::new(), [(0u32, 0u32); 2]);
        for number in 0u64.. {
            let Some(sent) = self.film.last_datagram_of(number) else { break };
            if sent + latency > until {
                break;
            }
            let each = table.len() as u64;
            let frame = &table[(number % each) as usize];
            let came = self.frames.get(number as usize).copied().unwrap_or((0, Time::ZERO));
            let round = (number - number % each) as usize;
            let is_good = came.0 == self.film.packets_of(number)
                && came.1 <= Time::ZERO + sent + latency
                && frame.depends_on.iter().all(|on| decodable[round + *on as usize]);
            decodable.push(is_good);
            if sent >= FROM {
                let count = &mut counts[usize::from(frame.kind == FrameKind::Sound)];
                *count = (count.0 + 1, count.1 + u32::from(is_good));
            }
        }
        let share = |(all, good): (u32, u32)| f64::from(good) * 100.0 / f64::from(all.max(1));
        (share(counts[0]), share(counts[1]))
    }
}

struct Case {
    kbit_s: u64,
    rtt: Duration,
    buffer: Duration,
    lasts: Duration,
    seed: u64,
    order: DeliveryOrder,
    jitter: Duration,
    loss: f64,
    outage: (Time, Time),
}

/// Sends a film of 4 Mbit/s, a key picture each 2 s, and returns the shares of pictures and sound
/// that can be decoded on time.
fn carry(case: &Case) -> (f64, f64) {
    let table = generate(&GeneratorParameters {
        rate: Rate::from_bits_per_sec(3_400_000),
        is_constant: true,
        ..GeneratorParameters::default()
    });
    let sending = Sending::Paced { rate: Rate::from_bits_per_sec(4_000_000), stuffing: true };
    let mut player =
        Player { film: Film::new(table.expect("a film"), &sending), frames: Vec::new() };
    let options = StreamOptions {
        grace: ontempo_session::latency::GRACE,
        latency: Some(case.buffer),
        order: case.order,
        reliability: Reliability::Deadline,
        congestion: CongestionName::FOR_MEDIA.over_udp(&[]).expect("BBR for media"),
        custom: None,
    };
    let mut stream = Stream::new(Time::ZERO, options, case.seed).expect("a stream");
    let mut links = ["forth", "back"].map(|name| Link::new(case, name));
    let (mut next, mut bytes) = (0, Vec::new());
    loop {
        let due = player.film.datagram(next).map_or(Time::NEVER, |sent| Time::ZERO + sent.at);
        let now = due.min(links[0].next()).min(links[1].next()).min(stream.next_timeout());
        if now > Time::ZERO + case.lasts {
            break;
        }
        if due <= now {
            bytes.clear();
            let sent = player.film.datagram(next).expect("it is due");
            player.film.write(&sent, &mut bytes);
            stream.push(now, &bytes);
            next += 1;
        }
        for (link, end) in links.iter_mut().zip([End::Receiver, End::Sender]) {
            while link.next() <= now
                && let Some((.., data)) = link.packets.pop_front()
            {
                stream.receive(now, (end, 0), data, false);
            }
        }
        stream.handle_timeout(now);
        while let Some((end, datagram)) = stream.poll_transmit() {
            links[usize::from(end == End::Receiver)].send(now, datagram.data);
        }
        while let Some(restored) = stream.poll_restored(now) {
            player.take(now, &restored);
        }
    }
    let latency = case.rtt / 2 + case.buffer + Duration::from_millis(60);
    player.shares(case.lasts, latency)
}

fn case(kbit_s: u64, rtt_ms: u64, buffer_ms: u64) -> Case {
    let ms = Duration::from_millis;
    Case {
        kbit_s,
        rtt: ms(rtt_ms),
        buffer: ms(buffer_ms),
        lasts: Duration::from_secs(22),
        seed: 1,
        order: DeliveryOrder::PartialOrder,
        jitter: Duration::ZERO,
        loss: 0.0,
        outage: (Time::NEVER, Time::NEVER),
    }
}

/// The mean shares of some seeds.
fn mean(case: impl Fn(u64) -> Case) -> (f64, f64) {
    let of_seeds = (1..=SEEDS).map(|seed| carry(&case(seed)));
    let sum = of_seeds.reduce(|all, one| (all.0 + one.0, all.1 + one.1)).unwrap_or_default();
    (sum.0 / SEEDS as f64, sum.1 / SEEDS as f64)
}

/// Packets of frames that matter alike once went in turn, so that most came late: 34 to 40 % of the pictures.
#[test]
fn at_four_fifths_of_its_rate_half_of_the_pictures_and_nearly_all_sound_come_on_time() {
    for (rtt_ms, buffer_ms) in [(100, 400), (300, 600), (300, 1_200)] {
        let (pictures, sound) = mean(|seed| Case { seed, ..case(3_200, rtt_ms, buffer_ms) });
        let what = format!("{rtt_ms} ms, {buffer_ms} ms");
        assert!(pictures >= 54.0, "{what}: {pictures} % of pictures");
        assert!(sound >= 98.0, "{what}: {sound} % of sound");
    }
}

#[test]
fn a_path_that_bears_the_stream_drops_nothing() {
    for (rtt_ms, buffer_ms) in [(20, 80), (100, 200), (300, 1_200)] {
        let (pictures, sound) = carry(&case(8_000, rtt_ms, buffer_ms));
        assert!((pictures, sound) == (100.0, 100.0), "{rtt_ms} ms: {pictures} {sound}");
    }
}

/// Held back until what is missing before them is given up, all units of a narrow path were late: not one picture.
#[test]
fn in_order_is_on_time_as_in_any_order() {
    let [in_order, out_of_order] = [DeliveryOrder::InOrder, DeliveryOrder::OutOfOrder]
        .map(|order| carry(&Case { order, ..case(3_200, 100, 400) }));
    assert_eq!(in_order, out_of_order);
    assert!(in_order.0 > 40.0, "{in_order:?}");
}

/// What the stack took for lost was not counted as delivered, so that the rate fell and fell: 6 % of the pictures. With a
/// time threshold of 9/8 of a round trip 68 % in the mean of these seeds.
#[test]
fn packets_that_overtake_each_other_are_not_lost() {
    let jitter = Duration::from_millis(50);
    let (pictures, sound) = mean(|seed| Case { seed, jitter, ..case(8_000, 100, 400) });
    assert!(pictures >= 54.0 && sound >= 99.0, "{pictures} % of pictures, {sound} % of sound");
}

/// Sent again by the stack alone, 20 % lost each way left 62 % of the pictures; now 89 %.
#[test]
fn what_is_missing_shortly_before_its_deadline_is_asked_for() {
    let (pictures, sound) = mean(|seed| Case { seed, loss: 0.2, ..case(8_000, 100, 400) });
    assert!(pictures >= 75.0 && sound >= 99.0, "{pictures} % of pictures, {sound} % of sound");
}

/// A silent path was taken for a narrow one, and a dozen pictures were left out that had the time to be sent again. One
/// still is, while the rate grows after it.
#[test]
fn an_outage_that_is_shorter_than_the_latency_costs_next_to_nothing() {
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let outage = (at(8_000), at(9_000));
    let (pictures, sound) = carry(&Case { outage, ..case(8_000, 100, 2_000) });
    assert!(pictures > 99.5 && sound == 100.0, "{pictures} {sound}");
}
