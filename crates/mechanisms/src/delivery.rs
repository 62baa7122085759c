//! Delivery of application data units (ADUs): in order, out of order, or in a partial order.
//!
//! Application level framing (Clark and Tennenhouse, SIGCOMM 1990) lets an application process
//! units as they arrive, if it can. Applications need different orders: none (parts of
//! a raw image), all (a file), or some (the tables of a JPEG image before its data). Rr3216
//! compares the first two; its section 2.2 describes the third.

use std::collections::VecDeque;
use std::fmt;

/// The order in which ADUs may be delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeliveryOrder {
    /// By number, without a gap.
    #[default]
    InOrder,
    /// As they arrive.
    OutOfOrder,
    /// Each after those that it depends on.
    PartialOrder,
}

impl DeliveryOrder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::InOrder, Self::OutOfOrder, Self::PartialOrder];

    /// Its name in files and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InOrder => "in-order",
            Self::OutOfOrder => "out-of-order",
            Self::PartialOrder => "partial-order",
        }
    }
}

/// Why an ADU was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalError {
    /// It arrived before.
    Duplicate,
    /// Farther beyond the lowest missing ADU than the buffer reaches.
    TooFar {
        /// The first number out of reach.
        limit: u64,
    },
    /// It depends on an ADU that is not before it, so that the two could wait for each other.
    DependsOnLater {
        /// The number of that ADU.
        named: u64,
    },
}

impl fmt::Display for ArrivalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => f.write_str("the ADU was taken before"),
            Self::TooFar { limit } => write!(f, "the buffer reaches only to ADU {limit}"),
            Self::DependsOnLater { named } => {
                write!(f, "the ADU depends on ADU {named}, which is not before it")
            }
        }
    }
}

impl std::error::Error for ArrivalError {}

/// No edge.
const NONE: u32 = u32::MAX;

/// State of an ADU that may not be delivered yet, or that has not arrived.
#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    /// The ADUs that wait for this one, a list in [`Resequencer::edges`].
    first_edge: u32,
    last_edge: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    /// Arrived, and waits for this many others.
    Waiting(u32),
    Released,
}

impl Slot {
    const EMPTY: Self = Self { state: State::Missing, first_edge: NONE, last_edge: NONE };
}

/// `dependent` waits for the ADU whose list this is in.
#[derive(Clone, Copy, Debug)]
struct Edge {
    dependent: u64,
    next: u32,
}

/// Buffers ADUs that arrive before they may be delivered.
///
/// Every ADU is delivered once, as early as the delivery order allows. Among
/// several deliverable ADUs, the one that became deliverable first comes first. `O(1)` per
/// ADU and dependency; no allocation once the buffer has reached its largest size.
#[derive(Clone, Debug)]
pub struct Resequencer {
    order: DeliveryOrder,
    /// Maximum distance of a number from the lowest ADU not released.
    reach: u64,
    /// The lowest ADU not released.
    base: u64,
    /// ADUs from `base` on.
    slots: VecDeque<Slot>,
    edges: Vec<Edge>,
    free_edge: u32,
    /// Deliverable ADUs, in the order in which they became deliverable.
    ready: VecDeque<u64>,
    /// Arrived and not delivered.
    buffered: u64,
}

impl Resequencer {
    /// A buffer for ADUs less than `reach` beyond the lowest one missing, at least 1: a number
    /// from an attacker must not cost memory.
    pub fn new(order: DeliveryOrder, reach: u64) -> Self {
        Self {
            order,
            reach: reach.max(1),
            base: 0,
            slots: VecDeque::new(),
            edges: Vec::new(),
            free_edge: NONE,
            ready: VecDeque::new(),
            buffered: 0,
        }
    }

    /// ADU `number` has arrived and depends on the given ADUs, which matters only in
    /// partial order.
    ///
    /// # Errors
    /// If it arrived before, is out of reach, or depends on one that is not before it; the
    /// buffer is then unchanged.
    pub fn arrive(&mut self, number: u64, depends_on: &[u64]) -> Result<(), ArrivalError> {
        if self.has_arrived(number) {
            return Err(ArrivalError::Duplicate);
        }
        let limit = self.base.saturating_add(self.reach);
        if number >= limit {
            return Err(ArrivalError::TooFar { limit });
        }
        if self.order == DeliveryOrder::PartialOrder
            && let Some(&named) = depends_on.iter().find(|&&named| named >= number)
        {
            return Err(ArrivalError::DependsOnLater { named });
        }
        let place = (number - self.base) as usize;
        if self.slots.len() <= place {
            self.slots.resize(place + 1, Slot::EMPTY);
        }
        self.buffered += 1;
        let missing = match self.order {
            DeliveryOrder::OutOfOrder => 0,
            // Each waits only for the previous one, which waits for those before it.
            DeliveryOrder::InOrder if place == 0 => 0,
            DeliveryOrder::InOrder => self.wait_for(&[number - 1], number),
            DeliveryOrder::PartialOrder => self.wait_for(depends_on, number),
        };
        self.slots[place].state = State::Waiting(missing);
        if missing == 0 {
            self.release(number);
        }
        Ok(())
    }

    /// Delivers the next ADU, if any.
    pub fn deliver(&mut self) -> Option<u64> {
        let number = self.ready.pop_front()?;
        self.buffered -= 1;
        Some(number)
    }

    /// True if an ADU may be delivered.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// True if ADU `number` has arrived.
    pub fn has_arrived(&self, number: u64) -> bool {
        let Some(place) = number.checked_sub(self.base) else { return true };
        let slot = usize::try_from(place).ok().and_then(|place| self.slots.get(place));
        slot.is_some_and(|slot| slot.state != State::Missing)
    }

    /// The lowest ADU that may not be delivered yet: those below were delivered, or are ready.
    pub fn lowest_missing(&self) -> u64 {
        self.base
    }

    /// ADUs that have arrived and are not delivered.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    /// ADUs that have arrived and may not be delivered yet.
    pub fn waiting(&self) -> u64 {
        self.buffered - self.ready.len() as u64
    }

    /// Memory that it has allocated, in bytes. It does not shrink.
    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.edges.capacity() * size_of::<Edge>()
            + self.ready.capacity() * size_of::<u64>()
    }

    /// Adds `dependent` to the lists of its unreleased dependencies; returns their number.
    fn wait_for(&mut self, named: &[u64], dependent: u64) -> u32 {
        let mut missing = 0;
        for number in named {
            let Some(place) = number.checked_sub(self.base) else { continue };
            if self.slots[place as usize].state == State::Released {
                continue;
            }
            let edge = self.new_edge(dependent);
            let slot = &mut self.slots[place as usize];
            if slot.last_edge == NONE {
                slot.first_edge = edge;
            } else {
                self.edges[slot.last_edge as usize].next = edge;
            }
            slot.last_edge = edge;
            missing += 1;
        }
        missing
    }

    fn new_edge(&mut self, dependent: u64) -> u32 {
        let edge = Edge { dependent, next: NONE };
        if self.free_edge == NONE {
            self.edges.push(edge);
            return (self.edges.len() - 1) as u32;
        }
        let place = self.free_edge;
        self.free_edge = self.edges[place as usize].next;
        self.edges[place as usize] = edge;
        place
    }

    /// ADU `number` may be delivered, and with it those that waited only for it.
    fn release(&mut self, number: u64) {
        let mut unseen = self.ready.len();
        self.mark_released(number);
        while let Some(&released) = self.ready.get(unseen) {
            unseen += 1;
            let slot = &mut self.slots[(released - self.base) as usize];
            let mut place = std::mem::replace(&mut slot.first_edge, NONE);
            slot.last_edge = NONE;
            while place != NONE {
                let edge = self.edges[place as usize];
                self.edges[place as usize].next = self.free_edge;
                self.free_edge = place;
                place = edge.next;
                let dependent = &mut self.slots[(edge.dependent - self.base) as usize];
                let State::Waiting(missing) = &mut dependent.state else { continue };
                *missing -= 1;
                if *missing == 0 {
                    self.mark_released(edge.dependent);
                }
            }
        }
        while self.slots.front().is_some_and(|slot| slot.state == State::Released) {
            self.slots.pop_front();
            self.base += 1;
        }
    }

    fn mark_released(&mut self, number: u64) {
        self.slots[(number - self.base) as usize].state = State::Released;
        self.ready.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn drain(buffer: &mut Resequencer) -> Vec<u64> {
        std::iter::from_fn(|| buffer.deliver()).collect()
    }

    #[test]
    fn in_sequence_the_missing_adu_releases_all_behind_it() {
        let mut buffer = Resequencer::new(DeliveryOrder::InOrder, 32);
        for number in [1, 3, 2] {
            assert_eq!(buffer.arrive(number, &[]), Ok(()));
            assert_eq!(buffer.deliver(), None);
        }
        assert_eq!((buffer.buffered(), buffer.waiting()), (3, 3));
        assert_eq!(buffer.arrive(0, &[]), Ok(()));
        assert_eq!(drain(&mut buffer), [0, 1, 2, 3]);
        assert_eq!(buffer.buffered(), 0);
    }

    #[test]
    fn image_data_waits_for_its_tables_and_for_nothing_else() {
        let mut buffer = Resequencer::new(DeliveryOrder::PartialOrder, 32);
        // 0 and 1 are tables, 1 after 0; 2 to 4 are data.
        for number in [3, 4] {
            assert_eq!(buffer.arrive(number, &[0, 1]), Ok(()));
        }
        assert_eq!(buffer.arrive(1, &[0]), Ok(()));
        assert!(!buffer.is_ready());
        assert_eq!(buffer.arrive(0, &[]), Ok(()));
        assert_eq!(drain(&mut buffer), [0, 1, 3, 4]);
        assert_eq!(buffer.arrive(2, &[0, 1]), Ok(()));
        assert_eq!(drain(&mut buffer), [2]);
    }

    #[test]
    fn a_refused_adu_changes_nothing() {
        let mut buffer = Resequencer::new(DeliveryOrder::PartialOrder, 4);
        assert_eq!(buffer.arrive(4, &[]), Err(ArrivalError::TooFar { limit: 4 }));
        assert_eq!(buffer.arrive(u64::MAX, &[]), Err(ArrivalError::TooFar { limit: 4 }));
        assert_eq!(buffer.arrive(1, &[1]), Err(ArrivalError::DependsOnLater { named: 1 }));
        assert_eq!(buffer.arrive(1, &[]), Ok(()));
        assert_eq!(buffer.arrive(1, &[]), Err(ArrivalError::Duplicate));
        assert_eq!(drain(&mut buffer), [1]);
        assert_eq!(buffer.arrive(1, &[]), Err(ArrivalError::Duplicate));
        assert_eq!(buffer.buffered(), 0);
    }

    #[test]
    fn a_warm_buffer_allocates_no_more() {
        let mut buffer = Resequencer::new(DeliveryOrder::PartialOrder, 64);
        let mut round = |from: u64| {
            for number in (from + 1..from + 50).rev() {
                assert_eq!(buffer.arrive(number, &[from, number - 1]), Ok(()));
            }
            assert_eq!(buffer.arrive(from, &[]), Ok(()));
            assert_eq!(drain(&mut buffer).len(), 50);
            (buffer.slots.capacity(), buffer.edges.capacity(), buffer.ready.capacity())
        };
        let warm = round(0);
        for from in 1..100 {
            assert_eq!(round(from * 50), warm);
        }
    }

    /// ADUs that each depend on up to three earlier ones, and an order of arrival with duplicates.
    fn traffic() -> impl Strategy<Value = (Vec<Vec<u64>>, Vec<u64>)> {
        (1usize..60).prop_flat_map(|count| {
            let named = proptest::collection::vec(any::<u64>(), 0..4);
            let adus = proptest::collection::vec(named, count).prop_map(|adus| {
                let earlier = |(number, named): (usize, Vec<u64>)| {
                    let named = named.into_iter().filter(|_| number > 0);
                    named.map(|name| name % number as u64).collect()
                };
                adus.into_iter().enumerate().map(earlier).collect()
            });
            let twice: Vec<u64> = (0..2 * count as u64).map(|at| at % count as u64).collect();
            (adus, Just(twice).prop_shuffle())
        })
    }

    /// The ADUs of `arrived` that may be delivered, by the definition of the order.
    fn allowed(order: DeliveryOrder, adus: &[Vec<u64>], arrived: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut allowed = BTreeSet::new();
        for &number in arrived {
            let may = match order {
                DeliveryOrder::OutOfOrder => true,
                DeliveryOrder::InOrder => (0..number).all(|before| arrived.contains(&before)),
                DeliveryOrder::PartialOrder => {
                    adus[number as usize].iter().all(|named| allowed.contains(named))
                }
            };
            if may {
                allowed.insert(number);
            }
        }
        allowed
    }

    proptest! {
        #[test]
        fn every_adu_is_delivered_once_in_an_allowed_order_and_as_early_as_the_rule_allows(
            (adus, arrivals) in traffic(),
            order in prop_oneof![
                Just(DeliveryOrder::InOrder),
                Just(DeliveryOrder::OutOfOrder),
                Just(DeliveryOrder::PartialOrder),
            ],
            slow in any::<bool>(),
        ) {
            let mut buffer = Resequencer::new(order, adus.len() as u64);
            let (mut arrived, mut delivered) = (BTreeSet::new(), Vec::new());
            for number in arrivals {
                let taken = buffer.arrive(number, &adus[number as usize]);
                prop_assert_eq!(taken.is_ok(), arrived.insert(number));
                if slow {
                    delivered.extend(buffer.deliver());
                } else {
                    delivered.extend(std::iter::from_fn(|| buffer.deliver()));
                    // As early as the order allows: no deliverable ADU is left.
                    let so_far: BTreeSet<u64> = delivered.iter().copied().collect();
                    prop_assert_eq!(so_far, allowed(order, &adus, &arrived));
                }
                prop_assert_eq!(buffer.buffered(), (arrived.len() - delivered.len()) as u64);
            }
            delivered.extend(std::iter::from_fn(|| buffer.deliver()));
            let once: BTreeSet<u64> = delivered.iter().copied().collect();
            prop_assert_eq!(once.len(), delivered.len(), "each once");
            prop_assert_eq!(delivered.len(), adus.len(), "every one");
            for (place, number) in delivered.iter().enumerate() {
                let before = &delivered[..place];
                let fits = match order {
                    DeliveryOrder::OutOfOrder => true,
                    DeliveryOrder::InOrder => *number == place as u64,
                    DeliveryOrder::PartialOrder => {
                        adus[*number as usize].iter().all(|named| before.contains(named))
                    }
                };
                prop_assert!(fits, "{} came too early in {:?}", number, delivered);
            }
        }
    }
}
