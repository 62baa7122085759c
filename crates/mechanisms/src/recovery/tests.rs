use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// For the styles that do not read the time.
const NOW: Time = Time::ZERO;

fn sent(style: RecoveryStyle, count: u64) -> LossRecovery {
    let mut recovery = LossRecovery::new(style, true);
    for _ in 0..count {
        recovery.on_sent(NOW, NextPacket::New);
    }
    recovery
}

#[test]
fn the_third_duplicate_ack_retransmits_the_first_packet() {
    for style in [RecoveryStyle::Reno, RecoveryStyle::NewReno] {
        let mut recovery = sent(style, 10);
        recovery.on_ack(NOW, 2, &[]);
        assert_eq!(recovery.on_ack(NOW, 2, &[]).lost, None);
        assert_eq!(recovery.on_ack(NOW, 2, &[]).lost, None);
        assert_eq!(recovery.on_ack(NOW, 2, &[]).lost, Some(2));
        assert_eq!(recovery.next_packet(100, true), Some(NextPacket::Again(2)));
    }
}

#[test]
fn limited_transmit_lets_one_new_packet_out_for_each_of_the_first_two_duplicate_acks() {
    let mut recovery = sent(RecoveryStyle::NewReno, 4);
    assert_eq!(recovery.next_packet(4, true), None);
    recovery.on_ack(NOW, 0, &[]);
    assert_eq!(recovery.next_packet(4, true), Some(NextPacket::New));
    let mut without = LossRecovery::new(RecoveryStyle::NewReno, false);
    for _ in 0..4 {
        without.on_sent(NOW, NextPacket::New);
    }
    without.on_ack(NOW, 0, &[]);
    assert_eq!(without.next_packet(4, true), None);
}

#[test]
fn a_fast_retransmission_does_not_wait_for_the_window() {
    let mut recovery = sent(RecoveryStyle::Sack, 10);
    recovery.on_ack(NOW, 0, &[SackBlock { start: 1, end: 4 }]);
    assert_eq!(recovery.next_packet(2, true), Some(NextPacket::Again(0)));
    recovery.on_sent(NOW, NextPacket::Again(0));
    assert_eq!(recovery.next_packet(2, true), None);
}

/// Sack1 of ns-2 sends all of it again, in order.
#[test]
fn sack_after_a_timeout_is_heeded_unless_told_otherwise() {
    let again_after_the_first = |mut recovery: LossRecovery| {
        recovery.on_timeout(NOW);
        recovery.on_sent(NOW, NextPacket::Again(0));
        let outcome = recovery.on_ack(NOW, 1, &[SackBlock { start: 2, end: 5 }]);
        assert_eq!(outcome.lost, None);
        let mut again = Vec::new();
        while let Some(packet @ NextPacket::Again(number)) = recovery.next_packet(100, false) {
            recovery.on_sent(NOW, packet);
            again.push(number);
        }
        (again, recovery)
    };
    let (again, _) = again_after_the_first(sent(RecoveryStyle::Sack, 6));
    assert_eq!(again, [1, 5]);
    let without = sent(RecoveryStyle::Sack, 6).without_sack_after_timeout();
    let (again, mut recovery) = again_after_the_first(without);
    assert_eq!(again, [1, 2, 3, 4, 5]);
    recovery.on_ack(NOW, 6, &[]);
    for number in 6..10 {
        assert_eq!(recovery.on_sent(NOW, NextPacket::New), number);
    }
    let outcome = recovery.on_ack(NOW, 6, &[SackBlock { start: 7, end: 10 }]);
    assert_eq!((outcome.lost, outcome.newly_acknowledged), (Some(6), 3));
}

#[test]
fn a_partial_ack_prolongs_newreno_and_ends_reno() {
    for (style, prolonged) in [(RecoveryStyle::NewReno, true), (RecoveryStyle::Reno, false)] {
        let mut recovery = sent(style, 10);
        for _ in 0..3 {
            recovery.on_ack(NOW, 0, &[]);
        }
        recovery.on_sent(NOW, NextPacket::Again(0));
        recovery.on_ack(NOW, 4, &[]);
        assert_eq!(recovery.in_recovery(), prolonged);
        let next = recovery.next_packet(100, false);
        assert_eq!(next, prolonged.then_some(NextPacket::Again(4)));
    }
}

#[test]
fn only_the_first_partial_ack_of_an_episode_restarts_the_timer() {
    let mut recovery = sent(RecoveryStyle::NewReno, 10);
    for _ in 0..3 {
        recovery.on_ack(NOW, 0, &[]);
    }
    for (partial, restarts) in [(2, true), (4, false), (6, false), (10, true)] {
        recovery.on_ack(NOW, partial, &[]);
        assert_eq!(recovery.restarts_timer(), restarts, "{partial}");
    }
}

#[test]
fn duplicate_acks_of_before_a_timeout_begin_no_episode() {
    let mut recovery = sent(RecoveryStyle::Sack, 10);
    recovery.on_timeout(NOW);
    for _ in 0..5 {
        assert_eq!(recovery.on_ack(NOW, 0, &[SackBlock { start: 5, end: 10 }]).lost, None);
    }
    assert_eq!(recovery.next_packet(1, true), Some(NextPacket::Again(0)));
}

/// Lets a sender time out, send everything again, and learn that all of it had arrived but the
/// first packet; the duplicate ACKs that follow are for packets sent twice. Answers which
/// packet each of two rounds of duplicate ACKs begins an episode for: at the end of what was
/// sent by the timeout, and one packet further.
fn episodes_after_a_timeout(style: RecoveryStyle) -> [Option<u64>; 2] {
    let mut recovery = sent(style, 10);
    recovery.on_timeout(NOW);
    while let Some(packet) = recovery.next_packet(100, false) {
        recovery.on_sent(NOW, packet);
    }
    for _ in 0..5 {
        recovery.on_sent(NOW, NextPacket::New);
    }
    let mut at = |cumulative: u64| {
        recovery.on_ack(NOW, cumulative, &[]);
        let mut lost = [0; 3].map(|_| recovery.on_ack(NOW, cumulative, &[]).lost);
        lost.sort_unstable();
        lost[2]
    };
    [at(10), at(11)]
}

#[test]
fn after_a_timeout_newreno_waits_for_an_ack_of_more_than_was_sent_by_then() {
    assert_eq!(episodes_after_a_timeout(RecoveryStyle::NewReno), [None, Some(11)]);
}

#[test]
fn after_a_timeout_sack_waits_for_an_ack_of_all_that_was_sent_by_then() {
    assert_eq!(episodes_after_a_timeout(RecoveryStyle::Sack)[0], Some(10));
}

#[test]
fn a_sender_with_sack_repairs_several_losses_in_one_episode() {
    let mut recovery = sent(RecoveryStyle::Sack, 10);
    let lost = recovery.on_ack(NOW, 0, &[SackBlock { start: 3, end: 6 }]).lost;
    assert_eq!(lost, Some(0));
    for expected in 0..3 {
        assert_eq!(recovery.next_packet(100, true), Some(NextPacket::Again(expected)));
        recovery.on_sent(NOW, NextPacket::Again(expected));
    }
    assert_eq!(recovery.on_ack(NOW, 6, &[]).lost, None);
    assert!(recovery.in_recovery(), "until all that was outstanding is acknowledged");
    recovery.on_ack(NOW, 10, &[]);
    assert!(!recovery.in_recovery());
    assert_eq!(recovery.in_flight(), 0);
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// RACK with packets sent a millisecond apart from 0 ms on.
fn sent_by_time(count: u64) -> LossRecovery {
    let mut recovery = LossRecovery::new(RecoveryStyle::Rack, true);
    for packet in 0..count {
        recovery.on_sent(at(packet), NextPacket::New);
    }
    recovery
}

fn block(start: u64, end: u64) -> SackBlock {
    SackBlock { start, end }
}

#[test]
fn a_packet_overtaken_within_the_reordering_window_is_not_sent_again() {
    let mut recovery = sent_by_time(10);
    recovery.on_ack(at(100), 1, &[]);
    // Packet 1 is missing; 2 has the least RTT of 100 ms, so that 1 is lost at 1 + 100 + 25 ms.
    assert_eq!(recovery.on_ack(at(102), 1, &[block(2, 3)]).lost, None);
    assert_eq!(recovery.reordering_deadline(), Some(at(126)));
    assert_eq!(recovery.next_packet(100, false), None);
    assert_eq!(recovery.on_ack(at(104), 3, &[]).lost, None);
    assert_eq!(recovery.reordering_deadline(), None);
    assert_eq!(recovery.losses(), 0);
}

#[test]
fn after_the_reordering_window_the_packet_is_lost() {
    let mut recovery = sent_by_time(10);
    recovery.on_ack(at(100), 1, &[]);
    recovery.on_ack(at(102), 1, &[block(2, 3)]);
    assert_eq!(recovery.on_reordering_timer(at(125)), None);
    assert_eq!(recovery.on_reordering_timer(at(126)), Some(1));
    assert!(recovery.in_recovery());
    assert_eq!(recovery.next_packet(1, false), Some(NextPacket::Again(1)));
}

#[test]
fn without_reordering_three_packets_delivered_above_are_enough() {
    let mut recovery = sent_by_time(10);
    recovery.on_ack(at(100), 1, &[]);
    assert_eq!(recovery.on_ack(at(102), 1, &[block(2, 3)]).lost, None);
    assert_eq!(recovery.on_ack(at(103), 1, &[block(2, 4)]).lost, None);
    assert_eq!(recovery.on_ack(at(104), 1, &[block(2, 5)]).lost, Some(1));
}

#[test]
fn a_sender_that_has_seen_reordering_waits_even_then() {
    let mut recovery = sent_by_time(20);
    recovery.on_ack(at(100), 1, &[]);
    recovery.on_ack(at(102), 1, &[block(2, 3)]);
    recovery.on_ack(at(103), 3, &[]);
    recovery.on_ack(at(104), 3, &[block(4, 5)]);
    assert_eq!(recovery.on_ack(at(108), 3, &[block(4, 9)]).lost, None);
    assert_eq!(recovery.reordering_deadline(), Some(at(3 + 100 + 25)));
    assert_eq!(recovery.on_reordering_timer(at(128)), Some(3));
}

/// A window of which packet 0 is lost twice: how often it was sent by the time at which a packet
/// sent after its retransmission has arrived.
fn transmissions_of_a_packet_lost_twice(style: RecoveryStyle) -> u64 {
    let mut recovery = LossRecovery::new(style, true);
    for packet in 0..10 {
        recovery.on_sent(at(packet), NextPacket::New);
    }
    let mut transmissions = 1;
    recovery.on_ack(at(104), 0, &[block(1, 5)]);
    for (now, end) in [(105, 6), (106, 7), (107, 8), (108, 9), (109, 10), (210, 11), (211, 12)] {
        while let Some(packet) = recovery.next_packet(12, true) {
            recovery.on_sent(at(now), packet);
            transmissions += u64::from(packet == NextPacket::Again(0));
        }
        recovery.on_ack(at(now), 0, &[block(1, end)]);
    }
    while let Some(packet @ NextPacket::Again(_)) = recovery.next_packet(12, false) {
        recovery.on_sent(at(212), packet);
        transmissions += u64::from(packet == NextPacket::Again(0));
    }
    transmissions
}

#[test]
fn a_lost_retransmission_is_found_by_time_and_not_by_sack() {
    assert_eq!(transmissions_of_a_packet_lost_twice(RecoveryStyle::Sack), 2);
    assert_eq!(transmissions_of_a_packet_lost_twice(RecoveryStyle::Rack), 3);
}

#[test]
fn a_probe_waits_for_two_round_trips_and_for_the_delayed_ack_of_a_single_packet() {
    let millis = Duration::from_millis;
    assert_eq!(probe_timeout(Some(millis(50)), 1, millis(200)), millis(300));
    assert_eq!(probe_timeout(Some(millis(50)), 2, millis(200)), millis(102));
    assert_eq!(probe_timeout(None, 1, millis(200)), millis(1000));
}

#[test]
fn a_probe_of_the_last_packet_finds_the_lost_tail() {
    let mut recovery = sent_by_time(5);
    recovery.on_ack(at(100), 1, &[]);
    assert!(recovery.may_probe());
    let probe = recovery.probe(false);
    assert_eq!(probe, NextPacket::Again(4));
    recovery.on_sent(at(300), probe);
    recovery.on_probe_sent(probe);
    assert!(!recovery.may_probe());
    assert_eq!(recovery.in_flight(), 5);
    assert_eq!(recovery.on_ack(at(400), 1, &[block(4, 5)]).lost, Some(1));
    let again: Vec<_> = std::iter::from_fn(|| {
        let packet = recovery.next_packet(10, false)?;
        recovery.on_sent(at(400), packet);
        Some(packet)
    })
    .collect();
    assert_eq!(again, [1, 2, 3].map(NextPacket::Again));
}

#[test]
fn a_probe_that_repairs_the_only_loss_is_answered_by_the_controller() {
    let mut recovery = sent_by_time(2);
    recovery.on_ack(at(100), 1, &[]);
    let probe = recovery.probe(false);
    recovery.on_sent(at(300), probe);
    recovery.on_probe_sent(probe);
    assert_eq!(recovery.on_ack(at(400), 2, &[]).lost, None, "the copy may still come");
    recovery.on_sent(at(400), NextPacket::New);
    assert_eq!(recovery.on_ack(at(500), 3, &[]).lost, Some(2));
    assert!(!recovery.in_recovery());
}

#[test]
fn a_probe_whose_packet_arrives_twice_repaired_nothing() {
    let mut recovery = sent_by_time(2);
    recovery.on_ack(at(100), 1, &[]);
    let probe = recovery.probe(false);
    recovery.on_sent(at(300), probe);
    recovery.on_probe_sent(probe);
    recovery.on_ack(at(390), 2, &[]);
    recovery.on_ack(at(400), 2, &[]);
    recovery.on_sent(at(400), NextPacket::New);
    assert_eq!(recovery.on_ack(at(500), 3, &[]).lost, None);
}

#[test]
fn a_timeout_by_time_leaves_what_was_sent_within_a_round_trip_and_what_has_arrived() {
    let mut recovery = sent_by_time(4);
    recovery.on_ack(at(100), 1, &[]);
    recovery.on_ack(at(103), 1, &[block(3, 4)]);
    recovery.on_sent(at(280), NextPacket::New);
    recovery.on_timeout(at(301));
    assert_eq!(recovery.in_flight(), 1, "the packet of 280 ms");
    let again: Vec<_> = std::iter::from_fn(|| {
        let packet = recovery.next_packet(10, false)?;
        recovery.on_sent(at(301), packet);
        Some(packet)
    })
    .collect();
    assert_eq!(again, [1, 2].map(NextPacket::Again));
}

/// Of ten packets the first arrives late, the next four are lost, and the timeout between was
/// spurious: which packets are sent again.
fn sent_again_after_a_spurious_timeout(style: RecoveryStyle) -> Vec<NextPacket> {
    let mut recovery = LossRecovery::new(style, true);
    recovery.on_handshake(Duration::from_millis(100));
    for packet in 0..10 {
        recovery.on_sent(at(packet), NextPacket::New);
    }
    recovery.on_timeout(at(1_000));
    assert_eq!(recovery.next_packet(1, false), Some(NextPacket::Again(0)));
    recovery.on_sent(at(1_000), NextPacket::Again(0));
    recovery.on_ack(at(1_200), 1, &[]);
    recovery.undo_timeout();
    assert_eq!(recovery.in_flight(), 9, "{style:?}: all that was lost is in flight again");
    for packet in 6..10 {
        recovery.on_ack(at(1_200 + packet), 1, &[block(5, packet)]);
    }
    let mut again = Vec::new();
    while let Some(packet) = recovery.next_packet(20, false) {
        recovery.on_sent(at(1_210), packet);
        again.push(packet);
    }
    again
}

#[test]
fn what_was_lost_before_a_spurious_timeout_is_found_after_it_is_undone() {
    for style in [RecoveryStyle::Sack, RecoveryStyle::Rack] {
        let again = sent_again_after_a_spurious_timeout(style);
        assert_eq!(again, [1, 2, 3, 4].map(NextPacket::Again), "{style:?}");
    }
}

/// A path that delivers each packet at a time of its own, or never.
#[derive(Default)]
struct Path {
    arrivals: BTreeMap<(Time, u64), u64>,
    sent: u64,
}

impl Path {
    fn send(&mut self, now: Time, number: u64, fate: Option<u64>) {
        if let Some(delay) = fate {
            self.arrivals.insert((now + Duration::from_millis(delay), self.sent), number);
        }
        self.sent += 1;
    }
}

/// Runs RACK with probes over a path that loses (`None`) and delays packets as `fates` says; what
/// has arrived in the end.
fn run_by_time(
    fates: Vec<Option<u64>>,
    total: u64,
    window: u64,
    mut check: impl FnMut(&LossRecovery),
) -> u64 {
    let mut recovery = LossRecovery::new(RecoveryStyle::Rack, true);
    let mut receiver = crate::receive::Reassembly::default();
    let mut fates = fates.into_iter();
    let mut path = Path::default();
    let (mut now, mut timer) = (Time::ZERO, Time::NEVER);
    let (mut probe, mut steps) = (Time::NEVER, 0);
    while receiver.next() < total && steps < 100_000 {
        steps += 1;
        while let Some(packet) = recovery.next_packet(window, recovery.next() < total) {
            let number = recovery.on_sent(now, packet);
            path.send(now, number, fates.next().unwrap_or(Some(50)));
            timer = timer.min(now + Duration::from_secs(1));
            check(&recovery);
        }
        if probe == Time::NEVER && recovery.may_probe() {
            probe = now + Duration::from_millis(300);
        }
        let arrival = path.arrivals.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let reordering = recovery.reordering_deadline().unwrap_or(Time::NEVER);
        now = arrival.min(timer).min(probe).min(reordering).max(now);
        if arrival == now {
            let Some((_, number)) = path.arrivals.pop_first() else { break };
            receiver.receive(number);
            if recovery.on_ack(now, receiver.next(), receiver.blocks()).advanced {
                (timer, probe) = (now + Duration::from_secs(1), Time::NEVER);
            }
        } else if reordering == now {
            recovery.on_reordering_timer(now);
        } else if probe == now {
            probe = Time::NEVER;
            if recovery.may_probe() {
                let packet = recovery.probe(recovery.next() < total);
                let number = recovery.on_sent(now, packet);
                recovery.on_probe_sent(packet);
                path.send(now, number, fates.next().unwrap_or(Some(50)));
            }
        } else {
            recovery.on_timeout(now);
            timer = now + Duration::from_secs(1);
        }
        check(&recovery);
    }
    receiver.next()
}

proptest! {
    /// A sender and a receiver over a path that loses packets at will: every packet
    /// arrives in the end, and the count in flight never exceeds what is outstanding twice.
    #[test]
    fn every_packet_arrives_in_the_end(
        losses in proptest::collection::vec(any::<bool>(), 0..400),
        window in 1u64..40,
        style in prop_oneof![
            Just(RecoveryStyle::Reno), Just(RecoveryStyle::NewReno), Just(RecoveryStyle::Sack)
        ],
    ) {
        let mut recovery = LossRecovery::new(style, true);
        let mut receiver = crate::receive::Reassembly::default();
        let mut losses = losses.into_iter();
        let total = 200;
        let mut wire = std::collections::VecDeque::new();
        for _step in 0..20_000 {
            let new_available = recovery.next() < total;
            if let Some(packet) = recovery.next_packet(window, new_available) {
                let number = recovery.on_sent(NOW, packet);
                if !losses.next().unwrap_or(false) {
                    wire.push_back(number);
                }
            } else if let Some(number) = wire.pop_front() {
                receiver.receive(number);
                recovery.on_ack(NOW, receiver.next(), receiver.blocks());
            } else if recovery.outstanding() > 0 {
                recovery.on_timeout(NOW);
            } else {
                break;
            }
            prop_assert!(recovery.in_flight() <= 2 * recovery.outstanding());
        }
        prop_assert_eq!(receiver.next(), total);
    }

    /// The same by time, over a path that also delays at will, so that packets overtake.
    #[test]
    fn every_packet_arrives_in_the_end_by_time(
        fates in proptest::collection::vec(proptest::option::of(10u64..200), 0..400),
        window in 1u64..40,
    ) {
        let total = 200;
        let arrived = run_by_time(fates, total, window, |recovery| {
            // A window of packets, a probe, and a forced retransmission; an underflow would be huge.
            assert!(recovery.in_flight() <= 2 * recovery.outstanding());
            assert!(recovery.outstanding() <= total);
        });
        prop_assert_eq!(arrived, total);
    }

    /// What is delayed by less than a quarter of the least round trip is never sent again.
    #[test]
    fn reordering_within_the_window_causes_no_retransmission(
        delays in proptest::collection::vec(100u64..=124, 200..=200),
        window in 1u64..3,
    ) {
        let fates = std::iter::once(Some(100)).chain(delays.into_iter().map(Some)).collect();
        let arrived = run_by_time(fates, 200, window, |recovery| {
            assert_eq!(recovery.losses(), 0);
        });
        prop_assert_eq!(arrived, 200);
    }
}

proptest! {
    /// The short way of acknowledgements that arrive in order, against the one for all of them.
    #[test]
    fn an_acknowledgement_changes_the_same_whether_watched_or_not(
        style in 0usize..4,
        steps in proptest::collection::vec((0u8..8, 0u64..8, 0u64..8), 1..200),
    ) {
        let style = [
            RecoveryStyle::Reno,
            RecoveryStyle::NewReno,
            RecoveryStyle::Sack,
            RecoveryStyle::Rack,
        ][style];
        let mut short = sent(style, 1);
        let mut long = short.clone();
        for (step, (what, near, far)) in steps.into_iter().enumerate() {
            let now = Time::from_nanos(step as u64 * 10_000_000);
            if what == 0 && short.outstanding() > 0 {
                short.on_timeout(now);
                long.on_timeout(now);
            }
            let cumulative = short.first() + near;
            let block = SackBlock { start: cumulative + 1 + far, end: cumulative + 2 + far };
            let blocks: &[SackBlock] = if what < 3 { &[block] } else { &[] };
            let outcome = short.on_ack(now, cumulative, blocks);
            prop_assert_eq!(outcome, long.on_ack_watched(now, cumulative, blocks, &mut ()));
            while let Some(next) = short.next_packet(10, true) {
                prop_assert_eq!(Some(next), long.next_packet(10, true));
                prop_assert_eq!(short.on_sent(now, next), long.on_sent(now, next));
            }
            prop_assert_eq!(None, long.next_packet(10, true));
            prop_assert_eq!(short.in_flight(), long.in_flight());
            prop_assert_eq!(short.repairs(), long.repairs());
        }
    }
}

/// The short way of most acknowledgements and packets leaves what the long one leaves.
#[test]
fn an_undisturbed_acknowledgement_is_that_of_on_ack() {
    let mut short = LossRecovery::new(RecoveryStyle::Sack, true);
    for _ in 0..10 {
        short.on_sent(Time::ZERO, NextPacket::New);
    }
    let mut long = short.clone();
    assert_eq!(short.acknowledge_undisturbed(0), None, "a duplicate");
    assert_eq!(short.acknowledge_undisturbed(11), None, "of what was not sent");
    assert_eq!(short.acknowledge_undisturbed(3), Some(3));
    long.on_ack_watched(Time::ZERO, 3, &[], &mut ());
    assert_eq!(short.send_undisturbed(7, true), None, "the window is full");
    assert_eq!(short.send_undisturbed(8, false), None, "nothing new");
    assert_eq!(short.send_undisturbed(8, true), Some(10));
    assert_eq!(long.next_packet(8, true), Some(NextPacket::New));
    assert_eq!(long.on_sent(Time::ZERO, NextPacket::New), 10);
    // Where retransmissions begin follows the lowest packet when it is read.
    assert_eq!((short.next_packet(8, true), long.next_packet(8, true)), (None, None));
    assert_eq!(format!("{short:?}"), format!("{long:?}"));
    let block = SackBlock { start: 5, end: 6 };
    short.on_ack(Time::ZERO, 3, &[block]);
    assert_eq!(short.acknowledge_undisturbed(5), None, "5 is held beyond a gap");
}
