//! `ontempo adus`: application data units over the endpoint, and a log of each one's times.
//!
//! The experiment of rr3216 (appendix): a sender of numbered units and a receiver whose application
//! processes each for a fixed time. As in the paper, the protocol has priority over the
//! application, which uses no CPU time: it is a timer on the protocol's thread. Times are of the
//! wall clock, so that both ends can be compared on one machine.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration as Wall;

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Bytes as Size, Duration, Packets, Time};
use ontempo_mechanisms::congestion::CongestionName;
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

use crate::access::{check_admission, shared_token};
use crate::address::{Greeting, answering, socket_at, socket_for};
use crate::arguments::{AdusCommand, AdusReceive, AdusSend};
use crate::failure::{Failure, environment};
use crate::output::emit;
use crate::signals::stop_flag;

/// The port that error messages suggest.
const EXAMPLE_PORT: u16 = 4435;

/// Time for the closing packets of a connection.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Interval at which the end is checked.
const POLL_INTERVAL: Wall = Wall::from_millis(20);

/// Delay before a unit is offered again to a full transport.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Longer than any RTT: the transport limits it to one RTT.
const NO_ACK_TIMER: Duration = Duration::from_secs(60);

/// More packets than any receive window allows in flight.
const NO_CONGESTION: Packets = Packets::new(4_096);

pub(crate) fn adus(command: &AdusCommand) -> Result<(), Failure> {
    match command {
        AdusCommand::Send(arguments) => send(arguments),
        AdusCommand::Receive(arguments) => receive(arguments),
    }
}

/// The application at one end of the connection.
trait Application: Send + 'static {
    fn on_event(&mut self, now: Time, endpoint: &mut Endpoint, event: Event);
    /// Handles timers that are due.
    fn advance(&mut self, now: Time, endpoint: &mut Endpoint);
    /// The time of the next timer.
    fn next(&self) -> Time;
    /// The result; `None` while running.
    fn outcome(&self) -> Option<&Result<(), String>>;
}

/// An endpoint and its application, run by the UDP driver.
struct EndpointDriver<P> {
    endpoint: Endpoint,
    application: P,
    wake: Time,
    /// Time at which the thread ends.
    ends: Time,
}

impl<P: Application> EndpointDriver<P> {
    fn advance(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            self.application.on_event(now, &mut self.endpoint, event);
        }
        self.application.advance(now, &mut self.endpoint);
        if self.application.outcome().is_some() && self.ends == Time::NEVER {
            self.ends = now + CLOSE_TIME;
        }
    }
}

impl<P: Application> Protocol for EndpointDriver<P> {
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
        self.wake.min(self.ends).min(self.application.next())
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

/// Runs one end until it is done or stopped; returns it with the wall clock time (ns) of
/// `Time::ZERO`.
fn run<P: Application>(
    socket: Socket,
    configuration: Configuration,
    begin: impl FnOnce(Time, &mut Endpoint) -> Result<P, Failure>,
) -> Result<(P, u64), Failure> {
    let stopped = stop_flag()?;
    let clock = Clock::new();
    let origin = Clock::wall();
    let mut seed = [0; 32];
    seed.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&random().to_ne_bytes()));
    let mut endpoint = Endpoint::new(configuration, seed);
    let application = begin(clock.now(), &mut endpoint)?;
    let endpoint_driver =
        EndpointDriver { endpoint, application, wake: Time::NEVER, ends: Time::NEVER };
    let driver = Driver::spawn(socket, endpoint_driver, clock, DriverOptions::default());
    let driver = driver.map_err(environment)?;
    while !driver.has_ended() && !stopped.load(Ordering::Relaxed) {
        sleep(POLL_INTERVAL);
    }
    let endpoint_driver = driver.end().map_err(environment)?;
    Ok((endpoint_driver.application, origin))
}

/// Prints the times of each unit, then the result.
fn print_log<P: Application>(
    application: &P,
    units: impl Iterator<Item = Value>,
    more: Value,
) -> Result<(), Failure> {
    let mut lines: Vec<_> = units.map(|unit| unit.to_string()).collect();
    let complete = matches!(application.outcome(), Some(Ok(())));
    lines.push(json!({ "event": "ended", "complete": complete, "connection": more }).to_string());
    emit(&lines.join("\n"))?;
    match application.outcome() {
        Some(Err(reason)) => Err(environment(reason)),
        // If stopped early, the last line has `complete: false`.
        Some(Ok(())) | None => Ok(()),
    }
}

fn nanoseconds(origin: u64, at: Time) -> u64 {
    origin + at.since(Time::ZERO).as_nanos()
}

/// The sender's application.
struct Sender {
    count: u64,
    data: Bytes,
    interval: Duration,
    config: FlowConfig,
    flow: Option<(ConnectionId, FlowId)>,
    /// The earliest time of the next unit.
    due: Time,
    /// Units offered to the transport.
    offered: u64,
    /// When the transport put each unit into a packet.
    emitted: Vec<Time>,
    /// The latest statistics of the connection.
    statistics: Option<ConnectionStatistics>,
    outcome: Option<Result<(), String>>,
}

impl Sender {
    /// Records the send time of units, of which the transport has sent `written`.
    fn on_written(&mut self, now: Time, written: u64) {
        while (self.emitted.len() as u64) < written {
            self.emitted.push(now);
            let next = self.due + self.interval;
            // After a wait the interval starts anew: units are never closer together.
            self.due = if next < now { now + self.interval } else { next };
        }
    }
}

impl Application for Sender {
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
            Event::FlowSettled { statistics, .. } => self.on_written(now, statistics.written),
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
            self.on_written(now, statistics.written);
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
            Err(SendError::Full) => self.due = now + RETRY_INTERVAL,
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
    let destination = answering(&arguments.to, "", &Greeting::quic())?;
    let zeros = usize::try_from(arguments.size.get()).unwrap_or(usize::MAX);
    let config = FlowConfig { order: arguments.delivery.of_flow(), ..FlowConfig::default() };
    let token = shared_token(&arguments.credentials)?;
    let begin = |now, endpoint: &mut Endpoint| {
        // Without verification: the payload is only zeros.
        endpoint.connect(now, destination, "adus", &Trust::Insecure, token).map_err(environment)?;
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
    let (sender, origin) = run(socket_for(destination)?, sender_configuration(arguments)?, begin)?;
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
    print_log(&sender, units, connection.unwrap_or(Value::Null))
}

/// The sender's transport configuration.
///
/// # Errors
/// A parameter of the congestion control is unknown or out of range; the error names it.
fn sender_configuration(arguments: &AdusSend) -> Result<Configuration, Failure> {
    let congestion = arguments.congestion.or(CongestionName::Pert).map_err(Failure::Input)?;
    let mut configuration =
        Configuration { congestion, ..with_long_timeouts(Configuration::default()) };
    if let Some(every) = arguments.ack_every {
        configuration.acknowledge = AckRequest::Delayed;
        configuration.delayed_acks =
            DelayedAcks { every: Packets::new(every), within: NO_ACK_TIMER, gaps: false };
    }
    if arguments.uncontrolled {
        configuration.static_window = Some(NO_CONGESTION);
        configuration.pacing = None;
        // As near to the paper's "a later one" as the transport comes: what RFC 9002 recommends.
        configuration.packet_threshold = 3;
        configuration.time_threshold = 9.0 / 8.0;
        // One unit per packet.
        configuration.batch = Size::ZERO;
        configuration.discover_packet_size = false;
    }
    Ok(configuration)
}

/// Long timeouts, so that heavy loss does not end the connection.
fn with_long_timeouts(configuration: Configuration) -> Configuration {
    Configuration {
        idle_timeout: Duration::from_secs(30),
        handshake_timeout: Duration::from_secs(20),
        ..configuration
    }
}

/// A unit's times at the receiver.
struct UnitTimes {
    number: u64,
    arrived: Time,
    delivered: Time,
    processed: Time,
}

/// The receiver's application.
struct Receiver {
    processing: Duration,
    flow: Option<(ConnectionId, FlowId)>,
    /// The application is busy until this time.
    busy: Option<Time>,
    units: Vec<UnitTimes>,
    ended: bool,
    outcome: Option<Result<(), String>>,
}

impl Application for Receiver {
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
                    self.units.push(UnitTimes { number, arrived, delivered: now, processed });
                    self.busy = Some(processed);
                }
                // Cannot happen: the units have no deadline.
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
    let socket = socket_at(&arguments.listen, "--listen", EXAMPLE_PORT, SocketOptions::default())?;
    let mut configuration = with_long_timeouts(Configuration::default());
    if let Some(window) = arguments.window {
        configuration.limits.bytes = window.get();
    }
    let token =
        if arguments.anyone { Token::anyone() } else { shared_token(&arguments.credentials)? };
    if token == Token::anyone() {
        let local = socket.local_address().map_err(environment)?;
        check_admission(local, arguments.anyone, "give --token-file, or say --anyone")?;
    }
    let begin = |_, endpoint: &mut Endpoint| {
        let identity = Identity::self_signed(&["adus"]).map_err(environment)?;
        endpoint.listen(&identity, token).map_err(environment)?;
        let processing = arguments.processing;
        let (flow, busy, units) = (None, None, Vec::new());
        Ok(Receiver { processing, flow, busy, units, ended: false, outcome: None })
    };
    let (receiver, origin) = run(socket, configuration, begin)?;
    let units = receiver.units.iter().map(|unit| {
        json!({
            "adu": unit.number,
            "arrived_ns": nanoseconds(origin, unit.arrived),
            "delivered_ns": nanoseconds(origin, unit.delivered),
            "processed_ns": nanoseconds(origin, unit.processed),
        })
    });
    print_log(&receiver, units, Value::Null)
}
