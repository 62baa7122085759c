use ontempo_foundation::Duration;
use proptest::prelude::*;

use super::*;

fn packet(handle: u32, flow: u32, size: u64) -> Queued {
    let enqueued = Time::ZERO;
    Queued {
        handle,
        flow,
        class: 0,
        size: Bytes::new(size),
        ecn_capable: false,
        l4s: false,
        enqueued,
    }
}

fn queues(parameters: FqCoDelParameters) -> FqCoDel {
    FqCoDel::new(parameters, &mut RandomStream::new(2, "hash"))
}

/// Two flows that do not share a queue.
fn two_flows(queues: &FqCoDel) -> (u32, u32) {
    let other = (1..).find(|flow| queues.queue_of(*flow) != queues.queue_of(0)).unwrap();
    (0, other)
}

proptest! {
    #[test]
    fn two_flows_that_both_wait_get_the_same_within_a_quantum_and_a_packet(
        sizes in prop::collection::vec((40u64..1515, 40u64..1515), 20..200),
        taken in 1usize..30,
    ) {
        let mut fq = queues(FqCoDelParameters::default());
        let (one, other) = two_flows(&fq);
        let mut drops = Vec::new();
        for (handle, (first, second)) in sizes.iter().enumerate() {
            fq.enqueue(Time::ZERO, packet(handle as u32, one, *first), &mut drops);
            fq.enqueue(Time::ZERO, packet(handle as u32, other, *second), &mut drops);
        }
        let mut sent = [0i64; 2];
        let mut left = [sizes.len(); 2];
        for _ in 0..taken {
            let chosen = fq.dequeue(Time::ZERO, &mut drops).unwrap();
            let flow = usize::from(chosen.packet.flow == other);
            sent[flow] += chosen.packet.size.get() as i64;
            left[flow] -= 1;
            if left.contains(&0) {
                break;
            }
            // Each in its turn may pass its quantum by less than a packet.
            prop_assert!((sent[0] - sent[1]).abs() <= 1514 + 1514, "{sent:?}");
        }
        prop_assert!(drops.is_empty());
    }
}

#[test]
fn a_flow_of_few_packets_goes_before_one_that_fills_the_queue() {
    let mut fq = queues(FqCoDelParameters::default());
    let (bulk, sparse) = two_flows(&fq);
    let mut drops = Vec::new();
    for handle in 0..50 {
        fq.enqueue(Time::ZERO, packet(handle, bulk, 1500), &mut drops);
    }
    for _ in 0..5 {
        fq.dequeue(Time::ZERO, &mut drops);
    }
    fq.enqueue(Time::ZERO, packet(99, sparse, 100), &mut drops);
    assert_eq!(fq.dequeue(Time::ZERO, &mut drops).unwrap().packet.handle, 99);
}

#[test]
fn beyond_the_limit_the_longest_queue_loses_half_from_its_head() {
    let codel = CoDelParameters {
        limit: Limit::packets(Packets::new(10)),
        ..FqCoDelParameters::default().codel
    };
    let mut fq = queues(FqCoDelParameters { codel, ..FqCoDelParameters::default() });
    let (long, short) = two_flows(&fq);
    let mut drops = Vec::new();
    for handle in 0..8 {
        fq.enqueue(Time::ZERO, packet(handle, long, 1000), &mut drops);
    }
    for handle in 8..11 {
        fq.enqueue(Time::ZERO, packet(handle, short, 1000), &mut drops);
    }
    let handles: Vec<u32> = drops.iter().map(|dropped| dropped.packet.handle).collect();
    assert_eq!(handles, [0, 1, 2, 3]);
    assert!(drops.iter().all(|dropped| dropped.reason == DropReason::QueueFull));
    assert_eq!(fq.occupancy().packets, Packets::new(7));
}

#[test]
fn each_queue_has_its_own_codel() {
    let mut fq = queues(FqCoDelParameters::default());
    let (bulk, sparse) = two_flows(&fq);
    let mut drops = Vec::new();
    for handle in 0..1000 {
        fq.enqueue(Time::ZERO, packet(handle, bulk, 1500), &mut drops);
    }
    for millis in 0..500 {
        let now = Time::ZERO + Duration::from_millis(millis);
        let late = Queued { enqueued: now, ..packet(9999, sparse, 100) };
        fq.enqueue(now, late, &mut drops);
        fq.dequeue(now, &mut drops);
        fq.dequeue(now, &mut drops);
    }
    assert!(!drops.is_empty());
    assert!(drops.iter().all(|dropped| dropped.packet.flow == bulk));
}

#[test]
fn a_new_queue_that_ran_empty_waits_out_a_round_of_the_old_ones() {
    let mut fq = queues(FqCoDelParameters::default());
    let (bulk, sparse) = two_flows(&fq);
    let mut drops = Vec::new();
    for handle in 0..50 {
        fq.enqueue(Time::ZERO, packet(handle, bulk, 100), &mut drops);
    }
    // 16 make its first quantum; it is an old one, with credit left.
    for _ in 0..20 {
        fq.dequeue(Time::ZERO, &mut drops);
    }
    let mut next = |fq: &mut FqCoDel| fq.dequeue(Time::ZERO, &mut drops).unwrap().packet.flow;
    fq.enqueue(Time::ZERO, packet(98, sparse, 100), &mut Vec::new());
    assert_eq!(next(&mut fq), sparse);
    // Its queue is found empty and goes behind the old ones; what comes then is not new.
    assert_eq!(next(&mut fq), bulk);
    fq.enqueue(Time::ZERO, packet(99, sparse, 100), &mut Vec::new());
    assert!(fq.new.is_empty());
    assert_eq!(fq.old.back(), Some(&fq.queue_of(sparse)));
}

#[test]
fn a_new_queue_goes_before_the_others_for_one_quantum_only() {
    let mut fq = queues(FqCoDelParameters::default());
    let (first, second) = two_flows(&fq);
    let mut drops = Vec::new();
    for handle in 0..4 {
        fq.enqueue(Time::ZERO, packet(handle, first, 1000), &mut drops);
    }
    for handle in 4..8 {
        fq.enqueue(Time::ZERO, packet(handle, second, 1000), &mut drops);
    }
    let order: Vec<u32> =
        (0..8).map(|_| fq.dequeue(Time::ZERO, &mut drops).unwrap().packet.handle).collect();
    // 1514 bytes let two packets of 1000 go. The 486 too many are owed in the next turn, whose
    // other 1028 let two more begin.
    assert_eq!(order, [0, 1, 4, 5, 2, 3, 6, 7]);
}

#[test]
fn the_longest_queue_is_the_one_of_most_bytes_and_loses_64_packets_at_most() {
    let codel = CoDelParameters {
        limit: Limit::packets(Packets::new(400)),
        ..FqCoDelParameters::default().codel
    };
    let mut fq = queues(FqCoDelParameters { codel, ..FqCoDelParameters::default() });
    let (small, large) = two_flows(&fq);
    let mut drops = Vec::new();
    for handle in 0..210 {
        fq.enqueue(Time::ZERO, packet(handle, small, 100), &mut drops);
    }
    for handle in 210..401 {
        fq.enqueue(Time::ZERO, packet(handle, large, 1000), &mut drops);
    }
    let handles: Vec<u32> = drops.iter().map(|dropped| dropped.packet.handle).collect();
    assert_eq!(handles, (210..274).collect::<Vec<u32>>());
}
