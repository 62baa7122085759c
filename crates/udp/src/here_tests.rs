//! Of a protocol that another thread runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{ThreadId, current, sleep};
use std::time::Duration as Wall;

use ontempo_foundation::{Duration, Time};

use super::*;

/// How long a test waits for what comes in a moment.
const LONG: Wall = Wall::from_secs(5);

/// Tells who handles what: a datagram and when it was read, a timeout, a command, which is the next timeout.
struct Watch {
    told: Sender<(ThreadId, Handled)>,
    timeout: Time,
    reads_later: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Handled {
    Datagram(Time),
    Timeout,
    Command,
}

impl Watch {
    fn tell(&self, handled: Handled) {
        let _ = self.told.send((current().id(), handled));
    }
}

impl Protocol for Watch {
    type Command = Time;

    fn handle(&mut self, now: Time, _: Datagram<'_>) {
        self.tell(Handled::Datagram(now));
    }

    fn handle_command(&mut self, _: Time, command: Time) {
        assert_ne!(command, Time::ZERO, "as the test wants it");
        self.timeout = command;
        self.tell(Handled::Command);
    }

    fn handle_timeout(&mut self, _: Time) {
        self.timeout = Time::NEVER;
        self.tell(Handled::Timeout);
    }

    fn next_timeout(&self) -> Time {
        self.timeout
    }

    fn poll_transmit(&mut self, _: Time, _: &mut Vec<u8>) -> Next {
        Next::Idle
    }

    fn may_read_later(&self, _: Time) -> bool {
        self.reads_later
    }
}

type Told = Receiver<(ThreadId, Handled)>;

fn watch(clock: Clock, reads_later: bool) -> (Driver<Watch>, SocketAddr, Told) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Socket::bind(any, SocketOptions::default()).expect("a socket");
    let to = socket.local_address().expect("an address");
    let (told, tells) = channel();
    let watch = Watch { told, timeout: Time::NEVER, reads_later };
    let driver = Driver::spawn(socket, watch, clock, DriverOptions::default());
    (driver.expect("a thread"), to, tells)
}

#[test]
fn what_is_queued_is_handled_by_who_runs_it_and_what_is_due_later_by_the_driver() {
    let clock = Clock::new();
    let (driver, _, tells) = watch(clock, false);
    let is_mine = |_: &u32| {
        // A driver that is awake handles it itself.
        sleep(Wall::from_millis(20));
        driver.queue(clock.now() + Duration::from_millis(20)).expect("taken");
        driver.run_here(Time::ZERO);
        let (by, handled) = tells.recv_timeout(LONG).expect("handled");
        assert_eq!(handled, Handled::Command);
        // It sleeps without end, unless it is woken for the new timeout.
        let (at_end, handled) = tells.recv_timeout(LONG).expect("handled");
        assert_eq!(handled, Handled::Timeout);
        assert_ne!(at_end, current().id());
        by == current().id()
    };
    assert!((0..100).any(|time| is_mine(&time)), "it sleeps at some time");
}

#[cfg(target_os = "linux")]
#[test]
fn what_may_be_read_later_waits_for_a_visitor_or_until_the_visit_is_due() {
    let clock = Clock::new();
    let (driver, to, tells) = watch(clock, true);
    let far = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let due = clock.now() + Duration::from_millis(500);
    driver.run_here(due);
    // Its sleep until now looks at the socket.
    driver.command(Time::NEVER).expect("taken");
    assert_eq!(tells.recv_timeout(LONG).expect("handled").1, Handled::Command);
    sleep(Wall::from_millis(100));
    far.send_to(b"first", to).expect("sent");
    driver.run_here(due);
    let (by, handled) = tells.recv_timeout(LONG).expect("handled");
    assert!(by == current().id() || clock.now() >= due, "{handled:?}");
    let sent = clock.now();
    far.send_to(b"second", to).expect("sent");
    let (by, handled) = tells.recv_timeout(LONG).expect("handled");
    assert_ne!(by, current().id());
    let Handled::Datagram(read) = handled else { panic!("{handled:?}") };
    assert!(read >= due || sent >= due, "read at {read:?}, the visit is due at {due:?}");
    // Nobody comes any more: it looks at the socket.
    far.send_to(b"third", to).expect("sent");
    assert!(matches!(tells.recv_timeout(LONG).expect("handled").1, Handled::Datagram(_)));
}

#[test]
fn a_protocol_that_panics_on_another_thread_ends_its_driver() {
    let (driver, _, tells) = watch(Clock::new(), false);
    driver.queue(Time::ZERO).expect("taken");
    let _ = catch_unwind(AssertUnwindSafe(|| driver.run_here(Time::ZERO)));
    assert!(tells.recv_timeout(LONG).is_err(), "the protocol is gone");
    assert!(matches!(driver.command(Time::NEVER), Err(CommandError::Ended(_))));
    assert!(driver.end().is_err());
}
