//! What managers set by SNMP: the rungs at which senders are held. The process that has the socket is told
//! by a file, which is removed once it has obeyed, or after some seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ontempo_monitor::mib::qos::{Hold, NOT_WRITABLE, hold};
use ontempo_monitor::mib::{Oid, Value};
use ontempo_monitor::{Collected, Collector, Orders, ReportFolder, started};

use crate::output::write_stderr;

/// A process looks twice a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of one socket, and what was before.
#[derive(Clone)]
struct Planned {
    process: u32,
    started: u64,
    folder: ReportFolder,
    socket: u32,
    rung: Option<u32>,
    before: Option<u32>,
}

/// Orders that a process has not obeyed yet.
struct Given {
    orders: Orders,
    folder: ReportFolder,
    until: Instant,
}

/// What was tested, and what was given.
#[derive(Default)]
pub(super) struct Holds {
    planned: Vec<Planned>,
    given: BTreeMap<u32, Given>,
}

impl Holds {
    /// Whether all of this can be set; plans it if so.
    pub(super) fn test(
        &mut self,
        objects: &[(Oid, Value)],
        sockets: &[Collected],
        collector: &Collector,
    ) -> Result<(), (u16, u16)> {
        self.planned.clear();
        let mut planned = Vec::new();
        for (place, (name, value)) in (1..).zip(objects) {
            let Hold { index, rung } = hold(name, value, sockets).map_err(|why| (place, why))?;
            let one = sockets.iter().find(|one| one.index == index);
            let plan = one.and_then(|one| {
                Some(Planned {
                    process: one.process,
                    started: started(one.process)?,
                    folder: collector.folder_of(one.process)?.clone(),
                    socket: one.socket.id,
                    rung,
                    before: one.socket.held,
                })
            });
            planned.push(plan.ok_or((place, NOT_WRITABLE))?);
        }
        self.planned = planned;
        Ok(())
    }

    pub(super) fn commit(&mut self) -> Result<(), ()> {
        self.give(|planned| planned.rung)
    }

    pub(super) fn undo(&mut self) -> Result<(), ()> {
        self.give(|planned| planned.before)
    }

    pub(super) fn clean_up(&mut self) {
        self.planned.clear();
    }

    fn give(&mut self, rung: impl Fn(&Planned) -> Option<u32>) -> Result<(), ()> {
        let mut changed = BTreeSet::new();
        for one in &self.planned {
            let Planned { process, started, folder, socket, .. } = one;
            let given = self.given.entry(*process).or_insert_with(|| Given {
                orders: Orders { process: *process, started: *started, held: BTreeMap::new() },
                folder: folder.clone(),
                until: Instant::now(),
            });
            if given.orders.started != *started {
                // Of a process that had the number before.
                given.orders = Orders { process: *process, started: *started, ..Orders::default() };
            }
            given.orders.held.insert(*socket, rung(one));
            given.until = Instant::now() + PATIENCE;
            changed.insert(*process);
        }
        for process in changed {
            let Some(given) = self.given.get(&process) else { continue };
            if let Err(error) = given.orders.give(&given.folder) {
                write_stderr(&format!("SNMP SET: process {process}: {error}"));
                return Err(());
            }
        }
        Ok(())
    }

    /// Removes the orders that were obeyed, or not for too long.
    pub(super) fn withdraw_obeyed(&mut self, sockets: &[Collected]) {
        let now = Instant::now();
        self.given.retain(|process, given| {
            let of_it = |id: &u32| {
                sockets.iter().find(|one| one.process == *process && one.socket.id == *id)
            };
            // A socket that has gone has nothing to obey.
            let mut held = given.orders.held.iter();
            let is_obeyed =
                held.all(|(id, rung)| of_it(id).is_none_or(|one| one.socket.held == *rung));
            let stays = !is_obeyed && now < given.until;
            if !stays {
                withdraw(given);
            }
            stays
        });
    }

    pub(super) fn withdraw_all(&mut self) {
        std::mem::take(&mut self.given).values().for_each(withdraw);
    }
}

fn withdraw(given: &Given) {
    // The folder may have gone with its user.
    let _ = given.orders.withdraw(&given.folder);
}
