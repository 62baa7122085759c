//! Bottlenecks whose queue, or the policer before it, drops packets before the queue is full.

use std::collections::HashMap;

use ontempo_network::{
    CoDel, CoDelParameters, DelayLaw, Discipline, Dropped, Extras, Fate, FqCoDel,
    FqCoDelParameters, Link, LinkParameters, LossModel, Pie, PieParameters, Queue, Queued, Red,
    RedParameters, ScheduledLink, ScheduledLinkParameters, TokenBucket,
};

use super::*;

/// A link of `ontempo_network`.
pub(super) enum Bottleneck {
    /// The fate of a packet is known when it comes.
    Known(Link),
    /// It is decided when the transmitter is free.
    Decided { link: Box<ScheduledLink>, waiting: HashMap<u32, Vec<u8>>, next: u32 },
}

const DELAY: Duration = Duration::from_millis(22);

impl Bottleneck {
    /// Of 3 Mbit/s and 22 ms, that loses so many behind its queue.
    fn known(queue: Queue, extras: Extras, loss: f64, seed: u64) -> Self {
        let parameters = LinkParameters {
            rate: Rate::from_bits_per_sec(3_000_000),
            delay: DelayLaw::Constant(DELAY),
            mtu: None,
            queue,
            loss: LossModel::bernoulli(loss).expect("a probability"),
            reordering: false,
            extras,
        };
        Self::Known(Link::new(parameters, seed, "link"))
    }

    /// The same, whose discipline decides at dequeue.
    fn decided(discipline: impl Discipline + 'static, loss: f64, seed: u64) -> Self {
        let parameters = ScheduledLinkParameters {
            rate: Rate::from_bits_per_sec(3_000_000),
            delay: DelayLaw::Constant(DELAY),
            mtu: None,
            discipline: Box::new(discipline),
            loss: LossModel::bernoulli(loss).expect("a probability"),
            reordering: false,
            extras: Extras::default(),
        };
        let link = Box::new(ScheduledLink::new(parameters, seed, "link"));
        Self::Decided { link, waiting: HashMap::new(), next: 0 }
    }

    /// Takes a packet.
    pub(super) fn send(&mut self, now: Time, bytes: Vec<u8>, there: &mut Flying) {
        let size = Bytes::new(bytes.len() as u64 + 28);
        match self {
            Self::Known(link) => {
                if let Fate::Arrives { at, .. } = link.offer(now, size, false) {
                    there.push_back((at, bytes));
                }
            }
            Self::Decided { link, waiting, next } => {
                let (handle, enqueued) = (*next, now);
                *next += 1;
                waiting.insert(handle, bytes);
                let (flow, class, ecn_capable, l4s) = (0, 0, false, false);
                let packet = Queued { handle, flow, class, size, ecn_capable, l4s, enqueued };
                let mut drops = Vec::new();
                link.enqueue(now, packet, &mut drops);
                forget(&drops, waiting);
            }
        }
    }

    /// When it has something to decide.
    pub(super) fn next(&self, now: Time) -> Time {
        match self {
            Self::Known(_) => Time::NEVER,
            Self::Decided { link, .. } => link.next_dequeue(now),
        }
    }

    /// Decides what is due.
    pub(super) fn serve(&mut self, now: Time, there: &mut Flying) {
        let Self::Decided { link, waiting, .. } = self else { return };
        while now < Time::NEVER && link.next_dequeue(now) <= now {
            let mut drops = Vec::new();
            if let Some(departure) = link.dequeue(now, &mut drops) {
                let bytes = waiting.remove(&departure.packet.handle).expect("it waited");
                there.extend(departure.arrives.map(|at| (at, bytes)));
            }
            forget(&drops, waiting);
        }
    }
}

fn forget(drops: &[Dropped], waiting: &mut HashMap<u32, Vec<u8>>) {
    for drop in drops {
        waiting.remove(&drop.packet.handle);
    }
}

/// By loss and seed.
type Kind = fn(f64, u64) -> Bottleneck;

fn codel(loss: f64, seed: u64) -> Bottleneck {
    Bottleneck::decided(CoDel::new(CoDelParameters::default()), loss, seed)
}

fn fq_codel(loss: f64, seed: u64) -> Bottleneck {
    let mut random = RandomStream::new(seed, "hash");
    Bottleneck::decided(FqCoDel::new(FqCoDelParameters::default(), &mut random), loss, seed)
}

fn pie(loss: f64, seed: u64) -> Bottleneck {
    let queue = Queue::Pie(Box::new(Pie::new(PieParameters::default())));
    Bottleneck::known(queue, Extras::default(), loss, seed)
}

/// With ns-2's thresholds for packets of 1,400 bytes.
fn red(loss: f64, seed: u64) -> Bottleneck {
    let (rate, mean) = (Rate::from_bits_per_sec(3_000_000), Bytes::new(1_400));
    let parameters = RedParameters::automatic(rate, mean, RedParameters::TARGET_DELAY);
    let red = Red::new(parameters).expect("parameters");
    Bottleneck::known(Queue::Red(Box::new(red)), Extras::default(), loss, seed)
}

fn policed(loss: f64, seed: u64) -> Bottleneck {
    let policer = TokenBucket::policer(Rate::from_bits_per_sec(1_000_000), Bytes::new(20_000));
    let extras = Extras { policer: Some(policer.expect("a rate")), ..Extras::default() };
    Bottleneck::known(Queue::unlimited(), extras, loss, seed)
}

/// What these make of a recording of 20 s.
fn recorded(link: Bottleneck, seed: u64) -> Trace {
    let mut world = World::new(vec![piece(0.0, 3.0, 22, 0.0)]);
    world.random = RandomStream::new(seed, "world");
    world.link = Some(link);
    record(&mut world, 20.0).trace(WINDOW)
}

/// The mean loss of a trace, and each second's rate, Mbit/s.
fn found(trace: &Trace) -> (f64, Vec<f64>) {
    let loss = trace.rows.iter().map(|row| row.loss).sum::<f64>() / trace.rows.len() as f64;
    (loss, (0..trace.rows.len() / 10).map(|number| second(trace, number).0).collect())
}

/// What a queue drops before it is full is not the path's loss, and the rate is that of what leaves.
#[test]
fn what_a_managed_queue_drops_is_not_lost_by_the_path() {
    let kinds: [(&str, Kind); 4] =
        [("codel", codel), ("fq-codel", fq_codel), ("pie", pie), ("red", red)];
    for (name, kind) in kinds {
        for (loss, seed) in [(0.0, 1), (0.0, 2), (0.0, 3), (0.05, 1), (0.05, 2), (0.05, 3)] {
            let (lost, rates) = found(&recorded(kind(loss, seed), seed));
            let text = format!("{name}, {loss} lost, seed {seed}: {lost:.4}, {rates:.2?}");
            println!("{text}");
            assert!((lost - loss).abs() < 0.015, "{text}");
            assert!(rates.iter().all(|rate| (rate / 3.0 - 1.0).abs() < 0.1), "{text}");
        }
    }
}

/// What a queue refused before a pause is not the path's because a scout in the pause was lost, too.
#[test]
fn losses_before_a_pause_and_in_it_are_not_one_burst() {
    for (kind, loss, seed) in [(pie as Kind, 0.1, 4), (pie, 0.2, 3), (pie, 0.2, 23)] {
        let (lost, rates) = found(&recorded(kind(loss, seed), seed));
        let text = format!("{loss} lost, seed {seed}: {lost:.4}, {rates:.2?}");
        println!("{text}");
        assert!(rates.iter().all(|rate| (rate / 3.0 - 1.0).abs() < 0.1), "{text}");
    }
}

/// Beyond its rate a policer drops: what passes is the rate, and nothing else is lost.
#[test]
fn behind_a_policer_its_rate_is_recorded_and_no_loss() {
    for seed in 1..=3 {
        let trace = recorded(policed(0.0, seed), seed);
        let (lost, rates) = found(&trace);
        let text = format!("seed {seed}, {}: {lost:.4}, {rates:.2?}", trace.left_out);
        println!("{text}");
        assert!(lost < 0.015, "{text}");
        assert!(rates.iter().all(|rate| (rate - 1.0).abs() < 0.1), "{text}");
    }
}

/// Of what the policer loses and what the path does each second has the rate; the loss is as exact as is said.
#[test]
fn behind_a_policer_that_loses_on_the_wire_too_its_rate_is_recorded_and_how_sure_the_loss_is() {
    for (loss, seeds) in [(0.02, 1..=10), (0.1, 11..=20)] {
        let mut within = 0;
        for seed in seeds {
            let trace = recorded(policed(loss, seed), seed);
            let (lost, rates) = found(&trace);
            let text = format!("{loss}, seed {seed}: {lost:.4}, {rates:.2?}");
            println!("{text}");
            assert_eq!(trace.refused, Refused::ByPolicer, "{text}");
            assert!(rates.iter().all(|rate| (rate - 1.0).abs() < 0.1), "{text}");
            within += u32::from((lost - loss).abs() < trace.loss_doubt);
            assert!(trace.loss_doubt < 0.06, "{text}: {}", trace.loss_doubt);
        }
        // Two standard errors: 19 of 20.
        assert!(within >= 8, "{within} of 10");
    }
}

/// Who reads a recording learns what refused packets, and that nothing did.
#[test]
fn what_refused_packets_is_told() {
    let trace = recorded(codel(0.0, 1), 1);
    assert_eq!(trace.refused, Refused::ByQueue);
    assert!(trace.loss_doubt < 0.015, "{}", trace.loss_doubt);
    let mut world = World::new(vec![piece(0.0, 3.0, 22, 0.05)]);
    let trace = record(&mut world, 20.0).trace(WINDOW);
    assert_eq!(trace.refused, Refused::Nothing);
    assert!(trace.loss_doubt < 0.015, "{}", trace.loss_doubt);
}

/// A scout's own transmission was at the rate that it met, not at that of a row in which nothing passes.
#[test]
fn an_outage_that_delays_leaves_the_delay_of_the_path() {
    for length in [0.3, 1.0] {
        let from = 6.0;
        let pieces = [(0.0, 3.0), (from, 0.001), (from + length, 3.0)];
        let pieces = pieces.map(|(from, mbit)| piece(from, mbit, 20, 0.0)).to_vec();
        let trace = record(&mut World::new(pieces), 10.0).trace(WINDOW);
        for row in &trace.rows {
            let delay = row.delay.as_secs_f64() * 1e3;
            assert!((delay - 20.0).abs() < 2.0, "{length} s: {row:?}\n{}", trace.csv(""));
        }
    }
}
