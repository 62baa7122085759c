//! A path that lets nothing pass for a while, in one direction or in both.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::simulated::Path;
use ontempo_transport::{Configuration, CongestionName, FlowConfig, Outgoing, Reliability};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World};

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// From one probe of a side of which nothing is acknowledged to the next: 1,500 bytes of an eighth of 2 Mbit/s are 48 ms
/// (`connection/silence.rs`), the stack's own probe, once a second, comes after 85 ms.
const PROBE: Duration = Duration::from_millis(85);

const UNIT: usize = 5_000;
const INTERVAL: Duration = Duration::from_millis(20);

/// A path of 8 Mbit/s that lets nothing pass for a while.
fn path(cut: Option<(Time, Time)>) -> Path {
    let mut path = Path::clean(Rate::from_bits_per_sec(8_000_000), ROUND_TRIP / 2);
    path.mishaps.stalls.extend(cut);
    path
}

/// Sends units of `size` bytes, one each 20 ms with 400 ms to its deadline, until `until`.
fn stream(world: &mut World, source: usize, size: usize, until: Time) {
    let reliability = Reliability::Deadline;
    let config = FlowConfig { reliability, ..FlowConfig::default() };
    let flow = world.connection(source).expect("open").open_flow(config).expect("opened");
    let mut number = 0;
    while world.now() < until {
        let now = world.now();
        let (data, deadline) = (content(number, size), Some(now + Duration::from_millis(400)));
        let unit = Outgoing { data, deadline, ..Outgoing::default() };
        // A full queue is no error here: nobody acknowledges.
        let _ = world.connection(source).expect("still open").send(now, flow, unit);
        world.network.flush(source);
        number += 1;
        world.run(now + INTERVAL, |_| false);
    }
}

/// A stream whose source is at `source`, over a path of which the directions that are `cut` let nothing pass for a while:
/// the time from the path's return to the first packet of media that arrives, and the media packets that arrive in the
/// second second after it.
fn after_outage(
    congestion: CongestionName,
    source: usize,
    [there, back]: [bool; 2],
    away: Duration,
) -> (Duration, usize) {
    let begins = Time::from_secs_f64(3.0);
    let returns = begins + away;
    let path = |is_cut: bool| path(is_cut.then_some((begins, returns)));
    let config = Configuration { congestion: congestion.into(), ..Configuration::default() };
    let mut world = World::new(1, &path(there), &path(back), &config);
    world.connect();
    let second = Duration::from_secs(1);
    stream(&mut world, source, UNIT, returns + second * 2);
    let passages = world.network.passages().iter();
    let media = passages.filter(|passage| passage.from == source && passage.size > 1_000);
    let came: Vec<Time> = media.filter_map(|passage| passage.arrives).collect();
    let first = came.iter().find(|at| **at >= returns).expect("media comes again");
    let later = came.iter().filter(|at| **at >= returns + second);
    (first.since(returns), later.count())
}

/// As where a radio is lost and another network, with longer headers, takes its place. Its client hears the server,
/// whose packets are short.
#[test]
fn media_goes_on_over_a_path_whose_mtu_has_shrunk_in_an_outage() {
    let begins = Time::from_secs_f64(3.0);
    let returns = begins + Duration::from_secs(2);
    let mut there = path(Some((begins, returns)));
    let back = there.clone();
    there.mishaps.shrinks = Some((begins, 1_300));
    let mut world = World::new(1, &there, &back, &Configuration::default());
    world.connect();
    let second = Duration::from_secs(1);
    stream(&mut world, CLIENT, UNIT, returns + second * 4);
    let passages = world.network.passages().iter();
    let media = passages.filter(|passage| passage.from == CLIENT && passage.size > 1_000);
    let mut came = media.filter_map(|passage| passage.arrives).filter(|at| *at >= returns);
    let first = came.next().expect("media comes again");
    assert!(first < returns + second * 2, "{first:?}");
    let later = came.filter(|at| *at >= returns + second * 3).count();
    assert!(later > 200, "{later} packets in the fourth second");
}

/// Bytes that a stream of units of so many bytes sends in each second of an outage of 20 s.
fn bytes_in_outage(size: usize) -> Vec<usize> {
    let begins = Time::from_secs_f64(5.0);
    let lasts = 20;
    let path = path(Some((begins, begins + Duration::from_secs(lasts))));
    let patient =
        Configuration { idle_timeout: Duration::from_secs(60), ..Configuration::default() };
    let mut world = World::new(1, &path, &path, &patient);
    world.connect();
    stream(&mut world, CLIENT, size, begins + Duration::from_secs(lasts));
    let mut bytes = vec![0; lasts as usize];
    for passage in world.network.passages().iter().filter(|it| it.from == CLIENT) {
        if passage.left >= begins {
            let second = passage.left.since(begins).as_secs_f64() as usize;
            *bytes.get_mut(second).expect("sent before the end") += passage.size;
        }
    }
    bytes
}

/// Four packets a second at least, so that small flows come back soon, too.
#[test]
fn an_outage_is_probed_with_an_eighth_of_the_rate_that_was_acknowledged_before() {
    const LEAST: usize = 4 * 1_472;
    for size in [200, 1_000, UNIT] {
        let share = size * 50 / 8;
        let bytes = bytes_in_outage(size);
        let of = format!("units of {size} bytes: {bytes:?}");
        // In the first two seconds the window becomes full. Each second the stack sends four of its own, and one may be
        // of the next.
        let own = 4 * 1_200 + 1_472;
        for sent in &bytes[2..10] {
            assert!((share.max(LEAST) * 3 / 4..=share.max(LEAST) + own).contains(sent), "{of}");
        }
        assert!(bytes[11..].iter().all(|sent| *sent <= LEAST + own), "{of}");
    }
}

/// Whoever has the source, the caller or the listener, whichever direction is cut, by a window or by spacing.
#[test]
fn media_goes_on_a_probe_and_a_round_trip_after_an_outage_of_one_direction_or_both() {
    for congestion in [CongestionName::Pert, CongestionName::Psp] {
        for source in [CLIENT, SERVER] {
            for cut in [[true, true], [true, false], [false, true]] {
                let after = |away| after_outage(congestion, source, cut, away);
                let (_, whole) = after(Duration::ZERO);
                for away in [500, 1_000, 2_000, 3_000, 5_000, 7_000, 9_000] {
                    let away = Duration::from_millis(away);
                    let (took, later) = after(away);
                    let of = format!("{congestion:?}, source {source}, cut {cut:?} for {away}");
                    assert!(took < PROBE + ROUND_TRIP, "{of}: {took}");
                    assert!(later >= whole * 19 / 20, "{of}: {later} packets, not {whole}");
                }
            }
        }
    }
}

/// What is acknowledged is not probed: an idle connection sends its keep-alives and clock comparisons, and the answers.
#[test]
fn an_idle_connection_is_not_probed() {
    let path = Path::clean(Rate::from_bits_per_sec(8_000_000), ROUND_TRIP / 2);
    let mut world = World::new(1, &path, &path, &Configuration::default());
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    let now = world.now();
    let unit = Outgoing { data: content(0, UNIT), ..Outgoing::default() };
    world.client().send(now, flow, unit).expect("there is room");
    world.network.flush(CLIENT);
    let begins = now + Duration::from_secs(2);
    let seconds = 60;
    world.run(begins + Duration::from_secs(seconds), |_| false);
    for node in [CLIENT, SERVER] {
        let passages = world.network.passages().iter();
        let sent = passages.filter(|passage| passage.from == node && passage.left > begins);
        // A question, its acknowledgement and the answer to the other's, each second; probes were four more.
        let count = sent.count() as u64;
        assert!(count <= 4 * seconds, "{node}: {count} packets in {seconds} s");
    }
}
