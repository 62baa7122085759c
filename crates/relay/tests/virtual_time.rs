//! A relay, a source and viewers in virtual time: each test with the relay on one thread, and on two.

mod takeover;
mod world;

use std::net::Ipv4Addr;

use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_relay::{RelayEvent, RelayOptions, configuration};
use ontempo_session::latency::GRACE;
use ontempo_session::message::{Label, REPORTS};
use ontempo_session::{RelayReport, split_name};
use ontempo_transport::{
    CloseReason, Configuration, Endpoint, FlowConfig, Limits, Outgoing, Poll, Reliability, Token,
};
use takeover::{
    a_short_stream_that_ends_while_it_waits_reaches_viewers,
    a_source_started_anew_after_a_kill_is_taken_within_a_second,
    a_source_that_comes_back_while_another_waits_keeps_its_place,
    a_source_that_is_there_stays_though_it_has_nothing_to_send,
    of_several_sources_that_wait_the_first_that_stays_follows,
    packets_of_a_silent_source_that_are_repeated_keep_no_other_waiting,
    the_place_of_a_stream_changes_at_most_twice_a_second,
    who_may_not_send_takes_no_place_of_a_silent_source,
};
use world::{FRAME, FRAME_BYTES, KEY_EVERY, SECOND, World, address, clean, frame, plain};

macro_rules! with_threads {
    ($($name:ident)*) => {
        mod one_thread { $(#[test] fn $name() { super::$name(1); })* }
        mod two_threads { $(#[test] fn $name() { super::$name(2); })* }
    };
}

with_threads! {
    a_stream_reaches_all_viewers_byte_by_byte_and_their_reports_reach_the_source
    a_slow_viewer_gets_fewer_frames_and_a_fast_one_all_of_them
    a_viewer_that_joins_midway_begins_at_a_key_frame
    a_source_that_comes_back_continues_its_stream_and_another_is_refused
    strangers_are_refused_and_the_token_of_viewers_does_not_publish
    viewers_beyond_the_places_are_refused_and_those_that_ask_nothing_lose_theirs
    a_viewer_of_a_whole_stream_that_does_not_keep_up_is_closed_and_others_get_all
    a_budget_that_is_used_up_costs_the_viewer_that_holds_most
    a_report_that_cannot_be_read_ends_its_viewer_alone
    a_viewer_that_reads_nothing_holds_a_bounded_amount_and_disturbs_nobody
    a_viewer_that_acknowledges_nothing_and_half_open_connections_hold_what_the_budget_says
    ten_thousand_half_open_connections_are_bounded_and_disturb_no_viewer
    a_viewer_whose_address_changes_is_served_by_the_same_thread
    limits_hold_for_all_threads_together
    a_source_that_comes_back_to_any_thread_continues_its_stream
    a_viewer_that_comes_late_to_a_whole_stream_gets_it_without_a_hole
    a_viewer_that_cannot_take_what_a_whole_stream_begins_with_is_closed
    what_is_kept_for_new_viewers_costs_no_viewer_that_keeps_up
    a_viewer_of_a_whole_stream_is_closed_where_a_unit_of_it_goes_to_nobody
    viewers_get_the_rest_of_a_stream_whose_source_comes_back_for_the_last_report
    a_source_that_was_away_too_long_begins_a_stream_anew
    events_of_all_threads_come_in_the_order_in_which_they_happened
    a_source_started_anew_after_a_kill_is_taken_within_a_second
    a_source_that_is_there_stays_though_it_has_nothing_to_send
    a_source_that_comes_back_while_another_waits_keeps_its_place
    of_several_sources_that_wait_the_first_that_stays_follows
    a_short_stream_that_ends_while_it_waits_reaches_viewers
    the_place_of_a_stream_changes_at_most_twice_a_second
    who_may_not_send_takes_no_place_of_a_silent_source
    packets_of_a_silent_source_that_are_repeated_keep_no_other_waiting
}

fn a_stream_reaches_all_viewers_byte_by_byte_and_their_reports_reach_the_source(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let viewers =
        [world.viewer(b"publish", &clean(20_000)), world.viewer(b"publish", &clean(20_000))];
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..60, false);
    world.finish(source);
    world.run(SECOND);
    for viewer in viewers {
        let client = &world.clients[viewer];
        let data: Vec<&[u8]> = client.received.iter().map(|(data, _)| data.as_slice()).collect();
        assert!((0..60).map(frame).eq(data), "{:?}", world.numbers(viewer));
        assert_eq!(client.received[30].1, [25], "what a frame depends on");
        let opened = client.opened.as_ref().expect("a flow");
        let label: Label = split_name(&opened.label).expect("a label").0.parse().expect("a label");
        assert!(label.session != 7, "the session is a secret of the source");
        assert_eq!((label.latency, label.before), (Duration::from_millis(500), 0));
        assert!(client.ended && client.closed == Some(CloseReason::Done));
    }
    let (text, _) = world.clients[source].received.last().expect("a report");
    let report: RelayReport = serde_json::from_slice(text).expect("a report");
    assert!(report.report.is_final);
    assert_eq!((report.viewers.count, report.report.units), (2, 60));
    let statistics = world.statistics();
    assert_eq!((statistics.held, statistics.viewers, statistics.streams.len()), (0, 0, 0));
}

fn a_slow_viewer_gets_fewer_frames_and_a_fast_one_all_of_them(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let fast = world.viewer(b"publish", &clean(20_000));
    let slow = world.viewer(b"publish", &clean(600));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    world.stream(source, 0..500, true);
    world.run(SECOND);
    assert!(world.numbers(fast).into_iter().eq(0..500), "{:?}", world.numbers(fast));
    let got = world.numbers(slow).len();
    // How many is decided by the send queue; at least the key frames, which go first.
    assert!((20..450).contains(&got), "{got} of 500 frames");
    // The budget: a flow's send queue, and a group of frames for new viewers.
    assert!(world.most_held < (2 << 20) + 25 * 5_300, "{} bytes", world.most_held);
}

fn a_viewer_that_joins_midway_begins_at_a_key_frame(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    world.stream(source, 0..65, true);
    let viewer = world.viewer(b"publish", &clean(20_000));
    world.stream(source, 65..100, true);
    world.run(SECOND);
    assert!(world.numbers(viewer).into_iter().eq(75..100), "{:?}", world.numbers(viewer));
    let opened = world.clients[viewer].opened.as_ref().expect("a flow");
    assert!(opened.label.ends_with(" 1 0"), "it began midway: {}", opened.label);
    assert_eq!(world.statistics().left_out, 0, "what came before its key frame was not for it");
    // A little after a key frame, at that one.
    world.stream(source, 100..103, true);
    let next = world.viewer(b"publish", &clean(20_000));
    world.stream(source, 103..120, true);
    let mut numbers = world.numbers(next);
    // Frames depend on the key frame alone: they may overtake each other, and never that one.
    assert_eq!(numbers[0], 100, "{numbers:?}");
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(100..120), "{numbers:?}");
}

fn a_source_that_comes_back_continues_its_stream_and_another_is_refused(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let viewer = world.viewer(b"publish", &clean(20_000));
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..25, false);
    let other = world.source(8, 0, Reliability::Full);
    world.run(SECOND);
    assert_eq!(world.clients[other].closed, Some(CloseReason::Busy));
    let again = world.source(7, 1, Reliability::Full);
    world.run(SECOND);
    world.stream(again, 0..25, false);
    world.run(SECOND);
    assert!(world.numbers(viewer).into_iter().eq((0..25).chain(0..25)));
    assert_eq!(world.statistics().streams.len(), 1);
}

fn strangers_are_refused_and_the_token_of_viewers_does_not_publish(threads: u8) {
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let mut world = World::new(options, threads);
    let stranger = world.viewer(b"neither", &clean(20_000));
    let viewer = world.viewer(b"view", &clean(20_000));
    let label = Label::of(9, Duration::from_millis(500), GRACE);
    let pirate = world.connect(b"view", label.to_string(), FlowConfig::default(), &clean(20_000));
    world.run(SECOND);
    assert_eq!(world.clients[stranger].closed, Some(CloseReason::WrongToken));
    assert_eq!(world.clients[pirate].closed, Some(CloseReason::WrongToken));
    assert_eq!(world.clients[viewer].closed, None);
    assert_eq!(world.statistics().streams.len(), 0);
}

fn viewers_beyond_the_places_are_refused_and_those_that_ask_nothing_lose_theirs(threads: u8) {
    let options = RelayOptions { viewers: 2, viewers_of_host: 1, ..RelayOptions::default() };
    let mut world = World::new(options, threads);
    let served =
        [world.viewer(b"publish", &clean(20_000)), world.viewer(b"publish", &clean(20_000))];
    world.run(SECOND);
    let third = world.viewer(b"publish", &clean(20_000));
    world.run(SECOND);
    assert_eq!(world.clients[third].closed, Some(CloseReason::Refused));
    assert!(served.iter().all(|viewer| world.clients[*viewer].closed.is_none()));
    let silent = world.connect(b"publish", "x".repeat(300), FlowConfig::default(), &clean(20_000));
    world.run(Duration::from_secs(7));
    assert_eq!(world.clients[silent].closed, Some(CloseReason::NoAnswer));
}

fn a_viewer_of_a_whole_stream_that_does_not_keep_up_is_closed_and_others_get_all(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let slow = world.viewer(b"publish", &clean(100));
    let fast = world.viewer(b"publish", &clean(20_000));
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..900, false);
    world.run(SECOND);
    assert_eq!(world.clients[slow].closed, Some(CloseReason::Overloaded));
    assert!(world.numbers(fast).into_iter().eq(0..900));
    assert!(world.most_held < 5 << 20, "{} bytes", world.most_held);
}

fn a_budget_that_is_used_up_costs_the_viewer_that_holds_most(threads: u8) {
    let options = RelayOptions {
        memory: Bytes::new(300_000),
        start: Bytes::new(50_000),
        ..RelayOptions::default()
    };
    let mut world = World::new(options, threads);
    let slow = world.viewer(b"publish", &clean(100));
    let fast = world.viewer(b"publish", &clean(20_000));
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..200, false);
    world.run(SECOND);
    assert_eq!(world.clients[slow].closed, Some(CloseReason::Overloaded));
    assert!(world.numbers(fast).into_iter().eq(0..200));
    assert!(world.most_held < 320_000, "{} bytes", world.most_held);
}

fn a_report_that_cannot_be_read_ends_its_viewer_alone(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let (bad, good) =
        (world.viewer(b"publish", &clean(20_000)), world.viewer(b"publish", &clean(20_000)));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    let now = world.network.now();
    let client = &world.clients[bad];
    let (id, flow, node) = (client.id, client.flow.expect("its flow"), client.node);
    let connection = world.network.endpoint(node).connection(id).expect("a connection");
    let outgoing = Outgoing { data: vec![b'['; 100_000].into(), ..Outgoing::default() };
    connection.send(now, flow, outgoing).expect("sent");
    world.network.flush(node);
    world.stream(source, 0..25, true);
    world.run(SECOND);
    assert_eq!(world.clients[bad].closed, Some(CloseReason::Unsupported));
    assert!(world.numbers(good).into_iter().eq(0..25));
}

fn a_viewer_that_reads_nothing_holds_a_bounded_amount_and_disturbs_nobody(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let mute = world.viewer(b"publish", &clean(20_000));
    let other = world.viewer(b"publish", &clean(20_000));
    world.clients[mute].reads = false;
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    // 10 MB, more than what the viewer's system and the relay hold for it.
    world.stream(source, 0..2_000, true);
    world.run(SECOND);
    assert!(world.numbers(other).into_iter().eq(0..2_000), "{:?}", world.numbers(other));
    assert!(world.numbers(mute).is_empty());
    assert!(world.most_held < (2 << 20) + 25 * 5_300, "{} bytes", world.most_held);
}

fn a_viewer_that_acknowledges_nothing_and_half_open_connections_hold_what_the_budget_says(
    threads: u8,
) {
    const HALF_OPEN: u8 = 200;
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let budget = configuration(&options);
    let mut world = World::new(options, threads);
    let silent = world.viewer(b"view", &clean(20_000));
    let honest = world.viewer(b"view", &clean(20_000));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    world.stream(source, 0..50, true);
    // From now on nothing comes from one viewer, though all comes to it.
    let mut lost = clean(20_000);
    lost.mishaps.stalls = vec![(world.network.now(), Time::NEVER)];
    let node = world.clients[silent].node;
    world.join(node, &lost, &clean(20_000));
    let places = Configuration { connections: HALF_OPEN.into(), ..Configuration::default() };
    let mut attacker = Endpoint::new(places, [99; 32]);
    let (now, mut datagram) = (world.network.now(), Vec::new());
    for number in 0..HALF_OPEN {
        let token = Token::new(b"view").expect("short");
        attacker.connect(now, address(1), "relay", &world.trust, token).expect("it begins");
        let from = Ipv4Addr::new(172, 16, 0, number);
        while let Poll::Transmit(of) = attacker.poll_transmit(now, &mut datagram) {
            world.inject((from, 5_000).into(), &datagram[..of.size]);
        }
    }
    let (mut most, mut connections) = (0, 0);
    for number in 50..400 {
        world.send(source, number, true);
        world.run(FRAME);
        most = most.max(world.memory());
        connections = connections.max(world.connections());
    }
    world.run(SECOND);
    assert!(world.numbers(honest).into_iter().eq(0..400), "{:?}", world.numbers(honest));
    assert!(world.numbers(silent).len() < 400, "it acknowledged something");
    // One flow's send queue, and a group of frames with its overhead for new viewers.
    let units = budget.send_bytes.get() + KEY_EVERY * (FRAME_BYTES as u64 + 300);
    assert!(world.most_held <= units, "{} of {units} bytes", world.most_held);
    // The silent one, the honest one, the source, and those half open, of which unvalidated ones may have
    // an eighth of the places.
    let places = 3 + budget.half_open / 8;
    assert!((4..=places).contains(&connections), "{connections} of {places}");
    let received = places as u64 * (48 << 10) + 2 * FRAME_BYTES as u64 + (64 << 10);
    assert!(most <= received, "{most} of {received} bytes");
    assert_eq!(world.statistics().viewers, 1, "the silent one has lost its place");
}

fn ten_thousand_half_open_connections_are_bounded_and_disturb_no_viewer(threads: u8) {
    const ATTACKERS: usize = 10_000;
    const AT_ONCE: usize = 100;
    let options = RelayOptions { has_viewers_token: true, ..RelayOptions::default() };
    let budget = configuration(&options);
    let mut world = World::new(options, threads);
    let viewer = world.viewer(b"view", &clean(20_000));
    let source = world.source(7, 0, Reliability::Deadline);
    world.run(SECOND);
    let places = Configuration { connections: ATTACKERS, ..Configuration::default() };
    let mut attacker = Endpoint::new(places, [99; 32]);
    let (mut most, mut datagram) = (0, Vec::new());
    for round in 0..ATTACKERS / AT_ONCE {
        for number in 0..AT_ONCE {
            let now = world.network.now();
            let token = Token::new(b"view").expect("short");
            attacker.connect(now, address(1), "relay", &world.trust, token).expect("it begins");
            // Each from a host of its own: one alone is limited further.
            let from = Ipv4Addr::new(172, 16, round as u8, number as u8);
            while let Poll::Transmit(of) = attacker.poll_transmit(now, &mut datagram) {
                world.inject((from, 5_000).into(), &datagram[..of.size]);
            }
        }
        most = most.max(world.connections());
        let memory = world.memory();
        assert!(memory <= budget.receive_memory.get(), "{memory} bytes");
        world.send(source, round as u64, true);
        world.run(FRAME);
    }
    world.run(SECOND);
    assert!(most > 50, "some were begun: {most}");
    assert!(most <= budget.half_open + 2, "{most} connections");
    assert!(world.numbers(viewer).into_iter().eq(0..100), "{:?}", world.numbers(viewer));
    // Their places are free again.
    world.run(Duration::from_secs(10));
    assert_eq!(world.connections(), 2);
    let late = world.viewer(b"view", &clean(20_000));
    world.run(SECOND);
    assert!(world.clients[late].opened.is_some());
}

/// The connections of each thread.
fn places(world: &mut World) -> Vec<usize> {
    (0..world.relays.len()).map(|at| world.network.endpoint(at).connections()).collect()
}

/// Viewers so that each thread has one, whatever ids they draw.
fn viewers_of_each_thread(world: &mut World) -> Vec<usize> {
    let viewers: Vec<usize> = (0..8).map(|_| world.viewer(b"publish", &clean(20_000))).collect();
    world.run(SECOND);
    let places = places(world);
    assert!(places.iter().all(|count| *count > 0), "{places:?}");
    viewers
}

fn a_viewer_whose_address_changes_is_served_by_the_same_thread(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let viewers = viewers_of_each_thread(&mut world);
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(source, 0..50, false);
    let before = places(&mut world);
    // The source and all viewers, as behind a NAT that was started again.
    for client in viewers.iter().copied().chain([source]) {
        let node = world.clients[client].node;
        world.network.rebind(node, address(100 + client as u8));
    }
    world.stream(source, 50..150, false);
    world.run(SECOND);
    assert_eq!(places(&mut world), before, "a connection was begun anew");
    for viewer in viewers {
        // Frames depend on their key frame alone: those lost with the old address may come later.
        let mut numbers = world.numbers(viewer);
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..150), "{numbers:?}");
    }
}

fn limits_hold_for_all_threads_together(threads: u8) {
    let options =
        RelayOptions { viewers: 6, viewers_of_host: 6, streams: 1, ..RelayOptions::default() };
    let mut world = World::new(options, threads);
    let viewers = viewers_of_each_thread(&mut world);
    let refused = viewers.iter().filter(|at| world.clients[**at].closed.is_some()).count();
    assert_eq!((refused, world.statistics().viewers), (2, 6));
    // One stream, whichever threads its sources come to.
    let sources: Vec<usize> =
        (0..6).map(|session| world.source(session, 0, Reliability::Full)).collect();
    world.run(SECOND);
    let busy = |at: &&usize| world.clients[**at].closed == Some(CloseReason::Busy);
    assert_eq!(sources.iter().filter(busy).count(), 5);
    assert_eq!(world.statistics().streams.len(), 1);
}

fn a_source_that_comes_back_to_any_thread_continues_its_stream(threads: u8) {
    const TIMES: u64 = 12;
    let mut world = World::new(RelayOptions::default(), threads);
    let viewers = viewers_of_each_thread(&mut world);
    let mut came = vec![0; usize::from(threads)];
    for time in 0..TIMES {
        // Until the connection of before is gone.
        world.run(Duration::from_secs(10));
        let before = places(&mut world);
        let source = world.source(7, time.min(1), Reliability::Full);
        world.run(SECOND);
        let after = places(&mut world);
        let place = (0..came.len()).find(|at| after[*at] > before[*at]).expect("it has come");
        came[place] += 1;
        world.stream(source, 0..10, false);
    }
    world.run(SECOND);
    assert!(came.iter().all(|times| *times > 0), "{came:?}");
    for viewer in viewers {
        let numbers = world.numbers(viewer);
        assert!(
            (0..TIMES * 10).map(|number| number % 10).eq(numbers.iter().copied()),
            "{numbers:?}"
        );
    }
}

fn a_viewer_that_comes_late_to_a_whole_stream_gets_it_without_a_hole(threads: u8) {
    // 1.5 MB, which are kept for new viewers, and 3 MB, which are not.
    for before in [300, 600] {
        let mut world = World::new(RelayOptions::default(), threads);
        let source = world.source(7, 0, Reliability::Full);
        world.run(SECOND);
        world.stream_plain(source, 0..before, false);
        let viewer = world.viewer(b"publish", &clean(20_000));
        // What is kept goes through before the next frame: a full queue would show the hole.
        world.run(SECOND);
        world.stream_plain(source, before..before + 50, false);
        world.run(Duration::from_secs(3));
        assert_eq!(world.clients[viewer].closed, None);
        let mut numbers = world.numbers(viewer);
        numbers.sort_unstable();
        let first = numbers[0];
        assert!(numbers.iter().copied().eq(first..before + 50), "{numbers:?}");
        assert_eq!(first == 0, before == 300, "it began at {first}");
        let opened = world.clients[viewer].opened.as_ref().expect("a flow");
        assert_eq!(opened.label.ends_with(" 1 0"), first > 0, "midway: {}", opened.label);
    }
}

fn a_viewer_that_cannot_take_what_a_whole_stream_begins_with_is_closed(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let source = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream_plain(source, 0..200, false);
    let usual = ontempo_session::configuration();
    let few = Configuration { limits: Limits { units: 100, ..usual.limits }, ..usual };
    let flow = (REPORTS.to_owned(), FlowConfig::default());
    let viewer = world.connect_with(few, b"publish", flow, &clean(20_000));
    world.run(SECOND);
    world.stream_plain(source, 200..250, false);
    world.run(SECOND);
    assert_eq!(world.clients[viewer].closed, Some(CloseReason::Overloaded));
    assert!(world.numbers(viewer).into_iter().all(|number| number < 100));
}

fn what_is_kept_for_new_viewers_costs_no_viewer_that_keeps_up(threads: u8) {
    for reliability in [Reliability::Deadline, Reliability::Full] {
        // A third of what the stream has, of which all would be kept.
        let options = RelayOptions { memory: Bytes::new(300_000), ..RelayOptions::default() };
        let mut world = World::new(options, threads);
        let viewer = world.viewer(b"publish", &clean(20_000));
        let source = world.source(7, 0, reliability);
        world.run(SECOND);
        world.stream_plain(source, 0..200, reliability == Reliability::Deadline);
        world.run(SECOND);
        assert_eq!(world.clients[viewer].closed, None, "{reliability:?}");
        let numbers = world.numbers(viewer);
        assert!(numbers.iter().copied().eq(0..200), "{reliability:?}: {numbers:?}");
        assert!(world.most_held < 320_000, "{} bytes", world.most_held);
    }
}

fn a_viewer_of_a_whole_stream_is_closed_where_a_unit_of_it_goes_to_nobody(threads: u8) {
    // Units of one packet, of which the first has used it up before any viewer holds it.
    let options = RelayOptions { memory: Bytes::new(100), ..RelayOptions::default() };
    for reliability in [Reliability::Full, Reliability::Deadline] {
        let mut world = World::new(options, threads);
        let viewer = world.viewer(b"publish", &clean(20_000));
        let source = world.source(7, 0, reliability);
        world.run(SECOND);
        world.send_units(source, false, (0..3).map(|number| (number, plain(number, 300))));
        world.run(SECOND);
        let is_whole = reliability == Reliability::Full;
        let closed = is_whole.then_some(CloseReason::Overloaded);
        assert_eq!(world.clients[viewer].closed, closed, "{:?}", world.numbers(viewer));
        let stream = &world.statistics().streams[0];
        assert_eq!((stream.units, stream.bytes, stream.refused), (3, 900, 2));
        // Who comes now knows that something was before.
        let next = world.viewer(b"publish", &clean(20_000));
        world.run(SECOND);
        let opened = world.clients[next].opened.as_ref().expect("a flow");
        assert!(opened.label.ends_with(" 1 0"), "midway: {}", opened.label);
    }
}

fn viewers_get_the_rest_of_a_stream_whose_source_comes_back_for_the_last_report(threads: u8) {
    let mut world = World::new(RelayOptions::default(), threads);
    let slow = world.viewer(b"publish", &clean(300));
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..200, false);
    world.finish(first);
    world.run(SECOND);
    world.leave(first);
    world.run(SECOND);
    let again = world.source(7, 1, Reliability::Full);
    world.run(SECOND);
    // It does not know that this one has come.
    world.send(again, 0, false);
    world.finish(again);
    world.run(SECOND);
    assert!(world.numbers(slow).len() < 150, "it had all before: {:?}", world.numbers(slow));
    world.run(Duration::from_secs(30));
    let mut numbers = world.numbers(slow);
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..200), "{numbers:?}");
    let (text, _) = world.clients[again].received.last().expect("a report");
    let report: RelayReport = serde_json::from_slice(text).expect("a report");
    assert!(report.report.is_final);
    assert_eq!((report.viewers.count, report.report.units), (1, 200));
    let ended = world.events().into_iter().filter(|event| *event == RelayEvent::Ended(None));
    assert_eq!((ended.count(), world.statistics().streams.len()), (1, 0));
}

fn a_source_that_was_away_too_long_begins_a_stream_anew(threads: u8) {
    let options = RelayOptions { away: Duration::from_secs(5), ..RelayOptions::default() };
    let mut world = World::new(options, threads);
    // It keeps the stream that has ended from being removed.
    let slow = world.viewer(b"publish", &clean(300));
    let first = world.source(7, 0, Reliability::Full);
    world.run(SECOND);
    world.stream(first, 0..200, false);
    world.leave(first);
    world.run(Duration::from_secs(8));
    assert!(world.clients[slow].closed.is_none() && world.numbers(slow).len() < 200);
    let again = world.source(7, 1, Reliability::Full);
    world.run(SECOND);
    let viewer = world.viewer(b"publish", &clean(20_000));
    world.run(SECOND);
    world.stream(again, 0..25, false);
    world.run(SECOND);
    assert!(world.numbers(viewer).into_iter().eq(0..25), "{:?}", world.numbers(viewer));
}

fn events_of_all_threads_come_in_the_order_in_which_they_happened(threads: u8) {
    const TIMES: u64 = 12;
    let mut world = World::new(RelayOptions::default(), threads);
    let mut expected = Vec::new();
    for time in 0..TIMES {
        let source = world.source(7, time.min(1), Reliability::Full);
        world.run(SECOND);
        world.leave(source);
        world.run(SECOND);
        let remote = Some(world.network.address(world.clients[source].node));
        expected.extend([RelayEvent::Published { stream: None, remote }, RelayEvent::Away(None)]);
    }
    assert_eq!(world.events(), expected);
}
