//! The state of the host's RSVP daemon, for SNMP. It is read like `ontempo rsvp status`, so that
//! the daemon, which runs as root, has no SNMP code and waits for no SNMP client.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ontempo_monitor::mib::{Classes, Oid, Reservations, Value};
use ontempo_reservation::local::{self, Answer, Client, ClientError, Request, Status};
use ontempo_rsvpd::class_counters;

use crate::monitor::since_1970_ms;
use crate::output::write_stderr;

/// Minimum time between two queries.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// A query may take 1/20 of the time: with many sessions, it is repeated less often.
const INTERVAL_PER_QUERY: u32 = 20;

/// The daemon's state at the last query.
pub(super) struct Daemon {
    socket: PathBuf,
    /// The socket was given as an option: a missing daemon is then an error.
    named: bool,
    tables: Reservations,
    next_query: Option<Instant>,
    last_error: String,
}

impl Daemon {
    pub(super) fn new(named: Option<&Path>) -> Self {
        Self {
            socket: named.map_or_else(local::socket, Path::to_owned),
            named: named.is_some(),
            tables: Reservations::default(),
            next_query: None,
            last_error: String::new(),
        }
    }

    /// The daemon's MIB objects, empty if it is unreachable; `None` before the next query is due.
    /// Time stamps count from `started_ms`.
    pub(super) fn query(&mut self, started_ms: u64) -> Option<Vec<(Oid, Value)>> {
        let started = Instant::now();
        if self.next_query.is_some_and(|at| started < at) {
            return None;
        }
        let objects = match self.status() {
            Ok(status) => {
                self.last_error.clear();
                let classes = classes(&status);
                self.tables.objects(&status, &classes, (since_1970_ms(), started_ms))
            }
            Err(error) => {
                self.report(&error);
                Vec::new()
            }
        };
        self.next_query = Some(started + MIN_INTERVAL.max(started.elapsed() * INTERVAL_PER_QUERY));
        Some(objects)
    }

    /// The daemon's state, for Prometheus: `None` where no daemon is named and none is there,
    /// `Some(None)` for one that does not answer.
    pub(super) fn state(&mut self) -> Option<Option<Status>> {
        match self.status() {
            Ok(status) => {
                self.last_error.clear();
                Some(Some(status))
            }
            Err(error) => {
                let is_expected = self.named || self.socket.exists();
                self.report(&error);
                is_expected.then_some(None)
            }
        }
    }

    fn status(&self) -> Result<Status, ClientError> {
        match Client::connect(&self.socket)?.ask(Request::Status)? {
            Answer::Status(status) => Ok(*status),
            other => Err(ClientError::NoReply(format!("{other:?}"))),
        }
    }

    fn report(&mut self, error: &ClientError) {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        let missing = matches!(error, ClientError::Io(error)
            if matches!(error.kind(), NotFound | ConnectionRefused));
        let why = format!("{}: {error}", self.socket.display());
        if (self.named || !missing) && why != self.last_error {
            write_stderr(&why);
        }
        self.last_error = why;
    }
}

/// Counters of the HTB classes; empty without `tc`.
fn classes(status: &Status) -> Classes {
    let enforced = status.interfaces.iter().filter(|one| !one.enforced.is_empty());
    enforced.filter_map(|one| Some((one.index, class_counters(&one.name).ok()?))).collect()
}
