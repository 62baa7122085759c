//! State of one connection, of any transport: shared by the application's threads and the
//! process's maintenance thread.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::qos::{Parameter, Refusal, Specification, Violation, agree};

use super::events::{Event, Events};
use super::incoming::{Arrival, Incoming};
use super::network::{Reserved, Reserving, Standing};
use super::offset::Sample;
use super::outgoing::{Counter, Outgoing};
use super::setup::Established;
use super::wire::{
    Change, Header, Kind, MAX_MESSAGE_LEN, Pong, Refused, Status, TCP_HEADER, UDP_HEADER,
    UDP_PADDING, WireError,
};
use super::{Direction, QosOptions};
use ontempo_monitor::{Carrier, MAX_VIOLATIONS, Reservation, from_mib_units};
use ontempo_transport::quic::span;
use ontempo_udp::Dscp;

use super::clock::Clock;

/// Maximum queued events of an application that does not read them; later ones are dropped.
const MAX_EVENTS: usize = 1_024;

/// Why a connection is not made anew.
const OLDER: &str = "the other end is of a version that makes no broken connection anew";

/// How often a violation that lasts is told again.
const LASTING: Duration = Duration::from_secs(10);

/// Takes a lock. A thread that panicked with it has left valid counters behind.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same if it is free.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The pause between attempts to take a lock that another thread may hold for long.
const RETRY: Wall = Wall::from_millis(5);

/// The same until `until` at the latest; `None` if another thread still holds it then.
pub(super) fn lock_until<T>(mutex: &Mutex<T>, until: Instant) -> Option<MutexGuard<'_, T>> {
    loop {
        let guard = try_lock(mutex);
        let left = until.saturating_duration_since(Instant::now());
        if guard.is_some() || left.is_zero() {
            return guard;
        }
        std::thread::sleep(left.min(RETRY));
    }
}

/// Longer than any program waits, and far from what an [`Instant`] can be.
const FOR_EVER: Wall = Wall::from_secs(30 * 365 * 86_400);

/// When a call ends that begins now and lasts at most `timeout`, which may be [`Duration::MAX`](Wall::MAX).
pub(super) fn deadline(timeout: Wall) -> Instant {
    Instant::now() + timeout.min(FOR_EVER)
}

/// The latest violations of a direction, and their total number.
#[derive(Debug, Default)]
pub(super) struct Kept {
    count: u64,
    pub(super) latest: Vec<(u64, Violation)>,
}

/// Of each parameter, since when it is violated and when that is told again.
type Lasting = [Option<(Time, Time)>; Parameter::ALL.len()];

/// Messages that an end sends on its own.
pub(super) struct Control {
    pub(super) kind: Kind,
    pub(super) body: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Core {
    /// Number of the connection in this process, from 1.
    pub(super) number: u32,
    pub(super) clock: Clock,
    pub(super) carrier: Carrier,
    pub(super) session: u64,
    pub(super) name: String,
    /// Of this end and of the other; a connection that is made anew may have others.
    addresses: Mutex<(SocketAddr, SocketAddr)>,
    /// The DSCP of its packets.
    dscp: AtomicU8,
    /// What they have where the network asks for none.
    own_dscp: Dscp,
    /// Whether they get what the network asks for.
    takes_dscp: bool,
    pub(super) opened_ms: u64,
    pub(super) counter: Counter,
    pub(super) incoming: Mutex<Incoming>,
    pub(super) outgoing: Mutex<Outgoing>,
    /// What this end asked for in its receiving direction; the other end in its sending direction.
    pub(super) receive_asked: Specification,
    changed: Mutex<u32>,
    pub(super) reserved: Mutex<Reserved>,
    reserving: Reserving,
    /// Why a connection with `rec_time` cannot be made anew.
    unrecoverable: Option<&'static str>,
    subscribers: Mutex<Vec<SyncSender<Event>>>,
    /// Violations of the sending and of the receiving direction.
    kept: [Mutex<Kept>; 2],
    /// When it ends unless all is reserved; `None` once it is, or where it need not be.
    must_reserve_by: Mutex<Option<Time>>,
    /// Why this end has ended it.
    failure: OnceLock<String>,
    /// Of the sending and of the receiving direction.
    lasting: [Mutex<Lasting>; 2],
    /// The connection has ended.
    pub(super) closed: AtomicBool,
    pub(super) max_send_size: usize,
    pub(super) max_receive_size: usize,
}

fn event_of(standing: &Standing) -> Event {
    Event::Reservation {
        direction: standing.direction(),
        state: standing.state,
        reason: standing.reason.clone(),
    }
}

/// The maximum message size of a direction.
fn longest(agreed: &Specification, most: usize) -> usize {
    let asked = agreed.size.value.map(|size| usize::try_from(size.get()).unwrap_or(usize::MAX));
    asked.map_or(most, |size| size.min(most))
}

impl Core {
    pub(super) fn new(
        carrier: Carrier,
        addresses: (SocketAddr, SocketAddr),
        options: &QosOptions,
        established: &Established,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        // Acknowledgements get the DSCP of what they acknowledge.
        let is_answering =
            carrier == Carrier::Tcp && established.sending == Specification::default();
        let Established { session, sending, receiving, peer, clock: sample, is_measured, .. } =
            *established;
        let own_dscp = options.dscp_of(if is_answering { &receiving } else { &sending });
        let is_unrecoverable = carrier == Carrier::Tcp
            && established.rec_time().is_some()
            && established.token.is_none();
        let incoming = Incoming::new(now, receiving, options.hysteresis, sample, is_measured);
        let ladder = options.ladder.as_ref();
        let outgoing = Outgoing::new(now, options.send, peer.receive, sending, ladder);
        let most = match carrier {
            Carrier::Tcp => MAX_MESSAGE_LEN,
            // Headers of the datagram and of IPv6 are not part of the message.
            Carrier::Udp => 65_535 - 40 - 8 - UDP_HEADER - UDP_PADDING,
            // The endpoint's default limit.
            Carrier::Quic => (4 << 20) - TCP_HEADER,
        };
        static LAST: AtomicU32 = AtomicU32::new(0);
        Self {
            number: LAST.fetch_add(1, Relaxed) + 1,
            clock,
            carrier,
            session,
            name: options.name.clone(),
            addresses: Mutex::new(addresses),
            dscp: AtomicU8::new(own_dscp.get()),
            own_dscp,
            takes_dscp: options.dscp.is_none(),
            opened_ms: ontempo_udp::Clock::wall() / 1_000_000,
            counter: Counter::default(),
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(outgoing),
            receive_asked: options.receive,
            changed: Mutex::new(0),
            reserved: Mutex::new(Reserved::default()),
            reserving: Reserving { service: options.reserve, peer: peer.reserves },
            unrecoverable: is_unrecoverable.then_some(OLDER),
            subscribers: Mutex::new(Vec::new()),
            kept: Default::default(),
            must_reserve_by: Mutex::new(
                options.must_reserve.then(|| now + span(options.setup_timeout)),
            ),
            failure: OnceLock::new(),
            lasting: Default::default(),
            closed: AtomicBool::new(false),
            max_send_size: longest(&sending, most),
            max_receive_size: longest(&receiving, most),
        }
    }

    /// The header of the application's message with this number.
    #[inline]
    pub(super) fn header(&self, number: u64, length: usize) -> Header {
        // Modulo 2^32: the receiver restores the rest.
        let sequence = number as u32;
        Header { kind: Kind::Data, length, sequence, sent: self.clock.now().as_nanos() }
    }

    /// Counts a complete message of the application.
    #[inline]
    pub(super) fn on_data(&self, header: &Header, length: usize) -> Option<Arrival> {
        let mut violations = Vec::new();
        let now = self.clock.now();
        let arrival = lock(&self.incoming).on_message(
            now,
            length,
            header.sequence,
            header.sent,
            &mut violations,
        );
        if !violations.is_empty() {
            self.emit_violations(Direction::Receiving, &violations);
        }
        arrival
    }

    /// Handles a control message; returns the answer, if any.
    pub(super) fn on_control(
        &self,
        header: &Header,
        body: &[u8],
    ) -> Result<Option<Control>, WireError> {
        let now = self.clock.now();
        match header.kind {
            Kind::Data => {}
            // Those of connections that can be made anew are theirs.
            Kind::Ack | Kind::End => return Err(WireError::Malformed),
            Kind::Bye => self.closed.store(true, Relaxed),
            Kind::Status => {
                let status = Status::read(body)?;
                self.on_status(now, &status);
                let pong = Pong { echo: header.sent, arrived: now.as_nanos() };
                return Ok(Some(Control { kind: Kind::Pong, body: pong.to_bytes() }));
            }
            Kind::Refused => {
                let Refused { reason } = Refused::read(body)?;
                let refused = lock(&self.reserved).on_refused(&reason);
                self.publish_reservations(&refused);
            }
            Kind::Pong => {
                let pong = Pong::read(body)?;
                let sample = Sample::of_exchange(pong.echo, pong.arrived, header.sent, now);
                if let Some(sample) = sample {
                    lock(&self.incoming).on_sample(now, sample);
                }
            }
            Kind::Change => {
                let change = Change::read(body)?;
                let mut changed = lock(&self.changed);
                // A change that contradicts our own specification is ignored: the peer knows that
                // part.
                if change.number > *changed
                    && let Ok(agreed) = agree(&change.send, &self.receive_asked)
                {
                    *changed = change.number;
                    lock(&self.incoming).change(agreed);
                    self.reserve_anew(Direction::Receiving, &agreed);
                    self.publish(&Event::Changed { direction: Direction::Receiving, agreed });
                }
            }
        }
        Ok(None)
    }

    fn on_status(&self, now: Time, status: &Status) {
        let mut violations = Vec::new();
        lock(&self.incoming).on_status(now, status, &mut violations);
        self.emit_violations(Direction::Receiving, &violations);
        let violations = lock(&self.outgoing).on_status(now, status.change, status.figures);
        self.emit_violations(Direction::Sending, &violations);
    }

    /// The report sent to the peer twice a second.
    pub(super) fn status(&self, now: Time) -> Control {
        let (sent_messages, sent_bytes) = self.counter.get();
        let change = *lock(&self.changed);
        let incoming = lock(&self.incoming);
        let offset = incoming.own_offset(now);
        let figures = *incoming.figures();
        let status = Status { sent_messages, sent_bytes, offset, change, figures };
        Control { kind: Kind::Status, body: status.to_bytes() }
    }

    /// Ends a half second; returns what to send to the peer.
    pub(super) fn on_tick(&self) -> Vec<Control> {
        let now = self.clock.now();
        let mut violations = Vec::new();
        lock(&self.incoming).advance(now, &mut violations);
        self.emit_violations(Direction::Receiving, &violations);
        let mut outgoing = lock(&self.outgoing);
        let is_refused = lock(&self.reserved).is_sending_refused();
        let step = outgoing.on_tick(now, self.counter.get().1, is_refused);
        let change = outgoing.to_tell();
        drop(outgoing);
        if let Some((step, agreed)) = step {
            self.publish(&Event::Step { step, agreed });
            self.reserve_anew(Direction::Sending, &agreed);
        }
        self.publish_lasting(now);
        let change = change.map(|change| Control { kind: Kind::Change, body: change.to_bytes() });
        let reason = lock(&self.reserved).refusal();
        let refused = reason
            .map(|reason| Control { kind: Kind::Refused, body: Refused { reason }.to_bytes() });
        change.into_iter().chain(refused).chain([self.status(now)]).collect()
    }

    /// Asks for another specification of this end's sending direction.
    pub(super) fn change(&self, asked: Specification) -> Result<(Specification, Control), Refusal> {
        let mut outgoing = lock(&self.outgoing);
        let agreed = outgoing.change(asked)?;
        let body = outgoing.to_tell().map(|change| change.to_bytes()).unwrap_or_default();
        drop(outgoing);
        self.reserve_anew(Direction::Sending, &agreed);
        Ok((agreed, Control { kind: Kind::Change, body }))
    }

    /// The DSCP of its packets.
    pub(super) fn dscp(&self) -> Dscp {
        Dscp::new(self.dscp.load(Relaxed)).unwrap_or_default()
    }

    /// Has `mark` give the packets the DSCP that the network asks for, where it asks for another one since
    /// the last call, or for none any more. What fails is tried again at the next call.
    pub(super) fn mark_anew(&self, mark: impl FnOnce(Dscp) -> io::Result<()>) {
        // Held until it is marked: a new socket is marked before or after that.
        let reserved = lock(&self.reserved);
        let asked = reserved.of(Direction::Sending).and_then(|standing| standing.dscp);
        let wanted = asked.filter(|_| self.takes_dscp).unwrap_or(self.own_dscp);
        if wanted != self.dscp() && mark(wanted).is_ok() {
            self.dscp.store(wanted.get(), Relaxed);
        }
    }

    /// Has `mark` give a new socket's packets the DSCP that those of the one before have.
    ///
    /// # Errors
    /// That of `mark`.
    pub(super) fn mark_again(&self, mark: impl FnOnce(Dscp) -> io::Result<()>) -> io::Result<()> {
        let _held = lock(&self.reserved);
        mark(self.dscp())
    }

    /// This end's address.
    pub(super) fn local(&self) -> SocketAddr {
        lock(&self.addresses).0
    }

    /// The other end's address.
    pub(super) fn remote(&self) -> SocketAddr {
        lock(&self.addresses).1
    }

    /// What the network is asked to reserve, for the addresses of now.
    pub(super) fn ask(&self) {
        let addresses = *lock(&self.addresses);
        let (sending, receiving) = (*lock(&self.outgoing).agreed(), *lock(&self.incoming).agreed());
        let directions = (&sending, &receiving);
        let asked = Reserved::ask(self.reserving, self.carrier, addresses, directions);
        *lock(&self.reserved) = asked;
    }

    /// The connection is made anew, with these addresses.
    pub(super) fn on_recovered(&self, addresses: (SocketAddr, SocketAddr), after: Duration) {
        *lock(&self.addresses) = addresses;
        self.publish(&Event::Recovered { after });
        if self.reserving.service != super::Reserve::None {
            self.ask();
            let standing = lock(&self.reserved).standing.clone();
            self.publish_reservations(&standing);
        }
    }

    /// The connection has not come back in time: that violates `rec_time` of both directions.
    pub(super) fn on_not_recovered(&self, lost: Duration) {
        let now = self.clock.now();
        let receiving = lock(&self.incoming).on_not_recovered(now, lost);
        self.emit_violations(Direction::Receiving, receiving.as_slice());
        let sending = lock(&self.outgoing).on_not_recovered(now, lost);
        self.emit_violations(Direction::Sending, sending.as_slice());
    }

    /// Asks the network for what is agreed now.
    fn reserve_anew(&self, direction: Direction, agreed: &Specification) {
        let changed = lock(&self.reserved).change(direction, agreed);
        self.publish_reservations(&changed);
    }

    /// Ends the connection if it must be reserved and is not; returns what to tell the peer.
    pub(super) fn fail_unreserved(&self) -> Option<Control> {
        let mut by = lock(&self.must_reserve_by);
        let why = match ((*by)?, lock(&self.reserved).granted()) {
            (_, Ok(Some(()))) => {
                *by = None;
                return None;
            }
            (until, Ok(None)) if self.clock.now() < until => return None,
            (_, Ok(None)) => "neither granted nor refused in time".to_owned(),
            (_, Err(why)) => why,
        };
        *by = None;
        let body = Refused { reason: format!("it must be reserved: {why}") }.to_bytes();
        // The first reason stays.
        let _ = self.failure.set(why);
        Some(Control { kind: Kind::Refused, body })
    }

    /// Why this end has ended the connection.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// What a call returns, unless this end has ended the connection.
    #[inline]
    pub(super) fn unless_failed<T>(&self, ended: bool, result: io::Result<T>) -> io::Result<T> {
        match self.failure.get() {
            Some(why) if ended => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("nothing is reserved: {why}"),
            )),
            _ => result,
        }
    }

    /// Publishes violations that last, again and again.
    fn publish_lasting(&self, now: Time) {
        for direction in [Direction::Sending, Direction::Receiving] {
            let (agreed, figures) = match direction {
                Direction::Sending => {
                    let outgoing = lock(&self.outgoing);
                    (*outgoing.agreed(), *outgoing.figures())
                }
                Direction::Receiving => {
                    let incoming = lock(&self.incoming);
                    (*incoming.agreed(), *incoming.figures())
                }
            };
            let mut lasting = lock(&self.lasting[direction as usize]);
            for (place, parameter) in Parameter::ALL.into_iter().enumerate() {
                let is_violated = figures.violated >> place & 1 == 1;
                let Some(asked) = agreed.value(parameter).filter(|_| is_violated) else {
                    lasting[place] = None;
                    continue;
                };
                let (since, next) = lasting[place].unwrap_or((now, now + LASTING));
                if now < next {
                    lasting[place] = Some((since, next));
                    continue;
                }
                lasting[place] = Some((since, now + LASTING));
                let delivered = figures.delivered[place];
                let delivered = delivered.map(|value| from_mib_units(parameter, value));
                let lasted = now.since(since);
                self.publish(&Event::Lasting { direction, parameter, asked, delivered, lasted });
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Ends the event streams.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
        lock(&self.subscribers).clear();
        *lock(&self.reserved) = Reserved::default();
    }

    pub(super) fn events(&self) -> Events {
        let (sender, receiver) = std::sync::mpsc::sync_channel(MAX_EVENTS);
        if !self.is_closed() {
            // What was known before anybody could ask for events.
            for standing in &lock(&self.reserved).standing {
                if standing.state != Reservation::Requested {
                    // The queue has room.
                    let _ = sender.try_send(event_of(standing));
                }
            }
            if let Some(reason) = self.unrecoverable {
                let _ = sender.try_send(Event::Unrecoverable { reason: reason.to_owned() });
            }
            lock(&self.subscribers).push(sender);
        }
        Events::new(receiver)
    }

    /// Violations of a direction.
    pub(super) fn kept(&self, direction: Direction) -> MutexGuard<'_, Kept> {
        lock(&self.kept[direction as usize])
    }

    fn emit_violations(&self, direction: Direction, violations: &[Violation]) {
        for &violation in violations {
            let mut kept = self.kept(direction);
            kept.count += 1;
            if kept.latest.len() == MAX_VIOLATIONS {
                kept.latest.remove(0);
            }
            let number = kept.count;
            kept.latest.push((number, violation));
            drop(kept);
            self.publish(&Event::Violation { direction, violation });
        }
    }

    /// Emits events of reservations made or lost.
    pub(super) fn publish_reservations(&self, changed: &[Standing]) {
        for standing in changed {
            self.publish(&event_of(standing));
        }
    }

    pub(super) fn publish(&self, event: &Event) {
        lock(&self.subscribers).retain(|subscriber| {
            !matches!(subscriber.try_send(event.clone()), Err(TrySendError::Disconnected(_)))
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_deadline_is_the_timeout_from_now_or_later_than_anybody_waits(secs: u64, nanos in 0u32..1_000_000_000) {
            // As many short ones as long ones.
            for timeout in [Wall::new(secs, nanos), Wall::new(secs >> (secs % 64), nanos), Wall::MAX] {
                let before = Instant::now();
                let until = deadline(timeout);
                let after = Instant::now();
                let most = timeout.min(FOR_EVER);
                prop_assert!(until >= before + most && until <= after + most);
            }
        }
    }
}
