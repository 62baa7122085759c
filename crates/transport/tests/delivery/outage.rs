//! A path that lets nothing pass for a while, in one direction or in both.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::simulated::Path;
use ontempo_transport::{Configuration, FlowConfig, Outgoing, Reliability};

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World};

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// From one probe of a side that hears nothing, or of which nothing is acknowledged, to the next
/// (`connection/silence.rs`).
const PROBE: Duration = Duration::from_millis(250);

const UNIT: usize = 5_000;
const INTERVAL: Duration = Duration::from_millis(20);

/// A stream whose source is at `source`, over a path of which the directions that are `cut` let nothing pass for a while:
/// the time from the path's return to the first packet of media that arrives, and the media packets that arrive in the
/// second second after it.
fn after_outage(source: usize, [there, back]: [bool; 2], away: Duration) -> (Duration, usize) {
    let begins = Time::from_secs_f64(1.0);
    let returns = begins + away;
    let path = |is_cut| {
        let mut path = Path::clean(Rate::from_bits_per_sec(8_000_000), ROUND_TRIP / 2);
        path.mishaps.stalls.extend([(begins, returns)].into_iter().filter(|_| is_cut));
        path
    };
    let mut world = World::new(1, &path(there), &path(back), &Configuration::default());
    world.connect();
    let reliability = Reliability::Deadline;
    let config = FlowConfig { reliability, ..FlowConfig::default() };
    let flow = world.connection(source).expect("open").open_flow(config).expect("opened");
    let second = Duration::from_secs(1);
    let mut number = 0;
    while world.now() < returns + second * 2 {
        let now = world.now();
        let (data, deadline) = (content(number, UNIT), Some(now + Duration::from_millis(400)));
        let unit = Outgoing { data, deadline, ..Outgoing::default() };
        // A full queue is no error here: nobody acknowledges.
        let _ = world.connection(source).expect("still open").send(now, flow, unit);
        world.network.flush(source);
        number += 1;
        world.run(now + INTERVAL, |_| false);
    }
    let passages = world.network.passages().iter();
    let media = passages.filter(|passage| passage.from == source && passage.size > 1_000);
    let came: Vec<Time> = media.filter_map(|passage| passage.arrives).collect();
    let first = came.iter().find(|at| **at >= returns).expect("media comes again");
    let later = came.iter().filter(|at| **at >= returns + second);
    (first.since(returns), later.count())
}

/// Whoever has the source, the caller or the listener, and whichever direction is cut.
#[test]
fn media_goes_on_a_probe_and_a_round_trip_after_an_outage_of_one_direction_or_both() {
    for source in [CLIENT, SERVER] {
        for cut in [[true, true], [true, false], [false, true]] {
            let (_, whole) = after_outage(source, cut, Duration::ZERO);
            for away in [500, 1_000, 2_000, 3_000, 5_000, 7_000, 9_000].map(Duration::from_millis) {
                let (took, later) = after_outage(source, cut, away);
                let of = format!("source {source}, cut {cut:?} for {away}");
                assert!(took < PROBE + ROUND_TRIP, "{of}: {took}");
                assert!(later >= whole * 19 / 20, "{of}: {later} packets, not {whole}");
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
