//! What a stream takes on the wire beside its media, in virtual time; its datagrams arrive as they
//! were sent, with their stuffing.

use std::collections::{BTreeMap, VecDeque};

use ontempo_foundation::{Duration, RandomStream, Rate, Time};
use ontempo_media::{Film, GeneratorParameters, Sending, generate, ts};
use ontempo_session::simulated::{End, Stream, StreamOptions};
use ontempo_transport::{Congestion, DeliveryOrder, Reliability};

/// From one end to the other.
const DELAY: Duration = Duration::from_millis(49);

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;

/// What one stream took.
#[derive(Debug, Default)]
struct Taken {
    /// Bytes of the media, without stuffing and with it.
    media: u64,
    all: u64,
    /// Bytes and packets to the receiver, and back.
    there: u64,
    packets: u64,
    back: u64,
    acknowledgements: u64,
    /// Datagrams sent, those restored the same, and the others that were restored.
    sent: u64,
    same: u64,
    damaged: u64,
}

impl Taken {
    fn over_media(&self) -> f64 {
        self.there as f64 / self.media as f64 - 1.0
    }
}

/// A film of 20 s over a path that loses this share of packets in both directions.
fn carry(sending: &Sending, mbit_s: f64, loss: f64) -> Taken {
    let rate = Rate::from_bits_per_sec((mbit_s * 1e6) as u64);
    let parameters = GeneratorParameters {
        rate,
        is_constant: matches!(sending, Sending::Paced { .. }),
        ..GeneratorParameters::default()
    };
    let film = Film::new(generate(&parameters).expect("a film"), sending);
    let options = StreamOptions {
        grace: ontempo_session::latency::GRACE,
        // The first key picture is sent while the congestion window still opens.
        latency: Some(Duration::from_secs(1)),
        order: DeliveryOrder::PartialOrder,
        reliability: Reliability::Deadline,
        congestion: Congestion::default(),
        custom: None,
    };
    let mut random = RandomStream::new(1, "loss");
    let mut now = Time::from_secs_f64(1.0);
    let mut stream = Stream::new(now, options, 1).expect("both ends");
    let mut way: VecDeque<(Time, End, Vec<u8>)> = VecDeque::new();
    let mut taken = Taken::default();
    let mut waiting: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let start = now + Duration::from_secs(1);
    let end = start + Duration::from_secs(20);
    while now < end + Duration::from_secs(2) {
        while let Some((from, datagram)) = stream.poll_transmit() {
            let size = datagram.data.len() as u64 + HEADERS;
            let to = match from {
                End::Sender => End::Receiver,
                End::Receiver => End::Sender,
            };
            if now >= start && to == End::Receiver {
                (taken.there, taken.packets) = (taken.there + size, taken.packets + 1);
            } else if now >= start {
                (taken.back, taken.acknowledgements) =
                    (taken.back + size, taken.acknowledgements + 1);
            }
            if random.uniform() >= loss {
                way.push_back((now + DELAY, to, datagram.data));
            }
        }
        while let Some(restored) = stream.poll_restored(now) {
            let sent =
                waiting.remove(&restored.datagram).expect("it was sent, and is restored once");
            if restored.is_whole {
                assert_eq!(restored.data, sent);
                taken.same += 1;
            } else {
                taken.damaged += 1;
            }
        }
        let next = film.datagram(taken.sent).filter(|sent| start + sent.at < end);
        let push = next.as_ref().map_or(Time::NEVER, |sent| start + sent.at);
        let arrival = way.front().map_or(Time::NEVER, |(at, ..)| *at);
        let due = stream.next_timeout().min(push).min(arrival);
        now = now.max(due);
        if arrival <= now {
            if let Some((_, to, data)) = way.pop_front() {
                stream.receive(now, (to, 0), data, false);
            }
        } else if push <= now {
            if let Some(sent) = next {
                let mut datagram = Vec::new();
                film.write(&sent, &mut datagram);
                let nulls = u64::from(film.null_packets(&sent)) * ts::PACKET as u64;
                taken.all += datagram.len() as u64;
                taken.media += datagram.len() as u64 - nulls;
                stream.push(now, &datagram);
                waiting.insert(taken.sent, datagram);
                taken.sent += 1;
            }
        } else if due < Time::NEVER {
            stream.handle_timeout(now);
        } else {
            break;
        }
    }
    println!("{sending:?}, {mbit_s} Mbit/s, {} % lost: {taken:?}", loss * 100.0);
    println!(
        "  {:.2} % over the media, {:.0} bytes a packet, {:.2} % back",
        taken.over_media() * 100.0,
        taken.there as f64 / taken.packets as f64,
        taken.back as f64 / taken.media as f64 * 100.0
    );
    taken
}

const PACED: Sending = Sending::Paced { rate: Rate::from_bits_per_sec(4_000_000), stuffing: true };

#[test]
fn a_paced_film_takes_four_percent_more_than_its_media_and_its_stuffing_is_restored() {
    let taken = carry(&PACED, 3.4, 0.0);
    assert_eq!((taken.same, taken.damaged), (taken.sent, 0));
    assert!(taken.all - taken.media > taken.all / 20, "it has stuffing");
    assert!(taken.over_media() <= 0.04, "{:.2} %", taken.over_media() * 100.0);
}

#[test]
fn a_film_in_bursts_takes_four_percent_more_than_its_media() {
    let taken = carry(&Sending::Bursts, 3.7, 0.0);
    assert_eq!((taken.same, taken.damaged), (taken.sent, 0));
    assert!(taken.over_media() <= 0.04, "{:.2} %", taken.over_media() * 100.0);
}

#[test]
fn where_packets_are_lost_what_arrives_is_as_it_was_sent() {
    for (sending, mbit_s) in [(PACED, 3.4), (Sending::Bursts, 3.7)] {
        let taken = carry(&sending, mbit_s, 0.05);
        assert!(taken.same * 100 >= taken.sent * 98, "{} of {}", taken.same, taken.sent);
    }
}
