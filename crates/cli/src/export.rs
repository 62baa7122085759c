//! `ontempo export`: the figures of this host's QoS sockets for SNMP and Prometheus, and what its
//! RSVP daemon knows for SNMP.

mod daemon;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ontempo_monitor::agentx::{self, Address, Source};
use ontempo_monitor::mib::{Objects, Oid, Value, qos::notification};
use ontempo_monitor::{Collected, Collector, FOLDER_VARIABLE, HOST_FOLDER, prometheus};

use self::daemon::Daemon;
use crate::arguments::Export;
use crate::failure::Failure;
use crate::monitor::{folders, since_1970_ms};
use crate::output::{complain, emit};
use crate::signals::stop_flag;

/// Reports are written twice a second; nothing is newer than this.
const FRESH: Duration = Duration::from_millis(250);
/// How long a master agent that went away is left alone.
const RETRY: Duration = Duration::from_secs(2);

pub(crate) fn export(arguments: &Export) -> Result<(), Failure> {
    let told = arguments.folder.is_some() || std::env::var_os(FOLDER_VARIABLE).is_some();
    if !told && rustix::process::geteuid().is_root() {
        make_shared(Path::new(HOST_FOLDER))?;
    }
    let stopped = stop_flag()?;
    let listener = arguments.prometheus.map(listen).transpose()?;
    let sockets = Mutex::new(Sockets::new(arguments.folder.clone()));
    thread::scope(|scope| {
        if let Some(listener) = &listener {
            scope.spawn(|| serve_pages(listener, &sockets, &stopped));
        }
        if let Some(address) = &arguments.agentx {
            let daemon = Daemon::new(arguments.rsvp.as_deref());
            serve_snmp(address, Figures::new(&sockets, daemon, &stopped));
        }
        while !stopped.load(Ordering::Relaxed) {
            thread::sleep(FRESH);
        }
    });
    Ok(())
}

/// A folder where everybody may write, and remove only what is his.
fn make_shared(folder: &Path) -> Result<(), Failure> {
    let made = fs::create_dir_all(folder)
        .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)));
    made.map_err(|error| {
        Failure::Environment(format!("cannot make the folder {}: {error}", folder.display()))
    })
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let failed = |error| Failure::Environment(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    emit(&format!("Prometheus: http://{local}/metrics"))?;
    Ok(listener)
}

fn serve_pages(listener: &TcpListener, sockets: &Mutex<Sockets>, stopped: &AtomicBool) {
    while !stopped.load(Ordering::Relaxed) {
        let Ok((connection, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let page = || prometheus::text(look(sockets).to_vec());
        // Whoever asked has gone; there is nobody to tell.
        let _ =
            connection.set_nonblocking(false).and_then(|()| prometheus::answer(connection, page));
    }
}

/// The sockets of the host, with the same numbers for whoever asks.
struct Sockets {
    folder: Option<PathBuf>,
    collector: Collector,
    collected: Arc<Vec<Collected>>,
    at: Option<Instant>,
}

impl Sockets {
    fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, collector: Collector::new(), collected: Arc::default(), at: None }
    }
}

/// The sockets as they are, or were a moment ago; the same ones until they are looked at anew.
fn look(sockets: &Mutex<Sockets>) -> Arc<Vec<Collected>> {
    // Nobody panics while he holds it.
    let mut known = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    if known.at.is_none_or(|at| at.elapsed() >= FRESH) {
        let folders = folders(known.folder.as_ref());
        let (collected, skipped) = known.collector.collect(&folders);
        skipped.iter().for_each(|one| complain(&one.to_string()));
        known.collected = Arc::new(collected);
        known.at = Some(Instant::now());
    }
    Arc::clone(&known.collected)
}

/// Serves one master after another until the program is stopped; says when that changes.
fn serve_snmp(address: &Address, mut figures: Figures<'_>) {
    let mut told = String::new();
    while !figures.stopped() {
        let Err(ended) = agentx::serve(address, &mut figures) else { return };
        let why = format!("{address}: {ended}; trying again every {} s", RETRY.as_secs());
        if figures.served || why != told {
            complain(&why);
        }
        told = why;
        figures.served = false;
        let wait = Instant::now();
        while wait.elapsed() < RETRY && !figures.stopped() {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The figures of the host as a sub-agent serves them.
struct Figures<'a> {
    sockets: &'a Mutex<Sockets>,
    stopped: &'a AtomicBool,
    daemon: Daemon,
    /// The sockets that the objects are of.
    served_of: Option<Arc<Vec<Collected>>>,
    objects: Objects,
    started_ms: u64,
    /// The number of the last violation of each socket that was told of.
    told: BTreeMap<u32, u64>,
    served: bool,
}

impl<'a> Figures<'a> {
    fn new(sockets: &'a Mutex<Sockets>, daemon: Daemon, stopped: &'a AtomicBool) -> Self {
        Self {
            sockets,
            stopped,
            daemon,
            served_of: None,
            objects: Objects::default(),
            started_ms: since_1970_ms(),
            told: BTreeMap::new(),
            served: false,
        }
    }
}

impl Source for Figures<'_> {
    fn begun(&mut self, up: Duration) {
        self.served = true;
        let up_ms = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
        self.started_ms = since_1970_ms().saturating_sub(up_ms);
        self.served_of = None;
    }

    fn objects(&mut self) -> &Objects {
        let now = look(self.sockets);
        if self.served_of.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &now)) {
            self.objects.set_sockets(&now, self.started_ms);
            self.served_of = Some(now);
        }
        if let Some(reservations) = self.daemon.look(self.started_ms) {
            self.objects.set_reservations(reservations);
        }
        &self.objects
    }

    fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>> {
        let told = std::mem::take(&mut self.told);
        let mut notifications = Vec::new();
        for one in look(self.sockets).iter() {
            let before = told.get(&one.index).copied().unwrap_or(0);
            let new = one.socket.violations.iter().filter(|found| found.number > before);
            notifications.extend(new.map(|found| notification(one, found)));
            let last = one.socket.violations.last().map_or(before, |found| found.number);
            self.told.insert(one.index, last.max(before));
        }
        notifications
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
