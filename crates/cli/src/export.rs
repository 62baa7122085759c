//! `ontempo export`: the figures of this host's QoS sockets for SNMP and Prometheus.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use agentx_of::{Address, Oid, Source, Value};
use ontempo_endpoint::monitor::mib::{Objects, notification};
use ontempo_endpoint::monitor::{Collected, Collector, agentx as agentx_of, prometheus};

use crate::arguments::Export;
use crate::failure::Failure;
use crate::monitor::folders;
use crate::output::{complain, emit};
use crate::signals::stop_flag;

/// Reports are written twice a second; nothing is newer than this.
const FRESH: Duration = Duration::from_millis(250);
/// How long a master agent that went away is left alone.
const RETRY: Duration = Duration::from_secs(2);
/// The folder into which the processes of all users report.
const OF_THE_HOST: &str = "/run/ontempo/qos";

pub(crate) fn export(arguments: &Export) -> Result<(), Failure> {
    if arguments.folder.is_none() && rustix::process::geteuid().is_root() {
        make_shared(Path::new(OF_THE_HOST))?;
    }
    let stopped = stop_flag()?;
    let listener = arguments.prometheus.map(listen).transpose()?;
    thread::scope(|scope| {
        if let Some(listener) = listener {
            let (stopped, folder) = (Arc::clone(&stopped), arguments.folder.clone());
            scope.spawn(move || serve_pages(&listener, folder.as_ref(), &stopped));
        }
        if let Some(address) = &arguments.agentx {
            serve_snmp(address, Figures::new(arguments.folder.clone(), Arc::clone(&stopped)));
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

fn serve_pages(listener: &TcpListener, folder: Option<&PathBuf>, stopped: &AtomicBool) {
    let mut collector = Collector::new();
    while !stopped.load(Ordering::Relaxed) {
        let Ok((connection, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let page = || prometheus::text(collector.collect(&folders(folder)).0);
        // Whoever asked has gone; there is nobody to tell.
        let _ =
            connection.set_nonblocking(false).and_then(|()| prometheus::answer(connection, page));
    }
}

/// Serves one master after another until the program is stopped; says when that changes.
fn serve_snmp(address: &Address, mut figures: Figures) {
    let mut told = String::new();
    while !figures.stopped() {
        let Err(ended) = agentx_of::serve(address, &mut figures) else { return };
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
struct Figures {
    folder: Option<PathBuf>,
    stopped: Arc<AtomicBool>,
    collector: Collector,
    collected: Vec<Collected>,
    at: Option<Instant>,
    objects: Objects,
    started_ms: u64,
    /// The number of the last violation of each socket that was told of.
    told: BTreeMap<u32, u64>,
    served: bool,
}

impl Figures {
    fn new(folder: Option<PathBuf>, stopped: Arc<AtomicBool>) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            folder,
            stopped,
            collector: Collector::new(),
            collected: Vec::new(),
            at: None,
            objects: Objects::default(),
            started_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            told: BTreeMap::new(),
            served: false,
        }
    }

    fn refresh(&mut self) {
        if self.at.is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        let (collected, skipped) = self.collector.collect(&folders(self.folder.as_ref()));
        skipped.iter().for_each(|one| complain(&one.to_string()));
        self.objects = Objects::new(&collected, self.started_ms);
        self.collected = collected;
        self.at = Some(Instant::now());
    }
}

impl Source for Figures {
    fn objects(&mut self) -> &Objects {
        self.refresh();
        &self.objects
    }

    fn notifications(&mut self) -> Vec<Vec<(Oid, Value)>> {
        self.served = true;
        self.refresh();
        let told = std::mem::take(&mut self.told);
        let mut notifications = Vec::new();
        for one in &self.collected {
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
