//! A connection's packets on the network: acknowledgements, ECN marks, pacing, DSCP.

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_transport::simulated::{Passage, Path};
use ontempo_transport::{
    AckRequest, Configuration, CongestionName, ConnectionStatistics, FlowConfig, Outgoing,
};
use ontempo_udp::Dscp;

use crate::basics::content;
use crate::world::{CLIENT, SERVER, World, address};

const UNITS: u64 = 2000;

fn path() -> Path {
    Path::clean(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(20))
}

/// The client's statistics after a transfer, and the passage of every datagram.
struct Sent {
    client: ConnectionStatistics,
    passages: Vec<Passage>,
}

impl Sent {
    /// Datagrams sent by a node.
    fn of(&self, node: usize) -> impl Iterator<Item = &Passage> {
        self.passages.iter().filter(move |passage| passage.from == node)
    }

    /// Gaps between the client's full datagrams.
    fn gaps(&self) -> Vec<Duration> {
        let times: Vec<Time> =
            self.of(CLIENT).filter(|passage| passage.size > 1000).map(|p| p.left).collect();
        times.windows(2).map(|pair| pair[1].since(pair[0])).collect()
    }
}

/// Sends units of 1,200 bytes as fast as the connection accepts them.
fn bulk(path: &Path, config: &Configuration) -> Sent {
    let mut world = World::new(1, path, &self::path(), config);
    world.connect();
    let flow = world.open_flow(FlowConfig::default());
    let mut sent = 0;
    let done = world.run(Time::from_secs_f64(120.0), |world| {
        let now = world.now();
        while sent < UNITS {
            let unit = Outgoing { data: content(sent, 1200), ..Outgoing::default() };
            if world.client().send(now, flow, unit).is_err() {
                break;
            }
            sent += 1;
        }
        if sent == UNITS {
            world.client().finish_flow(flow);
        }
        world.network.flush(CLIENT);
        world.has_ended(flow)
    });
    assert!(done, "{} of {UNITS} units", world.delivered(flow).len());
    let client = world.client().statistics();
    Sent { client, passages: world.network.passages().to_vec() }
}

#[test]
fn adaptive_acks_are_the_fewest_and_do_not_slow_the_transfer() {
    let [immediate, delayed, adaptive] =
        [AckRequest::Immediate, AckRequest::Delayed, AckRequest::Adaptive].map(|acknowledge| {
            let sent = bulk(&path(), &Configuration { acknowledge, ..Configuration::default() });
            let last = sent.of(CLIENT).last().map_or(Time::ZERO, |passage| passage.left);
            (sent.of(SERVER).count() as f64, last.as_secs_f64())
        });
    println!("datagrams back, s: {immediate:?}, {delayed:?}, {adaptive:?}");
    assert!(delayed.0 < 0.6 * immediate.0, "{delayed:?} of {immediate:?}");
    // One for up to four packets (thesis, ch. IV).
    assert!(adaptive.0 < 0.6 * delayed.0, "{adaptive:?} of {delayed:?}");
    assert!(adaptive.1 < 1.1 * immediate.1, "{adaptive:?} s, {immediate:?} s");
}

#[test]
fn ecn_marks_slow_the_sender_as_losses_do_without_retransmission() {
    for congestion in [CongestionName::NewReno, CongestionName::Cubic, CongestionName::Pert] {
        let congestion = congestion.into();
        let config = Configuration { congestion, ..Configuration::default() };
        let mut marking = path();
        marking.mishaps.marked = 0.02;
        let marked = bulk(&marking, &config).client;
        assert!(marked.congestion_events > 5, "{congestion:?}: {marked:?}");
        assert_eq!(marked.packets_lost, 0, "{congestion:?}");
    }
}

#[test]
fn psp_spaces_its_packets_and_pacing_spreads_a_window() {
    let psp = Configuration { congestion: CongestionName::Psp.into(), ..Configuration::default() };
    let sent = bulk(&path(), &psp);
    let target = sent.client.target.expect("known").as_mbit_per_sec();
    assert!((0.1..=20.0).contains(&target), "an encoder is told {target} Mbit/s of 10");
    let gaps = sent.gaps();
    // After it has measured the path, no two datagrams are sent together.
    let settled = &gaps[gaps.len() / 2..];
    let min_gap = settled.iter().min().expect("there are some");
    assert!(*min_gap > Duration::ZERO, "two packets were sent together");

    let together = |pacing| {
        let config = Configuration {
            congestion: CongestionName::NewReno.into(),
            pacing,
            ..Configuration::default()
        };
        let gaps = bulk(&path(), &config).gaps();
        gaps.iter().filter(|gap| **gap < Duration::from_micros(100)).count() as f64
            / gaps.len() as f64
    };
    let (paced, unpaced) = (together(Configuration::default().pacing), together(None));
    println!("without a gap: paced {paced:.3}, unpaced {unpaced:.3}");
    assert!(unpaced > 0.3, "{unpaced}");
    assert!(paced < 0.8 * unpaced, "{paced} of {unpaced}");
}

#[test]
fn the_dscp_of_a_connection_survives_migration_and_marks_the_close() {
    let mut world = World::new(1, &path(), &path(), &Configuration::default());
    world.connect();
    world.connection(SERVER).expect("open").mark(Dscp::VIDEO);
    let marked_from = world.now();
    world.network.rebind(CLIENT, address(3));
    let flow = world.open_flow(FlowConfig::default());
    let now = world.now();
    let unit = Outgoing { data: content(0, 5000), ..Outgoing::default() };
    world.client().send(now, flow, unit).expect("the send queue has space");
    world.client().finish_flow(flow);
    world.network.flush(CLIENT);
    assert!(world.run(Time::from_secs_f64(10.0), |world| world.has_ended(flow)));
    let (closes, before) = (world.now(), world.network.passages().len());
    world.connection(SERVER).expect("open").close(closes, "had all");
    world.network.flush(SERVER);
    assert_eq!(world.network.passages().len(), before + 1);
    let of = |node| world.network.passages().iter().filter(move |p| p.from == node);
    for passage in of(SERVER) {
        let is_marked = passage.dscp == Some(Dscp::VIDEO);
        assert_eq!(is_marked, passage.left >= marked_from, "{passage:?}");
    }
    assert!(of(CLIENT).all(|passage| passage.dscp.is_none()));
}
