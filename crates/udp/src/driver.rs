//! The thread that runs a protocol over a socket.

use std::fmt;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use ontempo_foundation::{Duration, Time};
use rustix::event::PollFlags;

use super::socket::{Reader, Taken};
use super::visits::{Takes, Visits};
use super::wait::{Ready, WakeEvents, Waker, minimize_timer_slack, wake_pair};
use super::{Clock, Next, Protocol, Socket, Transmit};

/// Transmissions in a row before reading.
const MAX_TRANSMISSIONS: usize = 32;

/// Reads in a row before sending.
const MAX_READS: usize = 4;

/// Read errors in a row after which the socket counts as failed.
const MAX_ERRORS: u32 = 1_000;

/// Options of a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverOptions {
    /// Send paced packets on time to the microsecond, by polling the clock for the last
    /// 60 us before each: uses up to one core while packets are paced.
    pub precise: bool,
    /// Queued commands; more are refused. At least 1.
    pub commands: usize,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { precise: false, commands: 256 }
    }
}

/// Counters of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStatistics {
    /// Calls that sent something.
    pub send_calls: u64,
    /// Bytes sent, without headers.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received: u64,
    /// Bytes received, without headers.
    pub received_bytes: u64,
    /// Calls that received something.
    pub receive_calls: u64,
    /// Times that the socket's send buffer was full.
    pub blocked: u64,
    /// Transmissions refused as larger than the path's MTU.
    pub too_large: u64,
    /// Transmissions refused for another reason.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Counters {
    send_calls: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    receive_calls: AtomicU64,
    blocked: AtomicU64,
    too_large: AtomicU64,
    refused: AtomicU64,
}

/// Only one thread at a time writes: relaxed order suffices.
fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl Counters {
    fn read(&self) -> DriverStatistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriverStatistics {
            send_calls: get(&self.send_calls),
            sent_bytes: get(&self.sent_bytes),
            received: get(&self.received),
            received_bytes: get(&self.received_bytes),
            receive_calls: get(&self.receive_calls),
            blocked: get(&self.blocked),
            too_large: get(&self.too_large),
            refused: get(&self.refused),
        }
    }
}

/// Why a command was not accepted; it is returned.
#[derive(Debug, PartialEq, Eq)]
pub enum CommandError<C> {
    /// The queue is full.
    Full(C),
    /// The driver has ended.
    Ended(C),
}

impl<C> fmt::Display for CommandError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "too many commands wait for the driver",
            Self::Ended(_) => "the driver has ended",
        })
    }
}

/// A protocol running on its own thread. Dropping it ends the thread.
pub struct Driver<P: Protocol> {
    commands: SyncSender<P::Command>,
    shared: Arc<Shared>,
    work: Place<P>,
    thread: Option<JoinHandle<Option<Ended<P>>>>,
}

/// Where the protocol is: its thread holds the lock but when it sleeps. `None` once it has ended.
type Place<P> = Arc<Mutex<Option<Work<P>>>>;

/// The protocol, and why it has ended.
type Ended<P> = (P, io::Result<()>);

/// Wakes a driver whose protocol has work from another thread: its
/// [`next_timeout`](Protocol::next_timeout) has come.
#[derive(Clone, Debug)]
pub struct Wake(Arc<Shared>);

impl Wake {
    /// Wakes it; what it is woken for was stored before. No system call if it is awake.
    pub fn wake(&self) {
        self.0.waker.wake();
    }

    /// As [`wake`](Self::wake), unless it wakes up by `latest` anyway, by the driver's clock.
    pub fn wake_by(&self, latest: Time) {
        self.0.waker.wake_by(latest);
    }
}

#[derive(Debug)]
struct Shared {
    waker: Waker,
    ending: AtomicBool,
    counters: Counters,
}

impl<P: Protocol> fmt::Debug for Driver<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}

/// What `run` returns; `None` if it panics. Then the protocol is dropped, on whatever thread it did: nobody waits for it.
fn or_drop<P: Protocol, R>(place: &Mutex<Option<Work<P>>>, run: impl FnOnce() -> R) -> Option<R> {
    // The protocol, which the panic may have left half changed, is not used any more.
    let result = catch_unwind(AssertUnwindSafe(run));
    result
        .inspect_err(|_| {
            let left = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(left);
        })
        .ok()
}

impl<P: Protocol> Driver<P> {
    /// Starts a thread that runs `protocol` over `socket`.
    ///
    /// # Errors
    /// If the system has no thread or file descriptor left.
    pub fn spawn(
        socket: Socket,
        protocol: P,
        clock: Clock,
        options: DriverOptions,
    ) -> io::Result<Self> {
        let (waker, wake_events) = wake_pair()?;
        let (commands, waiting) = sync_channel(options.commands.max(1));
        let counters = Counters::default();
        let shared = Arc::new(Shared { waker, ending: AtomicBool::new(false), counters });
        let socket = Arc::new(socket);
        let work = Arc::new(Mutex::new(Some(Work {
            reader: socket.reader(),
            socket: Arc::clone(&socket),
            protocol,
            clock,
            precise: options.precise,
            waiting,
            shared: Arc::clone(&shared),
            buffer: Vec::new(),
            pending: None,
            errors: 0,
            visits: Visits::default(),
            leaves_reading: false,
        })));
        let place = Arc::clone(&work);
        let run = move || or_drop(&place, || run(&place, &socket, clock, &wake_events)).flatten();
        let thread = Builder::new().name("ontempo-udp".to_owned()).spawn(run)?;
        Ok(Self { commands, shared, work, thread: Some(thread) })
    }

    /// Queues a command for the protocol; does not block.
    ///
    /// # Errors
    /// If the queue is full, or the driver has ended.
    pub fn command(&self, command: P::Command) -> Result<(), CommandError<P::Command>> {
        self.queue(command)?;
        self.shared.waker.wake();
        Ok(())
    }

    /// As [`command`](Self::command), of a command that is not handled before something else wakes the
    /// driver, or [`run_here`](Self::run_here).
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn queue(&self, command: P::Command) -> Result<(), CommandError<P::Command>> {
        self.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(command) => CommandError::Full(command),
            TrySendError::Disconnected(command) => CommandError::Ended(command),
        })
    }

    /// As [`command`](Self::command), of a command that need not be handled before `latest`: a
    /// protocol that wakes up until then anyway is not woken for it.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn command_by(
        &self,
        latest: Time,
        command: P::Command,
    ) -> Result<(), CommandError<P::Command>> {
        let queued = self.queue(command);
        match &queued {
            Ok(()) => self.shared.waker.wake_by(latest),
            Err(_) => self.shared.waker.wake(),
        }
        queued
    }

    /// Handles queued commands and sends what is to be sent, on the calling thread if that of the driver sleeps; otherwise
    /// that one does. It saves a program that sends little at a time a change of threads for each packet. What arrives is
    /// read by the driver's thread, which also wakes up for what is due later.
    ///
    /// The protocol runs on this thread, with all that it calls: the caller must hold nothing that it waits for. What it calls
    /// may call this: then its own thread goes on. This waits for no lock of the driver. If the protocol panics, the driver ends,
    /// and the caller goes on.
    pub fn run_here(&self) {
        self.run_on_this_thread(Work::run_here);
    }

    /// As [`run_here`](Self::run_here), on a thread that does so again and again: where that is at least each `patience`,
    /// the driver's thread leaves to it what it `takes`, which saves a wake-up for each datagram that arrives. What arrives
    /// after the last visit is read twice `patience` after that visit at the latest. Only where the kernel notes times of arrival, and not while
    /// the protocol [hurries](Protocol::hurries_until).
    pub fn visit(&self, patience: Duration, takes: Takes) {
        self.run_on_this_thread(|work| work.visit(patience, takes));
    }

    fn run_on_this_thread(&self, run: impl FnOnce(&mut Work<P>) -> Option<Time>) {
        let run = || run(self.work.try_lock().ok()?.as_mut()?);
        match or_drop(&self.work, run).flatten() {
            Some(until) => self.shared.waker.wake_by(until),
            None => self.shared.waker.wake(),
        }
    }

    /// What wakes it.
    pub fn wake(&self) -> Wake {
        Wake(Arc::clone(&self.shared))
    }

    /// Counters so far.
    pub fn statistics(&self) -> DriverStatistics {
        self.shared.counters.read()
    }

    /// True once the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread now and returns the protocol, after it has received everything that has
    /// arrived.
    ///
    /// # Errors
    /// If the socket failed, or the protocol panicked.
    pub fn end(mut self) -> io::Result<P> {
        self.shared.ending.store(true, Ordering::Release);
        self.shared.waker.wake();
        self.join()
    }

    /// Waits until the protocol is finished and returns it.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn wait(mut self) -> io::Result<P> {
        self.join()
    }

    fn join(&mut self) -> io::Result<P> {
        let panicked = || io::Error::other("the thread of the UDP driver panicked");
        let thread = self.thread.take().ok_or_else(panicked)?;
        let (protocol, ended) = thread.join().ok().flatten().ok_or_else(panicked)?;
        ended.map(|()| protocol)
    }
}

impl<P: Protocol> Drop for Driver<P> {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported its panic.
            let _ = thread.join();
        }
    }
}

/// What the thread runs, under its lock.
struct Work<P: Protocol> {
    socket: Arc<Socket>,
    reader: Reader,
    protocol: P,
    clock: Clock,
    precise: bool,
    waiting: Receiver<P::Command>,
    shared: Arc<Shared>,
    buffer: Vec<u8>,
    /// First byte of the buffer that the kernel has not accepted yet.
    pending: Option<(Transmit, usize)>,
    /// Read errors in a row.
    errors: u32,
    visits: Visits,
    /// The thread sleeps and does not wait for the socket: who visits reads.
    leaves_reading: bool,
}

/// Result of sending.
enum Sending {
    /// There is more to send.
    Busy,
    /// Nothing until then; on time to the microsecond if a packet is paced.
    Until(Time, bool),
}

/// What the thread waits for.
struct Wait {
    wanted: PollFlags,
    until: Time,
    precise: bool,
    /// The socket is read then in any case.
    reads_later: bool,
}

/// The thread: returns the protocol when it has ended; `None` if it panicked on another one.
fn run<P: Protocol>(
    place: &Mutex<Option<Work<P>>>,
    socket: &Socket,
    clock: Clock,
    wake_events: &WakeEvents,
) -> Option<Ended<P>> {
    minimize_timer_slack();
    let mut ready = Ok(Ready { readable: true });
    loop {
        let mut place = place.lock().ok()?;
        let work = place.as_mut()?;
        let Wait { wanted, until, precise, reads_later } =
            match ready.and_then(|ready| work.turn(ready, wake_events)) {
                Ok(Some(wait)) => wait,
                Ok(None) => return Some((place.take()?.protocol, Ok(()))),
                Err(error) => return Some((place.take()?.protocol, Err(error))),
            };
        drop(place);
        let waited = wake_events.wait(socket, wanted, clock, until, precise);
        ready = waited.map(|ready| Ready { readable: ready.readable || reads_later });
    }
}

impl<P: Protocol> Work<P> {
    /// Everything up to the next wait; `None` if there is none.
    fn turn(&mut self, ready: Ready, wake_events: &WakeEvents) -> io::Result<Option<Wait>> {
        if self.shared.ending.load(Ordering::Acquire) {
            return self.receive().map(|()| None);
        }
        // What has arrived came before commands, and may change what is due.
        if ready.readable || std::mem::take(&mut self.leaves_reading) {
            self.receive()?;
        }
        self.take_commands();
        let (until, precise) = match self.go_on() {
            Sending::Busy => (Time::ZERO, false),
            Sending::Until(until, precise) => (until, precise),
        };
        if self.pending.is_none() && until > Time::ZERO && self.protocol.is_finished() {
            return Ok(None);
        }
        Ok(Some(self.before_wait(until, precise, wake_events)))
    }

    fn before_wait(&mut self, mut paced: Time, precise: bool, wake_events: &WakeEvents) -> Wait {
        if paced > Time::ZERO {
            wake_events.prepare_to_sleep();
            if self.take_commands() || self.shared.ending.load(Ordering::Acquire) {
                // Only poll the socket.
                paced = Time::ZERO;
            }
        }
        let timeout = self.protocol.next_timeout();
        let mut until = paced.min(timeout);
        let precise = self.precise && precise && paced <= timeout;
        let knows_arrivals = self.reader.knows_arrivals();
        let reads_later =
            timeout < Time::NEVER && knows_arrivals && self.protocol.reads_at_timeout();
        let now = self.clock.now();
        self.leaves_reading = knows_arrivals && !reads_later && self.is_read_for(now);
        if self.leaves_reading {
            until = self.visits.wake(now, until);
        }
        let waits_for_socket = !reads_later && !self.leaves_reading;
        let mut wanted = if waits_for_socket { PollFlags::IN } else { PollFlags::empty() };
        if self.pending.is_some() {
            wanted |= PollFlags::OUT;
        }
        wake_events.note_end(until);
        Wait { wanted, until, precise, reads_later }
    }

    /// As [`turn`](Self::turn), on another thread, which reads only what its own has left: when that has to wake up next; `None`
    /// if it has to do so now.
    fn run_here(&mut self) -> Option<Time> {
        // A wait of its thread is for what was so before: only its end may change here.
        if self.precise || self.pending.is_some() || self.protocol.reads_at_timeout() {
            return None;
        }
        if self.leaves_reading && self.receive().is_err() {
            // It is for the thread to end by it.
            self.visits.end();
        }
        self.take_commands();
        let Sending::Until(until, _) = self.go_on() else { return None };
        let until = until.min(self.protocol.next_timeout());
        if self.pending.is_some() || self.protocol.is_finished() {
            return None;
        }
        if !self.leaves_reading {
            return Some(until);
        }
        let now = self.clock.now();
        // Otherwise the thread has to wait for the socket again.
        self.is_read_for(now).then(|| self.visits.wake(now, until))
    }

    /// As [`run_here`](Self::run_here), and reads what its thread has left.
    fn visit(&mut self, patience: Duration, takes: Takes) -> Option<Time> {
        self.visits.note(self.clock.now(), patience, takes);
        self.run_here()
    }

    fn is_read_for(&self, now: Time) -> bool {
        !self.precise && self.visits.read(now) && self.protocol.hurries_until() <= now
    }

    /// Does what is due, and sends.
    fn go_on(&mut self) -> Sending {
        let now = self.clock.now();
        if self.protocol.next_timeout() <= now {
            self.protocol.handle_timeout(now);
        }
        self.transmit()
    }

    /// Passes queued commands to the protocol; true if there were any.
    fn take_commands(&mut self) -> bool {
        let mut any = false;
        while let Ok(command) = self.waiting.try_recv() {
            self.protocol.handle_command(self.clock.now(), command);
            any = true;
        }
        any
    }

    fn receive(&mut self) -> io::Result<()> {
        let counters = &self.shared.counters;
        for _ in 0..MAX_READS {
            let (protocol, mut bytes) = (&mut self.protocol, 0);
            let taken = self.reader.each(&self.socket, self.clock, |now, datagram| {
                bytes += datagram.data.len() as u64;
                protocol.handle(now, datagram);
            });
            match taken {
                Ok(Taken { datagrams, is_last }) => {
                    self.errors = 0;
                    count(&counters.receive_calls, 1);
                    count(&counters.received, datagrams as u64);
                    count(&counters.received_bytes, bytes);
                    if is_last {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // ICMP errors of earlier packets are reported as read errors.
                Err(error) => {
                    self.errors += 1;
                    if self.errors > MAX_ERRORS {
                        return Err(error);
                    }
                }
            }
        }
        // There is more than a visit should read.
        self.visits.end();
        Ok(())
    }

    fn transmit(&mut self) -> Sending {
        for _ in 0..MAX_TRANSMISSIONS {
            if self.pending.is_none() {
                self.buffer.clear();
                match self.protocol.poll_transmit(self.clock.now(), &mut self.buffer) {
                    Next::Transmit(transmit) => self.pending = Some((transmit, 0)),
                    Next::WaitUntil(until) => return Sending::Until(until, true),
                    Next::Idle => return Sending::Until(Time::NEVER, false),
                }
            }
            if !self.send_pending() {
                // Until the socket is writable, which ends the wait.
                return Sending::Until(Time::NEVER, false);
            }
        }
        Sending::Busy
    }

    /// True if nothing is pending any more.
    fn send_pending(&mut self) -> bool {
        let Some((transmit, from)) = self.pending else { return true };
        let counters = &self.shared.counters;
        let rest = self.buffer.get(from..).unwrap_or_default();
        match self.socket.send(&transmit, rest) {
            Ok(sent) => {
                count(&counters.send_calls, 1);
                count(&counters.sent_bytes, sent as u64);
                if sent < rest.len() {
                    count(&counters.blocked, 1);
                    self.pending = Some((transmit, from + sent));
                    return false;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                count(&counters.blocked, 1);
                return false;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            // Like packets lost in the network: the protocol detects it.
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                count(&counters.too_large, transmit.datagrams(rest));
            }
            Err(_) => count(&counters.refused, transmit.datagrams(rest)),
        }
        self.pending = None;
        true
    }
}
