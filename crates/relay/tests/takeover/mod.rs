//! Sources that come while another has their place.

use ontempo_foundation::Duration;
use ontempo_relay::{RelayEvent, RelayOptions};
use ontempo_session::latency::GRACE;
use ontempo_session::message::Label;
use ontempo_transport::simulated::{Mishaps, Path};
use ontempo_transport::{CloseReason, FlowConfig, Poll, Reliability};

use crate::world::{Client, FRAME, SECOND, World, clean, plain};

const MOMENT: Duration = Duration::from_millis(100);

impl World {
    /// Nothing of a client arrives any more that could be of it, as if its process were killed.
    fn kill(&mut self, place: usize) {
        let mishaps = Mishaps { damaged: 1.0, ..Mishaps::default() };
        let nothing = Path { mishaps, ..clean(20_000) };
        let node = self.clients[place].node;
        self.join(node, &nothing, &clean(20_000));
    }

    /// How often a source has got a place.
    fn published(&mut self) -> usize {
        let is_it = |event: &RelayEvent| matches!(event, RelayEvent::Published { .. });
        self.events().iter().filter(|event| is_it(event)).count()
    }
}

pub(crate) fn a_source_started_anew_after_a_kill_is_taken_within_a_second(threads: u8) {
    // At once, and after some silence.
    for pause in [0, 300, 1_000, 3_000] {
        let mut world = World::new(RelayOptions::default(), threads);
        let old = world.viewer(b"publish", &clean(20_000));
        let first = world.source(7, 0, Reliability::Full);
        world.run(SECOND);
        world.stream(first, 0..25, false);
        world.kill(first);
        world.run(Duration::from_millis(pause));
        let next = world.source(8, 0, Reliability::Full);
        world.run(MOMENT);
        // What it sends while it waits is not lost.
        world.stream(next, 0..12, false);
        world.run(MOMENT);
        assert_eq!(world.clients[next].closed, None, "after {pause} ms");
        assert_eq!(world.published(), 2, "after {pause} ms");
        assert_eq!(world.clients[old].closed, Some(CloseReason::Done));
        let viewer = world.viewer(b"publish", &clean(20_000));
        world.run(SECOND);
        // Frames depend on the key frame alone: they may overtake each other.
        let mut numbers = world.numbers(viewer);
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..12), "{numbers:?}");
    }
}

pub(crate) fn a_source_that_is_there_stays_though_it_has_nothing_to_send(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let viewer = world.viewer(b"publish", &clean(20_000));
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    // At any phase of its own packets, of which there is one a second.
    for other in 0..12 {
        let other = world.source(100 + other, 0, Reliability::Full);
        world.run(SECOND + Duration::from_millis(130));
        assert_eq!(world.clients[other].closed, Some(CloseReason::Busy));
    }
    assert_eq!((world.published(), world.clients[first].closed), (1, None));
    world.stream(first, 0..25, false);
    world.run(SECOND);
    assert!(world.numbers(viewer).into_iter().eq(0..25));
}

pub(crate) fn a_source_that_comes_back_while_another_waits_keeps_its_place(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..5, false);
    world.kill(first);
    world.run(MOMENT);
    let other = world.source(8, 0, Reliability::Full);
    world.run(MOMENT);
    let again = world.source(7, 1, Reliability::Full);
    world.run(SECOND);
    assert_eq!(world.clients[other].closed, Some(CloseReason::Busy));
    assert_eq!(world.clients[again].closed, None);
    world.stream(again, 0..5, false);
    assert_eq!(world.statistics().streams[0].units, 10);
}

pub(crate) fn of_several_sources_that_wait_the_first_that_stays_follows(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..5, false);
    world.kill(first);
    let leaves = world.source(8, 0, Reliability::Full);
    world.run(MOMENT);
    let refused = world.source(9, 0, Reliability::Full);
    world.run(MOMENT);
    assert_eq!(world.clients[refused].closed, Some(CloseReason::Busy));
    world.leave(leaves);
    world.run(MOMENT);
    let next = world.source(10, 0, Reliability::Full);
    world.run(SECOND);
    assert_eq!((world.published(), world.clients[next].closed), (2, None));
}

pub(crate) fn a_short_stream_that_ends_while_it_waits_reaches_viewers(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..5, false);
    world.kill(first);
    let next = world.source(8, 0, Reliability::Full);
    world.run(MOMENT);
    world.stream(next, 0..3, false);
    world.finish(next);
    world.run(MOMENT);
    assert_eq!(world.published(), 1, "it waits");
    world.run(SECOND);
    assert!(world.events().contains(&RelayEvent::Ended(None)));
    assert_eq!(world.clients[next].closed, None);
    let (text, _) = world.clients[next].received.last().expect("a report");
    assert!(String::from_utf8_lossy(text).contains("\"is_final\":true"));
}

pub(crate) fn the_place_of_a_stream_changes_at_most_twice_a_second(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    // One with the token, all of whose sources fall silent at once.
    for source in 0..60 {
        let source = world.source(source, 0, Reliability::Full);
        world.run(MOMENT);
        world.kill(source);
    }
    let changes = world.published();
    // 6 s, and the first place.
    assert!((8..=13).contains(&changes), "{changes}");
}

pub(crate) fn who_may_not_send_takes_no_place_of_a_silent_source(threads: u8) {
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let mut world = World::new(options, threads);
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..5, false);
    world.kill(first);
    for token in [&b"view"[..], b"neither"] {
        let label = Label::of(9, Duration::from_millis(500), GRACE).to_string();
        let pirate = world.connect(token, label, FlowConfig::default(), &clean(20_000));
        world.run(FRAME * 20);
        assert_eq!(world.clients[pirate].closed, Some(CloseReason::WrongToken));
    }
    assert_eq!(world.published(), 1);
    // Nor does one keep a source waiting that may.
    let next = world.source(8, 0, Reliability::Full);
    world.run(FRAME * 10);
    assert_eq!((world.published(), world.clients[next].closed), (1, None));
}

pub(crate) fn packets_of_a_silent_source_that_are_repeated_keep_no_other_waiting(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..5, false);
    // What an eavesdropper has: the last packet of the source.
    let Client { node, id, flow, .. } = &world.clients[first];
    let (node, id, flow, now) = (*node, *id, flow.expect("its flow"), world.network.now());
    let from = world.network.address(node);
    let endpoint = world.network.endpoint(node);
    let connection = endpoint.connection(id).expect("a connection");
    assert_eq!(connection.send(now, flow, plain(5, 100)), Ok(5));
    let mut seen = Vec::new();
    let Poll::Transmit(of) = endpoint.poll_transmit(now, &mut seen) else { panic!("a packet") };
    seen.truncate(of.size);
    world.inject(from, &seen);
    world.run(FRAME);
    assert_eq!(world.statistics().streams[0].units, 6);
    world.kill(first);
    let next = world.source(8, 0, Reliability::Full);
    for _ in 0..50 {
        world.inject(from, &seen);
        world.run(FRAME / 2);
    }
    assert_eq!((world.published(), world.clients[next].closed), (2, None));
}
