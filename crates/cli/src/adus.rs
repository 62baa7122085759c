//! `ontempo adus`: application data units over the endpoint, and a log of each one's times.
//!
//! The experiment of rr3216 (appendix): a sender of numbered units and a receiver whose application
//! takes a fixed time for each. As there, the protocol goes before the application, which uses no
//! processor: it is a timer on the protocol's own thread. Times are of the wall clock, so that those
//! of both ends on one machine can be compared.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration as Wall;

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Bytes as Size, Duration, Packets, Time};
use ontempo_transport::{
    AckRequest, CloseReason, Configuration, ConnectionId, ConnectionStatistics, DelayedAcks,
    Delivery, Endpoint, Event, FlowConfig, FlowId, Identity, Outgoing, Poll, SendError, Source,
    Token, Trust,
};
use ontempo_udp::random;
use ontempo_udp::{
    Clock, Datagram, Driver, DriverOptions, Next, Protocol, Socket, SocketOptions, Transmit,
};
use serde_json::{Value, json};

use crate::address::{resolve, socket_at, socket_for};
use crate::arguments::{AdusCommand, AdusReceive, AdusSend};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

/// The port that is written where none was.
const USUAL: u16 = 4435;

/// How long the last words of a connection are given.
const ENDING: Duration = Duration::from_millis(500);

/// How often it is looked whether all is done.
const STEP: Wall = Wall::from_millis(20);

/// How long a unit that the transport did not take waits before it is offered again.
const AGAIN: Duration = Duration::from_millis(1);

/// Longer than any round trip: the transport cuts it to one.
const NO_ACK_TIMER: Duration = Duration::from_secs(60);

/// More packets than any receiver's window lets be under way.
const NO_CONGESTION: Packets = Packets::new(4_096);

pub(crate) fn adus(command: &AdusCommand) -> Result<(), Failure> {
    match command {
        AdusCommand::Send(arguments) => send(arguments),
        AdusCommand::Receive(arguments) => receive(arguments),
    }
}

/// One end: what it does when something happens, and when time has passed.
trait Part: Send + 'static {
    fn on_event(&mut self, now: Time, endpoint: &mut Endpoint, event: Event);
    /// Does what is due.
    fn advance(&mut self, now: Time, endpoint: &mut Endpoint);
    /// When something will be due.
    fn next(&self) -> Time;
    /// How it ended; `None` before that.
    fn outcome(&self) -> Option<&Result<(), String>>;
}

/// An endpoint and what uses it, under the UDP driver.
struct Carried<P> {
    endpoint: Endpoint,
    part: P,
    wake: Time,
    /// When the thread ends.
    ends: Time,
}

impl<P: Part> Carried<P> {
    fn advance(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            self.part.on_event(now, &mut self.endpoint, event);
        }
        self.part.advance(now, &mut self.endpoint);
        if self.part.outcome().is_some() && self.ends == Time::NEVER {
            self.ends = now + ENDING;
        }
    }
}

impl<P: Part> Protocol for Carried<P> {
    type Command = ();

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        self.endpoint.handle(now, Source::from(&datagram), BytesMut::from(datagram.data));
        self.advance(now);
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, now: Time) {
        self.wake = Time::NEVER;
        self.endpoint.handle_timeout(now);
        self.advance(now);
        if now >= self.ends {
            self.ends = Time::ZERO;
        }
    }

    fn next_timeout(&self) -> Time {
        self.wake.min(self.ends).min(self.part.next())
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.advance(now);
        let poll = self.endpoint.poll_transmit(now, buffer);
        self.advance(now);
        self.wake = Time::NEVER;
        match poll {
            Poll::Transmit(transmit) => {
                buffer.truncate(transmit.size);
                Next::Transmit(Transmit::from(&transmit))
            }
            Poll::WaitUntil(until) => {
                self.wake = until;
                Next::WaitUntil(until)
            }
            Poll::Idle => Next::Idle,
        }
    }

    fn is_finished(&self) -> bool {
        self.ends == Time::ZERO
    }
}

/// Carries one end until it is done or is asked to end, and answers it with what the wall clock
/// showed at its zero of time.
fn carry<P: Part>(
    socket: Socket,
    configuration: Configuration,
    begin: impl FnOnce(Time, &mut Endpoint) -> Result<P, Failure>,
) -> Result<(P, u64), Failure> {
    let stopped = stop_flag()?;
    let clock = Clock::new();
    let origin = Clock::wall();
    let mut seed = [0; 32];
    seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random().to_ne_bytes()));
    let mut endpoint = Endpoint::new(configuration, seed);
    let part = begin(clock.now(), &mut endpoint)?;
    let carried = Carried { endpoint, part, wake: Time::NEVER, ends: Time::NEVER };
    let driver = Driver::spawn(socket, carried, clock, DriverOptions::default());
    let driver = driver.map_err(environment)?;
    while !driver.has_ended() && !stopped.load(Ordering::Relaxed) {
        sleep(STEP);
    }
    let carried = driver.end().map_err(environment)?;
    Ok((carried.part, origin))
}

/// Prints what is known of each unit, and then how it ended.
fn tell<P: Part>(part: &P, units: impl Iterator<Item = Value>, more: Value) -> Result<(), Failure> {
    let mut lines: Vec<_> = units.map(|unit| unit.to_string()).collect();
    let complete = matches!(part.outcome(), Some(Ok(())));
    lines.push(json!({ "event": "ended", "complete": complete, "connection": more }).to_string());
    emit(&lines.join("\n"))?;
    match part.outcome() {
        Some(Err(reason)) => Err(environment(reason)),
        // Where it was asked to end before, that is said in the last line.
        Some(Ok(())) | None => Ok(()),
    }
}

fn nanoseconds(origin: u64, at: Time) -> u64 {
    origin + at.since(Time::ZERO).as_nanos()
}

/// The sending end.
struct Sender {
    count: u64,
    data: Bytes,
    interval: Duration,
    config: FlowConfig,
    flow: Option<(ConnectionId, FlowId)>,
    /// When the next unit may leave.
    due: Time,
    /// Units offered to the transport.
    offered: u64,
    /// When each was taken from there into a packet.
    emitted: Vec<Time>,
    /// The connection when it was last seen.
    statistics: Option<ConnectionStatistics>,
    outcome: Option<Result<(), String>>,
}

impl Sender {
    /// Notes that the transport has taken so many units to send.
    fn note(&mut self, now: Time, written: u64) {
        while (self.emitted.len() as u64) < written {
            self.emitted.push(now);
            let next = self.due + self.interval;
            // After a wait the interval begins anew: units never leave closer together.
            self.due = if next < now { now + self.interval } else { next };
        }
    }
}

impl Part for Sender {
    fn on_event(&mut self, now: Time, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { connection, .. } => {
                let opened = endpoint.connection(connection).map(|found| {
                    let flow = found.open_flow(self.config.clone());
                    flow.map_err(|error| error.to_string())
                });
                match opened {
                    Some(Ok(flow)) => (self.flow, self.due) = (Some((connection, flow)), now),
                    Some(Err(reason)) => self.outcome = Some(Err(reason)),
                    None => {}
                }
            }
            Event::FlowSettled { statistics, .. } => self.note(now, statistics.written),
            Event::Closed { closed, .. } => {
                let done = closed.reason == CloseReason::Complete;
                self.outcome = Some(if done { Ok(()) } else { Err(closed.sentence) });
            }
            _ => {}
        }
    }

    fn advance(&mut self, now: Time, endpoint: &mut Endpoint) {
        let Some((connection, flow)) = self.flow else { return };
        let Some(found) = endpoint.connection(connection) else { return };
        self.statistics = Some(found.statistics());
        if let Some(statistics) = found.send_statistics(now, flow) {
            self.note(now, statistics.written);
        }
        if self.next() > now {
            return;
        }
        match found.send(now, flow, Outgoing { data: self.data.clone(), ..Default::default() }) {
            Ok(_) => {
                self.offered += 1;
                if self.offered == self.count {
                    found.finish_flow(flow);
                }
            }
            Err(SendError::Full) => self.due = now + AGAIN,
            Err(error) => self.outcome = Some(Err(error.to_string())),
        }
    }

    fn next(&self) -> Time {
        let waits = self.emitted.len() as u64 == self.offered && self.offered < self.count;
        if self.flow.is_some() && waits && self.outcome.is_none() { self.due } else { Time::NEVER }
    }

    fn outcome(&self) -> Option<&Result<(), String>> {
        self.outcome.as_ref()
    }
}

fn send(arguments: &AdusSend) -> Result<(), Failure> {
    let destination = resolve(&arguments.to, "")?;
    let zeros = usize::try_from(arguments.size.get()).unwrap_or(usize::MAX);
    let config = FlowConfig { order: arguments.delivery.of_flow(), ..FlowConfig::default() };
    let begin = |now, endpoint: &mut Endpoint| {
        let token = Token::new(b"").map_err(environment)?;
        // What is sent are zeros.
        endpoint.connect(now, destination, "adus", &Trust::Anybody, token).map_err(environment)?;
        Ok(Sender {
            count: arguments.count,
            data: vec![0; zeros].into(),
            interval: arguments.interval,
            config,
            flow: None,
            due: Time::ZERO,
            offered: 0,
            emitted: Vec::new(),
            statistics: None,
            outcome: None,
        })
    };
    let (sender, origin) = carry(socket_for(destination)?, sending(arguments)?, begin)?;
    let units = sender.emitted.iter().enumerate();
    let units =
        units.map(|(number, at)| json!({ "adu": number, "emitted_ns": nanoseconds(origin, *at) }));
    let connection = sender.statistics.map(|all| {
        json!({
            "packets_sent": all.packets_sent,
            "packets_lost": all.packets_lost,
            "spurious": all.spurious_congestion_events,
            "acks": all.acks_received,
            "round_trip_s": all.round_trip.map(Duration::as_secs_f64),
        })
    });
    tell(&sender, units, connection.unwrap_or(Value::Null))
}

/// What the sender's end of the connection is asked for.
///
/// # Errors
/// Names the parameter of the congestion control that cannot be set.
fn sending(arguments: &AdusSend) -> Result<Configuration, Failure> {
    let congestion = arguments.congestion.chosen().map_err(Failure::Input)?;
    let mut configuration = Configuration { congestion, ..patient(Configuration::default()) };
    if let Some(every) = arguments.ack_every {
        configuration.acknowledge = AckRequest::Delayed;
        configuration.delayed_acks =
            DelayedAcks { every: Packets::new(every), within: NO_ACK_TIMER, gaps: false };
    }
    if arguments.uncontrolled {
        configuration.static_window = Some(NO_CONGESTION);
        configuration.pacing = None;
        // The least that the transport knows.
        configuration.packet_threshold = 3;
        // A unit is a packet.
        configuration.batch = Size::ZERO;
        configuration.discover_packet_size = false;
    }
    Ok(configuration)
}

/// A path that loses much must not end a connection.
fn patient(configuration: Configuration) -> Configuration {
    Configuration {
        idle_timeout: Duration::from_secs(30),
        handshake_timeout: Duration::from_secs(20),
        ..configuration
    }
}

/// A unit's times at the receiver.
struct Taken {
    number: u64,
    arrived: Time,
    delivered: Time,
    processed: Time,
}

/// The receiving end.
struct Receiver {
    processing: Duration,
    flow: Option<(ConnectionId, FlowId)>,
    /// Until when the application is busy.
    busy: Option<Time>,
    taken: Vec<Taken>,
    ended: bool,
    outcome: Option<Result<(), String>>,
}

impl Part for Receiver {
    fn on_event(&mut self, _: Time, _: &mut Endpoint, event: Event) {
        match event {
            Event::FlowOpened { connection, flow, .. } if self.flow.is_none() => {
                self.flow = Some((connection, flow));
            }
            Event::FlowEnded { .. } => self.ended = true,
            Event::Closed { connection, closed }
                if self.outcome.is_none()
                    && self.flow.is_some_and(|(ours, _)| ours == connection) =>
            {
                self.outcome = Some(Err(closed.sentence));
            }
            _ => {}
        }
    }

    fn advance(&mut self, now: Time, endpoint: &mut Endpoint) {
        let Some((connection, flow)) = self.flow else { return };
        let Some(found) = endpoint.connection(connection) else { return };
        while self.busy.is_none_or(|until| until <= now) {
            self.busy = None;
            match found.receive(flow) {
                Some(Delivery::Unit(unit)) => {
                    let (number, arrived, processed) =
                        (unit.id, unit.arrived, now + self.processing);
                    self.taken.push(Taken { number, arrived, delivered: now, processed });
                    self.busy = Some(processed);
                }
                // Nothing has a deadline.
                Some(Delivery::Dropped(_)) => {}
                None => break,
            }
        }
        if self.ended && self.busy.is_none() && self.outcome.is_none() {
            found.close_with(now, CloseReason::Complete, "all is processed");
            self.outcome = Some(Ok(()));
        }
    }

    fn next(&self) -> Time {
        self.busy.unwrap_or(Time::NEVER)
    }

    fn outcome(&self) -> Option<&Result<(), String>> {
        self.outcome.as_ref()
    }
}

fn receive(arguments: &AdusReceive) -> Result<(), Failure> {
    let socket = socket_at(&arguments.listen, "--listen", USUAL, SocketOptions::default())?;
    let mut configuration = patient(Configuration::default());
    if let Some(window) = arguments.window {
        configuration.limits.bytes = window.get();
    }
    let begin = |_, endpoint: &mut Endpoint| {
        let identity = Identity::self_made(&["adus"]).map_err(environment)?;
        let token = Token::new(b"").map_err(environment)?;
        endpoint.listen(&identity, token).map_err(environment)?;
        let processing = arguments.processing;
        let (flow, busy, taken) = (None, None, Vec::new());
        Ok(Receiver { processing, flow, busy, taken, ended: false, outcome: None })
    };
    let (receiver, origin) = carry(socket, configuration, begin)?;
    let units = receiver.taken.iter().map(|unit| {
        json!({
            "adu": unit.number,
            "arrived_ns": nanoseconds(origin, unit.arrived),
            "delivered_ns": nanoseconds(origin, unit.delivered),
            "processed_ns": nanoseconds(origin, unit.processed),
        })
    });
    tell(&receiver, units, Value::Null)
}
