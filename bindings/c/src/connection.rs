//! Listeners and connections.

use std::ffi::c_char;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration as Wall;

use ontempo_foundation::AddressError;
use ontempo_transport::live::{Accepted, Connection, Error, Listener, connect};
use ontempo_transport::{CloseReason, Closed};

use crate::event::Seen;
use crate::handle::{Table, ontempo_connection, ontempo_listener, ontempo_options};
use crate::options::Chosen;
use crate::status::{
    Failure, ONTEMPO_ERROR_ADDRESS, ONTEMPO_OK, ONTEMPO_TIMED_OUT, call, ontempo_status,
};
use crate::text::{Deadline, copy, fill, place, text};

pub(crate) struct Connected {
    pub(crate) connection: Connection,
    pub(crate) seen: Mutex<Seen>,
}

struct Listening {
    listener: Listener,
    fingerprint: String,
}

static LISTENERS: Table<Listening> = Table::new("listener");
pub(crate) static CONNECTIONS: Table<Connected> = Table::new("connection");

fn keep(connection: Connection) -> *mut ontempo_connection {
    CONNECTIONS.keep(Connected { connection, seen: Mutex::default() })
}

fn resolved(address: &str) -> Result<SocketAddr, Failure> {
    ontempo_foundation::resolve(address).map_err(|error| {
        let why = match error {
            AddressError::Written(why) => format!("`{address}`: {why}"),
            AddressError::Unknown(why) => why,
        };
        Failure::new(ONTEMPO_ERROR_ADDRESS, why)
    })
}

/// Connects to `address` ("host.example:4434", "[2001:db8::1]:4434") and waits for the handshake, for
/// handshake-timeout at most. `options` may be NULL; but how the peer is verified has to be said.
///
/// # Safety
/// `address` ends with a zero byte; `connection` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_connect(
    address: *const c_char,
    options: *const ontempo_options,
    connection: *mut *mut ontempo_connection,
) -> ontempo_status {
    call(|| {
        // SAFETY: as this function asks.
        let address = unsafe { text("address", address) }?;
        // SAFETY: as this function asks.
        let to = unsafe { place("connection", connection) }?;
        let chosen = Chosen::of(options)?;
        let (trust, options, remote) = (chosen.trust()?, chosen.options()?, resolved(address)?);
        let made = connect(remote, &chosen.name(address), &trust, chosen.presented(), &options)?;
        *to = keep(made);
        Ok(ONTEMPO_OK)
    })
}

/// Listens at `address` ("0.0.0.0:4434"; port 0: any free one). `options` say who may connect: token, or
/// anyone.
///
/// # Safety
/// `address` ends with a zero byte; `listener` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_listen(
    address: *const c_char,
    options: *const ontempo_options,
    listener: *mut *mut ontempo_listener,
) -> ontempo_status {
    call(|| {
        // SAFETY: as this function asks.
        let address = unsafe { text("address", address) }?;
        // SAFETY: as this function asks.
        let to = unsafe { place("listener", listener) }?;
        let chosen = Chosen::of(options)?;
        let (token, identity) = (chosen.demanded()?, chosen.identity()?);
        let made = Listener::bind(resolved(address)?, &identity, token, &chosen.options()?)?;
        let fingerprint = identity.fingerprint().to_string();
        *to = LISTENERS.keep(Listening { listener: made, fingerprint });
        Ok(ONTEMPO_OK)
    })
}

/// Writes the address at which it listens, such as "127.0.0.1:4434", to `room` bytes at `address`.
///
/// # Safety
/// `room` bytes at `address` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_listener_address(
    listener: *const ontempo_listener,
    address: *mut c_char,
    room: usize,
) -> ontempo_status {
    call(|| {
        let local = LISTENERS.get(listener)?.listener.local().to_string();
        // SAFETY: as this function asks.
        unsafe { copy(&local, address, room) }?;
        Ok(ONTEMPO_OK)
    })
}

/// Writes the fingerprint of its certificate, 64 hexadecimal digits, to `room` bytes (65) at
/// `fingerprint`.
///
/// # Safety
/// `room` bytes at `fingerprint` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_listener_fingerprint(
    listener: *const ontempo_listener,
    fingerprint: *mut c_char,
    room: usize,
) -> ontempo_status {
    call(|| {
        let found = LISTENERS.get(listener)?;
        // SAFETY: as this function asks.
        unsafe { copy(&found.fingerprint, fingerprint, room) }?;
        Ok(ONTEMPO_OK)
    })
}

/// Waits for a connection, for `timeout_ms` at most (below 0: without a limit). Clients that are
/// refused are passed over.
///
/// # Safety
/// `connection` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_accept(
    listener: *mut ontempo_listener,
    timeout_ms: i64,
    connection: *mut *mut ontempo_connection,
) -> ontempo_status {
    call(|| {
        let found = LISTENERS.get(listener)?;
        // SAFETY: as this function asks.
        let to = unsafe { place("connection", connection) }?;
        let deadline = Deadline::after(timeout_ms);
        // A limit of zero polls once.
        let mut step = deadline.step(STEP).unwrap_or_default();
        loop {
            match found.listener.accept_within(step) {
                Some(Accepted::Connection(made)) => {
                    *to = keep(made);
                    return Ok(ONTEMPO_OK);
                }
                Some(Accepted::Refused { .. }) => {}
                // Another thread may have freed the listener.
                None => drop(LISTENERS.get(listener)?),
            }
            let Some(left) = deadline.step(STEP) else { return Ok(ONTEMPO_TIMED_OUT) };
            step = left;
        }
    })
}

/// How often a call without a time limit looks whether its handle was freed.
pub(crate) const STEP: Wall = Wall::from_millis(200);

/// Ends a listener; its connections go on.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_listener_free(listener: *mut ontempo_listener) -> ontempo_status {
    call(|| LISTENERS.take(listener).map(|_| ONTEMPO_OK))
}

/// What a connection has measured. Set `size` to `sizeof (ontempo_connection_statistics)`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ontempo_connection_statistics {
    /// Bytes of this struct, as the program knows it.
    pub size: usize,
    /// UDP payload sent and received, bytes.
    pub bytes_sent: u64,
    /// See `bytes_sent`.
    pub bytes_received: u64,
    /// Packets sent, and those of them declared lost.
    pub packets_sent: u64,
    /// See `packets_sent`.
    pub packets_lost: u64,
    /// Smoothed round trip in microseconds; 0 before the first sample.
    pub round_trip_us: u64,
    /// cwnd, bytes.
    pub cwnd: u64,
    /// The rate that the congestion control sets, bit/s; 0: none.
    pub pacing_bps: u64,
    /// The rate that an encoder may have, bit/s; 0 before it is known.
    pub target_bps: u64,
}

/// What a connection has measured.
///
/// # Safety
/// `statistics` points to a struct whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_connection_get_statistics(
    connection: *const ontempo_connection,
    statistics: *mut ontempo_connection_statistics,
) -> ontempo_status {
    call(|| {
        let found = CONNECTIONS.get(connection)?;
        let all = found.connection.statistics().ok_or_else(|| over(&found.connection))?;
        let bits = |rate: Option<ontempo_foundation::Rate>| {
            rate.map_or(0, ontempo_foundation::Rate::as_bits_per_sec)
        };
        let values = ontempo_connection_statistics {
            size: 0,
            bytes_sent: all.bytes_sent,
            bytes_received: all.bytes_received,
            packets_sent: all.packets_sent,
            packets_lost: all.packets_lost,
            round_trip_us: all.round_trip.map_or(0, |round_trip| round_trip.as_nanos() / 1_000),
            cwnd: all.window.get(),
            pacing_bps: bits(all.pacing_rate),
            target_bps: bits(all.target),
        };
        // SAFETY: as this function asks.
        unsafe { fill("statistics", statistics, values) }?;
        Ok(ONTEMPO_OK)
    })
}

/// The failure of a call to a connection that is over.
fn over(connection: &Connection) -> Failure {
    let ended = || Closed::found(CloseReason::Ended, "it is over");
    Error::Closed(connection.is_closed().unwrap_or_else(ended)).into()
}

/// Closes a connection with an application error code of the protocol (0: done, 6: failed, 7: complete)
/// and a sentence of at most 200 bytes for the peer. Units that have not arrived may be lost.
///
/// # Safety
/// `sentence` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_close(
    connection: *mut ontempo_connection,
    code: u64,
    sentence: *const c_char,
) -> ontempo_status {
    call(|| {
        let found = CONNECTIONS.get(connection)?;
        // SAFETY: as this function asks.
        let sentence = unsafe { text("sentence", sentence) }?;
        found.connection.close_with(CloseReason::of_code(code), sentence);
        Ok(ONTEMPO_OK)
    })
}

/// Closes a connection, if it is open, and ends it; its flows are over.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_connection_free(connection: *mut ontempo_connection) -> ontempo_status {
    call(|| {
        let taken = CONNECTIONS.take(connection)?;
        // A thread that waits on it holds it, too.
        taken.connection.close("");
        Ok(ONTEMPO_OK)
    })
}
