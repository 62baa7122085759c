use super::*;

fn packet(handle: u32, enqueued: Time) -> Queued {
    Queued { handle, flow: 0, class: 0, size: Bytes::new(1500), ecn_capable: true, enqueued }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Fills a queue with packets that came at 0 and takes one out each millisecond.
fn drops_of_a_standing_queue(parameters: CoDelParameters) -> (Vec<u64>, Vec<u64>) {
    let mut queue = CoDel::new(parameters);
    let mut drops = Vec::new();
    for handle in 0..2000 {
        queue.enqueue(at(0), packet(handle, at(0)), &mut drops);
    }
    let (mut dropped, mut marked) = (Vec::new(), Vec::new());
    for millis in 0..600 {
        let before = drops.len();
        if queue.dequeue(at(millis), &mut drops).unwrap().marked {
            marked.push(millis);
        }
        dropped.extend(std::iter::repeat_n(millis, drops.len() - before));
    }
    (dropped, marked)
}

fn roomy() -> CoDelParameters {
    CoDelParameters { limit: Limit::NONE, ..CoDelParameters::default() }
}

#[test]
fn drops_begin_after_an_interval_above_the_target_and_come_ever_faster() {
    // The wait passes 5 ms at 5 ms, an interval later drops begin; the next follow after
    // 100 / sqrt(1), 100 / sqrt(2), 100 / sqrt(3), … ms, to the next whole millisecond.
    let (dropped, _) = drops_of_a_standing_queue(roomy());
    assert_eq!(dropped[..5], [105, 205, 276, 334, 384]);
}

#[test]
fn with_ecn_packets_are_marked_at_the_same_times() {
    let (dropped, marked) = drops_of_a_standing_queue(CoDelParameters { ecn: true, ..roomy() });
    assert!(dropped.is_empty(), "{dropped:?}");
    assert_eq!(marked[..5], [105, 205, 276, 334, 384]);
}

#[test]
fn a_queue_that_is_never_above_the_target_loses_nothing() {
    let mut queue = CoDel::new(roomy());
    let mut drops = Vec::new();
    for millis in 0..1000 {
        queue.enqueue(at(millis), packet(millis as u32, at(millis)), &mut drops);
        if millis >= 4 {
            assert!(queue.dequeue(at(millis), &mut drops).is_some());
        }
    }
    assert_eq!(drops, []);
}

#[test]
fn a_packet_beyond_the_limit_is_turned_away() {
    let limit = Limit::packets(Packets::new(2));
    let mut queue = CoDel::new(CoDelParameters { limit, ..CoDelParameters::default() });
    let mut drops = Vec::new();
    for handle in 0..3 {
        queue.enqueue(at(0), packet(handle, at(0)), &mut drops);
    }
    assert_eq!(drops, [Dropped { packet: packet(2, at(0)), reason: DropReason::QueueFull }]);
}
