//! The objects of ONTEMPO-QOS-MIB (`mibs/ONTEMPO-QOS-MIB.txt`).

use ontempo_reservation::local::Status;

use super::super::{Carrier, Collected, Reservation, Role, ViolationReport};
use super::{Module, Oid, Part, Value, gauge, integer, row, text, ticks, truth};

/// `ontempoQosMIB`.
const ROOT: [u32; 10] = [1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 2000];
const SOCKETS: [u32; 3] = [1, 1, 0];
const SOCKET_ENTRY: [u32; 3] = [1, 2, 1];
const PARAMETER_ENTRY: [u32; 3] = [1, 3, 1];
/// `ontempoRsvpDaemon`.
const DAEMON: [u32; 2] = [1, 4];
/// `snmpTrapOID.0` (RFC 3418).
const TRAP: [u32; 11] = [1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

pub(super) const MODULE: Module = Module {
    root: &ROOT,
    parts: &[
        Part { entry: &[1], columns: &[(1, 1)] },
        Part { entry: &SOCKET_ENTRY, columns: &[(2, 25)] },
        Part { entry: &PARAMETER_ENTRY, columns: &[(2, 8)] },
        Part { entry: &DAEMON, columns: &[(1, 10)] },
    ],
};

const SOCKET_NAME: u32 = 2;
/// `ontempoQosSocketHeldRung`, the only object that can be set.
const HELD_RUNG: u32 = 25;
/// Errors of RFC 3416, section 3.
const WRONG_TYPE: u16 = 7;
const WRONG_VALUE: u16 = 10;
const NO_CREATION: u16 = 11;
/// `notWritable`.
pub const NOT_WRITABLE: u16 = 17;
const PARAMETER_ASKED: u32 = 2;
const PARAMETER_DELIVERED: u32 = 4;
const PARAMETER_AGREED: u32 = 8;

/// The objects of these sockets; time stamps count from `started_ms`.
pub(super) fn objects(sockets: &[Collected], started_ms: u64) -> Vec<(Oid, Value)> {
    let mut objects = vec![(Oid::of(&[&ROOT, &SOCKETS]), gauge(sockets.len()))];
    for one in sockets {
        objects.extend(row(&ROOT, &SOCKET_ENTRY, &[one.index], columns_of_socket(one, started_ms)));
        for parameter in &one.socket.parameters {
            let columns = [
                (PARAMETER_ASKED, gauge(parameter.asked.unwrap_or(0))),
                (3, truth(parameter.coerced)),
                (PARAMETER_DELIVERED, gauge(parameter.delivered.unwrap_or(0))),
                (5, truth(parameter.violated)),
                (6, Value::Counter32(parameter.begun)),
                (7, ticks(parameter.changed_ms, started_ms)),
                (PARAMETER_AGREED, gauge(parameter.agreed)),
            ];
            let index = [one.index, parameter.parameter.into()];
            objects.extend(row(&ROOT, &PARAMETER_ENTRY, &index, columns));
        }
    }
    objects
}

/// The scalars of the RSVP daemon.
pub(super) fn daemon(status: &Status) -> Vec<(Oid, Value)> {
    // A cast saturates, and counters wrap around.
    let counter = |count: u64| Value::Counter64(count);
    let values = [
        Value::TimeTicks((status.up_s * 100.0) as u32),
        gauge(status.neighbours),
        gauge(status.census.sessions),
        gauge(status.census.paths),
        gauge(status.census.reservations),
        gauge(status.census.enforced),
        counter(status.packets_in),
        counter(status.packets_out),
        counter(status.bad_packets),
        counter(status.refused),
    ];
    let named = |(number, value)| (Oid::of(&[&ROOT, &DAEMON, &[number, 0]]), value);
    (1..).zip(values).map(named).collect()
}

/// The objects of a notification that a violation of one socket begins or ends.
pub fn notification(one: &Collected, violation: &ViolationReport) -> Vec<(Oid, Value)> {
    let kind = if violation.begins { 1 } else { 2 };
    let parameter = [one.index, violation.parameter.into()];
    let of_parameter = |column| Oid::of(&[&ROOT, &PARAMETER_ENTRY, &[column], &parameter]);
    let name = Oid::of(&[&ROOT, &SOCKET_ENTRY, &[SOCKET_NAME, one.index]]);
    vec![
        (Oid::of(&[&TRAP]), Value::ObjectIdentifier(Oid::of(&[&ROOT, &[0, kind]]))),
        (name, text(&one.socket.name, 255)),
        (of_parameter(PARAMETER_AGREED), gauge(violation.asked)),
        (of_parameter(PARAMETER_DELIVERED), gauge(violation.delivered)),
    ]
}

fn columns_of_socket(one: &Collected, started_ms: u64) -> [(u32, Value); 24] {
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
        (23, gauge(socket.rungs)),
        (24, gauge(socket.rung)),
        (HELD_RUNG, held(socket.held)),
    ]
}

/// `ontempoQosSocketHeldRung`: -1 where none is held.
fn held(rung: Option<u32>) -> Value {
    rung.map_or(Value::Integer(-1), integer)
}

/// Which rung of its ladder a socket is to hold; `None`: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Number of the socket.
    pub index: u32,
    /// The rung.
    pub rung: Option<u32>,
}

/// What setting this object asks for, if these are the sockets.
///
/// # Errors
/// The error-status of SNMP (RFC 3416, 3): `notWritable`, `wrongType`, `noCreation` or `wrongValue`.
pub fn hold(name: &Oid, value: &Value, sockets: &[Collected]) -> Result<Hold, u16> {
    let column = Oid::of(&[&ROOT, &SOCKET_ENTRY, &[HELD_RUNG]]);
    let Some([index]) = name.0.strip_prefix(column.0.as_slice()) else { return Err(NOT_WRITABLE) };
    let Value::Integer(rung) = value else { return Err(WRONG_TYPE) };
    let socket = sockets.iter().find(|one| one.index == *index).ok_or(NO_CREATION)?;
    let rung = match rung {
        -1 => None,
        other => Some(u32::try_from(*other).map_err(|_| WRONG_VALUE)?),
    };
    match rung {
        Some(rung) if rung >= socket.socket.rungs => Err(WRONG_VALUE),
        _ if socket.socket.rungs == 0 => Err(WRONG_VALUE),
        rung => Ok(Hold { index: *index, rung }),
    }
}

/// A measure in the MIB's unit; unknown is 0.
fn scaled(value: Option<f64>, factor: f64) -> Value {
    // A cast saturates, and converts NaN to 0.
    Value::Gauge32((value.unwrap_or(0.0) * factor).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::collected;
    use super::super::Objects;
    use super::*;

    fn served(sockets: &[Collected]) -> Objects {
        let mut objects = Objects::default();
        objects.set_sockets(sockets, 0);
        objects
    }

    fn walked(objects: &Objects) -> Vec<Oid> {
        let (mut at, end) = (Oid::of(&[&ROOT]), Oid::default());
        let mut names = Vec::new();
        while let Some((name, _)) = objects.next(&at, false, &end) {
            names.push(name.clone());
            at = name.clone();
        }
        names
    }

    #[test]
    fn a_walk_meets_every_object_once_column_by_column() {
        let objects = served(&[collected(3), collected(1000)]);
        let names = walked(&objects);
        assert_eq!(names.len(), 1 + 2 * 24 + 2 * 2 * 7);
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(names[1], Oid::of(&[&ROOT, &SOCKET_ENTRY, &[2, 3]]));
        assert_eq!(names[2], Oid::of(&[&ROOT, &SOCKET_ENTRY, &[2, 1000]]));
    }

    #[test]
    fn a_held_rung_is_set_within_the_ladder_and_nothing_else_is() {
        let sockets = [collected(4)];
        let name = |column, index| Oid::of(&[&ROOT, &SOCKET_ENTRY, &[column, index]]);
        let set = |name: &Oid, value: i32| hold(name, &Value::Integer(value), &sockets);
        assert_eq!(set(&name(HELD_RUNG, 4), 2), Ok(Hold { index: 4, rung: Some(2) }));
        assert_eq!(set(&name(HELD_RUNG, 4), -1), Ok(Hold { index: 4, rung: None }));
        assert_eq!(set(&name(HELD_RUNG, 4), 3), Err(WRONG_VALUE), "it has three");
        assert_eq!(set(&name(HELD_RUNG, 4), -2), Err(WRONG_VALUE));
        assert_eq!(set(&name(HELD_RUNG, 5), 0), Err(NO_CREATION));
        assert_eq!(set(&name(24, 4), 0), Err(NOT_WRITABLE));
        assert_eq!(set(&Oid::default(), 0), Err(NOT_WRITABLE));
        let text = Value::OctetString(b"1".to_vec());
        assert_eq!(hold(&name(HELD_RUNG, 4), &text, &sockets), Err(WRONG_TYPE));
        let mut without = collected(4);
        without.socket.rungs = 0;
        let set = hold(&name(HELD_RUNG, 4), &Value::Integer(-1), &[without]);
        assert_eq!(set, Err(WRONG_VALUE), "it has no ladder");
    }

    #[test]
    fn what_was_asked_stands_beside_what_was_agreed() {
        let objects = served(&[collected(1)]);
        let column = |column| objects.get(&Oid::of(&[&ROOT, &PARAMETER_ENTRY, &[column, 1, 6]]));
        assert_eq!(column(PARAMETER_ASKED), Value::Gauge32(100_003));
        assert_eq!(column(PARAMETER_AGREED), Value::Gauge32(100_000));
        let mut nothing = collected(1);
        nothing.socket.parameters[1].asked = None;
        let objects = served(&[nothing]);
        let asked = objects.get(&Oid::of(&[&ROOT, &PARAMETER_ENTRY, &[PARAMETER_ASKED, 1, 6]]));
        assert_eq!(asked, Value::Gauge32(0), "this end has asked for none");
    }

    #[test]
    fn what_is_not_there_says_whether_its_column_is() {
        let objects = served(&[collected(1)]);
        let of = |column, index| objects.get(&Oid::of(&[&ROOT, &SOCKET_ENTRY, &[column, index]]));
        assert_eq!(of(2, 9), Value::NoSuchInstance);
        assert_eq!(of(1, 1), Value::NoSuchObject, "the index is not accessible");
    }

    #[test]
    fn values_are_in_the_units_of_the_module() {
        let objects = served(&[collected(1)]);
        let column = |column| objects.get(&Oid::of(&[&ROOT, &SOCKET_ENTRY, &[column, 1]]));
        assert_eq!(column(17), Value::Gauge32(614), "kilobits per second");
        assert_eq!(column(19), Value::Gauge32(12_500), "microseconds");
        assert_eq!(column(2), Value::OctetString(b"caf? 1".to_vec()));
    }
}
