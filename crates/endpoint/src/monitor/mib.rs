//! The objects of ONTEMPO-QOS-MIB in the order of their names (`mibs/ONTEMPO-QOS-MIB.txt`).

use agentx::encodings::{ID, OctetString, Value};

use super::{Carrier, Collected, Reservation, Role};

/// The name of an object: its sub-identifiers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(Vec<u32>);

/// `ontempoQosMIB`.
const ROOT: [u32; 10] = [1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 2000];
const SOCKETS: [u32; 2] = [1, 1];
const SOCKET_ENTRY: [u32; 3] = [1, 2, 1];
const PARAMETER_ENTRY: [u32; 3] = [1, 3, 1];
/// `snmpTrapOID.0` (RFC 3418).
const TRAP: [u32; 11] = [1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

const SOCKET_NAME: u32 = 2;
const PARAMETER_ASKED: u32 = 2;
const PARAMETER_DELIVERED: u32 = 4;

impl Oid {
    /// The most sub-identifiers of a name (RFC 2578, 3.5).
    const LONGEST: usize = 128;

    /// The name below which all objects of the MIB are.
    pub fn root() -> Self {
        Self(ROOT.to_vec())
    }

    fn under_root(parts: &[&[u32]]) -> Self {
        let mut name = ROOT.to_vec();
        parts.iter().for_each(|part| name.extend_from_slice(part));
        Self(name)
    }

    /// The name in a message; `None` where it is longer than a name may be.
    pub fn from_message(id: &ID) -> Option<Self> {
        if id.is_null() {
            return Some(Self(Vec::new()));
        }
        let parts: Result<Vec<u32>, _> = id.to_string().split('.').map(str::parse).collect();
        parts.ok().filter(|parts| parts.len() <= Self::LONGEST).map(Self)
    }

    /// The name as messages carry it.
    pub fn to_message(&self) -> ID {
        ID::try_from(self.0.clone()).unwrap_or_default()
    }
}

/// The objects as they are at one time.
#[derive(Debug, Default)]
pub struct Objects {
    /// In the order of the names.
    sorted: Vec<(Oid, Value)>,
}

impl Objects {
    /// The objects of these sockets. `started_ms` is when the agent started, in milliseconds
    /// since 1970: time stamps count from there.
    pub fn new(sockets: &[Collected], started_ms: u64) -> Self {
        let count = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
        let mut sorted = vec![(Oid::under_root(&[&SOCKETS, &[0]]), Value::Gauge32(count))];
        for one in sockets {
            let columns = columns_of_socket(one, started_ms);
            sorted.extend(columns.into_iter().map(|(column, value)| {
                (Oid::under_root(&[&SOCKET_ENTRY, &[column, one.index]]), value)
            }));
            for parameter in &one.socket.parameters {
                let row = [one.index, parameter.parameter.into()];
                let columns = [
                    (PARAMETER_ASKED, gauge(parameter.asked)),
                    (3, truth(parameter.coerced)),
                    (PARAMETER_DELIVERED, gauge(parameter.delivered.unwrap_or(0))),
                    (5, truth(parameter.violated)),
                    (6, Value::Counter32(parameter.begun)),
                    (7, ticks(parameter.changed_ms, started_ms)),
                ];
                sorted.extend(columns.into_iter().map(|(column, value)| {
                    (Oid::under_root(&[&PARAMETER_ENTRY, &[column], &row]), value)
                }));
            }
        }
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        Self { sorted }
    }

    /// The object of this name. Where there is none, whether its column is there for others
    /// decides between `NoSuchInstance` and `NoSuchObject` (RFC 2741, 7.2.3.1).
    pub fn get(&self, name: &Oid) -> Value {
        match self.sorted.binary_search_by(|(other, _)| other.cmp(name)) {
            Ok(place) => self.sorted[place].1.clone(),
            Err(_) if is_in_a_column(name) => Value::NoSuchInstance,
            Err(_) => Value::NoSuchObject,
        }
    }

    /// The first object after `start`, or at it if `include`, and before `end`; any, where `end`
    /// is empty.
    pub fn next(&self, start: &Oid, include: bool, end: &Oid) -> Option<(&Oid, &Value)> {
        let place =
            self.sorted.partition_point(|(name, _)| name < start || !include && name == start);
        let (name, value) = self.sorted.get(place)?;
        (end.0.is_empty() || name < end).then_some((name, value))
    }
}

/// The objects of a notification that a violation of one socket begins or ends.
pub fn notification(one: &Collected, violation: &super::ViolationReport) -> Vec<(Oid, Value)> {
    let kind = if violation.begins { 1 } else { 2 };
    let row = [one.index, violation.parameter.into()];
    vec![
        (Oid(TRAP.to_vec()), Value::ObjectIdentifier(Oid::under_root(&[&[0, kind]]).to_message())),
        (Oid::under_root(&[&SOCKET_ENTRY, &[SOCKET_NAME, one.index]]), text(&one.socket.name, 255)),
        (Oid::under_root(&[&PARAMETER_ENTRY, &[PARAMETER_ASKED], &row]), gauge(violation.asked)),
        (
            Oid::under_root(&[&PARAMETER_ENTRY, &[PARAMETER_DELIVERED], &row]),
            gauge(violation.delivered),
        ),
    ]
}

fn is_in_a_column(name: &Oid) -> bool {
    let Some(rest) = name.0.strip_prefix(&ROOT) else { return false };
    match rest {
        [1, 1, ..] => true,
        [1, 2, 1, column, ..] => (2..=22).contains(column),
        [1, 3, 1, column, ..] => (2..=7).contains(column),
        _ => false,
    }
}

fn columns_of_socket(one: &Collected, started_ms: u64) -> [(u32, Value); 21] {
    let socket = &one.socket;
    let role = match socket.role {
        Role::Sender => 1,
        Role::Receiver => 2,
    };
    let carrier = match socket.carrier {
        Carrier::Tcp => 1,
        Carrier::Udp => 2,
        Carrier::Quic => 3,
    };
    let reservation = match socket.reservation {
        Reservation::None => 1,
        Reservation::Requested => 2,
        Reservation::ControlledLoad => 3,
        Reservation::Guaranteed => 4,
        Reservation::Refused => 5,
        Reservation::Lost => 6,
    };
    let begun = socket.parameters.iter().fold(0u32, |sum, one| sum.wrapping_add(one.begun));
    [
        (SOCKET_NAME, text(&socket.name, 255)),
        (3, Value::Gauge32(one.process)),
        (4, Value::Integer(role)),
        (5, Value::Integer(carrier)),
        (6, text(&socket.local, 64)),
        (7, text(&socket.remote, 64)),
        (8, Value::Gauge32(socket.dscp.into())),
        (9, Value::Integer(reservation)),
        (10, text(&socket.reason, 255)),
        (11, ticks(Some(socket.opened_ms), started_ms)),
        (12, Value::Counter64(socket.sent_messages)),
        (13, Value::Counter64(socket.sent_bytes)),
        (14, Value::Counter64(socket.messages)),
        (15, Value::Counter64(socket.bytes)),
        (16, Value::Counter64(socket.lost_messages)),
        (17, scaled(Some(socket.throughput), 1e-3)),
        (18, scaled(socket.loss, 1e3)),
        (19, scaled(socket.delay, 1e6)),
        (20, scaled(socket.delay_error, 1e6)),
        (21, scaled(socket.jitter, 1e6)),
        (22, Value::Counter32(begun)),
    ]
}

fn gauge(value: u64) -> Value {
    Value::Gauge32(u32::try_from(value).unwrap_or(u32::MAX))
}

/// A measure in the MIB's unit; what is not known is 0.
fn scaled(value: Option<f64>, factor: f64) -> Value {
    // A cast saturates, and takes what is not a number for 0.
    Value::Gauge32((value.unwrap_or(0.0) * factor).round() as u32)
}

/// `TruthValue` (RFC 2579).
fn truth(value: bool) -> Value {
    Value::Integer(if value { 1 } else { 2 })
}

/// `TimeStamp` (RFC 2579): hundredths of a second from the agent's start, which wrap around.
fn ticks(at_ms: Option<u64>, started_ms: u64) -> Value {
    let hundredths = at_ms.map_or(0, |at| at.saturating_sub(started_ms) / 10);
    Value::TimeTicks(hundredths as u32 as i32)
}

/// `DisplayString` (RFC 2579): what is not printable ASCII becomes a question mark.
fn text(text: &str, longest: usize) -> Value {
    let printable = |one: char| if one.is_ascii_graphic() || one == ' ' { one } else { '?' };
    Value::OctetString(OctetString(text.chars().take(longest).map(printable).collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::super::tests::collected;
    use super::*;

    fn walked(objects: &Objects) -> Vec<Oid> {
        let (mut at, end) = (Oid::root(), Oid(Vec::new()));
        let mut names = Vec::new();
        while let Some((name, _)) = objects.next(&at, false, &end) {
            names.push(name.clone());
            at = name.clone();
        }
        names
    }

    #[test]
    fn a_walk_meets_every_object_once_column_by_column() {
        let objects = Objects::new(&[collected(3), collected(1000)], 0);
        let names = walked(&objects);
        assert_eq!(names.len(), 1 + 2 * 21 + 2 * 2 * 6);
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(names[1], Oid::under_root(&[&SOCKET_ENTRY, &[2, 3]]));
        assert_eq!(names[2], Oid::under_root(&[&SOCKET_ENTRY, &[2, 1000]]));
    }

    #[test]
    fn what_is_not_there_says_whether_its_column_is() {
        let objects = Objects::new(&[collected(1)], 0);
        assert_eq!(objects.get(&Oid::under_root(&[&SOCKET_ENTRY, &[2, 9]])), Value::NoSuchInstance);
        assert_eq!(
            objects.get(&Oid::under_root(&[&SOCKET_ENTRY, &[1, 1]])),
            Value::NoSuchObject,
            "the index is not accessible"
        );
        assert_eq!(objects.get(&Oid(vec![1, 3])), Value::NoSuchObject);
    }

    #[test]
    fn values_are_in_the_units_of_the_module() {
        let objects = Objects::new(&[collected(1)], 0);
        let column = |column| objects.get(&Oid::under_root(&[&SOCKET_ENTRY, &[column, 1]]));
        assert_eq!(column(17), Value::Gauge32(614), "kilobits per second");
        assert_eq!(column(19), Value::Gauge32(12_500), "microseconds");
        assert_eq!(column(2), Value::OctetString(OctetString("caf? 1".to_owned())));
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
            indexes in proptest::collection::btree_set(1u32..50, 0..6),
            start in proptest::collection::vec(0u32..30, 0..6),
            end in proptest::collection::vec(0u32..30, 0..6),
            below in any::<bool>(),
            include in any::<bool>(),
        ) {
            let sockets: Vec<_> = indexes.iter().map(|index| collected(*index)).collect();
            let objects = Objects::new(&sockets, 0);
            let map: BTreeMap<_, _> = objects.sorted.iter().cloned().collect();
            let start = if below { Oid::under_root(&[&start]) } else { Oid(start) };
            let end = if end.is_empty() { Oid(end) } else { Oid::under_root(&[&end]) };
            let from = if include { Bound::Included(&start) } else { Bound::Excluded(&start) };
            let expected = map
                .range((from, Bound::Unbounded))
                .next()
                .filter(|(name, _)| end.0.is_empty() || *name < &end);
            prop_assert_eq!(objects.next(&start, include, &end), expected);
        }
    }
}
