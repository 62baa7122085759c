use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::RandomStream;
use proptest::prelude::*;

use super::*;
use crate::{CoDel, CoDelParameters, FqCoDel, FqCoDelParameters, Limit};

const RATE: Rate = Rate::from_bits_per_sec(10_000_000);

fn link(discipline: Box<dyn Discipline>, loss: LossModel) -> ScheduledLink {
    let parameters = ScheduledLinkParameters {
        rate: RATE,
        delay: DelayLaw::Constant(Duration::from_millis(1)),
        mtu: Some(Bytes::new(1500)),
        discipline,
        loss,
        reordering: false,
        extras: Extras::default(),
    };
    ScheduledLink::new(parameters, 3, "test")
}

fn disciplines(limit: u64, ecn: bool) -> Vec<Box<dyn Discipline>> {
    let codel =
        CoDelParameters { ecn, limit: Limit::packets(Packets::new(limit)), ..Default::default() };
    let fq = FqCoDelParameters { codel, queues: 4, ..FqCoDelParameters::default() };
    vec![Box::new(CoDel::new(codel)), Box::new(FqCoDel::new(fq, &mut RandomStream::new(1, "fq")))]
}

/// The output of a link for packets offered at given times.
#[derive(Default)]
struct Outcome {
    departed: Vec<Departure>,
    dropped: Vec<Dropped>,
}

/// Drives a link as a simulator does: each packet is offered at its time, and the transmitter
/// is served at the link's times, until `end`, when the link is empty.
fn drive(link: &mut ScheduledLink, offered: &[Queued], end: Time) -> Outcome {
    let mut outcome = Outcome::default();
    let serve = |link: &mut ScheduledLink, mut now: Time, until: Time, outcome: &mut Outcome| loop {
        let next = link.next_dequeue(now);
        if next > until || next == Time::NEVER {
            return;
        }
        now = next;
        outcome.departed.extend(link.dequeue(now, &mut outcome.dropped));
    };
    let mut now = Time::ZERO;
    for packet in offered {
        serve(link, now, packet.enqueued, &mut outcome);
        now = packet.enqueued;
        link.enqueue(now, *packet, &mut outcome.dropped);
    }
    serve(link, now, end, &mut outcome);
    outcome
}

fn traffic() -> impl Strategy<Value = Vec<Queued>> {
    let packet = (0u64..2_000_000, 0u32..6, 40u64..1600, any::<bool>());
    prop::collection::vec(packet, 1..400).prop_map(|packets| {
        let mut now = Time::ZERO;
        let mut handle = 0;
        let made = packets.into_iter().map(|(gap, flow, size, ecn_capable)| {
            now += Duration::from_nanos(gap);
            handle += 1;
            let size = Bytes::new(size);
            Queued { handle, flow, class: 0, size, ecn_capable, l4s: false, enqueued: now }
        });
        made.collect()
    })
}

proptest! {
    #[test]
    fn every_packet_leaves_once_or_is_dropped_once_and_the_counts_are_exact(
        offered in traffic(), limit in 1u64..40, ecn in any::<bool>(),
    ) {
        for discipline in disciplines(limit, ecn) {
            let mut link = link(discipline, LossModel::None);
            let end = Time::from_secs_f64(10.0);
            let outcome = drive(&mut link, &offered, end);
            let left = outcome.departed.iter().map(|departure| departure.packet);
            let all: Vec<Queued> =
                left.chain(outcome.dropped.iter().map(|dropped| dropped.packet)).collect();
            let handles: BTreeSet<u32> = all.iter().map(|packet| packet.handle).collect();
            prop_assert_eq!(handles.len(), all.len(), "repeated");
            prop_assert_eq!(all.len(), offered.len(), "lost");
            let statistics = link.statistics(end);
            prop_assert_eq!(statistics.arrivals.get(), offered.len() as u64);
            prop_assert_eq!(statistics.departures.get(), outcome.departed.len() as u64);
            prop_assert_eq!(statistics.drops.refused().get(), outcome.dropped.len() as u64);
            prop_assert_eq!(statistics.waiting, Packets::new(0));
            prop_assert_eq!(link.occupancy(), Occupancy::default());
            let bytes: Bytes = outcome.departed.iter().map(|departure| departure.packet.size).sum();
            prop_assert_eq!(statistics.bytes_departed, bytes);
            let marks = outcome.departed.iter().filter(|departure| departure.marked).count();
            prop_assert_eq!(statistics.marks.get(), marks as u64);
        }
    }

    #[test]
    fn packets_of_a_flow_keep_their_order(offered in traffic(), limit in 1u64..40) {
        for discipline in disciplines(limit, false) {
            let mut link = link(discipline, LossModel::None);
            let outcome = drive(&mut link, &offered, Time::from_secs_f64(10.0));
            let mut last: BTreeMap<u32, (u32, Time)> = BTreeMap::new();
            for departure in &outcome.departed {
                let arrives = departure.arrives.unwrap();
                let before = last.insert(departure.packet.flow, (departure.packet.handle, arrives));
                if let Some((handle, earlier)) = before {
                    prop_assert!(handle < departure.packet.handle && earlier <= arrives);
                }
            }
        }
    }

    #[test]
    fn random_delays_keep_the_order_of_departures_unless_reordering_is_allowed(
        offered in traffic(), seed: u64,
    ) {
        let inversions = |reordering| {
            let parameters = ScheduledLinkParameters {
                rate: RATE,
                delay: DelayLaw::Exponential(Duration::from_millis(20)),
                mtu: None,
                discipline: disciplines(400, false).remove(1),
                loss: LossModel::None,
                reordering,
                extras: Extras::default(),
            };
            let mut link = ScheduledLink::new(parameters, seed, "test");
            let outcome = drive(&mut link, &offered, Time::from_secs_f64(10.0));
            let arrivals: Vec<Time> =
                outcome.departed.iter().map(|sent| sent.arrives.unwrap()).collect();
            arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count()
        };
        prop_assert_eq!(inversions(false), 0);
        prop_assert!(offered.len() < 50 || inversions(true) > 0);
    }

    #[test]
    fn the_link_is_never_idle_while_packets_wait(offered in traffic()) {
        for discipline in disciplines(40, false) {
            let mut link = link(discipline, LossModel::None);
            let outcome = drive(&mut link, &offered, Time::from_secs_f64(10.0));
            let mut free = Time::ZERO;
            for departure in &outcome.departed {
                let sent = RATE.time_to_send(departure.packet.size);
                let arrives = departure.arrives.unwrap();
                let ends = Time::ZERO + arrives.since(Time::ZERO + Duration::from_millis(1));
                let starts = Time::ZERO + ends.since(Time::ZERO + sent);
                prop_assert!(starts >= free);
                free = ends;
            }
            let busy: Duration =
                outcome.departed.iter().map(|sent| RATE.time_to_send(sent.packet.size)).sum();
            let end = Time::from_secs_f64(10.0);
            let share = busy.as_secs_f64() / end.as_secs_f64();
            prop_assert!((link.statistics(end).busy - share).abs() < 1e-9);
        }
    }
}

#[test]
fn a_lost_packet_takes_its_time_and_does_not_arrive() {
    let mut link = link(disciplines(10, false).remove(0), LossModel::bernoulli(1.0).unwrap());
    let size = Bytes::new(1250);
    let packet = Queued {
        handle: 0,
        flow: 0,
        class: 0,
        size,
        ecn_capable: false,
        l4s: false,
        enqueued: Time::ZERO,
    };
    let outcome = drive(&mut link, &[packet], Time::from_secs_f64(1.0));
    assert_eq!(outcome.departed[0].arrives, None);
    let statistics = link.statistics(Time::from_secs_f64(1.0));
    assert_eq!((statistics.drops.loss, statistics.departures), (Packets::new(1), Packets::new(1)));
    assert!((statistics.busy - 0.001).abs() < 1e-9);
}

#[test]
fn the_mean_queue_counts_those_that_wait() {
    let mut link = link(disciplines(10, false).remove(0), LossModel::None);
    let packet = |handle| Queued {
        handle,
        flow: 0,
        class: 0,
        size: Bytes::new(1250),
        ecn_capable: false,
        l4s: false,
        enqueued: Time::ZERO,
    };
    // 1 ms each: the second waits 1 ms, the third 2 ms.
    drive(&mut link, &[packet(0), packet(1), packet(2)], Time::from_secs_f64(0.01));
    let mean = link.statistics(Time::from_secs_f64(0.01)).mean_packets;
    assert!((mean - 0.3).abs() < 1e-9, "{mean}");
}

#[test]
fn a_flow_is_new_again_after_the_link_was_idle() {
    let mut random = RandomStream::new(2, "hash");
    let fq = FqCoDel::new(FqCoDelParameters::default(), &mut random);
    let mut link = link(Box::new(fq), LossModel::None);
    let packet = |handle, flow, micros| Queued {
        handle,
        flow,
        class: 0,
        size: Bytes::new(1000),
        ecn_capable: false,
        l4s: false,
        enqueued: Time::ZERO + Duration::from_micros(micros),
    };
    let offered = [
        packet(0, 1, 0),
        packet(1, 1, 1),
        packet(2, 1, 10_000),
        packet(3, 1, 10_001),
        packet(4, 1, 10_002),
        packet(5, 7, 10_003),
    ];
    let outcome = drive(&mut link, &offered, Time::from_secs_f64(1.0));
    let order: Vec<u32> = outcome.departed.iter().map(|sent| sent.packet.handle).collect();
    // At 1.6 ms the transmitter found the flow's queue empty, which takes it off the lists (RFC 8290
    // section 4.2). So from 10 ms on a full quantum of 1514 bytes lets two packets go before the other's.
    assert_eq!(order, [0, 1, 2, 3, 5, 4]);
}
