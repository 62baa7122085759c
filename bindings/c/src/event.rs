//! Events of a connection.

use std::ffi::c_char;
use std::sync::PoisonError;
use std::time::Duration as Wall;

use ontempo_foundation::Rate;
use ontempo_transport::{CloseReason, Closed};

use crate::connection::{CONNECTIONS, Connected};
use crate::handle::ontempo_connection;
use crate::status::{ONTEMPO_ENDED, ONTEMPO_OK, ONTEMPO_TIMED_OUT, call, ontempo_status};
use crate::text::{Deadline, copy, fill, size_at};

/// The rate that an encoder may have has changed by 1 % or more.
pub const ONTEMPO_EVENT_TARGET: u32 = 1;
/// The peer has another address.
pub const ONTEMPO_EVENT_PATH: u32 = 2;
/// The connection is over.
pub const ONTEMPO_EVENT_CLOSED: u32 = 3;

/// Room for the text of an event, bytes, with its zero.
pub const ONTEMPO_EVENT_TEXT: usize = 512;

/// How often the state is compared with what was told.
const LOOK: Wall = Wall::from_millis(50);

/// An event. Set `size` to `sizeof (ontempo_event)`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ontempo_event {
    /// Bytes of this struct, as the program knows it.
    pub size: usize,
    /// `ONTEMPO_EVENT_TARGET`, `_PATH` or `_CLOSED`.
    pub kind: u32,
    /// Of the event closed, whether `code` is one: 1 or 0.
    pub has_code: u32,
    /// Of the event closed: the application error code of the protocol (docs/transport.md).
    pub code: u64,
    /// Of the event target: bit/s.
    pub target_bps: u64,
    /// Of the event path: the peer's address. Of the event closed: the reason's name, a colon, a space
    /// and a sentence.
    pub text: [c_char; ONTEMPO_EVENT_TEXT],
}

/// What was told of a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    target: u64,
    remote: Option<std::net::SocketAddr>,
    is_closed: bool,
}

enum Found {
    Target(u64),
    Path(String),
    Closed(Closed),
    Nothing,
    /// The end has been told.
    Over,
}

impl Connected {
    /// What has changed since it was last told.
    fn look(&self) -> Found {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(closed) = self.connection.is_closed() {
            let is_told = std::mem::replace(&mut seen.is_closed, true);
            return if is_told { Found::Over } else { Found::Closed(closed) };
        }
        let before = seen.remote.get_or_insert(self.connection.remote());
        if let Some(remote) = self.connection.remote_now().filter(|remote| remote != before) {
            *before = remote;
            return Found::Path(remote.to_string());
        }
        // It may have ended meanwhile.
        let Some(all) = self.connection.statistics() else { return Found::Nothing };
        let target = all.target.map_or(0, Rate::as_bits_per_sec);
        if target.abs_diff(seen.target) > seen.target / 100 {
            seen.target = target;
            return Found::Target(target);
        }
        Found::Nothing
    }
}

/// The event of a change, and its text.
fn event_of(found: Found) -> Option<(ontempo_event, String)> {
    let mut event = ontempo_event {
        size: 0,
        kind: 0,
        has_code: 0,
        code: 0,
        target_bps: 0,
        text: [0; ONTEMPO_EVENT_TEXT],
    };
    let text;
    (event.kind, text) = match found {
        Found::Target(target) => {
            event.target_bps = target;
            (ONTEMPO_EVENT_TARGET, String::new())
        }
        Found::Path(remote) => (ONTEMPO_EVENT_PATH, remote),
        Found::Closed(closed) => {
            let code = CloseReason::code(closed.reason);
            (event.has_code, event.code) = (code.is_some().into(), code.unwrap_or(0));
            (ONTEMPO_EVENT_CLOSED, format!("{}: {closed}", closed.reason.name()))
        }
        Found::Nothing | Found::Over => return None,
    };
    Some((event, text))
}

/// Waits for an event of the connection, for `timeout_ms` at most (below 0: without a limit); after
/// the event closed: `ONTEMPO_ENDED`. One thread calls it, or several that share the events.
///
/// # Safety
/// `event` points to a struct whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_next_event(
    connection: *mut ontempo_connection,
    timeout_ms: i64,
    event: *mut ontempo_event,
) -> ontempo_status {
    call(|| {
        let found = CONNECTIONS.get(connection)?;
        // Before an event is taken, which would be lost.
        // SAFETY: as this function asks.
        unsafe { size_at("event", event) }?;
        let deadline = Deadline::after(timeout_ms);
        loop {
            let change = found.look();
            if matches!(change, Found::Over) {
                return Ok(ONTEMPO_ENDED);
            }
            if let Some((mut values, text)) = event_of(change) {
                // SAFETY: the text's room is as long as it says.
                unsafe { copy(&text, values.text.as_mut_ptr(), ONTEMPO_EVENT_TEXT) }?;
                // SAFETY: as this function asks.
                unsafe { fill("event", event, values) }?;
                return Ok(ONTEMPO_OK);
            }
            let Some(step) = deadline.step(LOOK) else { return Ok(ONTEMPO_TIMED_OUT) };
            found.connection.closed(step);
        }
    })
}
