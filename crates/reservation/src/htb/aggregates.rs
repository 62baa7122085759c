//! Aggregates: many reservations in one class, to which packets come by their DSCP alone (RFC 2998
//! section 2.3). Admission stays per reservation; the class has the sum of what they take.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Bytes, Rate};

use super::layout::{FIRST_AGGREGATE, LAST_AGGREGATE};
use super::objects::U32Filter;
use super::{Htb, MIN_RATE};
use crate::machine::{Handle, Reservation};
use crate::message::FlowSpec;

/// The preferences of their filters, IPv4 and IPv6, to which the code point is added: each can stay or go
/// alone. After those of single reservations and of control.
const PREFERENCES: [(&str, u32); 2] = [("ip", 0x1100), ("ipv6", 0x1140)];
/// Those that all of them shared once: a daemon before this one may have been of that time.
const SHARED_PREFERENCES: [(&str, u32); 2] = [("ip", 0x1006), ("ipv6", 0x1007)];

/// The smallest packet assumed of what a daemon before this one reserved, bytes.
const SMALLEST: u64 = 64;

/// What reservations an aggregate takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Those of both services.
    Both,
    /// Those of guaranteed service (RFC 2212).
    Guaranteed,
    /// Those of controlled load (RFC 2211).
    ControlledLoad,
}

/// An aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// The code point of its packets, 1 to 63: they are marked before they come here.
    pub dscp: u8,
    /// The service of its reservations.
    pub serves: Serves,
    /// The largest token rate (r of the TSpec) of its reservations; `None`: any.
    pub up_to: Option<Rate>,
}

impl Aggregate {
    /// Whether a reservation of this flowspec belongs to it, unless one before it takes it.
    pub(crate) fn takes(&self, flowspec: &FlowSpec) -> bool {
        let is_guaranteed = matches!(flowspec, FlowSpec::Guaranteed { .. });
        let serves = match self.serves {
            Serves::Both => true,
            Serves::Guaranteed => is_guaranteed,
            Serves::ControlledLoad => !is_guaranteed,
        };
        // Bytes a second.
        let rate = f64::from(flowspec.traffic().rate) * 8.0;
        serves && self.up_to.is_none_or(|most| rate <= most.as_bits_per_sec() as f64)
    }
}

/// What a reservation, or all of an aggregate, takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) rate: u64,
    pub(super) burst: u64,
    /// Packets that conform and may wait.
    packets: u64,
}

impl Sum {
    fn of(reservation: &Reservation) -> Self {
        let smallest = u64::from(reservation.flowspec.traffic().smallest.max(1));
        let (rate, burst) = (reservation.rate.as_bits_per_sec(), reservation.burst.get());
        Self { rate, burst, packets: burst.div_ceil(smallest) }
    }

    fn add(&mut self, other: Self) {
        self.rate = self.rate.saturating_add(other.rate);
        self.burst = self.burst.saturating_add(other.burst);
        self.packets = self.packets.saturating_add(other.packets);
    }

    fn subtract(&mut self, other: Self) {
        self.rate = self.rate.saturating_sub(other.rate);
        self.burst = self.burst.saturating_sub(other.burst);
        self.packets = self.packets.saturating_sub(other.packets);
    }

    /// The larger one of each.
    fn max(self, other: Self) -> Self {
        Self {
            rate: self.rate.max(other.rate),
            burst: self.burst.max(other.burst),
            packets: self.packets.max(other.packets),
        }
    }
}

/// The aggregates of an interface, with their reservations.
#[derive(Clone, Debug, Default)]
pub(super) struct Aggregates {
    rules: Vec<Aggregate>,
    sums: Vec<Sum>,
    /// Limits of the queues, packets.
    limits: Vec<u64>,
    /// By reservation: its aggregate, and what it takes.
    members: BTreeMap<Handle, (u16, Sum)>,
    /// What a daemon before this one gave them: they have it at least until state has been refreshed.
    held: BTreeMap<u16, Sum>,
    /// Classes of aggregates that are none any more, which stay until state has been refreshed.
    gone: BTreeSet<u16>,
    /// Preferences of the filters that are there.
    present: BTreeSet<u32>,
}

impl Aggregates {
    pub(super) fn new(rules: Vec<Aggregate>) -> Self {
        let (sums, limits) = (vec![Sum::default(); rules.len()], vec![0; rules.len()]);
        Self { rules, sums, limits, ..Self::default() }
    }

    /// The class of an aggregate.
    ///
    /// By its code point: the next daemon, whose configuration may be another one, finds that
    /// traffic in it.
    fn class(&self, place: u16) -> u16 {
        FIRST_AGGREGATE + u16::from(self.rules[usize::from(place)].dscp)
    }

    /// A daemon before this one gave an aggregate so much.
    pub(super) fn hold(&mut self, place: u16, rate: Rate, burst: Bytes) {
        let (rate, burst) = (rate.as_bits_per_sec(), burst.get());
        // The packets that may wait are not known; so many they can be.
        self.held.insert(place, Sum { rate, burst, packets: burst.div_ceil(SMALLEST) });
    }

    /// All, by their places.
    pub(super) fn places(&self) -> impl Iterator<Item = u16> + use<> {
        0..u16::try_from(self.rules.len()).unwrap_or(0)
    }

    /// The class of a reservation that is in one.
    pub(super) fn class_of(&self, handle: Handle) -> Option<u16> {
        self.members.get(&handle).map(|(place, _)| self.class(*place))
    }

    /// The first one that takes a reservation.
    pub(super) fn of(&self, reservation: &Reservation) -> Option<u16> {
        let place = self.rules.iter().position(|rule| rule.takes(&reservation.flowspec))?;
        u16::try_from(place).ok()
    }

    /// A reservation is in an aggregate from now on.
    pub(super) fn join(&mut self, handle: Handle, place: u16, reservation: &Reservation) {
        let sum = Sum::of(reservation);
        self.sums[usize::from(place)].add(sum);
        self.members.insert(handle, (place, sum));
    }

    /// It ends; the aggregate that it was in.
    pub(super) fn leave(&mut self, handle: Handle) -> Option<u16> {
        let (place, sum) = self.members.remove(&handle)?;
        self.sums[usize::from(place)].subtract(sum);
        Some(place)
    }

    /// Class, rate and burst of an aggregate, and the limit of its queue where it is another one than before.
    pub(super) fn shape(&mut self, place: u16) -> (u16, Rate, Bytes, Option<u64>) {
        let sum = self.sums[usize::from(place)];
        let held = self.held.get(&place).copied().unwrap_or_default();
        let Sum { rate, burst, packets } = sum.max(held);
        let [fewest, most] = super::QUEUE;
        // A power of two, so that not each reservation changes it.
        let limit = packets.clamp(fewest, most).next_power_of_two().min(most);
        let before = std::mem::replace(&mut self.limits[usize::from(place)], limit);
        let changed = (before != limit).then_some(limit);
        (self.class(place), Rate::from_bits_per_sec(rate), Bytes::new(burst), changed)
    }

    /// What limits the queues have is not known.
    pub(super) fn forget_limits(&mut self) {
        self.limits.fill(0);
    }

    /// Sum of the rates of all.
    pub(super) fn reserved(&self) -> u64 {
        self.sums.iter().map(|sum| sum.rate).sum()
    }

    /// The lines for the filters that find them and are not there.
    pub(super) fn filters(&mut self, device: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for rule in &self.rules {
            let class = FIRST_AGGREGATE + u16::from(rule.dscp);
            let octet = u32::from(rule.dscp) << 2;
            let matches = [
                format!("ip dsfield {octet:#x} 0xfc"),
                // The traffic class is behind the version's four bits.
                format!("u32 {:#010x} 0x0fc00000 at 0", octet << 20),
            ];
            for ((protocol, preference), matches) in of_class(class).into_iter().zip(matches) {
                if self.present.insert(preference) {
                    lines.push(format!(
                        "filter add dev {device} parent 1: protocol {protocol} prio {preference} \
                         u32 match {matches} flowid 1:{class:x}"
                    ));
                }
            }
        }
        lines
    }

    /// The lines that remove those that are there: `tc` refuses to remove what is not.
    pub(super) fn end_filters(&self, device: &str) -> impl Iterator<Item = String> {
        end_filters(device, &self.present)
    }

    /// The classes that are there.
    pub(super) fn classes(&self) -> Vec<u16> {
        self.places().map(|place| self.class(place)).chain(self.gone.iter().copied()).collect()
    }

    /// Whether something is kept only until state has been refreshed.
    pub(super) fn are_recovering(&self) -> bool {
        !self.held.is_empty() || !self.gone.is_empty()
    }

    /// The aggregate that has a class.
    pub(super) fn place(&self, class: u16) -> Option<u16> {
        self.places().find(|place| self.class(*place) == class)
    }
}

impl Htb {
    /// The lines for the class of an aggregate, and its queue where that changes.
    pub(super) fn aggregate(&mut self, verb: &str, place: u16) -> Vec<String> {
        let (class, rate, burst, limit) = self.aggregates.shape(place);
        let queue = limit.map(|limit| {
            let name = &self.device.name;
            format!("qdisc replace dev {name} parent 1:{class:x} pfifo limit {limit}")
        });
        [self.class_line(verb, class, rate, burst)].into_iter().chain(queue).collect()
    }

    /// The lines for all of them.
    pub(super) fn all_aggregates(&mut self, verb: &str) -> Vec<String> {
        self.aggregates.places().flat_map(|place| self.aggregate(verb, place)).collect()
    }

    /// Takes over the aggregates that are there, with their filters; those that are no more end once
    /// nothing is reserved in them.
    pub(super) fn adopt_aggregates(
        &mut self,
        found: &BTreeMap<u16, (Rate, Bytes)>,
        preferences: BTreeSet<u32>,
    ) -> Vec<String> {
        let is_shared = |one: &u32| SHARED_PREFERENCES.iter().any(|(_, shared)| shared == one);
        let (shared, present): (BTreeSet<u32>, _) = preferences.into_iter().partition(is_shared);
        self.aggregates.present = present;
        let mut empty = Vec::new();
        for (class, (rate, burst)) in found {
            match self.aggregates.place(*class) {
                Some(place) if *rate > MIN_RATE => self.aggregates.hold(place, *rate, *burst),
                None if *rate > MIN_RATE => self.aggregates.gone.extend([*class]),
                // Nothing was reserved in it.
                Some(_) => {}
                None => empty.push(*class),
            }
        }
        let mut lines = self.all_aggregates("replace");
        lines.extend(self.aggregates.filters(&self.device.name));
        lines.extend(end_filters(&self.device.name, &shared));
        lines.extend(empty.into_iter().flat_map(|class| self.end_aggregate(class)));
        lines
    }

    /// The lines that give each what is reserved in it, and end those that are no more.
    pub(super) fn purge_aggregates(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for place in core::mem::take(&mut self.aggregates.held).into_keys() {
            lines.extend(self.aggregate("change", place));
        }
        for class in core::mem::take(&mut self.aggregates.gone) {
            lines.extend(self.end_aggregate(class));
        }
        lines
    }

    fn end_aggregate(&mut self, class: u16) -> Vec<String> {
        let all = of_class(class).map(|(_, preference)| preference);
        let there = all.into_iter().filter(|one| self.aggregates.present.remove(one)).collect();
        let filters = end_filters(&self.device.name, &there);
        let mut lines: Vec<String> = filters.collect();
        lines.push(self.leave_class(class));
        lines
    }
}

/// The preferences of the filters that find a class.
fn of_class(class: u16) -> [(&'static str, u32); 2] {
    PREFERENCES.map(|(protocol, first)| (protocol, first + u32::from(class - FIRST_AGGREGATE)))
}

/// Protocols and preferences that filters of aggregates can have.
fn all_preferences() -> impl Iterator<Item = (&'static str, u32)> {
    (FIRST_AGGREGATE..=LAST_AGGREGATE).flat_map(of_class).chain(SHARED_PREFERENCES)
}

/// The lines that remove the filters of these preferences.
pub(super) fn end_filters(
    device: &str,
    preferences: &BTreeSet<u32>,
) -> impl Iterator<Item = String> {
    let there = all_preferences().filter(|(_, preference)| preferences.contains(preference));
    there.map(move |(protocol, preference)| {
        format!("filter del dev {device} parent 1: protocol {protocol} prio {preference}")
    })
}

/// Whether a class is an aggregate's.
pub(super) fn is_aggregate(class: u16) -> bool {
    (FIRST_AGGREGATE..=LAST_AGGREGATE).contains(&class)
}

/// Our preferences of these filters that lead to an aggregate.
pub(super) fn preferences(filters: &[U32Filter]) -> BTreeSet<u32> {
    let leads = |filter: &&U32Filter| filter.class.is_some_and(|class| is_aggregate(class.minor));
    let found = filters.iter().filter(leads).map(|filter| filter.preference);
    let ours: BTreeSet<u32> = all_preferences().map(|(_, preference)| preference).collect();
    found.filter(|found| ours.contains(found)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::htb::{Device, Htb, Left};
    use crate::machine::{ControlRequest, InterfaceId};
    use crate::message::{Session, TrafficSpec};

    const BY: InterfaceId = InterfaceId(0);

    fn htb(code_points: &[u8]) -> Htb {
        let device = Device {
            name: "d0".to_owned(),
            rate: Rate::from_bits_per_sec(1_500_000),
            reservable: Rate::from_bits_per_sec(1_000_000),
            mtu: Bytes::new(1_500),
            header: Bytes::ZERO,
            uncounted: Bytes::ZERO,
        };
        let one = |dscp: &u8| Aggregate { dscp: *dscp, serves: Serves::Both, up_to: None };
        let rules = code_points.iter().map(one).collect();
        Htb::new(device).expect("d0 is a name").with_aggregates(rules)
    }

    fn reservation(kilobits: u64) -> Reservation {
        let traffic = TrafficSpec {
            rate: kilobits as f32 * 125.0,
            burst: 3_000.0,
            peak: f32::INFINITY,
            smallest: 64,
            largest: 1_500,
        };
        Reservation {
            session: Session { destination: [10, 0, 1, 2].into(), protocol: 17, port: 5004 },
            filters: Vec::new(),
            flowspec: FlowSpec::ControlledLoad(traffic),
            rate: Rate::from_bits_per_sec(kilobits * 1_000),
            burst: Bytes::new(3_000),
        }
    }

    /// What a daemon finds that gave its aggregates these rates, kbit/s.
    fn left(rates: &[(u16, u64)]) -> Left {
        let shape = |kilobits| (Rate::from_bits_per_sec(kilobits * 1_000), Bytes::new(9_000));
        let aggregates: BTreeMap<_, _> =
            rates.iter().map(|(class, kilobits)| (*class, shape(*kilobits))).collect();
        let (tables, control) = (true, true);
        let finds_aggregates = BTreeSet::from([0x1006]);
        Left { classes: BTreeMap::new(), tables, control, aggregates, finds_aggregates }
    }

    /// The rate that the last line of a class gives it.
    fn rate(lines: &[String], class: &str) -> Option<u64> {
        let of_class = format!("classid 1:{class} htb rate ");
        let line = lines.iter().rev().find(|line| line.contains(&of_class))?;
        line.split_once(&of_class)?.1.split_once("bit")?.0.parse().ok()
    }

    #[test]
    fn a_class_that_was_taken_over_has_what_it_had_and_grows_with_what_comes() {
        let mut htb = htb(&[46]);
        let adopted = htb.adopt(left(&[(0xf02e, 300)]));
        assert_eq!(rate(&adopted, "f02e"), Some(300_000), "{adopted:?}");
        let add = |handle, kilobits| ControlRequest::Add(BY, Handle(handle), reservation(kilobits));
        assert_eq!(rate(&htb.lines(&add(1, 200)), "f02e"), Some(300_000));
        assert_eq!(rate(&htb.lines(&add(2, 250)), "f02e"), Some(450_000));
        let fewer = htb.lines(&ControlRequest::Remove(BY, Handle(2)));
        assert_eq!(rate(&fewer, "f02e"), Some(300_000), "{fewer:?}");
        assert!(htb.is_recovering());
        assert_eq!(rate(&htb.purge(), "f02e"), Some(200_000));
        assert!(!htb.is_recovering());
    }

    #[test]
    fn a_class_that_was_found_empty_is_not_held() {
        let mut htb = htb(&[46]);
        htb.adopt(left(&[(0xf02e, 8)]));
        assert!(!htb.is_recovering());
        let lines = htb.lines(&ControlRequest::Add(BY, Handle(1), reservation(200)));
        assert_eq!(rate(&lines, "f02e"), Some(200_000), "{lines:?}");
    }

    #[test]
    fn filters_that_are_there_stay_and_an_aggregate_that_is_no_more_ends_with_recovery() {
        let mut htb = htb(&[34]);
        let all = [0x1100 + 34, 0x1140 + 34, 0x1100 + 46, 0x1140 + 46, 0x1100 + 10];
        let left = Left {
            finds_aggregates: BTreeSet::from(all),
            ..left(&[(0xf022, 8), (0xf02e, 300), (0xf00a, 8)])
        };
        let lines = htb.adopt(left);
        let of = |lines: &[String], what: &str| -> Vec<String> {
            lines.iter().filter(|line| line.contains(what)).cloned().collect()
        };
        // What nothing was reserved in goes at once.
        let gone = ["filter del dev d0 parent 1: protocol ip prio 4362"];
        assert_eq!(of(&lines, "filter"), gone);
        assert_eq!(of(&lines, "class del"), ["class del dev d0 classid 1:f00a"]);
        assert!(htb.is_recovering());
        let lines = htb.purge();
        let gone = [4398, 4462].map(|preference| format!(" prio {preference}"));
        let ends = of(&lines, "filter del");
        assert!(ends.iter().zip(&gone).all(|(line, gone)| line.ends_with(gone)), "{ends:?}");
        assert_eq!((ends.len(), of(&lines, "class del").len()), (2, 1), "{lines:?}");
        assert!(!htb.is_recovering() && htb.purge().is_empty());
    }

    #[test]
    fn after_a_request_that_failed_all_aggregates_get_what_they_have_again() {
        let mut htb = htb(&[46]);
        htb.begin();
        htb.lines(&ControlRequest::Add(BY, Handle(1), reservation(200)));
        // These do not run.
        htb.lines(&ControlRequest::Add(BY, Handle(2), reservation(300)));
        htb.lines(&ControlRequest::Remove(BY, Handle(2)));
        let again = htb.aggregates_again();
        assert_eq!(rate(&again, "f02e"), Some(200_000), "{again:?}");
        assert!(again.iter().any(|line| line.contains("parent 1:f02e pfifo limit ")), "{again:?}");
    }

    #[test]
    fn another_list_of_aggregates_gives_none_the_class_of_another() {
        let mut htb = htb(&[34, 46]);
        let lines = htb.adopt(left(&[(0xf02e, 300)]));
        assert_eq!(rate(&lines, "f02e"), Some(300_000), "{lines:?}");
        assert_eq!(rate(&lines, "f022"), Some(8_000), "{lines:?}");
        let leads = |line: &String| line.contains("0xb8 0xfc") && line.ends_with("1:f02e");
        assert!(lines.iter().any(leads), "{lines:?}");
        // Only IPv4's filters were there, all in one preference.
        let ends: Vec<_> = lines.iter().filter(|line| line.starts_with("filter del")).collect();
        assert!(ends.len() == 1 && ends[0].ends_with(" prio 4102"), "{ends:?}");
    }
}
