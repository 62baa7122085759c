//! The objects served by SNMP, from three modules, in the order of their names.
//!
//! [`qos`] has the QoS sockets (`mibs/ONTEMPO-QOS-MIB.txt`); [`Reservations`] the state of the
//! host's RSVP daemon, as RSVP-MIB (RFC 2206) and INTEGRATED-SERVICES-MIB (RFC 2213).

mod int_srv;
pub mod qos;
mod reservations;
mod rsvp;

use std::net::IpAddr;

use agentx::encodings::ID;

use super::Collected;
pub use reservations::{Classes, Reservations};

/// A module, as far as it is implemented.
#[derive(Debug)]
pub struct Module {
    /// The name below which all its objects are.
    pub root: &'static [u32],
    parts: &'static [Part],
}

/// A table's entry, or a group of scalars.
#[derive(Debug)]
struct Part {
    /// Its name below the module's.
    entry: &'static [u32],
    /// Its columns, or scalars: first and last of each range without a gap.
    columns: &'static [(u32, u32)],
}

/// All modules.
pub const MODULES: [&Module; 3] = [&rsvp::MODULE, &int_srv::MODULE, &qos::MODULE];

/// The value of an object (RFC 2741, 5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A whole number.
    Integer(i32),
    /// Text, or octets.
    OctetString(Vec<u8>),
    /// An object identifier.
    ObjectIdentifier(Oid),
    /// Only grows, and wraps around.
    Counter32(u32),
    /// Grows and shrinks.
    Gauge32(u32),
    /// Hundredths of a second.
    TimeTicks(u32),
    /// Only grows.
    Counter64(u64),
    /// There is no such column.
    NoSuchObject,
    /// There is no such row in this column.
    NoSuchInstance,
    /// There is no further object.
    EndOfMibView,
}

/// An object identifier: its sub-identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(Vec<u32>);

impl Oid {
    /// The most sub-identifiers of a name (RFC 2578, 3.5).
    const MAX_PARTS: usize = 128;

    /// The name with these sub-identifiers, one part after the other.
    pub fn of(parts: &[&[u32]]) -> Self {
        Self(parts.concat())
    }

    /// The identifier in a message; `None` if it is too long.
    pub fn from_message(id: &ID) -> Option<Self> {
        if id.is_null() {
            return Some(Self(Vec::new()));
        }
        let parts: Result<Vec<u32>, _> = id.to_string().split('.').map(str::parse).collect();
        parts.ok().filter(|parts| parts.len() <= Self::MAX_PARTS).map(Self)
    }

    /// The identifier as encoded in messages.
    pub fn to_message(&self) -> ID {
        ID::try_from(self.0.clone()).unwrap_or_default()
    }
}

/// A snapshot of all objects.
#[derive(Debug, Default)]
pub struct Objects {
    /// One list a module, each sorted. An update of one leaves the others.
    sockets: Vec<(Oid, Value)>,
    reservations: Vec<(Oid, Value)>,
}

impl Objects {
    /// Replaces the sockets. `started_ms` is when the agent started, in
    /// milliseconds since 1970: time stamps count from there.
    pub fn set_sockets(&mut self, sockets: &[Collected], started_ms: u64) {
        self.sockets = sorted(qos::objects(sockets, started_ms));
    }

    /// Replaces the objects of [`Reservations`].
    pub fn set_reservations(&mut self, objects: Vec<(Oid, Value)>) {
        self.reservations = sorted(objects);
    }

    /// The object of this name. If there is none: `NoSuchInstance` if its column exists for other
    /// rows, else `NoSuchObject` (RFC 2741, 7.2.3.1).
    pub fn get(&self, name: &Oid) -> Value {
        let in_tree = |tree: &[(Oid, Value)]| {
            let place = tree.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
            Some(tree[place].1.clone())
        };
        let found = in_tree(&self.sockets).or_else(|| in_tree(&self.reservations));
        found.unwrap_or_else(|| {
            if is_in_a_column(name) { Value::NoSuchInstance } else { Value::NoSuchObject }
        })
    }

    /// The first object after `start`, or at it if `include`, and before `end`; if `end` is empty,
    /// without an upper bound.
    pub fn next(&self, start: &Oid, include: bool, end: &Oid) -> Option<&(Oid, Value)> {
        let in_tree = |tree: &'_ [(Oid, Value)]| {
            tree.partition_point(|(name, _)| name < start || !include && name == start)
        };
        let trees = [&self.sockets, &self.reservations];
        let found = trees.into_iter().filter_map(|tree| tree.get(in_tree(tree)));
        let first = found.min_by(|one, other| one.0.cmp(&other.0));
        first.filter(|(name, _)| end.0.is_empty() || name < end)
    }
}

fn sorted(mut objects: Vec<(Oid, Value)>) -> Vec<(Oid, Value)> {
    objects.sort_by(|one, other| one.0.cmp(&other.0));
    objects
}

fn is_in_a_column(name: &Oid) -> bool {
    let is_of = |module: &Module| {
        let Some(rest) = name.0.strip_prefix(module.root) else { return false };
        module.parts.iter().any(|part| {
            let column = rest.strip_prefix(part.entry).and_then(<[u32]>::first);
            let is_in = |column: &u32| {
                part.columns.iter().any(|(first, last)| (first..=last).contains(&column))
            };
            column.is_some_and(is_in)
        })
    };
    MODULES.into_iter().any(is_of)
}

/// The objects of one row: its columns, under a module's entry and the row's index.
fn row(
    root: &[u32],
    entry: &[u32],
    index: &[u32],
    columns: impl IntoIterator<Item = (u32, Value)>,
) -> Vec<(Oid, Value)> {
    let named = |(column, value)| (Oid::of(&[root, entry, &[column], index]), value);
    columns.into_iter().map(named).collect()
}

/// The columns of a row, from `first` on.
fn columns<const N: usize>(first: u32, values: [Value; N]) -> impl Iterator<Item = (u32, Value)> {
    (first..).zip(values)
}

fn gauge(value: impl TryInto<u32>) -> Value {
    Value::Gauge32(value.try_into().unwrap_or(u32::MAX))
}

/// `Integer32`, and the standard's `BitRate`, `BurstSize` and `MessageSize`: what is larger
/// than it can hold is the largest.
fn integer(value: impl TryInto<i32>) -> Value {
    Value::Integer(value.try_into().unwrap_or(i32::MAX))
}

/// `TruthValue` (RFC 2579).
fn truth(value: bool) -> Value {
    Value::Integer(if value { 1 } else { 2 })
}

/// `TimeStamp` (RFC 2579): hundredths of a second from the agent's start, which wrap around.
fn ticks(at_ms: Option<u64>, started_ms: u64) -> Value {
    let hundredths = at_ms.map_or(0, |at| at.saturating_sub(started_ms) / 10);
    Value::TimeTicks(hundredths as u32)
}

/// `DisplayString` (RFC 2579): other than printable ASCII becomes a question mark.
fn text(text: &str, longest: usize) -> Value {
    let printable = |one: char| if one.is_ascii_graphic() || one == ' ' { one as u8 } else { b'?' };
    Value::OctetString(text.chars().take(longest).map(printable).collect())
}

/// An address in network order, 4 or 16 octets.
fn address(address: IpAddr) -> Value {
    Value::OctetString(octets(address))
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// `Port` (RFC 2213), in network order.
fn port(port: u16) -> Value {
    Value::OctetString(port.to_be_bytes().to_vec())
}

/// `RowStatus` (RFC 2579) of an existing row.
const ACTIVE: Value = Value::Integer(1);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::super::tests::{collected, status};
    use super::*;

    #[test]
    fn what_is_not_there_says_whether_its_column_is() {
        let objects = Objects::default();
        let column = |entry: &[u32], column| Oid::of(&[&[1, 3, 6, 1, 2, 1], entry, &[column, 9]]);
        for (entry, there, missing) in [
            (&[51, 1, 2, 1][..], 11, 10), // a sender's hop; its flow label is not served
            (&[51, 1, 3, 1], 1, 2),
            (&[52, 1, 2, 1], 25, 26),
            (&[51, 2], 1, 2),
        ] {
            assert_eq!(objects.get(&column(entry, there)), Value::NoSuchInstance);
            assert_eq!(objects.get(&column(entry, missing)), Value::NoSuchObject);
        }
        assert_eq!(objects.get(&Oid::of(&[&[1, 3]])), Value::NoSuchObject);
    }

    #[test]
    fn every_object_is_in_a_column_of_its_module() {
        let mut objects = qos::objects(&[collected(1)], 0);
        objects.extend(Reservations::default().objects(&status(3), &Classes::new(), (9_000, 0)));
        for (name, _) in objects {
            assert!(is_in_a_column(&name), "{name:?}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        // A prefix makes five sub-identifiers of one (RFC 2741, 5.1).
        let mut bytes = vec![255, 4, 0, 0];
        bytes.extend([0; 255 * 4]);
        let id = ID::from_bytes(&bytes, &agentx::ByteOrder::LittleEndian).unwrap();
        assert_eq!(Oid::from_message(&id), None);
    }

    proptest! {
        /// The order of names is that of a sorted map, wherever a search starts and ends.
        #[test]
        fn next_is_what_a_sorted_map_says(
            sockets in proptest::collection::btree_set(1u32..50, 0..6),
            sessions in 0u16..4,
            roots in (0usize..3, 0usize..3),
            start in proptest::collection::vec(0u32..30, 0..6),
            end in proptest::collection::vec(0u32..30, 0..6),
            below in any::<bool>(),
            include in any::<bool>(),
        ) {
            let sockets: Vec<_> = sockets.iter().map(|index| collected(*index)).collect();
            let mut all = qos::objects(&sockets, 0);
            let mut reservations = Reservations::default();
            all.extend(reservations.objects(&status(sessions), &Classes::new(), (9_000, 0)));
            let map: BTreeMap<_, _> = all.iter().cloned().collect();
            prop_assert_eq!(map.len(), all.len(), "no name is there twice");
            let mut objects = Objects::default();
            objects.set_sockets(&sockets, 0);
            objects.set_reservations(
                Reservations::default().objects(&status(sessions), &Classes::new(), (9_000, 0)),
            );
            let start = if below { Oid::of(&[MODULES[roots.0].root, &start]) } else { Oid(start) };
            let end = if end.is_empty() { Oid(end) } else { Oid::of(&[MODULES[roots.1].root, &end]) };
            let from = if include { Bound::Included(&start) } else { Bound::Excluded(&start) };
            let expected = map
                .range((from, Bound::Unbounded))
                .next()
                .filter(|(name, _)| end.0.is_empty() || *name < &end);
            let found = objects.next(&start, include, &end);
            prop_assert_eq!(found.map(|(name, value)| (name, value)), expected);
        }
    }
}
