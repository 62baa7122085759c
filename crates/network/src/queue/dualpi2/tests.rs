use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ontempo_foundation::Rate;
use proptest::prelude::*;

use super::*;
use crate::{DelayLaw, Extras, LossModel, ScheduledLink, ScheduledLinkParameters};

fn packet(handle: u32, size: u64, (ecn_capable, l4s): (bool, bool), enqueued: Time) -> Queued {
    Queued { handle, flow: 0, class: 0, size: Bytes::new(size), ecn_capable, l4s, enqueued }
}

/// The pseudo-code of RFC 9332, appendix A, line by line, with the step in place of the ramp and the
/// weighted round robin of Linux; `update` is called by a clock.
#[derive(Default)]
struct PseudoCode {
    lq: VecDeque<(u32, u64, bool, Time)>,
    cq: VecDeque<(u32, u64, bool, Time)>,
    lq_count: f64,
    cq_count: f64,
    p: f64,
    prevq: f64,
    credit: f64,
}

impl PseudoCode {
    const TARGET: f64 = 0.015;
    const ALPHA: f64 = 0.16;
    const BETA: f64 = 3.2;
    const K: f64 = 2.0;

    fn recur(count: &mut f64, likelihood: f64) -> bool {
        *count += likelihood;
        if *count > 1.0 {
            *count -= 1.0;
            return true;
        }
        false
    }

    fn update(&mut self, now: Time) {
        let time = |q: &VecDeque<(u32, u64, bool, Time)>| {
            q.front().map_or(0.0, |head| now.since(head.3).as_secs_f64())
        };
        let curq = time(&self.cq).max(time(&self.lq));
        self.p += Self::ALPHA * (curq - Self::TARGET) + Self::BETA * (curq - self.prevq);
        self.p = self.p.clamp(0.0, 1.0);
        self.prevq = curq;
    }

    /// The packet sent, if it is marked, and those dropped before it.
    fn dequeue(&mut self, now: Time) -> (Option<(u32, bool)>, Vec<u32>) {
        let mut dropped = Vec::new();
        let (p_cl, p_c) = (Self::K * self.p, self.p * self.p);
        loop {
            if self.lq.is_empty() && self.cq.is_empty() {
                self.credit = -0.8 * 1514.0;
                return (None, dropped);
            }
            // Linux: "If either queue is empty, the WRR credit is kept unchanged."
            let is_shared = !self.lq.is_empty() && !self.cq.is_empty();
            if !self.lq.is_empty() && (self.cq.is_empty() || self.credit <= 0.0) {
                let (pkt, size, _, stamp) = self.lq.pop_front().unwrap();
                let mut marked = false;
                if p_cl < 1.0 {
                    let native = now.since(stamp) > Duration::from_millis(1) && !self.lq.is_empty();
                    let p_l = p_cl.max(if native { 1.0 } else { 0.0 });
                    if Self::recur(&mut self.lq_count, p_l) {
                        marked = true;
                    }
                } else {
                    if Self::recur(&mut self.lq_count, p_c) {
                        dropped.push(pkt);
                        continue;
                    }
                    if Self::recur(&mut self.lq_count, p_cl.min(1.0)) {
                        marked = true;
                    }
                }
                self.credit += if is_shared { 0.1 * size as f64 } else { 0.0 };
                return (Some((pkt, marked)), dropped);
            }
            let (pkt, size, ecn, _) = self.cq.pop_front().unwrap();
            let mut marked = false;
            if Self::recur(&mut self.cq_count, p_c) {
                // p_Cmax = (p_Lmax / k)^2
                if !ecn || p_c >= 0.25 {
                    dropped.push(pkt);
                    continue;
                }
                marked = true;
            }
            self.credit += if is_shared { (0.1 - 1.0) * size as f64 } else { 0.0 };
            return (Some((pkt, marked)), dropped);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Offer { size: u64, ecn_capable: bool, l4s: bool },
    Serve,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let offer = (40u64..1500, any::<bool>(), any::<bool>())
        .prop_map(|(size, ecn, l4s)| Step::Offer { size, ecn_capable: ecn || l4s, l4s });
    let step = prop_oneof![3 => offer, 2 => Just(Step::Serve)];
    prop::collection::vec((prop_oneof![3 => Just(0u64), 2 => 1u64..6, 1 => 6u64..60], step), 1..600)
}

proptest! {
    #[test]
    fn it_decides_as_the_pseudo_code_of_the_rfc(steps in steps()) {
        let mut queue = DualPi2::new(DualPi2Parameters::default());
        let mut plain = PseudoCode { credit: -0.8 * 1514.0, ..PseudoCode::default() };
        let (mut millis, mut updated) = (0u64, 0u64);
        for (number, (gap, step)) in (0u32..).zip(steps) {
            millis += gap;
            let now = Time::ZERO + Duration::from_millis(millis);
            while updated + 16 <= millis {
                updated += 16;
                plain.update(Time::ZERO + Duration::from_millis(updated));
            }
            let mut drops = Vec::new();
            match step {
                Step::Offer { size, ecn_capable, l4s } => {
                    queue.enqueue(now, packet(number, size, (ecn_capable, l4s), now), &mut drops);
                    let to = if l4s { &mut plain.lq } else { &mut plain.cq };
                    to.push_back((number, size, ecn_capable, now));
                    prop_assert!(drops.is_empty());
                }
                Step::Serve => {
                    let chosen = queue.dequeue(now, &mut drops);
                    let chosen = chosen.map(|chosen| (chosen.packet.handle, chosen.marked));
                    let dropped: Vec<u32> = drops.iter().map(|drop| drop.packet.handle).collect();
                    prop_assert_eq!((chosen, dropped), plain.dequeue(now));
                }
            }
            prop_assert!((queue.base_probability() - plain.p).abs() < 1e-9);
        }
    }
}

#[test]
fn more_than_the_limit_is_dropped_and_after_idle_time_it_begins_anew() {
    let limit = Limit::packets(Packets::new(2));
    let mut queue = DualPi2::new(DualPi2Parameters { limit, ..DualPi2Parameters::default() });
    let mut drops = Vec::new();
    for handle in 0..3 {
        let of = (true, handle == 1);
        queue.enqueue(Time::ZERO, packet(handle, 1000, of, Time::ZERO), &mut drops);
    }
    assert_eq!(drops.len(), 1);
    assert_eq!((drops[0].packet.handle, drops[0].reason), (2, DropReason::QueueFull));
    // The classic packet waits for a second: the probability rises.
    let later = Time::ZERO + Duration::from_secs(1);
    assert_eq!(queue.dequeue(later, &mut drops).unwrap().packet.handle, 1);
    assert!(queue.base_probability() > 0.9, "{}", queue.base_probability());
    queue.dequeue(later, &mut drops);
    let much_later = Time::ZERO + Duration::from_secs(1_000_000);
    queue.enqueue(much_later, packet(9, 1000, (false, false), much_later), &mut drops);
    assert_eq!(queue.base_probability(), 0.0);
}

/// Alternates between offering a packet of one queue and sending it, then fills both: which of these are sent first,
/// true for L4S.
fn after_a_time_alone(is_l4s: bool) -> Vec<bool> {
    let mut queue = DualPi2::new(DualPi2Parameters::default());
    let mut drops = Vec::new();
    for handle in 0..1000 {
        queue.enqueue(Time::ZERO, packet(handle, 1500, (true, is_l4s), Time::ZERO), &mut drops);
        queue.dequeue(Time::ZERO, &mut drops).unwrap();
    }
    for handle in 0..100 {
        let l4s = handle % 2 == 0;
        queue.enqueue(Time::ZERO, packet(handle, 1500, (true, l4s), Time::ZERO), &mut drops);
    }
    (0..50).map(|_| queue.dequeue(Time::ZERO, &mut drops).unwrap().packet.l4s).collect()
}

#[test]
fn a_queue_that_had_the_link_alone_owes_nothing_for_it() {
    // Shares of 9 to 1 hold while both have packets; from -0.8 * 1514 bytes on, 9 packets of 150
    // weighted bytes reach the other queue's turn.
    for is_l4s in [true, false] {
        let order = after_a_time_alone(is_l4s);
        let classic: Vec<usize> = (0..50).filter(|place| !order[*place]).collect();
        assert_eq!(classic, [9, 19, 29, 39, 49], "after L4S alone: {is_l4s}");
    }
}

#[test]
fn after_an_idle_time_the_low_latency_queue_goes_first() {
    let mut queue = DualPi2::new(DualPi2Parameters::default());
    let mut drops = Vec::new();
    for handle in 0..6 {
        queue.enqueue(Time::ZERO, packet(handle, 1500, (true, handle > 0), Time::ZERO), &mut drops);
    }
    while queue.occupancy().packets > Packets::new(0) {
        queue.dequeue(Time::ZERO, &mut drops);
    }
    assert_ne!(queue.credit, -0.8 * MTU);
    queue.on_idle();
    assert_eq!(queue.credit, -0.8 * MTU);
}

/// A flow that sends a window of packets: classic (Reno) or scalable (DCTCP, RFC 8257 section 3.3).
#[derive(Clone, Copy)]
struct Sender {
    is_scalable: bool,
    window: f64,
    in_flight: u64,
    /// Reno: no second reduction before this time. DCTCP: the end of the round trip that is counted.
    round_until: Time,
    /// DCTCP: answers in this round trip, those with marks, and the mean share of these.
    answered: f64,
    marked: f64,
    alpha: f64,
    delivered: u64,
}

const RATE: Rate = Rate::from_bits_per_sec(40_000_000);
const RTT: Duration = Duration::from_millis(20);
const SIZE: u64 = 1500;

impl Sender {
    fn on_answer(&mut self, now: Time, is_congestion: bool) {
        self.in_flight -= 1;
        self.answered += 1.0;
        self.marked += f64::from(u8::from(is_congestion));
        if !is_congestion {
            self.window += 1.0 / self.window;
        }
        let is_over = now >= self.round_until;
        if self.is_scalable && is_over {
            self.alpha += (self.marked / self.answered - self.alpha) / 16.0;
            if self.marked > 0.0 {
                self.window *= 1.0 - self.alpha / 2.0;
            }
            (self.answered, self.marked) = (0.0, 0.0);
            self.round_until = now + RTT;
        } else if is_congestion && is_over {
            self.window /= 2.0;
            self.round_until = now + RTT + Duration::from_millis(15);
        }
        self.window = self.window.max(2.0);
    }
}

/// Mean waits, of L4S and classic packets, and delivered packets of each sender, of the last half of a minute.
fn load(classic: usize, scalable: usize) -> ([f64; 2], Vec<u64>) {
    let mut link = ScheduledLink::new(
        ScheduledLinkParameters {
            rate: RATE,
            delay: DelayLaw::Constant(Duration::ZERO),
            mtu: None,
            discipline: Box::new(DualPi2::new(DualPi2Parameters::default())),
            loss: LossModel::None,
            reordering: false,
            extras: Extras::default(),
        },
        1,
        "test",
    );
    let sender = |is_scalable| Sender {
        is_scalable,
        window: 10.0,
        in_flight: 0,
        round_until: Time::ZERO,
        answered: 0.0,
        marked: 0.0,
        alpha: 1.0,
        delivered: 0,
    };
    let mut senders = vec![sender(false); classic];
    senders.extend(vec![sender(true); scalable]);
    // Answers by time: flow, and whether the packet was marked or dropped.
    let mut answers: BinaryHeap<Reverse<(Time, usize, bool)>> = BinaryHeap::new();
    let (half, end) = (Time::from_secs_f64(30.0), Time::from_secs_f64(60.0));
    let mut waits = [(0.0, 0u64); 2];
    let (mut now, mut drops, mut turn) = (Time::ZERO, Vec::new(), 0);
    while now < end {
        for place in 0..senders.len() {
            let flow = (place + turn) % senders.len();
            while (senders[flow].in_flight as f64) < senders[flow].window {
                let l4s = senders[flow].is_scalable;
                let sent = packet(flow as u32, SIZE, (l4s, l4s), now);
                link.enqueue(now, sent, &mut drops);
                senders[flow].in_flight += 1;
            }
        }
        turn += 1;
        while link.next_dequeue(now) <= now {
            if let Some(sent) = link.dequeue(now, &mut drops) {
                let flow = sent.packet.handle as usize;
                answers.push(Reverse((sent.arrives.unwrap() + RTT, flow, sent.marked)));
                if now > half {
                    let sum = &mut waits[usize::from(!sent.packet.l4s)];
                    sum.0 += now.since(sent.packet.enqueued).as_secs_f64();
                    sum.1 += 1;
                    senders[flow].delivered += 1;
                }
            }
        }
        for dropped in drops.drain(..) {
            answers.push(Reverse((now + RTT, dropped.packet.handle as usize, true)));
        }
        let answer = answers.peek().map_or(Time::NEVER, |Reverse((time, ..))| *time);
        now = answer.min(link.next_dequeue(now));
        while let Some(Reverse((time, flow, is_congestion))) = answers.peek().copied()
            && time <= now
        {
            answers.pop();
            senders[flow].on_answer(now, is_congestion);
        }
    }
    let mean = |(sum, count): (f64, u64)| if count == 0 { 0.0 } else { sum / count as f64 };
    (waits.map(mean), senders.iter().map(|sender| sender.delivered).collect())
}

#[test]
fn at_load_the_classic_queue_is_near_its_target_and_the_other_near_its_step() {
    let ([low, classic], delivered) = load(4, 4);
    assert!((0.010..0.020).contains(&classic), "classic: {classic} s of a target of 15 ms");
    assert!(low < 0.002, "L4S: {low} s of a step of 1 ms");
    let rate = |senders: &[u64]| senders.iter().sum::<u64>() as f64 / senders.len() as f64;
    // About the same for each flow, whose round trips differ by the wait (RFC 9332, section 1.3).
    let ratio = rate(&delivered[4..]) / rate(&delivered[..4]);
    assert!((0.5..2.5).contains(&ratio), "{delivered:?}");
    let all = delivered.iter().sum::<u64>() as f64 * SIZE as f64 * 8.0 / 30.0;
    assert!(all > 0.95 * RATE.as_bits_per_sec() as f64, "{all} bit/s of 40 Mbit/s");
}

#[test]
fn alone_either_queue_has_the_link() {
    let ([_, classic], delivered) = load(4, 0);
    assert!((0.010..0.020).contains(&classic), "classic: {classic} s");
    let ([low, _], scalable) = load(0, 4);
    assert!(low < 0.002, "L4S: {low} s");
    for delivered in [delivered, scalable] {
        let all = delivered.iter().sum::<u64>() as f64 * SIZE as f64 * 8.0 / 30.0;
        assert!(all > 0.9 * RATE.as_bits_per_sec() as f64, "{all} bit/s of 40 Mbit/s");
    }
}
