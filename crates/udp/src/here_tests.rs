//! Of a protocol that another thread runs.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{ThreadId, current, sleep};
use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Time};

use super::*;

/// How long a test waits for what comes in a moment.
const LONG: Wall = Wall::from_secs(5);

/// Reports who handles what: a datagram, a timeout, a command.
struct Watch {
    reports: Sender<(ThreadId, Handled)>,
    timeout: Time,
    hurries_until: Time,
    /// Its own driver.
    own: Weak<OnceLock<Driver<Watch>>>,
    /// Ends the wait for the test.
    gate: Receiver<()>,
}

#[derive(Debug)]
enum Order {
    /// The next timeout.
    Timeout(Time),
    /// Until when what arrives is to be read at once.
    Hurry(Time),
    Panic,
    /// Runs the driver within itself.
    Again,
    /// Waits for the test.
    Wait,
}

#[derive(Debug, PartialEq, Eq)]
enum Handled {
    Datagram,
    Timeout,
    Command,
}

impl Watch {
    fn report(&self, handled: Handled) {
        let _ = self.reports.send((current().id(), handled));
    }
}

impl Protocol for Watch {
    type Command = Order;

    fn handle(&mut self, _: Time, _: Datagram<'_>) {
        self.report(Handled::Datagram);
    }

    fn handle_command(&mut self, _: Time, command: Order) {
        self.report(Handled::Command);
        match command {
            Order::Timeout(at) => self.timeout = at,
            Order::Hurry(until) => self.hurries_until = until,
            Order::Panic => panic!("as the test wants it"),
            Order::Again => {
                let driver = self.own.upgrade().expect("it runs");
                let driver = driver.get().expect("it runs");
                driver.queue(Order::Timeout(Time::NEVER)).expect("taken");
                driver.run_here();
            }
            Order::Wait => self.gate.recv_timeout(LONG).expect("it goes on"),
        }
    }

    fn handle_timeout(&mut self, _: Time) {
        self.timeout = Time::NEVER;
        self.report(Handled::Timeout);
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn hurries_until(&self) -> Time {
        self.hurries_until
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }
}

type Reports = Receiver<(ThreadId, Handled)>;

struct Watched {
    driver: Arc<OnceLock<Driver<Watch>>>,
    clock: Clock,
    to: SocketAddr,
    /// Who sends it datagrams.
    far: UdpSocket,
    reports: Reports,
    go_on: Sender<()>,
}

impl Watched {
    fn start() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = Socket::bind(any, SocketOptions::default()).expect("a socket");
        let to = socket.local_address().expect("an address");
        let ((report, reports), (go_on, gate)) = (channel(), channel());
        let (driver, clock) = (Arc::<OnceLock<_>>::default(), Clock::new());
        let own = Arc::downgrade(&driver);
        let (timeout, hurries_until) = (Time::NEVER, Time::ZERO);
        let watch = Watch { reports: report, timeout, hurries_until, own, gate };
        let started = Driver::spawn(socket, watch, clock, DriverOptions::default());
        let _ = driver.set(started.expect("a thread"));
        let far = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        Self { driver, clock, to, far, reports, go_on }
    }

    fn driver(&self) -> &Driver<Watch> {
        self.driver.get().expect("it runs")
    }

    fn reported(&self) -> (ThreadId, Handled) {
        self.reports.recv_timeout(LONG).expect("handled")
    }

    /// Has it do this on this thread: the driver's is asleep by then, mostly.
    fn run_here(&self, order: Order) {
        sleep(Wall::from_millis(20));
        self.driver().queue(order).expect("taken");
        self.driver().run_here();
    }

    /// Visits it as one who comes each `patience`, until its thread has noticed, by which it reads a datagram.
    fn begin_visits(&self, patience: Duration) {
        self.reports.try_iter().for_each(drop);
        for _ in 0..3 {
            sleep(Wall::from_nanos(patience.as_nanos() / 6));
            self.driver().visit(patience, Takes::Datagrams);
        }
        self.send();
        assert_eq!(self.reported().1, Handled::Datagram);
    }

    fn send(&self) {
        self.far.send_to(b"one", self.to).expect("sent");
    }

    /// A datagram is read by the driver, sooner or later.
    fn is_read_by_its_thread(&self) {
        self.send();
        let (by, handled) = self.reported();
        assert_eq!(handled, Handled::Datagram);
        assert_ne!(by, current().id());
    }

    /// Who reads a datagram that comes while nobody visits for a while.
    fn reader(&self) -> Option<ThreadId> {
        // The thread is asleep by then, mostly.
        sleep(Wall::from_millis(20));
        self.send();
        let read = self.reports.recv_timeout(Wall::from_millis(50)).ok();
        read.map(|(by, _)| by)
    }

    /// Whether this thread was the one that handled the command.
    fn was_here(&self) -> bool {
        let (by, handled) = self.reported();
        assert_eq!(handled, Handled::Command);
        by == current().id()
    }
}

/// A driver that is awake does it itself: it is asleep at some time.
fn until_here(mut attempt: impl FnMut() -> bool) {
    assert!((0..100).any(|_| attempt()), "it sleeps at some time");
}

#[test]
fn what_is_queued_is_handled_by_who_runs_it_and_what_is_due_later_by_the_driver() {
    let watched = Watched::start();
    until_here(|| {
        watched.run_here(Order::Timeout(watched.clock.now() + Duration::from_millis(40)));
        let is_here = watched.was_here();
        // It slept without end, and is woken for the new timeout.
        let (at_end, handled) = watched.reported();
        assert_eq!(handled, Handled::Timeout);
        // A thread that is kept waiting may find it due already.
        is_here && at_end != current().id()
    });
}

#[test]
fn what_arrives_is_read_by_the_driver_however_often_another_thread_runs_it() {
    let watched = Watched::start();
    for _ in 0..20 {
        (0..50).for_each(|_| watched.driver().run_here());
        watched.is_read_by_its_thread();
    }
}

#[test]
fn what_arrives_is_left_to_who_visits_and_read_by_the_driver_when_the_visits_end() {
    let watched = Watched::start();
    let patience = Duration::from_millis(300);
    if !cfg!(target_os = "linux") {
        watched.begin_visits(patience);
        assert!(watched.reader().is_some(), "nobody knows when it arrived");
        return;
    }
    until_here(|| {
        watched.begin_visits(patience);
        if watched.reader().is_some() {
            return false;
        }
        watched.driver().visit(patience, Takes::Datagrams);
        watched.reported() == (current().id(), Handled::Datagram)
    });
    watched.is_read_by_its_thread();
}

#[test]
fn visits_that_are_too_far_apart_leave_reading_to_the_driver() {
    let watched = Watched::start();
    until_here(|| {
        watched.begin_visits(Duration::from_millis(600));
        sleep(Wall::from_millis(20));
        watched.driver().visit(Duration::from_millis(1), Takes::Datagrams);
        watched.reader().is_some_and(|by| by != current().id())
    });
}

#[test]
fn a_protocol_that_hurries_has_its_driver_read_whoever_visits() {
    let watched = Watched::start();
    let patience = Duration::from_millis(600);
    until_here(|| {
        watched.begin_visits(patience);
        let hurry = Order::Hurry(watched.clock.now() + Duration::from_secs(60));
        watched.driver().queue(hurry).expect("taken");
        watched.driver().visit(patience, Takes::Datagrams);
        assert_eq!(watched.reported().1, Handled::Command);
        watched.reader().is_some_and(|by| by != current().id())
    });
}

#[test]
fn what_is_due_is_left_to_one_who_takes_all() {
    let watched = Watched::start();
    if !cfg!(target_os = "linux") {
        return;
    }
    let patience = Duration::from_millis(300);
    until_here(|| {
        watched.begin_visits(patience);
        let due = watched.clock.now() + Duration::from_millis(80);
        sleep(Wall::from_millis(50));
        watched.driver().queue(Order::Timeout(due)).expect("taken");
        watched.driver().visit(patience, Takes::All);
        let is_here = watched.was_here();
        sleep(Wall::from_millis(60));
        // Unless this thread was kept waiting, nobody else has.
        let is_left = watched.reports.try_recv().is_err();
        watched.driver().visit(patience, Takes::All);
        is_here && is_left && watched.reported() == (current().id(), Handled::Timeout)
    });
}

#[test]
fn who_runs_it_within_itself_leaves_it_to_the_driver() {
    let watched = Watched::start();
    until_here(|| {
        watched.run_here(Order::Again);
        let is_here = watched.was_here();
        // It is not run twice at a time: the same round or the driver's next handles it.
        assert_eq!(watched.reported().1, Handled::Command);
        is_here
    });
}

#[test]
fn who_finds_another_thread_at_work_does_not_wait_for_it() {
    let watched = Watched::start();
    watched.driver().command(Order::Wait).expect("taken");
    assert_eq!(watched.reported().1, Handled::Command);
    watched.driver().queue(Order::Timeout(Time::NEVER)).expect("taken");
    // It would wait for ever: nobody else lets the first go on.
    watched.driver().run_here();
    watched.go_on.send(()).expect("it waits");
    assert!(!watched.was_here(), "the driver, as it was awake");
}

#[test]
fn a_protocol_that_panics_on_another_thread_ends_its_driver_and_not_its_caller() {
    let watched = Watched::start();
    watched.run_here(Order::Panic);
    assert_eq!(watched.reported().1, Handled::Command);
    assert!(watched.reports.recv_timeout(LONG).is_err(), "the protocol is gone");
    watched.driver().run_here();
    assert!(matches!(watched.driver().command(Order::Panic), Err(CommandError::Ended(_))));
    let Watched { driver, .. } = watched;
    let driver = Arc::into_inner(driver).and_then(OnceLock::into_inner).expect("the last one");
    assert!(driver.end().is_err());
}
