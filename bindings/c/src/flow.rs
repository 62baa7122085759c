//! Flows: units sent and received.

use std::ffi::c_char;

use bytes::Bytes;
use ontempo_foundation::Duration;
use ontempo_transport::live::{Message, NotTaken, ReceiveFlow, SendFlow};
use ontempo_transport::{DeliveryOrder, FlowConfig, Reliability};

use crate::connection::{CONNECTIONS, STEP};
use crate::handle::ontempo_unit;
use crate::handle::{Table, ontempo_connection, ontempo_receive_flow, ontempo_send_flow};
use crate::status::{
    Failure, ONTEMPO_ENDED, ONTEMPO_ERROR_UNIT, ONTEMPO_OK, ONTEMPO_TIMED_OUT, call, ontempo_status,
};
use crate::text::{Deadline, copy, fill, limit, place, text};
use crate::unit::UNITS;

/// Units in the order of sending, without a gap.
pub const ONTEMPO_IN_ORDER: u32 = 0;
/// Units as they arrive.
pub const ONTEMPO_OUT_OF_ORDER: u32 = 1;
/// Each unit after those that it depends on.
pub const ONTEMPO_PARTIAL_ORDER: u32 = 2;

/// Lost units are sent again until they arrive.
pub const ONTEMPO_FULL: u32 = 0;
/// Lost units are sent again until their deadline, then dropped.
pub const ONTEMPO_DEADLINE: u32 = 1;
/// Lost units are not sent again.
pub const ONTEMPO_NONE: u32 = 2;

/// Units that one may depend on, at most.
pub const ONTEMPO_MAX_DEPENDENCIES: usize = 32;

static SENDING: Table<SendFlow> = Table::new("sending flow");
static RECEIVING: Table<ReceiveFlow> = Table::new("receiving flow");

/// A unit to be sent. Set all to zero, then `size` to `sizeof (ontempo_outgoing)`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ontempo_outgoing {
    /// Bytes of this struct, as the program knows it.
    pub size: usize,
    /// The data, which is copied; may be NULL if `length` is 0.
    pub data: *const u8,
    /// Bytes of data.
    pub length: usize,
    /// From now to the deadline in microseconds, after which the unit is dropped; 0: none. Only for
    /// flows whose reliability is not `ONTEMPO_FULL`.
    pub lifetime_us: u64,
    /// Larger is more important. Below 5, a unit with a deadline is dropped before anything of it is
    /// sent if the path does not bear all that is queued.
    pub priority: u8,
    /// 1: `continues` is a unit. 0: there is none.
    pub has_continues: u8,
    /// The unit of the same flow that it continues: both are parts of one frame, which is kept or dropped
    /// whole.
    pub continues: u64,
    /// Units of the same flow without which it is of no use: the numbers that `ontempo_send` gave.
    pub depends_on: *const u64,
    /// How many, at most `ONTEMPO_MAX_DEPENDENCIES`.
    pub depends_on_count: usize,
}

/// Opens a flow to the peer with an order (`ONTEMPO_IN_ORDER`, ...), a reliability (`ONTEMPO_FULL`, ...)
/// and a label of at most 256 bytes.
///
/// # Safety
/// `label` ends with a zero byte; `flow` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_open_flow(
    connection: *mut ontempo_connection,
    order: u32,
    reliability: u32,
    label: *const c_char,
    flow: *mut *mut ontempo_send_flow,
) -> ontempo_status {
    call(|| {
        let found = CONNECTIONS.get(connection)?;
        // SAFETY: as this function asks.
        let label = unsafe { text("label", label) }?.to_owned();
        // SAFETY: as this function asks.
        let to = unsafe { place("flow", flow) }?;
        let unknown = |what, number| Failure::argument(format!("there is no {what} {number}"));
        let order =
            *DeliveryOrder::ALL.get(order as usize).ok_or_else(|| unknown("order", order))?;
        let reliability = *Reliability::ALL
            .get(reliability as usize)
            .ok_or_else(|| unknown("reliability", reliability))?;
        let config = FlowConfig { order, reliability, label };
        *to = SENDING.keep(found.connection.open_flow(config)?);
        Ok(ONTEMPO_OK)
    })
}

/// # Safety
/// `unit` is NULL, or its fields are as `ontempo_outgoing` says.
unsafe fn message(unit: *const ontempo_outgoing) -> Result<Message, Failure> {
    // SAFETY: as this function asks.
    let unit = unsafe { unit.as_ref() }.ok_or_else(|| Failure::argument("unit is NULL"))?;
    // What follows reads all fields of this version.
    if unit.size < size_of::<ontempo_outgoing>() {
        return Err(Failure::argument("unit.size is not sizeof (ontempo_outgoing)"));
    }
    if unit.depends_on_count > ONTEMPO_MAX_DEPENDENCIES {
        let sentence = format!("a unit depends on at most {ONTEMPO_MAX_DEPENDENCIES} others");
        return Err(Failure::new(ONTEMPO_ERROR_UNIT, sentence));
    }
    // SAFETY: as this function asks.
    let data = unsafe { slice("unit.data", unit.data, unit.length) }?;
    // SAFETY: as this function asks.
    let depends_on = unsafe { slice("unit.depends_on", unit.depends_on, unit.depends_on_count) }?;
    let lifetime = (unit.lifetime_us > 0).then(|| Duration::from_micros(unit.lifetime_us));
    Ok(Message {
        data: Bytes::copy_from_slice(data),
        lifetime,
        priority: unit.priority,
        depends_on: depends_on.to_vec(),
        continues: (unit.has_continues != 0).then_some(unit.continues),
    })
}

/// # Safety
/// `count` elements at `first` can be read, unless `first` is NULL.
unsafe fn slice<'a, T>(name: &str, first: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    let most = isize::MAX as usize / size_of::<T>();
    if first.is_null() || !first.is_aligned() || count > most {
        return Err(Failure::argument(format!("{name} does not hold {count} elements")));
    }
    // SAFETY: not NULL, aligned, not larger than a slice can be, and readable as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Queues a unit and gives its number, from 0 on; waits while the send queue is full, for `timeout_ms` at
/// most (below 0: without a limit; 0: not at all). `number` may be NULL.
///
/// # Safety
/// `unit` and what it points to can be read; `number` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_send(
    flow: *mut ontempo_send_flow,
    unit: *const ontempo_outgoing,
    timeout_ms: i64,
    number: *mut u64,
) -> ontempo_status {
    call(|| {
        let found = SENDING.get(flow)?;
        // SAFETY: as this function asks.
        let message = unsafe { message(unit) }?;
        let sent = match limit(timeout_ms) {
            None => found.send(message)?,
            Some(limit) => match found.send_within(message, limit) {
                Ok(sent) => sent,
                Err(NotTaken::Full) => return Ok(ONTEMPO_TIMED_OUT),
                Err(NotTaken::Failed(error)) => return Err(error.into()),
            },
        };
        // SAFETY: as this function asks.
        if let Some(number) = unsafe { number.as_mut() } {
            *number = sent;
        }
        Ok(ONTEMPO_OK)
    })
}

/// What became of the units of a sending flow. Set `size` to `sizeof (ontempo_send_statistics)`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ontempo_send_statistics {
    /// Bytes of this struct, as the program knows it.
    pub size: usize,
    /// Units accepted for sending, and their bytes.
    pub units: u64,
    /// See `units`.
    pub bytes: u64,
    /// Units acknowledged.
    pub arrived: u64,
    /// Units dropped at their deadline, as agreed with the peer.
    pub dropped: u64,
    /// Of these: units dropped before, since the path did not bear their frame.
    pub shed: u64,
    /// Units queued or in flight, and their bytes.
    pub held_units: u64,
    /// See `held_units`.
    pub held_bytes: u64,
}

/// What became of a flow's units.
///
/// # Safety
/// `statistics` points to a struct whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_send_flow_get_statistics(
    flow: *const ontempo_send_flow,
    statistics: *mut ontempo_send_statistics,
) -> ontempo_status {
    call(|| {
        let all = SENDING.get(flow)?.statistics().ok_or_else(ended)?;
        let values = ontempo_send_statistics {
            size: 0,
            units: all.units,
            bytes: all.bytes,
            arrived: all.arrived,
            dropped: all.dropped,
            shed: all.shed,
            held_units: all.held_units,
            held_bytes: all.held_bytes,
        };
        // SAFETY: as this function asks.
        unsafe { fill("statistics", statistics, values) }?;
        Ok(ONTEMPO_OK)
    })
}

fn ended() -> Failure {
    let sentence = "the connection was over before the flow had ended";
    Failure::new(crate::status::ONTEMPO_ERROR_CLOSED, sentence)
}

/// Ends the flow: the peer sees its end after the last unit. Then waits, for `timeout_ms` at most (below
/// 0: without a limit), until each unit has arrived at the peer or was dropped.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_finish(flow: *mut ontempo_send_flow, timeout_ms: i64) -> ontempo_status {
    call(|| {
        let found = SENDING.get(flow)?;
        found.finish();
        let deadline = Deadline::after(timeout_ms);
        // A limit of zero polls once.
        let mut step = deadline.step(STEP).unwrap_or_default();
        loop {
            if let Some(settled) = found.settled(step) {
                return settled.map(|_| ONTEMPO_OK).map_err(Failure::from);
            }
            let Some(left) = deadline.step(STEP) else { return Ok(ONTEMPO_TIMED_OUT) };
            step = left;
        }
    })
}

/// Finishes the flow, if it is not, and ends it; what is queued is still sent.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_send_flow_free(flow: *mut ontempo_send_flow) -> ontempo_status {
    call(|| SENDING.take(flow).map(|_| ONTEMPO_OK))
}

/// Waits for a flow that the peer opens, for `timeout_ms` at most (below 0: without a limit).
///
/// # Safety
/// `flow` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_accept_flow(
    connection: *mut ontempo_connection,
    timeout_ms: i64,
    flow: *mut *mut ontempo_receive_flow,
) -> ontempo_status {
    call(|| {
        let found = CONNECTIONS.get(connection)?;
        // SAFETY: as this function asks.
        let to = unsafe { place("flow", flow) }?;
        let accepted = match limit(timeout_ms) {
            None => Some(found.connection.accept_flow()),
            Some(limit) => found.connection.accept_flow_within(limit),
        };
        let Some(accepted) = accepted else { return Ok(ONTEMPO_TIMED_OUT) };
        *to = RECEIVING.keep(accepted?);
        Ok(ONTEMPO_OK)
    })
}

/// Writes the label that the peer gave the flow to `room` bytes (257) at `label`, and its order and
/// reliability, which may be NULL.
///
/// # Safety
/// `room` bytes at `label` can be written to; so can `order` and `reliability`, unless they are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_receive_flow_get(
    flow: *const ontempo_receive_flow,
    label: *mut c_char,
    room: usize,
    order: *mut u32,
    reliability: *mut u32,
) -> ontempo_status {
    call(|| {
        let found = RECEIVING.get(flow)?;
        let config = found.config();
        // SAFETY: as this function asks.
        unsafe { copy(&config.label, label, room) }?;
        let number = |place: Option<usize>| place.unwrap_or_default() as u32;
        // SAFETY: as this function asks.
        if let Some(order) = unsafe { order.as_mut() } {
            *order = number(DeliveryOrder::ALL.iter().position(|one| *one == config.order));
        }
        // SAFETY: as this function asks.
        if let Some(reliability) = unsafe { reliability.as_mut() } {
            *reliability =
                number(Reliability::ALL.iter().position(|one| *one == config.reliability));
        }
        Ok(ONTEMPO_OK)
    })
}

/// Waits for the next unit, or the number of one that was dropped, for `timeout_ms` at most (below 0:
/// without a limit); `ONTEMPO_ENDED` after the last one.
///
/// # Safety
/// `unit` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_receive(
    flow: *mut ontempo_receive_flow,
    timeout_ms: i64,
    unit: *mut *mut ontempo_unit,
) -> ontempo_status {
    call(|| {
        let found = RECEIVING.get(flow)?;
        // SAFETY: as this function asks.
        let to = unsafe { place("unit", unit) }?;
        let received = match limit(timeout_ms) {
            None => Some(found.receive()),
            Some(limit) => found.receive_within(limit),
        };
        let Some(received) = received else { return Ok(ONTEMPO_TIMED_OUT) };
        let Some(delivery) = received? else { return Ok(ONTEMPO_ENDED) };
        *to = UNITS.keep(delivery);
        Ok(ONTEMPO_OK)
    })
}

/// Ends a receiving flow; what is left of it is discarded.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_receive_flow_free(flow: *mut ontempo_receive_flow) -> ontempo_status {
    call(|| RECEIVING.take(flow).map(|_| ONTEMPO_OK))
}
