//! Both ends of a stream in virtual time: what [`Sender`](crate::Sender) and
//! [`Receiver`](crate::Receiver) do, without sockets, threads and a clock.
//!
//! Packetizer, endpoints, messages, reports and depacketizer are those of the two programs; the
//! handshake, reconnection and its pauses are theirs, too.

mod paths;
mod side;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_media::{
    Depacketizer, DepacketizerOptions, Packetizer, PacketizerOptions, RestoredDatagram, Unit,
};
use ontempo_transport::{
    ConnectionId, CustomLaw, Delivery, DeliveryOrder, EcnCodepoint, Event, FlowConfig, FlowId,
    Identity, Outgoing, Reliability, Source, Token, Trust,
};

use crate::attempts::Attempts;
use crate::latency;
use crate::message::{self, Content, Label, REPORTS, Report};
use crate::sink::{is_usable, order_of_units, release};
pub use paths::{PathStream, PathStreamOptions};
use side::{RECEIVER, Side, sender};

/// Memory of queued units beyond which a live sender drops some: the command's default.
const BACKLOG: usize = 8_000_000;

/// Units whose numbers in the flow are stored, to translate dependencies.
const MAX_NUMBERS: usize = 4096;

/// From one report of the receiver to the next.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How the stream is sent.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Deadline of units, and delay from the source to the receiver's output; `None`: by the round
    /// trip that the first connection measures, as the sender's.
    pub latency: Option<Duration>,
    /// How much longer than the latency units live, and the receiver waits for what is missing.
    pub grace: Duration,
    /// The order in which units are delivered.
    pub order: DeliveryOrder,
    /// Whether, and for how long, lost packets are sent again.
    pub reliability: Reliability,
    /// Congestion control of the sender.
    pub congestion: ontempo_transport::Congestion,
    /// A controller of the sender's in place of `congestion`; the receiver has the default one.
    pub custom: Option<CustomLaw>,
}

/// Why a stream cannot be set up: its certificate, or its trust.
#[derive(Debug)]
pub struct SetupError(String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SetupError {}

/// An end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `ontempo send`.
    Sender,
    /// `ontempo receive`.
    Receiver,
}

/// A datagram that an end sends.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// UDP payload.
    pub data: Vec<u8>,
    /// ECN-capable.
    pub is_ecn_capable: bool,
    /// Of the receiver's: to which address of the sender, as the number of changes before it.
    pub to: u8,
}

/// A unit that waits for its connection or for room in its flow.
struct Waiting {
    unit: Unit,
    queued: Time,
}

/// The sender's connection.
#[derive(Default)]
struct Sending {
    connection: Option<ConnectionId>,
    flow: Option<FlowId>,
    /// Since when the round trip is measured, to choose the latency.
    measuring: Option<Time>,
    latency: Option<Duration>,
    /// Numbers of units in the flow, by their numbers in the stream.
    numbers: BTreeMap<u64, u64>,
    /// Attempts to connect.
    attempts: Option<Attempts<ConnectionId>>,
    round_trip: Option<Duration>,
    connections: u64,
}

/// The receiver's connection: the last that opened a flow.
#[derive(Default)]
struct Receiving {
    stream: Option<(ConnectionId, FlowId)>,
    reports: Option<FlowId>,
    report_due: Option<Time>,
    report: Report,
    has_begun: bool,
}

/// Both ends of a stream.
///
/// A driver calls [`push`](Self::push) and [`receive`](Self::receive), and
/// [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout); after each, it
/// polls [`poll_transmit`](Self::poll_transmit) and [`poll_restored`](Self::poll_restored) until
/// they have nothing more. Time must not go back.
pub struct Stream {
    options: StreamOptions,
    label: Label,
    trust: Trust,
    sides: [Side; 2],
    sending: Sending,
    receiving: Receiving,
    packetizer: Packetizer,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    depacketizer: Depacketizer,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Stream {
    /// Both programs, started at `now`: the receiver listens, the sender connects. All random choices
    /// derive from `seed`, but for those of TLS, on which neither sizes nor times depend.
    ///
    /// # Errors
    /// The receiver's certificate cannot be made.
    pub fn new(now: Time, options: StreamOptions, seed: u64) -> Result<Self, SetupError> {
        let failed = |error: &dyn fmt::Display| SetupError(error.to_string());
        let identity = Identity::self_signed(&["receiver"]).map_err(|error| failed(&error))?;
        let trust = Trust::Fingerprint(identity.fingerprint());
        let mut sides = [("sender", options.custom.clone()), ("receiver", None)]
            .map(|(name, custom)| Side::new(&options, seed, name, custom));
        let listening = sides[1].endpoint.listen(&identity, Token::anyone());
        listening.map_err(|error| failed(&error))?;
        let mut random = RandomStream::new(seed, "session");
        let session = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let least = options.latency.unwrap_or(latency::LEAST);
        let label = Label::of(session, least, options.grace);
        let config = FlowConfig {
            order: options.order,
            reliability: options.reliability,
            label: String::new(),
        };
        let release = release(&config, (least, options.grace), true);
        let sending = Sending { latency: options.latency, ..Sending::default() };
        let mut stream = Self {
            options,
            label,
            trust,
            sides,
            sending,
            receiving: Receiving::default(),
            packetizer: Packetizer::new(PacketizerOptions::default()),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            depacketizer: Depacketizer::new(DepacketizerOptions {
                release,
                ..DepacketizerOptions::default()
            }),
        };
        stream.connect(now);
        stream.work(now);
        Ok(stream)
    }

    /// A datagram of the encoder reaches the sender.
    pub fn push(&mut self, now: Time, datagram: &[u8]) {
        self.packetizer.push(now, datagram);
        self.work(now);
    }

    /// A datagram reaches an end. `is_marked`: with CE. `changes`: how often the sender's address had
    /// changed when it sent the datagram, 0 to 200; of no meaning where it is the sender that receives.
    /// The driver drops what the receiver has sent to an address that is no longer the sender's.
    pub fn receive(
        &mut self,
        now: Time,
        (end, changes): (End, u8),
        datagram: Vec<u8>,
        is_marked: bool,
    ) {
        let (side, from) = match end {
            End::Sender => (0, RECEIVER),
            End::Receiver => (1, sender(changes)),
        };
        let ecn = if is_marked { EcnCodepoint::Ce } else { EcnCodepoint::Ect0 };
        let source = Source { remote: from, local: None, ecn: Some(ecn) };
        self.sides[side].touch().handle(now, source, BytesMut::from(Bytes::from(datagram)));
        self.work(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called; [`Time::NEVER`] if not at all.
    pub fn next_timeout(&self) -> Time {
        [
            self.sides[0].wake,
            self.sides[1].wake,
            self.packetizer.next_timeout(),
            self.depacketizer.next_timeout(),
            self.sending.attempts.as_ref().map_or(Time::NEVER, Attempts::next_timeout),
            self.sending.measuring.map_or(Time::NEVER, |since| since + latency::MEASURED_FOR),
            self.receiving.report_due.unwrap_or(Time::NEVER),
        ]
        .into_iter()
        .min()
        .unwrap_or(Time::NEVER)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        for side in &mut self.sides {
            if side.wake <= now {
                side.touch().handle_timeout(now);
            }
        }
        self.go_on_connecting(now);
        self.packetizer.handle_timeout(now);
        self.report(now);
        self.work(now);
    }

    /// The next datagram that an end sends.
    pub fn poll_transmit(&mut self) -> Option<(End, Datagram)> {
        let [sender, receiver] = &mut self.sides;
        if let Some(datagram) = sender.out.pop_front() {
            return Some((End::Sender, datagram));
        }
        Some((End::Receiver, receiver.out.pop_front()?))
    }

    /// The next datagram that the receiver writes.
    pub fn poll_restored(&mut self, now: Time) -> Option<RestoredDatagram> {
        loop {
            let restored = self.depacketizer.poll(now)?;
            let report = &mut self.receiving.report;
            if restored.is_whole {
                report.whole_datagrams += 1;
            } else if restored.data.is_empty() {
                report.missing_datagrams += 1;
            } else {
                report.damaged_datagrams += 1;
            }
            if is_usable(&restored) {
                return Some(restored);
            }
        }
    }

    /// The latency of the stream; `None` until it is fixed.
    pub fn latency(&self) -> Option<Duration> {
        self.sending.latency
    }

    fn attempt(&mut self, now: Time) -> Option<ConnectionId> {
        let sender = self.sides[0].touch();
        sender.connect(now, RECEIVER, "receiver", &self.trust, Token::anyone()).ok()
    }

    /// The stream begins, or its connection is lost.
    fn connect(&mut self, now: Time) {
        (self.sending.connection, self.sending.flow) = (None, None);
        self.sending.measuring = None;
        self.sending.numbers.clear();
        self.sending.attempts = Some(Attempts::new(now, self.sending.round_trip));
        self.go_on_connecting(now);
    }

    /// Begins and gives up attempts to connect as the sender does.
    fn go_on_connecting(&mut self, now: Time) {
        let Some(mut attempts) = self.sending.attempts.take() else { return };
        for given_up in attempts.given_up(now) {
            self.close(now, given_up);
        }
        if attempts.is_due(now) {
            let begun = self.attempt(now);
            attempts.begun(now, begun);
        }
        self.sending.attempts = Some(attempts);
    }

    /// An attempt is answered: the others are given up.
    fn answered(&mut self, now: Time, connection: ConnectionId) {
        let Some(mut attempts) = self.sending.attempts.take() else { return };
        if attempts.take(|other| *other == connection).is_none() {
            self.sending.attempts = Some(attempts);
            return;
        }
        attempts.into_all().for_each(|other| self.close(now, other));
        self.sending.connection = Some(connection);
    }

    fn close(&mut self, now: Time, connection: ConnectionId) {
        if let Some(connection) = self.sides[0].touch().connection(connection) {
            connection.close(now, "");
        }
    }

    /// Handles events, and moves units and datagrams as far as they go.
    fn work(&mut self, now: Time) {
        while let Some(unit) = self.packetizer.poll() {
            self.queue(now, unit);
        }
        // Events may make datagrams, and datagrams events.
        let mut touched = self.sides.each_ref().map(|side| side.is_touched);
        loop {
            if touched[0] {
                self.sender_events(now);
            }
            if touched[1] {
                self.receiver_events(now);
            }
            self.open_measured(now);
            self.send_waiting(now);
            touched = self.sides.each_ref().map(|side| side.is_touched);
            if touched == [false; 2] {
                return;
            }
            self.sides.iter_mut().filter(|side| side.is_touched).for_each(|side| side.flush(now));
        }
    }

    /// Queues a unit; where there is no room, the oldest of the least important go.
    fn queue(&mut self, now: Time, unit: Unit) {
        self.waiting_bytes += unit.memory();
        self.waiting.push_back(Waiting { unit, queued: now });
        while self.waiting_bytes > BACKLOG {
            let least = self.waiting.iter().enumerate();
            let least = least.min_by_key(|(place, waiting)| (waiting.unit.kind, *place));
            let Some(place) = least.map(|(place, _)| place) else { return };
            if let Some(dropped) = self.waiting.remove(place) {
                self.waiting_bytes -= dropped.unit.memory();
            }
        }
    }

    fn sender_events(&mut self, now: Time) {
        while let Some(event) = self.sides[0].endpoint.poll_event() {
            match event {
                // The sender does not wait for the receiver's answer.
                Event::Early { connection } if self.is_timed() => {
                    self.answered(now, connection);
                    if Some(connection) == self.sending.connection {
                        self.fix_latency(connection);
                        self.open_flow(now, connection);
                    }
                }
                Event::Connected { connection, .. } => {
                    self.answered(now, connection);
                    let is_new = self.sending.flow.is_none();
                    if Some(connection) == self.sending.connection && is_new {
                        match self.sending.latency {
                            Some(_) => self.open_flow(now, connection),
                            None => self.sending.measuring = Some(now),
                        }
                    }
                }
                Event::FlowOpened { connection, flow, .. }
                | Event::Readable { connection, flow } => {
                    // Reports; nothing here reads them.
                    if let Some(connection) = self.sides[0].touch().connection(connection) {
                        while connection.receive(flow).is_some() {}
                    }
                }
                Event::Closed { connection, .. } if Some(connection) == self.sending.connection => {
                    self.connect(now);
                }
                Event::Closed { connection, .. } => {
                    let attempts = self.sending.attempts.as_mut();
                    attempts.and_then(|all| all.take(|one| *one == connection));
                }
                _ => {}
            }
        }
    }

    /// Whether units have deadlines, and are sent before the receiver has answered, as [`Sender`](crate::Sender)
    /// does.
    fn is_timed(&self) -> bool {
        self.options.reliability != Reliability::Full
    }

    /// Fixes the latency by what the connection has measured, unless it is.
    fn fix_latency(&mut self, connection: ConnectionId) {
        if self.sending.latency.is_none() {
            let connection = self.sides[0].endpoint.connection(connection);
            let statistics = connection.map(|connection| connection.statistics());
            self.sending.latency = Some(latency::of(statistics.as_ref()).latency);
        }
    }

    /// Fixes the latency and opens the flow as soon as the round trip is known.
    fn open_measured(&mut self, now: Time) {
        let (Some(id), Some(since)) = (self.sending.connection, self.sending.measuring) else {
            return;
        };
        let Some(connection) = self.sides[0].endpoint.connection(id) else { return };
        let statistics = connection.statistics();
        if self.is_timed() && !latency::is_measured(false, &statistics, now.since(since)) {
            return;
        }
        self.sending.measuring = None;
        self.fix_latency(id);
        self.open_flow(now, id);
    }

    fn open_flow(&mut self, now: Time, connection: ConnectionId) {
        let latency = self.sending.latency.unwrap_or(self.label.latency);
        let before = self.sending.connections;
        let label = Label { before, latency, opened: now, ..self.label }.to_string();
        let StreamOptions { order, reliability, .. } = self.options;
        let order = order_of_units(reliability, order);
        let config = FlowConfig { order, reliability, label };
        let connection = self.sides[0].touch().connection(connection);
        self.sending.flow = connection.and_then(|connection| connection.open_flow(config).ok());
        self.sending.connections += 1;
    }

    fn send_waiting(&mut self, now: Time) {
        let (Some(id), Some(flow)) = (self.sending.connection, self.sending.flow) else { return };
        let Side { endpoint, is_touched, .. } = &mut self.sides[0];
        let Some(connection) = endpoint.connection(id) else { return };
        if !self.waiting.is_empty() {
            self.sending.round_trip = connection.round_trip().or(self.sending.round_trip);
        }
        while let Some(waiting) = self.waiting.front() {
            let unit = &waiting.unit;
            let is_reliable = self.options.reliability == Reliability::Full;
            let age = now.since(waiting.queued);
            let latency = self.sending.latency.unwrap_or(self.label.latency);
            let lifetime = latency::lifetime(self.options.reliability, latency, self.options.grace)
                .saturating_sub(age);
            let numbers = &self.sending.numbers;
            let depends_on =
                unit.dependencies.iter().filter_map(|on| numbers.get(on).copied()).collect();
            let outgoing = Outgoing {
                data: message::media(unit),
                deadline: (!is_reliable).then(|| now + lifetime),
                priority: unit.kind.priority(),
                depends_on,
                continues: unit.continues.and_then(|on| numbers.get(&on).copied()),
            };
            let Ok(number) = connection.send(now, flow, outgoing) else { return };
            *is_touched = true;
            self.sending.numbers.insert(unit.id, number);
            if self.sending.numbers.len() > MAX_NUMBERS {
                self.sending.numbers.pop_first();
            }
            self.waiting_bytes -= unit.memory();
            self.waiting.pop_front();
        }
    }

    fn receiver_events(&mut self, now: Time) {
        while let Some(event) = self.sides[1].endpoint.poll_event() {
            match event {
                Event::FlowOpened { connection, flow, config } => {
                    self.receiving.stream = Some((connection, flow));
                    self.begin_receiving(now, &config);
                    let config = FlowConfig { label: REPORTS.to_owned(), ..FlowConfig::default() };
                    let opened = self.sides[1].touch().connection(connection);
                    self.receiving.reports =
                        opened.and_then(|connection| connection.open_flow(config).ok());
                    self.receiving.report_due = Some(now + REPORT_EVERY);
                }
                Event::Closed { connection, .. }
                    if self.receiving.stream.is_some_and(|(id, _)| id == connection) =>
                {
                    (self.receiving.stream, self.receiving.report_due) = (None, None);
                }
                _ => {}
            }
        }
        let Some((id, flow)) = self.receiving.stream else { return };
        let Side { endpoint, is_touched, .. } = &mut self.sides[1];
        let Some(connection) = endpoint.connection(id) else { return };
        while let Some(delivery) = connection.receive(flow) {
            *is_touched = true;
            let Delivery::Unit(unit) = delivery else { continue };
            match message::read(unit.id, &unit.data) {
                Ok(Content::Unit(unit)) => self.depacketizer.push(now, &unit),
                Ok(Content::Gap(datagrams)) => {
                    datagrams.into_iter().for_each(|one| self.depacketizer.abandon(one));
                }
                Ok(Content::End { .. }) | Err(_) => {}
            }
        }
    }

    /// The receiver learns the latency from the label of the first flow.
    fn begin_receiving(&mut self, now: Time, config: &FlowConfig) {
        let is_first = !std::mem::replace(&mut self.receiving.has_begun, true);
        let Some(label) = config.label.parse::<Label>().ok().filter(|_| is_first) else { return };
        self.depacketizer = Depacketizer::new(DepacketizerOptions {
            release: release(config, (label.latency, label.grace), true),
            ..DepacketizerOptions::default()
        });
        self.depacketizer.note_transit(now, label.opened);
    }

    fn report(&mut self, now: Time) {
        if self.receiving.report_due.is_none_or(|due| due > now) {
            return;
        }
        self.receiving.report_due = Some(now + REPORT_EVERY);
        let (Some((id, stream)), Some(flow)) = (self.receiving.stream, self.receiving.reports)
        else {
            return;
        };
        let Some(connection) = self.sides[1].touch().connection(id) else { return };
        let mut report = self.receiving.report;
        if let Some(statistics) = connection.receive_statistics(now, stream) {
            report = Report {
                units: statistics.units,
                bytes: statistics.bytes,
                late_units: statistics.late,
                dropped_units: statistics.dropped,
                mean_delay_s: statistics.delay.mean().as_secs_f64(),
                max_delay_s: statistics.delay.max.as_secs_f64(),
                ..report
            };
        }
        if let Ok(text) = serde_json::to_vec(&report) {
            let unit = Outgoing { data: Bytes::from(text), ..Outgoing::default() };
            // A full queue: the next report has the sums, too.
            let _ = connection.send(now, flow, unit);
        }
    }
}
