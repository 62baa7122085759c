//! A link whose schedule is replaced while it is used does what one does that had the last schedule
//! from the start.

use proptest::prelude::*;

use super::*;
use crate::{
    Admitting, Capacity, ClassParameters, CoDel, CoDelParameters, Fate, Limit, Link,
    LinkParameters, Opportunities, Pie, PieParameters, Queue, RateLaw, Reserving, Scheduler, Steps,
    Timeline, Wfq,
};
use ontempo_foundation::RandomStream;

/// After all that is sent.
const END: Time = Time::from_nanos(60_000_000_000);

const NOMINAL: Rate = Rate::from_bits_per_sec(8_000_000);

/// Time, rate, delay, and probability of loss from then on.
type Change = (Time, Rate, Duration, f64);

/// The capacity before the first change: constant, or in opportunities of 1,500 bytes.
fn base(in_opportunities: bool) -> RateLaw {
    if !in_opportunities {
        return RateLaw::Constant(NOMINAL);
    }
    let times = [0, 2, 3, 3, 9, 10].map(|millis| Time::ZERO + Duration::from_millis(millis));
    RateLaw::Opportunities(Arc::new(Opportunities::new(times.into()).unwrap()))
}

fn schedule(base: &RateLaw, changes: &[Change]) -> Arc<Schedule> {
    let rates = changes.iter().map(|(at, rate, ..)| (*at, RateLaw::Constant(*rate)));
    let first = (Time::ZERO, base.clone());
    let capacity = Capacity::new([first].into_iter().chain(rates)).unwrap();
    let delays = changes.iter().map(|(at, _, delay, _)| (*at, Steps::constant(Some(*delay))));
    let losses = changes.iter().map(|(at, .., loss)| (*at, Steps::constant(Some(*loss))));
    let none = (Time::ZERO, Steps::constant(None));
    let delay = Timeline::new([none].into_iter().chain(delays).collect()).unwrap();
    let none = (Time::ZERO, Steps::constant(None));
    let loss = Timeline::new([none].into_iter().chain(losses).collect()).unwrap();
    Arc::new(Schedule { capacity, delay: Some(delay), loss: Some(loss), cellreplay: None })
}

fn scheduled(discipline: Box<dyn Discipline>, schedule: Arc<Schedule>) -> ScheduledLink {
    let parameters = ScheduledLinkParameters {
        rate: NOMINAL,
        delay: DelayLaw::Constant(Duration::from_millis(3)),
        mtu: None,
        discipline,
        loss: LossModel::bernoulli(0.1).unwrap(),
        reordering: false,
        extras: Extras { schedule: Some(schedule), duplicate: 0.1, ..Extras::default() },
    };
    ScheduledLink::new(parameters, 7, "test")
}

/// Packets by handle: when each arrives; `None` if it does not.
type Arrivals = Vec<Option<Time>>;

/// Offers `packets` to a link whose capacity is `base` at first; before the time of each of `changes` the schedule gets it.
fn drive(
    mut link: ScheduledLink,
    packets: &[(Time, u64)],
    (base, changes): (&RateLaw, &[Change]),
) -> (Arrivals, LinkStatistics) {
    let mut arrivals = vec![None; packets.len()];
    let (mut now, mut drops) = (Time::ZERO, Vec::new());
    let mut serve = |link: &mut ScheduledLink, now: &mut Time, until: Time| {
        while link.next_dequeue(*now) <= until {
            *now = (*now).max(link.next_dequeue(*now));
            if let Some(departure) = link.dequeue(*now, &mut drops) {
                arrivals[departure.packet.handle as usize] = departure.arrives;
            }
            drops.clear();
        }
        *now = until;
    };
    let offers =
        packets.iter().enumerate().map(|(handle, (at, size))| (*at, Some((handle, *size))));
    // A change is known before its time: just before, or long before.
    let known = |count: usize| {
        let at = changes[count - 1].0;
        let before = count.checked_sub(2).map_or(Time::ZERO, |place| changes[place].0);
        if count.is_multiple_of(2) {
            at - Duration::from_nanos(1)
        } else {
            at - at.since(before) / 2
        }
    };
    let replaced = (1..=changes.len()).map(|count| (known(count), None, count));
    let mut steps: Vec<_> = offers.map(|(at, offer)| (at, offer, 0)).chain(replaced).collect();
    steps.sort_by_key(|(at, offer, _)| (*at, offer.is_some()));
    for (at, offer, count) in steps {
        serve(&mut link, &mut now, at);
        match offer {
            Some((handle, size)) => {
                let packet = Queued {
                    handle: handle as u32,
                    flow: handle as u32 % 3,
                    class: 0,
                    size: Bytes::new(size),
                    ecn_capable: false,
                    l4s: false,
                    enqueued: at,
                };
                link.enqueue(at, packet, &mut Vec::new());
            }
            None => assert!(link.set_schedule(schedule(base, &changes[..count]))),
        }
    }
    serve(&mut link, &mut now, END);
    let statistics = link.statistics(END);
    (arrivals, statistics)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let rate = prop_oneof![Just(0u64), Just(8_000_000), 100_000u64..50_000_000, Just(u64::MAX)];
    let one = (1u64..40_000, rate, 0u64..9_000, prop_oneof![Just(0.0), Just(0.3), Just(1.0)]);
    prop::collection::vec(one, 0..6).prop_map(|changes| {
        let mut at = Time::ZERO;
        let mut changes: Vec<Change> = changes
            .into_iter()
            .map(|(gap, rate, delay, loss)| {
                at += Duration::from_micros(gap);
                let (rate, delay) = (Rate::from_bits_per_sec(rate), Duration::from_micros(delay));
                (at, rate, delay, loss)
            })
            .collect();
        // What waits leaves in the end.
        let (at, delay) = (at + Duration::from_millis(20), Duration::from_millis(1));
        changes.push((at, NOMINAL, delay, 0.0));
        changes
    })
}

fn packets() -> impl Strategy<Value = Vec<(Time, u64)>> {
    prop::collection::vec((0u64..3_000, 40u64..1500), 1..120).prop_map(|packets| {
        let mut at = Time::ZERO;
        let timed = packets.into_iter().map(|(gap, size)| {
            at += Duration::from_micros(gap);
            (at, size)
        });
        timed.collect()
    })
}

fn queues() -> Vec<Queue> {
    vec![
        Queue::unlimited(),
        Queue::drop_tail(Packets::new(5)),
        Queue::Pie(Box::new(Pie::new(PieParameters {
            burst: Duration::ZERO,
            ..PieParameters::default()
        }))),
    ]
}

proptest! {
    #[test]
    fn changes_while_it_runs_do_what_the_whole_schedule_does_from_the_start(
        packets in packets(),
        changes in changes(),
        in_opportunities in any::<bool>(),
    ) {
        let base = &base(in_opportunities);
        for queue in queues() {
            let random = || RandomStream::new(7, "test queue");
            let admitting = || Box::new(Admitting::new(queue.clone(), random()));
            let changed =
                drive(scheduled(admitting(), schedule(base, &[])).changeable(), &packets, (base, &changes));
            let known = schedule(base, &changes);
            let begun_so =
                drive(scheduled(admitting(), known.clone()).changeable(), &packets, (base, &[]));
            prop_assert_eq!(&changed.0, &begun_so.0, "{:?}", queue);

            let parameters = LinkParameters {
                rate: NOMINAL,
                delay: DelayLaw::Constant(Duration::from_millis(3)),
                mtu: None,
                queue: queue.clone(),
                loss: LossModel::bernoulli(0.1).unwrap(),
                reordering: false,
                extras: Extras { schedule: Some(known), duplicate: 0.1, ..Extras::default() },
            };
            let mut link = Link::new(parameters, 7, "test");
            for ((at, size), arrival) in packets.iter().zip(&changed.0) {
                let fate = match link.offer(*at, Bytes::new(*size), false) {
                    Fate::Arrives { at, .. } => Some(at),
                    Fate::Dropped(_) => None,
                };
                prop_assert_eq!(fate, *arrival, "{:?}", queue);
            }
            prop_assert_eq!(link.statistics(END), changed.1, "{:?}", queue);
        }
    }

    #[test]
    fn a_discipline_that_decides_at_dequeue_is_changed_likewise(
        packets in packets(),
        changes in changes(),
        in_opportunities in any::<bool>(),
    ) {
        let base = &base(in_opportunities);
        let limit = Limit::packets(Packets::new(9));
        let codel = || -> Box<dyn Discipline> {
            Box::new(CoDel::new(CoDelParameters { limit, ..Default::default() }))
        };
        let class = |rate| ClassParameters {
            rate: Rate::from_bits_per_sec(rate),
            limit,
            resume: None,
            priority: 0,
            borrows: true,
        };
        let wfq = || -> Box<dyn Discipline> {
            let wfq = Wfq::new(NOMINAL, &[class(6_000_000), class(2_000_000)]).unwrap();
            let mut reserving = Reserving::new(Scheduler::Wfq(wfq), 0);
            reserving.separate(1, 1);
            Box::new(reserving)
        };
        let disciplines: [&dyn Fn() -> Box<dyn Discipline>; 2] = [&codel, &wfq];
        for discipline in disciplines {
            let begun = scheduled(discipline(), schedule(base, &[])).changeable();
            let changed = drive(begun, &packets, (base, &changes));
            let known = scheduled(discipline(), schedule(base, &changes));
            prop_assert_eq!(changed.0, drive(known, &packets, (base, &[])).0);
        }
    }
}

#[test]
fn a_link_that_sends_aggregates_or_has_no_schedule_is_not_changeable() {
    let plain = |extras| {
        let parameters = ScheduledLinkParameters {
            rate: NOMINAL,
            delay: DelayLaw::Constant(Duration::ZERO),
            mtu: None,
            discipline: Box::new(CoDel::new(CoDelParameters::default())),
            loss: LossModel::None,
            reordering: false,
            extras,
        };
        ScheduledLink::new(parameters, 7, "test").changeable()
    };
    let mut none = plain(Extras::default());
    assert!(!none.is_changeable() && !none.set_schedule(schedule(&base(false), &[])));
    assert!(
        plain(Extras { schedule: Some(schedule(&base(false), &[])), ..Extras::default() })
            .is_changeable()
    );
}
