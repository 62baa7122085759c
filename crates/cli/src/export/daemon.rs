//! What the host's RSVP daemon knows, for SNMP. It is asked as `ontempo rsvp status` asks it, so that
//! the daemon, which has the rights of root, need not know of SNMP, nor wait for anybody.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ontempo_monitor::mib::{Classes, Oid, Reservations, Value};
use ontempo_reservation::local::{self, Answer, Client, ClientError, Request, Status};
use ontempo_rsvpd::class_counters;

use crate::monitor::since_1970_ms;
use crate::output::complain;

/// How old what is shown may be, at least.
const FRESH: Duration = Duration::from_secs(1);
/// A look may take this part of the time: of a daemon with many sessions, a walk shows what is
/// older.
const SHARE: u32 = 20;

/// The daemon, as it was when it was last asked.
pub(super) struct Daemon {
    socket: PathBuf,
    /// A host without a daemon is nothing to complain of, unless one was named.
    named: bool,
    tables: Reservations,
    again_at: Option<Instant>,
    told: String,
}

impl Daemon {
    pub(super) fn new(named: Option<&Path>) -> Self {
        Self {
            socket: named.map_or_else(local::socket, Path::to_owned),
            named: named.is_some(),
            tables: Reservations::default(),
            again_at: None,
            told: String::new(),
        }
    }

    /// What is new; `None` where it is too early to ask. Of a daemon that is not there nothing is
    /// left. Time stamps count from `started_ms`.
    pub(super) fn look(&mut self, started_ms: u64) -> Option<Vec<(Oid, Value)>> {
        let begun = Instant::now();
        if self.again_at.is_some_and(|at| begun < at) {
            return None;
        }
        let objects = match self.status() {
            Ok(status) => {
                self.told.clear();
                let classes = classes(&status);
                self.tables.objects(&status, &classes, (since_1970_ms(), started_ms))
            }
            Err(error) => {
                self.tell(&error);
                Vec::new()
            }
        };
        self.again_at = Some(begun + FRESH.max(begun.elapsed() * SHARE));
        Some(objects)
    }

    fn status(&self) -> Result<Status, ClientError> {
        match Client::connect(&self.socket)?.ask(Request::Status)? {
            Answer::Status(status) => Ok(*status),
            other => Err(ClientError::NoReply(format!("{other:?}"))),
        }
    }

    fn tell(&mut self, error: &ClientError) {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        let missing = matches!(error, ClientError::Io(error)
            if matches!(error.kind(), NotFound | ConnectionRefused));
        let why = format!("{}: {error}", self.socket.display());
        if (self.named || !missing) && why != self.told {
            complain(&why);
        }
        self.told = why;
    }
}

/// What the classes have done, where there are any. Without `tc` nothing is counted.
fn classes(status: &Status) -> Classes {
    let enforced = status.interfaces.iter().filter(|one| !one.enforced.is_empty());
    enforced.filter_map(|one| Some((one.index, class_counters(&one.name).ok()?))).collect()
}
