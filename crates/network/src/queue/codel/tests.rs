use super::*;

fn packet(handle: u32, enqueued: Time) -> Queued {
    Queued {
        handle,
        flow: 0,
        class: 0,
        size: Bytes::new(1500),
        ecn_capable: true,
        l4s: false,
        enqueued,
    }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Fills a queue with packets that arrived at 0 and dequeues one each millisecond.
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
fn a_packet_beyond_the_limit_is_dropped() {
    let limit = Limit::packets(Packets::new(2));
    let mut queue = CoDel::new(CoDelParameters { limit, ..CoDelParameters::default() });
    let mut drops = Vec::new();
    for handle in 0..3 {
        queue.enqueue(at(0), packet(handle, at(0)), &mut drops);
    }
    assert_eq!(drops, [Dropped { packet: packet(2, at(0)), reason: DropReason::QueueFull }]);
}

/// A law in the dropping state, with `count` drops and a start at `last_count`.
fn dropping(count: u32, last_count: u32, drop_next: Time) -> CoDelLaw {
    CoDelLaw { first_above: Some(at(0)), drop_next, dropping: false, count, last_count }
}

#[test]
fn a_state_entered_again_soon_goes_on_at_the_rate_that_held_the_queue() {
    // RFC 8289 section 5.5: count - lastcount where more than 1, within 16 intervals.
    let parameters = roomy();
    for (count, last_count, entered, expected) in
        [(9, 4, 1_700, 5), (9, 4, 1_699, 5), (5, 4, 1_699, 1), (9, 4, 1_701, 1)]
    {
        let mut law = dropping(count, last_count, at(101));
        law.enter_dropping(at(entered), &parameters);
        assert_eq!((law.count, law.last_count), (expected, expected), "{count} at {entered}");
        let step = parameters.interval.mul_f64(1.0 / f64::from(expected).sqrt());
        assert_eq!(law.drop_next, at(entered) + step);
    }
}

#[test]
fn one_packet_below_the_target_ends_the_dropping_state_and_the_interval_begins_anew() {
    let mut law = CoDelLaw { dropping: true, count: 3, ..dropping(3, 1, at(200)) };
    let (mut fifo, mut drops) = (Fifo::default(), Vec::new());
    for handle in 0..4 {
        fifo.push(packet(handle, at(198)));
    }
    // It waited 2 ms, though a drop is due.
    law.dequeue(at(200), &mut fifo, &roomy(), &mut drops).unwrap();
    assert!(!law.dropping && law.first_above.is_none() && drops.is_empty());
    // Above the target again: an interval has to pass.
    law.dequeue(at(210), &mut fifo, &roomy(), &mut drops).unwrap();
    assert_eq!(law.first_above, Some(at(310)));
    assert!(drops.is_empty());
}

#[test]
fn with_no_more_than_a_packet_behind_it_nothing_is_dropped_however_long_it_waited() {
    let mut law = CoDelLaw { dropping: true, count: 3, ..dropping(3, 1, at(200)) };
    let (mut fifo, mut drops) = (Fifo::default(), Vec::new());
    fifo.push(packet(0, at(0)));
    fifo.push(packet(1, at(0)));
    law.dequeue(at(500), &mut fifo, &roomy(), &mut drops).unwrap();
    assert!(drops.is_empty() && !law.dropping && law.first_above.is_none());
}

#[test]
fn several_drops_may_be_due_at_one_dequeue() {
    let mut law = CoDelLaw { dropping: true, count: 100, ..dropping(100, 1, at(200)) };
    let (mut fifo, mut drops) = (Fifo::default(), Vec::new());
    for handle in 0..20 {
        fifo.push(packet(handle, at(0)));
    }
    // Drops are due about each 10 ms from 200 ms on: at 200, 210 and 220 ms, nearly.
    let chosen = law.dequeue(at(220), &mut fifo, &roomy(), &mut drops).unwrap();
    assert_eq!((drops.len(), chosen.packet.handle, law.count), (3, 3, 103));
}
