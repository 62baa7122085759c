//! `ontempo export`: statistics of this host's QoS sockets for SNMP and Prometheus, and the state
//! of its RSVP daemon for SNMP.

mod daemon;
mod holds;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ontempo_monitor::agentx::{self, Address, Source};
use ontempo_monitor::mib::qos::{NOT_WRITABLE, notification};
use ontempo_monitor::mib::{Objects, Oid, Value};
use ontempo_monitor::prometheus::{Page, Pages};
use ontempo_monitor::{
    Collected, CollectedFlow, Collector, FOLDER_VARIABLE, HOST_FOLDER, HostFolder, Skipped, http,
    make_host_folder,
};

use self::daemon::Daemon;
use self::holds::Holds;
use crate::arguments::Export;
use crate::failure::Failure;
use crate::limited::{LineLimit, Share};
use crate::monitor::{folders, since_1970_ms};
use crate::output::{emit, write_stderr};
use crate::signals::stop_flag;

/// Maximum age of collected reports; processes write theirs every 500 ms.
const MAX_AGE: Duration = Duration::from_millis(250);
/// How often the stop flag is read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines about rejected reports, which any user can cause: at once, and then one in this time.
const LINES: Share = Share { burst: 32, interval: Duration::from_secs(10) };
/// Maximum notifications of violations in a turn, of one user and of all: any user's report may
/// list as many as it likes.
const MAX_NOTIFICATIONS_PER_USER: usize = 16;
const MAX_NOTIFICATIONS: usize = 128;
/// Interval between attempts to connect to the master agent.
const RETRY: Duration = Duration::from_secs(2);

pub(crate) fn export(arguments: &Export) -> Result<(), Failure> {
    let has_folder = arguments.folder.is_some() || std::env::var_os(FOLDER_VARIABLE).is_some();
    if !has_folder && rustix::process::geteuid().is_root() {
        let made = make_host_folder()
            .map_err(|error| Failure::Environment(format!("cannot create {error}")))?;
        if let HostFolder::OfRoot(why) = made {
            write_stderr(&format!(
                "no file system can be mounted at {HOST_FOLDER} ({why}): other users publish in \
                 their own folders in /run/user alone"
            ));
        }
    }
    let stopped = stop_flag()?;
    let listener = arguments.prometheus.map(listen).transpose()?;
    let sockets = Mutex::new(Sockets::new(arguments.folder.clone()));
    thread::scope(|scope| {
        if let Some(listener) = &listener {
            scope.spawn(|| {
                let names = &arguments.host_names;
                let pages = pages(&sockets, Daemon::new(arguments.rsvp.as_deref()));
                if let Err(error) = http::serve(listener, names, &stopped, pages) {
                    write_stderr(&format!("Prometheus: {error}"));
                }
            });
        }
        if let Some(address) = &arguments.agentx {
            let daemon = Daemon::new(arguments.rsvp.as_deref());
            let mut source = SnmpSource::new(&sockets, daemon, &stopped);
            source.holds = arguments.allow_set.then(Holds::default);
            serve_snmp(address, source);
        }
        while !stopped.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
    });
    Ok(())
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let failed = |error| Failure::Environment(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    emit(&format!("Prometheus: http://{local}/metrics"))?;
    Ok(listener)
}

/// The page of the sockets as they are now; made anew only when they have been collected anew, and
/// no version before the last one is still being read.
fn pages(sockets: &Mutex<Sockets>, mut daemon: Daemon) -> impl FnMut() -> Result<Page, fmt::Error> {
    let mut made: Option<Arc<Vec<Collected>>> = None;
    let mut pages = Pages::default();
    move || {
        let now = current(sockets);
        if made.as_ref().is_some_and(|of| Arc::ptr_eq(of, &now))
            && let Some(page) = pages.current()
        {
            return Ok(page);
        }
        pages.next(|| {
            let state = daemon.state();
            let flows = flows(sockets);
            let page = Page::of(&now, &flows, state.as_ref().map(Option::as_ref))?;
            made = Some(now);
            Ok(page)
        })
    }
}

/// The sockets of the host, with the same indices for SNMP and Prometheus.
struct Sockets {
    folder: Option<PathBuf>,
    collector: Collector,
    collected: Arc<Vec<Collected>>,
    collected_at: Option<Instant>,
    lines: LineLimit,
}

impl Sockets {
    fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            collector: Collector::new(),
            collected: Arc::default(),
            collected_at: None,
            lines: LineLimit::new(Instant::now(), LINES),
        }
    }
}

impl Sockets {
    fn tell_of(&mut self, skipped: Vec<Skipped>) {
        let now = Instant::now();
        for one in skipped {
            let lines = self.lines.lines(now, "reports", &one.to_string());
            lines.iter().for_each(|line| write_stderr(line));
        }
    }
}

/// The sockets, collected at most `MAX_AGE` ago; the same `Arc` until collected again.
fn current(sockets: &Mutex<Sockets>) -> Arc<Vec<Collected>> {
    // No code panics while it holds the lock.
    let mut known = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    if known.collected_at.is_none_or(|at| at.elapsed() >= MAX_AGE) {
        let folders = folders(known.folder.as_ref());
        let (collected, skipped) = known.collector.collect(&folders);
        let now = Instant::now();
        known.tell_of(skipped);
        known.collected = Arc::new(collected);
        known.collected_at = Some(now);
    }
    Arc::clone(&known.collected)
}

/// The flows of `send`, `receive` and `relay`, collected now: a page is made after new sockets are, at most
/// every `MAX_AGE`.
fn flows(sockets: &Mutex<Sockets>) -> Vec<CollectedFlow> {
    let mut known = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    let folders = folders(known.folder.as_ref());
    let (flows, skipped) = known.collector.collect_flows(&folders);
    known.tell_of(skipped);
    flows
}

/// Serves the master agent until stopped, and reconnects when the connection ends.
fn serve_snmp(address: &Address, mut source: SnmpSource<'_>) {
    let mut last_error = String::new();
    while !source.stopped() {
        let Err(ended) = agentx::serve(address, &mut source) else { return };
        let error = format!("{address}: {ended}; trying again every {} s", RETRY.as_secs());
        if source.served || error != last_error {
            write_stderr(&error);
        }
        last_error = error;
        source.served = false;
        let wait = Instant::now();
        while wait.elapsed() < RETRY && !source.stopped() {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The host's MIB objects, as the AgentX subagent serves them.
struct SnmpSource<'a> {
    sockets: &'a Mutex<Sockets>,
    stopped: &'a AtomicBool,
    daemon: Daemon,
    /// The sockets from which the objects were made.
    served_of: Option<Arc<Vec<Collected>>>,
    objects: Objects,
    started_ms: u64,
    /// By socket index: number of the last violation that was notified.
    notified: BTreeMap<u32, u64>,
    served: bool,
    /// What managers have set; `None` where they may not.
    holds: Option<Holds>,
}

impl Drop for SnmpSource<'_> {
    fn drop(&mut self) {
        if let Some(holds) = &mut self.holds {
            holds.withdraw_all();
        }
    }
}

impl<'a> SnmpSource<'a> {
    fn new(sockets: &'a Mutex<Sockets>, daemon: Daemon, stopped: &'a AtomicBool) -> Self {
        Self {
            sockets,
            stopped,
            daemon,
            served_of: None,
            objects: Objects::default(),
            started_ms: since_1970_ms(),
            notified: BTreeMap::new(),
            served: false,
            holds: None,
        }
    }
}

impl Source for SnmpSource<'_> {
    fn begun(&mut self, up: Duration) {
        self.served = true;
        let up_ms = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
        self.started_ms = since_1970_ms().saturating_sub(up_ms);
        self.served_of = None;
    }

    fn objects(&mut self) -> &Objects {
        let now = current(self.sockets);
        if self.served_of.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &now)) {
            self.objects.set_sockets(&now, self.started_ms);
            self.served_of = Some(now);
        }
        if let Some(reservations) = self.daemon.query(self.started_ms) {
            self.objects.set_reservations(reservations);
        }
        &self.objects
    }

    fn test(&mut self, objects: &[(Oid, Value)]) -> Result<(), (u16, u16)> {
        let sockets = current(self.sockets);
        let Some(holds) = &mut self.holds else { return Err((1, NOT_WRITABLE)) };
        let known = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        holds.test(objects, &sockets, &known.collector)
    }

    fn commit(&mut self) -> Result<(), ()> {
        self.holds.as_mut().map_or(Err(()), Holds::commit)
    }

    fn undo(&mut self) -> Result<(), ()> {
        self.holds.as_mut().map_or(Err(()), Holds::undo)
    }

    fn clean_up(&mut self) {
        if let Some(holds) = &mut self.holds {
            holds.clean_up();
        }
    }

    fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>> {
        if let Some(holds) = &mut self.holds {
            holds.withdraw_obeyed(&current(self.sockets));
        }
        let notified = std::mem::take(&mut self.notified);
        let mut notifications = Vec::new();
        let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
        for one in current(self.sockets).iter() {
            let before = notified.get(&one.index).copied().unwrap_or(0);
            let mut last = before;
            let of_user = of_users.entry(one.user).or_default();
            for found in one.socket.violations.iter().filter(|found| found.number > before) {
                // The others follow in the next turns, as long as the report has them.
                if *of_user >= MAX_NOTIFICATIONS_PER_USER
                    || notifications.len() >= MAX_NOTIFICATIONS
                {
                    break;
                }
                *of_user += 1;
                last = found.number;
                notifications.push(notification(one, found));
            }
            self.notified.insert(one.index, last);
        }
        notifications
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
