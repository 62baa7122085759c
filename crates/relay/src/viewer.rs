//! A viewer: what it has been sent, what it says about it, and how it is kept from holding too much.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ontempo_foundation::{Duration, Time};
use ontempo_session::StreamName;
use ontempo_session::message::Report;
use ontempo_transport::{CloseReason, Connection, FlowId, Outgoing, SendError};

use crate::numbers::Numbers;
use crate::round::Round;
use crate::stream::{Relayed, Start};

/// Units left out that are remembered, so that those that depend on them are left out, too.
const MAX_LEFT_OUT: usize = 256;

/// Longest report that is read, bytes.
const MAX_REPORT: usize = 4 << 10;

/// The flow of units to a viewer.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) flow: FlowId,
    /// Place of the first unit that it has not been offered, of all that the stream has had.
    pub(crate) place: u64,
    numbers: Numbers,
    left_out: BTreeSet<u64>,
    /// It waits for a key frame.
    awaits_key: bool,
    is_reliable: bool,
    /// Since when nothing went into its flow.
    full_since: Option<Time>,
}

/// A viewer.
#[derive(Debug)]
pub(crate) struct Viewer {
    pub(crate) host: IpAddr,
    pub(crate) stream: Option<StreamName>,
    pub(crate) watching: Option<Watching>,
    pub(crate) report: Option<Report>,
    /// Units left out because its flow was full or what they need had been left out.
    pub(crate) left_out: u64,
}

/// Why a viewer is to be closed.
pub(crate) type Close = (CloseReason, &'static str);

impl Watching {
    /// The flow of a viewer that begins with `start`, which is not yet offered.
    pub(crate) fn new(flow: FlowId, place: u64, is_reliable: bool, start: &Start) -> Self {
        Self {
            flow,
            place,
            numbers: Numbers::default(),
            left_out: start.without.iter().copied().collect(),
            awaits_key: start.awaits_key,
            is_reliable,
            full_since: None,
        }
    }

    fn leave_out(&mut self, number: u64) {
        self.left_out.insert(number);
        if self.left_out.len() > MAX_LEFT_OUT {
            self.left_out.pop_first();
        }
    }

    /// Sends a unit, or leaves it out; true if it was sent.
    ///
    /// # Errors
    /// The viewer holds up what it must not miss, or has taken nothing for `stalled`.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        connection: &mut Connection,
        unit: &Relayed,
        stalled: Duration,
    ) -> Result<bool, Close> {
        if self.awaits_key && !unit.is_key() {
            return Ok(false);
        }
        self.awaits_key = false;
        if unit.depends_on.iter().any(|on| self.left_out.contains(on)) {
            self.leave_out(unit.number);
            return Ok(false);
        }
        let depends_on = unit.depends_on.iter().filter_map(|&on| self.numbers.of(on)).collect();
        let outgoing = Outgoing {
            data: unit.data.clone(),
            deadline: unit.deadline,
            priority: unit.priority,
            depends_on,
            continues: unit.continues.and_then(|on| self.numbers.of(on)),
        };
        match connection.send(now, self.flow, outgoing) {
            Ok(number) => {
                self.numbers.pass(unit.number, number);
                self.full_since = None;
                Ok(true)
            }
            Err(SendError::Full) if self.is_reliable => {
                Err((CloseReason::Overloaded, "you take less than the source sends"))
            }
            Err(SendError::Full) => {
                self.leave_out(unit.number);
                let since = *self.full_since.get_or_insert(now);
                if now.since(since) >= stalled {
                    return Err((CloseReason::Overloaded, "you have taken nothing for too long"));
                }
                Ok(false)
            }
            Err(SendError::TooLong { .. }) if self.is_reliable => {
                Err((CloseReason::Unsupported, "a unit is longer than you take"))
            }
            Err(_) => {
                self.leave_out(unit.number);
                Ok(false)
            }
        }
    }
}

impl Viewer {
    /// Sends it what has come since its last turn, or leaves it out.
    ///
    /// # Errors
    /// As [`Watching::offer`].
    pub(crate) fn offer_round(
        &mut self,
        now: Time,
        connection: &mut Connection,
        round: &Round,
        stalled: Duration,
    ) -> Result<(), Close> {
        let Some(watching) = &mut self.watching else { return Ok(()) };
        for unit in round.units_from(watching.place) {
            let is_sent = watching.offer(now, connection, unit, stalled)?;
            // What is before its first key frame is no part of what it watches.
            self.left_out += u64::from(!is_sent && !watching.awaits_key);
        }
        watching.place = round.end();
        Ok(())
    }

    /// Takes a report.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn on_report(&mut self, data: &[u8]) -> Result<(), Close> {
        let read = (data.len() <= MAX_REPORT).then(|| serde_json::from_slice::<Report>(data).ok());
        let report = read.flatten().filter(|report| {
            let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
            is_time(report.mean_delay_s) && is_time(report.max_delay_s)
        });
        let report = report.ok_or((CloseReason::Unsupported, "a report cannot be read"))?;
        self.report = Some(report);
        Ok(())
    }

    /// It has reported all of the stream.
    pub(crate) fn is_done(&self) -> bool {
        self.report.is_some_and(|report| report.is_final)
    }
}
