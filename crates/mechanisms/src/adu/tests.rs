//! Sender and receiver over a network that loses and delays.

use std::collections::BTreeSet;

use ontempo_foundation::{Duration, Packets, RandomStream, Time};
use proptest::prelude::*;

use super::*;

const ONE_WAY: Duration = Duration::from_millis(100);

/// What is under way: when it arrives, and what it is.
#[derive(Clone, Copy, Debug)]
enum Datagram {
    Data(Transmission),
    Ack(AduAck),
}

/// Both ends, and a network that keeps the order, unless delays are drawn.
struct World {
    now: Time,
    sender: AduSender,
    receiver: AduReceiver,
    under_way: Vec<(Time, Datagram)>,
    arrived: BTreeSet<u64>,
    /// When each transmission left.
    left: Vec<Time>,
    takes: bool,
    /// What a delay beyond the least is drawn from.
    delays: Option<RandomStream>,
}

impl World {
    fn new(parameters: AduSenderParameters, ack_every: u64, adus: u64) -> Self {
        let mut sender = AduSender::new(parameters);
        sender.offer(adus);
        Self {
            now: Time::ZERO,
            sender,
            receiver: AduReceiver::new(ack_every, parameters.rule, true),
            under_way: Vec::new(),
            arrived: BTreeSet::new(),
            left: Vec::new(),
            takes: true,
            delays: None,
        }
    }

    fn put(&mut self, datagram: Datagram) {
        let more = self
            .delays
            .as_mut()
            .map_or(Duration::ZERO, |delays| delays.duration_between(Duration::ZERO, ONE_WAY * 3));
        self.under_way.push((self.now + ONE_WAY + more, datagram));
    }

    fn acknowledge(&mut self, lose: &mut dyn FnMut(Datagram) -> bool) {
        let ack = self.receiver.acknowledge().expect("something has arrived");
        if !lose(Datagram::Ack(ack)) {
            self.put(Datagram::Ack(ack));
        }
    }

    fn run(&mut self, until: Time, lose: &mut dyn FnMut(Datagram) -> bool) {
        loop {
            let turn = loop {
                match self.sender.next(self.now) {
                    Next::Send(transmission) => {
                        self.left.push(self.now);
                        if !lose(Datagram::Data(transmission)) {
                            self.put(Datagram::Data(transmission));
                        }
                    }
                    Next::At(time) => break time,
                    Next::Blocked => break Time::NEVER,
                }
            };
            let arrival = self.under_way.iter().map(|(at, _)| *at).min().unwrap_or(Time::NEVER);
            let next = turn.min(arrival).min(self.sender.deadline());
            if next > until {
                return;
            }
            self.now = next;
            if next == arrival {
                let place = self.under_way.iter().position(|(at, _)| *at == next);
                let (_, datagram) = self.under_way.remove(place.expect("it is there"));
                self.take(datagram, lose);
            } else if next == self.sender.deadline() {
                self.sender.on_timer(next);
            }
        }
    }

    fn take(&mut self, datagram: Datagram, lose: &mut dyn FnMut(Datagram) -> bool) {
        match datagram {
            Datagram::Ack(ack) => self.sender.on_ack(self.now, &ack),
            Datagram::Data(transmission) => {
                let mut due = self.receiver.on_transmission(transmission.number, transmission.asks);
                if self.arrived.insert(transmission.adu) && self.takes {
                    due |= self.receiver.on_freed();
                }
                if due {
                    self.acknowledge(lose);
                }
            }
        }
    }
}

fn end() -> Time {
    Time::from_secs_f64(100_000.0)
}

#[test]
fn without_losses_one_adu_leaves_each_interval() {
    let mut world = World::new(AduSenderParameters::default(), 2, 100);
    world.run(end(), &mut |_| false);
    for (place, left) in world.left[..100].iter().enumerate() {
        assert_eq!(*left, Time::ZERO + Duration::from_millis(10) * place as u64);
    }
    assert_eq!(world.sender.timeouts(), 0);
    assert!(world.sender.is_done());
}

#[test]
fn without_an_interval_a_window_leaves_at_once_and_then_what_is_acknowledged() {
    let parameters = AduSenderParameters { interval: Duration::ZERO, ..Default::default() };
    let mut world = World::new(parameters, 2, 100);
    world.run(Time::from_secs_f64(0.1), &mut |_| false);
    assert_eq!(world.left.len(), 32);
    world.run(end(), &mut |_| false);
    assert!(world.left[32..60].iter().all(|left| *left >= Time::ZERO + ONE_WAY * 2));
    assert!(world.sender.is_done());
}

#[test]
fn a_loss_is_revealed_by_the_next_acknowledgement_of_something_later() {
    let mut world = World::new(AduSenderParameters::default(), 2, 30);
    world.run(end(), &mut |datagram| {
        matches!(datagram, Datagram::Data(Transmission { number: 4, .. }))
    });
    // 0..=3, 5 and 6 arrive; the acknowledgement of 6, which left at 60 ms, comes at 260 ms.
    assert_eq!(world.sender.retransmitted(), 1);
    let again = world.left[26];
    assert_eq!(again, Time::from_secs_f64(0.260));
    assert_eq!(world.sender.timeouts(), 0);
}

#[test]
fn a_lost_retransmission_is_revealed_like_any_other() {
    let mut lost = 0;
    let mut world = World::new(AduSenderParameters::default(), 1, 200);
    world.run(end(), &mut |datagram| {
        let hit = matches!(datagram, Datagram::Data(Transmission { adu: 7, .. })) && lost < 3;
        lost += u64::from(hit);
        hit
    });
    assert!(world.arrived.contains(&7));
    assert_eq!(world.sender.timeouts(), 0);
    assert_eq!(world.arrived.len(), 200);
}

#[test]
fn a_lost_end_of_the_data_is_found_by_the_timer() {
    let mut world = World::new(AduSenderParameters::default(), 4, 50);
    let mut lost = BTreeSet::new();
    world.run(end(), &mut |datagram| match datagram {
        Datagram::Data(Transmission { adu, .. }) => adu >= 45 && lost.insert(adu),
        Datagram::Ack(_) => false,
    });
    assert_eq!(world.arrived.len(), 50);
    assert!(world.sender.is_done());
    assert!(world.sender.timeouts() > 0);
    assert_eq!(world.sender.deadline(), Time::NEVER, "nothing is left to wait for");
}

#[test]
fn timeouts_double_unless_they_are_told_not_to() {
    let gaps = |back_off: bool| {
        let mut sender = AduSender::new(AduSenderParameters { back_off, ..Default::default() });
        sender.offer(1);
        let (mut now, mut gaps) = (Time::ZERO, Vec::new());
        for _ in 0..4 {
            while matches!(sender.next(now), Next::Send(_)) {}
            gaps.push(sender.deadline().since(now).as_nanos() / 1_000_000);
            now = sender.deadline();
            sender.on_timer(now);
        }
        gaps
    };
    assert_eq!(gaps(true), [1000, 2000, 4000, 8000]);
    assert_eq!(gaps(false), [1000; 4]);
}

#[test]
fn an_application_that_takes_nothing_shuts_the_window_and_probes_stay_few() {
    let mut world = World::new(AduSenderParameters::default(), 2, 100);
    world.takes = false;
    world.run(Time::from_secs_f64(60.0), &mut |_| false);
    assert_eq!(world.arrived.len(), 32, "as many as there are buffers");
    assert!(world.sender.retransmitted() < 100, "probes back off");
}

#[test]
fn the_sequence_rule_lets_untaken_adus_pass() {
    let parameters = AduSenderParameters { rule: WindowRule::Sequence, ..Default::default() };
    let mut world = World::new(parameters, 2, 100);
    world.takes = false;
    world.run(end(), &mut |_| false);
    assert_eq!(world.arrived.len(), 100);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
    let mut sender = AduSender::new(AduSenderParameters::default());
    sender.offer(10);
    for largest in [0, 5, u64::MAX] {
        sender.on_ack(Time::ZERO, &AduAck { largest, received: u128::MAX, freed: u64::MAX });
    }
    assert!(!sender.is_done());
    assert!(matches!(sender.next(Time::ZERO), Next::Send(_)));
}

proptest! {
    #[test]
    fn whatever_is_lost_every_adu_arrives_and_the_sender_learns_of_it(
        seed in any::<u64>(),
        loss in 0.0..0.7f64,
        ack_loss in 0.0..0.7f64,
        window in 1u64..70,
        every in 1u64..40,
        interval_ms in 0u64..30,
        sequence in any::<bool>(),
        at_once in any::<bool>(),
        reordering in 1u64..4,
        reorders in any::<bool>(),
    ) {
        let parameters = AduSenderParameters {
            interval: Duration::from_millis(interval_ms),
            window: Packets::new(window),
            rule: if sequence { WindowRule::Sequence } else { WindowRule::Buffers },
            retransmission: if at_once { Retransmission::AtOnce } else { Retransmission::Paced },
            reordering,
            ..AduSenderParameters::default()
        };
        let mut world = World::new(parameters, every, 120);
        world.delays = reorders.then(|| RandomStream::new(seed, "delays"));
        let mut random = RandomStream::new(seed, "losses");
        world.run(end(), &mut |datagram| {
            let rate = if matches!(datagram, Datagram::Data(_)) { loss } else { ack_loss };
            random.uniform() < rate
        });
        prop_assert_eq!(world.arrived.len(), 120);
        prop_assert!(world.sender.is_done());
        prop_assert_eq!(world.sender.deadline(), Time::NEVER);
    }
}

#[test]
fn told_losses_are_sent_again_and_nothing_else_reveals_one() {
    let told = AduSenderParameters { told_losses: true, ..AduSenderParameters::default() };
    let mut sender = AduSender::new(told);
    sender.offer(4);
    let mut now = Time::ZERO;
    for _ in 0..4 {
        assert!(matches!(sender.next(now), Next::Send(_)));
        now += Duration::from_millis(10);
    }
    // Neither an acknowledgement of later ones nor the timer.
    sender.on_ack(now, &AduAck { largest: 3, received: 0b1011, freed: 0 });
    assert_eq!((sender.next(now), sender.deadline()), (Next::Blocked, Time::NEVER));
    sender.on_lost(1);
    let Next::Send(again) = sender.next(now) else { panic!("it is sent again") };
    assert_eq!((again.adu, again.again, again.number), (1, true, 4));
    // Told twice, of one that arrived, and of one never made.
    for known in [1, 3, 99] {
        sender.on_lost(known);
    }
    assert_eq!(sender.next(now), Next::Blocked);
    sender.on_lost(4);
    now += Duration::from_millis(10);
    assert!(matches!(sender.next(now), Next::Send(Transmission { adu: 1, number: 5, .. })));
    sender.on_ack(now, &AduAck { largest: 5, received: 0b11_1101, freed: 4 });
    assert!(sender.is_done());
}

#[test]
fn with_told_losses_the_timer_is_for_a_shut_window_alone_and_repeats_the_last_adu() {
    let told = AduSenderParameters {
        told_losses: true,
        window: Packets::new(2),
        ..AduSenderParameters::default()
    };
    let mut sender = AduSender::new(told);
    sender.offer(3);
    assert!(matches!(sender.next(Time::ZERO), Next::Send(_)));
    assert_eq!(sender.deadline(), Time::NEVER);
    let second = Time::ZERO + Duration::from_millis(10);
    assert!(matches!(sender.next(second), Next::Send(_)));
    let due = second + Duration::from_secs(1);
    assert_eq!(sender.deadline(), due);
    sender.on_timer(due);
    let Next::Send(probe) = sender.next(due) else { panic!("a probe") };
    assert_eq!((probe.adu, probe.asks), (1, true));
}
