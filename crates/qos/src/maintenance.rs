//! The maintenance thread of a process: twice a second it ends intervals,
//! sends reports to the peers, receives theirs if the application does not read, and publishes the
//! report.

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Duration, first_of_largest_host};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::clock::Clock;
use super::core::{Control, Core, lock};
use super::incoming::INTERVAL;
use super::report;
use ontempo_monitor::{Carrier, Publisher, ReportFolder};
use ontempo_udp::Dscp;

/// How long to wait for answers to reports: they compare the clocks, and longer round
/// trips would give a large error.
const WINDOW: Wall = Wall::from_millis(100);

/// Idle timeout of a peer over UDP.
const GONE: Duration = Duration::from_secs(30);

/// A connection as seen by the thread. Nothing here blocks.
pub(super) trait Maintained: Send + Sync {
    fn core(&self) -> &Core;
    /// Gives all packets from now on a DSCP.
    fn mark(&self, dscp: Dscp) -> io::Result<()>;
    /// Sends a control message, or skips it if the send buffer is full.
    fn send_control(&self, control: &Control);
    /// Handles the peer's control messages, and returns the file to wait at for more;
    /// `None` if nothing can be read now: another thread reads, or a message waits for
    /// the application.
    fn listen(&self) -> Option<BorrowedFd<'_>>;
    /// Drops what arrives after the application has closed, about `most` bytes of it at once: the rest is
    /// for the next half second; `false` at the end.
    fn drain(self: Arc<Self>, _most: usize) -> bool {
        false
    }
    /// Half a second is over: looks whether the path still carries anything.
    fn look(&self) {}
    /// Wakes threads that wait for messages.
    fn hang_up(&self);
}

/// How long a connection that the application has closed is kept to deliver what was sent.
const LINGER: Wall = Wall::from_secs(30);

/// Maximum connections that are kept so: as many as a gateway relays. Beyond, the oldest of the host
/// that has the largest number ends: a peer that does not close would otherwise hold a descriptor
/// and a buffer for each connection that it makes in [`LINGER`].
const MAX_LINGERING: usize = 512;

/// Bytes that all of them together drop each half second: peers that flood connections which the application
/// has closed take no more of the thread from the others.
const MAX_DRAINED: usize = 32 << 20;

/// Of them, what each may drop at least and at most.
const DRAINED_EACH: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;

struct Connections {
    all: Vec<Weak<dyn Maintained>>,
    lingering: Vec<(Instant, Arc<dyn Maintained>)>,
    is_running: bool,
}

static CONNECTIONS: Mutex<Connections> =
    Mutex::new(Connections { all: Vec::new(), lingering: Vec::new(), is_running: false });

/// The clock of all connections of this process.
pub(super) fn clock() -> Clock {
    static CLOCK: std::sync::OnceLock<ontempo_udp::Clock> = std::sync::OnceLock::new();
    Clock::System(*CLOCK.get_or_init(ontempo_udp::Clock::new))
}

/// Maintains a connection until it is dropped. A first report compares the clocks before the
/// first message.
pub(super) fn register<T: Maintained + 'static>(connection: &Arc<T>) {
    let core = connection.core();
    connection.send_control(&core.status(core.clock.now()));
    let tended: Arc<dyn Maintained> = connection.clone();
    let mut connections = lock(&CONNECTIONS);
    connections.all.push(Arc::downgrade(&tended));
    connections.start();
}

/// Keeps a connection that the application has closed until the peer closes, too.
pub(super) fn linger(connection: Arc<dyn Maintained>) {
    let mut connections = lock(&CONNECTIONS);
    let is_full = connections.lingering.len() >= MAX_LINGERING;
    let ended = is_full.then(|| connections.take_lingering());
    connections.lingering.push((Instant::now() + LINGER, connection));
    connections.start();
    drop(connections);
    // Closed without the lock.
    drop(ended);
}

/// Ends a connection that lingers, of the host that has the largest number of them the oldest;
/// false if there is none.
pub(super) fn end_lingering() -> bool {
    // Closed without the lock.
    let ended = lock(&CONNECTIONS).take_lingering();
    ended.is_some()
}

/// How many connections linger.
#[cfg(test)]
pub(super) fn lingering() -> usize {
    lock(&CONNECTIONS).lingering.len()
}

impl Connections {
    fn take_lingering(&mut self) -> Option<(Instant, Arc<dyn Maintained>)> {
        let hosts = self.lingering.iter().map(|(_, one)| one.core().remote().ip());
        first_of_largest_host(hosts).map(|place| self.lingering.remove(place))
    }

    fn start(&mut self) {
        if !self.is_running {
            let name = "ontempo-qos".to_owned();
            // Without a thread connections work without reports; the next connection tries again.
            self.is_running = thread::Builder::new().name(name).spawn(run).is_ok();
        }
    }
}

/// The live connections; `None` ends the thread.
fn alive() -> Option<Vec<Arc<dyn Maintained>>> {
    drain_lingering();
    let mut connections = lock(&CONNECTIONS);
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

/// Drops what has come for connections that the application has closed, looks at their paths, and ends those
/// that are over.
fn drain_lingering() {
    let now = Instant::now();
    let mut over = Vec::new();
    let mut connections = lock(&CONNECTIONS);
    connections.lingering.retain(|(until, one)| {
        let stays = now < *until;
        if !stays {
            over.push(Arc::clone(one));
        }
        stays
    });
    let lingering: Vec<_> =
        connections.lingering.iter().map(|(_, connection)| Arc::clone(connection)).collect();
    // Without the lock, which others need to make and to close connections.
    drop(connections);
    let most =
        (MAX_DRAINED / lingering.len().max(1)).clamp(*DRAINED_EACH.start(), *DRAINED_EACH.end());
    let address = |one: &Arc<dyn Maintained>| Arc::as_ptr(one).cast::<()>();
    let ended: Vec<_> = lingering
        .into_iter()
        .filter(|one| {
            let stays = Arc::clone(one).drain(most);
            if stays {
                // What was sent may need another path.
                one.look();
            }
            !stays
        })
        .collect();
    if !ended.is_empty() {
        let ended: HashSet<_> = ended.iter().map(address).collect();
        lock(&CONNECTIONS).lingering.retain(|(_, one)| !ended.contains(&address(one)));
    }
    drop(over);
}

fn run() {
    let mut publisher = ReportFolder::to_publish().map(Publisher::new);
    let interval = Wall::from_nanos(INTERVAL.as_nanos());
    let mut next = Instant::now();
    loop {
        // After a suspend of the machine, missed intervals are skipped.
        next = (next + interval).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let Some(all) = alive() else { return };
        if let Some(orders) = publisher.as_ref().and_then(Publisher::orders) {
            for core in all.iter().map(|one| one.core()) {
                if let Some(rung) = orders.held.get(&report::sending_id(core)) {
                    lock(&core.outgoing).hold(*rung);
                }
            }
        }
        for connection in &all {
            tend(connection.as_ref());
        }
        hear(&all);
        if let Some(publisher) = &mut publisher {
            let sockets = all.iter().flat_map(|one| report::sockets(one.core()));
            // A full disk is not fatal; the next report may succeed.
            let _ = publisher.publish(sockets.collect());
        }
    }
}

fn tend(connection: &dyn Maintained) {
    let core = connection.core();
    if core.is_closed() {
        return;
    }
    for control in core.on_tick() {
        connection.send_control(&control);
    }
    connection.look();
    hear_daemon(connection);
    if let Some(refused) = core.fail_unreserved() {
        connection.send_control(&refused);
        core.close();
        connection.hang_up();
        return;
    }
    let is_gone = lock(&core.incoming).silent_for(core.clock.now()) > GONE;
    if is_gone && core.carrier == Carrier::Udp {
        core.close();
        connection.hang_up();
    }
}

/// Takes what the daemon reports about the connection's reservations.
pub(super) fn hear_daemon(connection: &dyn Maintained) {
    let core = connection.core();
    let changed = lock(&core.reserved).poll();
    // Who is told that it is reserved sends packets with the DSCP that goes with it.
    core.mark_anew(|dscp| connection.mark(dscp));
    core.publish_reservations(&changed);
}

/// Handles messages within the window, for connections whose application does not read.
fn hear(all: &[Arc<dyn Maintained>]) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use ontempo_mechanisms::qos::Specification;

    use super::*;
    use crate::{QosListener, QosOptions, QosStream};

    /// Counts how often its path is looked at.
    struct Looked {
        stream: QosStream,
        looks: AtomicUsize,
    }

    impl Maintained for Looked {
        fn core(&self) -> &Core {
            &self.stream.inner().core
        }

        fn mark(&self, _: Dscp) -> io::Result<()> {
            Ok(())
        }

        fn send_control(&self, _: &Control) {}

        fn listen(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn drain(self: Arc<Self>, _most: usize) -> bool {
            self.looks.load(Relaxed) == 0
        }

        fn look(&self) {
            self.looks.fetch_add(1, Relaxed);
        }

        fn hang_up(&self) {}
    }

    #[test]
    fn the_path_of_a_connection_that_the_application_has_closed_is_looked_at() {
        let options = QosOptions::both(Specification::default());
        let listener = QosListener::bind("127.0.0.1:0", options.clone()).unwrap();
        let at = listener.local_address().unwrap();
        let connecting = thread::spawn(move || QosStream::connect(at, &options).unwrap());
        let (stream, _) = listener.accept().unwrap();
        let looked = Arc::new(Looked { stream, looks: AtomicUsize::new(0) });
        let until = Instant::now() + LINGER;
        while looked.looks.load(Relaxed) == 0 {
            // Those of other tests may have taken its place.
            if Arc::strong_count(&looked) == 1 {
                linger(looked.clone());
            }
            assert!(Instant::now() < until, "nobody looks");
            thread::sleep(Wall::from_millis(20));
        }
        drop(connecting.join());
    }
}
