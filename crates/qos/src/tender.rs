//! The one thread of a process that looks after its connections: twice a second it ends intervals,
//! tells the other ends, hears what they tell where the application does not read, and writes the
//! report.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::core::{Control, Core, lock};
use super::incoming::INTERVAL;
use super::report;
use ontempo_monitor::{Carrier, ProcessReport, Publisher, folder_to_publish};
use ontempo_udp::Clock;

/// How long answers to what was told are waited for: they compare the clocks, and longer round
/// trips would compare them badly.
const WINDOW: Wall = Wall::from_millis(100);

/// A peer over UDP that says nothing for this long is gone.
const GONE: Duration = Duration::from_secs(30);

/// A connection, as the thread sees it. Nothing here waits.
pub(super) trait Tended: Send + Sync {
    fn core(&self) -> &Core;
    /// Sends a message of our own, or leaves it where there is no room.
    fn tell(&self, control: &Control);
    /// Takes what the other end has told, and answers with the file at which to wait for more;
    /// `None` where nothing is to be heard for now: another thread reads, or a message waits for
    /// the application.
    fn listen(&self) -> Option<BorrowedFd<'_>>;
    /// Takes and drops what comes after the application's end; `false` where no more can.
    fn drain(&self) -> bool {
        false
    }
    /// Wakes whoever waits for messages.
    fn hang_up(&self);
}

/// How long a connection that the application has ended is kept for what it has sent.
const LINGER: Wall = Wall::from_secs(30);

struct Connections {
    all: Vec<Weak<dyn Tended>>,
    lingering: Vec<(Instant, Arc<dyn Tended>)>,
    is_running: bool,
}

static CONNECTIONS: Mutex<Connections> =
    Mutex::new(Connections { all: Vec::new(), lingering: Vec::new(), is_running: false });

/// The clock of all connections of this process.
pub(super) fn clock() -> Clock {
    static CLOCK: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
    *CLOCK.get_or_init(Clock::new)
}

/// Looks after a connection until it is dropped. The other end is told of the clocks before the
/// first message.
pub(super) fn look_after<T: Tended + 'static>(connection: &Arc<T>) {
    let core = connection.core();
    connection.tell(&core.status(core.clock.now()));
    let tended: Arc<dyn Tended> = connection.clone();
    let mut connections = lock(&CONNECTIONS);
    connections.all.push(Arc::downgrade(&tended));
    connections.start();
}

/// Keeps a connection that the application has ended until the other end has, too.
pub(super) fn linger(connection: Arc<dyn Tended>) {
    let mut connections = lock(&CONNECTIONS);
    connections.lingering.push((Instant::now() + LINGER, connection));
    connections.start();
}

impl Connections {
    fn start(&mut self) {
        if !self.is_running {
            let name = "ontempo-qos".to_owned();
            // Without a thread connections work, unwatched; the next one tries again.
            self.is_running = thread::Builder::new().name(name).spawn(run).is_ok();
        }
    }
}

/// Those that are there; `None` ends the thread.
fn alive() -> Option<Vec<Arc<dyn Tended>>> {
    let mut connections = lock(&CONNECTIONS);
    let now = Instant::now();
    connections.lingering.retain(|(until, connection)| connection.drain() && now < *until);
    connections.all.retain(|connection| connection.strong_count() > 0);
    let all: Vec<_> = connections
        .all
        .iter()
        .filter_map(Weak::upgrade)
        .filter(|connection| !connection.core().is_closed())
        .collect();
    connections.is_running = !connections.all.is_empty() || !connections.lingering.is_empty();
    connections.is_running.then_some(all)
}

fn run() {
    let publisher = folder_to_publish().map(|folder| Publisher::new(&folder));
    let interval = Wall::from_nanos(INTERVAL.as_nanos());
    let mut next = Instant::now();
    loop {
        // Where the machine has slept, what was missed is not made up for.
        next = (next + interval).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let Some(all) = alive() else { return };
        for connection in &all {
            tend(connection.as_ref());
        }
        hear(&all);
        if let Some(publisher) = &publisher {
            let sockets = all.iter().flat_map(|one| report::sockets(one.core()));
            let report = ProcessReport { process: std::process::id(), sockets: sockets.collect() };
            // A full disk is no reason to end anything; the next report may be written.
            let _ = publisher.publish(&report);
        }
    }
}

fn tend(connection: &dyn Tended) {
    let core = connection.core();
    if core.is_closed() {
        return;
    }
    for control in core.on_tick() {
        connection.tell(&control);
    }
    let changed = lock(&core.reserved).poll();
    core.publish_reservations(&changed);
    let is_gone = lock(&core.incoming).silent_for(core.clock.now()) > GONE;
    if is_gone && core.carrier == Carrier::Udp {
        core.close();
        connection.hang_up();
    }
}

/// Takes what comes within the window, from those whose application does not read.
fn hear(all: &[Arc<dyn Tended>]) {
    let mut open: Vec<_> =
        all.iter().filter_map(|one| one.listen().map(|file| (one, file))).collect();
    let until = Instant::now() + WINDOW;
    while !open.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut files: Vec<_> =
            open.iter().map(|(_, file)| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
        let left = Timespec { tv_sec: 0, tv_nsec: left.as_nanos().min(999_999_999) as _ };
        if poll(&mut files, Some(&left)).is_err() {
            return;
        }
        let ready: Vec<_> = files.iter().map(|file| !file.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        open.retain(|(one, _)| !ready.next().unwrap_or(false) || one.listen().is_some());
    }
}
