//! A stream over several paths in virtual time: both ends, with what the programs decide about paths.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Duration, RandomStream, Time};
use ontempo_media::{
    Depacketizer, DepacketizerOptions, Packetizer, PacketizerOptions, RestoredDatagram, Unit,
};
use ontempo_transport::{
    Configuration, Congestion, ConnectionId, Delivery, DeliveryOrder, EcnCodepoint, Event,
    FlowConfig, FlowId, Identity, Outgoing, Reliability, Source, Token, Trust,
};

use super::side::{RECEIVER, Side, sender};
use super::{Datagram, End, MAX_NUMBERS, SetupError};
use crate::attempts::{Attempts, PLACES};
use crate::latency;
use crate::message::{self, Content, Label, Report};
use crate::paths::{
    Group, Joined, MAX_PATHS, PathEvent, PathFigures, PathLabel, PathMode, STEP, Sample,
    configuration, numbered,
};
use crate::sink::{is_usable, release};

/// How the stream is sent.
#[derive(Clone, Copy, Debug)]
pub struct PathStreamOptions {
    /// As [`StreamOptions::latency`](super::StreamOptions::latency).
    pub latency: Option<Duration>,
    /// As [`StreamOptions::grace`](super::StreamOptions::grace).
    pub grace: Duration,
    /// Whether, and for how long, lost packets are sent again.
    pub reliability: Reliability,
    /// Congestion control of each path.
    pub congestion: Congestion,
    /// How paths are used.
    pub mode: PathMode,
    /// Paths, 1 to [`MAX_PATHS`].
    pub paths: usize,
}

/// A message that waits, or is kept.
#[derive(Clone)]
struct Queued {
    id: u64,
    priority: u8,
    dependencies: Vec<u64>,
    continues: Option<u64>,
    data: Bytes,
    queued: Time,
}

/// The connection of a path at the sender.
#[derive(Default)]
struct Dial {
    connection: Option<ConnectionId>,
    /// Handshakes that measure the round trip: their answers were not repeated.
    early: Vec<ConnectionId>,
    flow: Option<FlowId>,
    attempts: Option<Attempts<ConnectionId>>,
    /// Numbers of units in the flow, by their numbers in the stream.
    numbers: BTreeMap<u64, u64>,
}

/// Both ends of a stream over several paths; driven as [`Stream`](super::Stream) is.
pub struct PathStream {
    options: PathStreamOptions,
    label: Label,
    trust: Trust,
    senders: Vec<Side>,
    receiver: Side,
    dials: Vec<Dial>,
    group: Group<Queued>,
    look_at: Time,
    /// Since when round trips are measured, to choose the latency.
    measuring: Option<Time>,
    latency: Option<Duration>,
    packetizer: Packetizer,
    waiting: VecDeque<Queued>,
    flows: Vec<(ConnectionId, FlowId)>,
    joined: Joined,
    has_begun: bool,
    depacketizer: Depacketizer,
    events: VecDeque<PathEvent>,
}

impl fmt::Debug for PathStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathStream").field("options", &self.options).finish_non_exhaustive()
    }
}

impl PathStream {
    /// Both programs, started at `now`.
    ///
    /// # Errors
    /// As of [`Stream::new`](super::Stream::new).
    pub fn new(now: Time, options: PathStreamOptions, seed: u64) -> Result<Self, SetupError> {
        let failed = |error: &dyn fmt::Display| SetupError(error.to_string());
        let identity = Identity::self_signed(&["receiver"]).map_err(|error| failed(&error))?;
        let options = PathStreamOptions { paths: options.paths.clamp(1, MAX_PATHS), ..options };
        let of_sender = Configuration {
            congestion: options.congestion,
            connections: PLACES,
            ..configuration(options.mode, crate::configuration())
        };
        let mut receiver = Side::with(crate::configuration(), seed, "receiver");
        receiver.endpoint.listen(&identity, Token::anyone()).map_err(|error| failed(&error))?;
        let side = |path| Side::with(of_sender.clone(), seed, &format!("sender {path}"));
        let mut random = RandomStream::new(seed, "session");
        let session = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let least = options.latency.unwrap_or(latency::LEAST);
        let dials = (0..options.paths)
            .map(|_| Dial { attempts: Some(Attempts::new(now, None)), ..Dial::default() });
        let mut stream = Self {
            options,
            label: Label::of(session, least, options.grace),
            trust: Trust::Fingerprint(identity.fingerprint()),
            senders: (0..options.paths).map(side).collect(),
            receiver,
            dials: dials.collect(),
            group: Group::new(options.mode, options.paths),
            look_at: now,
            measuring: None,
            latency: options.latency,
            packetizer: Packetizer::new(PacketizerOptions::default()),
            waiting: VecDeque::new(),
            flows: Vec::new(),
            joined: Joined::new(),
            has_begun: false,
            depacketizer: Depacketizer::new(DepacketizerOptions::default()),
            events: VecDeque::new(),
        };
        stream.note_latency();
        stream.handle_timeout(now);
        Ok(stream)
    }

    fn note_latency(&mut self) {
        let is_timed = self.options.reliability != Reliability::Full;
        self.group.set_latency(self.latency.filter(|_| is_timed));
    }

    /// A datagram of the encoder reaches the sender.
    pub fn push(&mut self, now: Time, datagram: &[u8]) {
        self.packetizer.push(now, datagram);
        self.work(now);
    }

    /// A datagram reaches an end over a path.
    pub fn receive(&mut self, now: Time, (end, path): (End, usize), datagram: Vec<u8>) {
        let data = BytesMut::from(Bytes::from(datagram));
        let ecn = Some(EcnCodepoint::Ect0);
        let (side, remote) = match end {
            End::Sender => (&mut self.senders[path], RECEIVER),
            End::Receiver => (&mut self.receiver, sender(path as u8)),
        };
        side.touch().handle(now, Source { remote, local: None, ecn }, data);
        self.work(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn next_timeout(&self) -> Time {
        let sides = self.senders.iter().map(|side| side.wake);
        let attempts = self.dials.iter().filter_map(|dial| dial.attempts.as_ref());
        let others = [
            self.receiver.wake,
            self.packetizer.next_timeout(),
            self.depacketizer.next_timeout(),
            self.look_at,
        ];
        sides.chain(attempts.map(Attempts::next_timeout)).chain(others).fold(Time::NEVER, Time::min)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        for side in self.senders.iter_mut().chain([&mut self.receiver]) {
            if side.wake <= now {
                side.touch().handle_timeout(now);
            }
        }
        for path in 0..self.dials.len() {
            self.try_path(now, path);
        }
        self.packetizer.handle_timeout(now);
        if self.look_at <= now {
            self.look_at = now + STEP;
            self.look(now);
        }
        self.work(now);
    }

    /// The next datagram that an end sends, and over which path.
    pub fn poll_transmit(&mut self) -> Option<(End, usize, Datagram)> {
        for (path, side) in self.senders.iter_mut().enumerate() {
            if let Some(datagram) = side.out.pop_front() {
                return Some((End::Sender, path, datagram));
            }
        }
        let datagram = self.receiver.out.pop_front()?;
        Some((End::Receiver, usize::from(datagram.to), datagram))
    }

    /// The next datagram that the receiver writes.
    pub fn poll_restored(&mut self, now: Time) -> Option<RestoredDatagram> {
        std::iter::from_fn(|| self.depacketizer.poll(now)).find(is_usable)
    }

    /// What has happened to a path.
    pub fn poll_event(&mut self) -> Option<PathEvent> {
        self.events.pop_front()
    }

    /// The figures of a path.
    pub fn figures(&self, path: usize) -> PathFigures {
        self.group.figures(path)
    }

    /// What the receiver has counted, without datagrams.
    pub fn report(&self) -> Report {
        self.joined.report()
    }

    /// The latency of the stream; `None` until it is fixed.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }

    fn try_path(&mut self, now: Time, path: usize) {
        let Some(mut attempts) = self.dials[path].attempts.take() else { return };
        for given_up in attempts.given_up(now) {
            self.close(now, path, given_up);
        }
        if attempts.is_due(now) {
            let side = self.senders[path].touch();
            let begun = side.connect(now, RECEIVER, "receiver", &self.trust, Token::anyone());
            attempts.begun(now, begun.ok());
        }
        self.dials[path].attempts = Some(attempts);
    }

    fn close(&mut self, now: Time, path: usize, connection: ConnectionId) {
        if let Some(connection) = self.senders[path].touch().connection(connection) {
            connection.close(now, "");
        }
    }

    /// Handles events, and moves units and datagrams as far as they go.
    fn work(&mut self, now: Time) {
        while let Some(unit) = self.packetizer.poll() {
            self.queue(now, &unit);
        }
        loop {
            for path in 0..self.dials.len() {
                self.sender_events(now, path);
            }
            self.receiver_events(now);
            self.send_waiting(now);
            let mut is_touched = false;
            for side in self.senders.iter_mut().chain([&mut self.receiver]) {
                if side.is_touched {
                    is_touched = true;
                    side.flush(now);
                }
            }
            if !is_touched {
                break;
            }
        }
        self.events.extend(std::iter::from_fn(|| self.group.poll_event()));
    }

    fn queue(&mut self, now: Time, unit: &Unit) {
        self.waiting.push_back(Queued {
            id: unit.id,
            priority: unit.kind.priority(),
            dependencies: unit.dependencies.clone(),
            continues: unit.continues,
            data: message::media(unit),
            queued: now,
        });
    }

    fn sender_events(&mut self, now: Time, path: usize) {
        while let Some(event) = self.senders[path].endpoint.poll_event() {
            let dial = &mut self.dials[path];
            match event {
                Event::Early { connection } => dial.early.push(connection),
                Event::Connected { connection, .. } => {
                    let Some(mut attempts) = dial.attempts.take() else { continue };
                    if attempts.take(|other| *other == connection).is_none() {
                        dial.attempts = Some(attempts);
                        continue;
                    }
                    dial.connection = Some(connection);
                    attempts.into_all().for_each(|other| self.close(now, path, other));
                    self.measuring.get_or_insert(now);
                    if self.latency.is_some() {
                        self.open_flow(now, path);
                    }
                }
                Event::Closed { connection, .. } if Some(connection) == dial.connection => {
                    *dial = Dial { attempts: Some(Attempts::new(now, None)), ..Dial::default() };
                    self.group.closed(now, path);
                    self.try_path(now, path);
                }
                Event::Closed { connection, .. } => {
                    dial.attempts.as_mut().and_then(|all| all.take(|one| *one == connection));
                }
                _ => {}
            }
        }
    }

    fn open_flow(&mut self, now: Time, path: usize) {
        let latency = self.latency.unwrap_or(self.label.latency);
        let label =
            PathLabel { label: Label { latency, opened: now, ..self.label }, path }.to_string();
        let PathStreamOptions { reliability, .. } = self.options;
        let config = FlowConfig { order: DeliveryOrder::OutOfOrder, reliability, label };
        let Some(id) = self.dials[path].connection else { return };
        let connection = self.senders[path].touch().connection(id);
        self.dials[path].flow = connection.and_then(|connection| connection.open_flow(config).ok());
        if self.dials[path].flow.is_some() {
            self.group.opened(now, path);
        }
    }

    /// Looks at all paths; fixes the latency once they are measured.
    fn look(&mut self, now: Time) {
        let (mut longest, mut measured) = (None, 0);
        let waited = self.measuring.map_or(Duration::ZERO, |since| now.since(since));
        for path in 0..self.dials.len() {
            let Dial { connection, flow, ref early, .. } = self.dials[path];
            let began_early = connection.is_some_and(|id| early.contains(&id));
            let connection = connection.and_then(|id| self.senders[path].endpoint.connection(id));
            let Some(connection) = connection else { continue };
            let over = connection.statistics();
            longest = longest.max(latency::round_trip(&over));
            measured += usize::from(latency::is_measured(began_early, &over, waited));
            let Some(of_flow) = flow.and_then(|flow| connection.send_statistics(now, flow)) else {
                continue;
            };
            self.group.sample(now, path, Sample::of(&over, &of_flow));
        }
        let is_measured = measured == self.dials.len() || waited >= latency::MEASURED_FOR;
        if self.latency.is_none() && self.measuring.is_some() && is_measured {
            let chosen = longest.map_or(latency::LEAST, latency::chosen);
            self.latency = Some(chosen + self.options.mode.allowance());
            self.note_latency();
            let open = (0..self.dials.len()).filter(|path| self.dials[*path].connection.is_some());
            open.collect::<Vec<_>>().into_iter().for_each(|path| self.open_flow(now, path));
        }
        self.group.look(now);
    }

    fn send_waiting(&mut self, now: Time) {
        while let Some((number, queued, targets)) = self.group.next_again(now) {
            let queued = queued.clone();
            let sent = targets.iter().find_map(|path| {
                self.send(now, path, number, &queued).map(|in_flow| (path, in_flow))
            });
            let Some((path, in_flow)) = sent else { break };
            self.group.sent_again(number, path, in_flow);
        }
        while self.group.has_room()
            && let Some(queued) = self.waiting.pop_front()
        {
            let targets = self.group.targets(queued.data.len());
            let (number, mut on) = (self.group.next_number(), [None; MAX_PATHS]);
            for path in targets.iter() {
                on[path] = self.send(now, path, number, &queued);
                if on[path].is_some() && !targets.all {
                    break;
                }
            }
            let deadline = self.deadline(&queued);
            if on == [None; MAX_PATHS] {
                if deadline.is_none_or(|deadline| deadline > now) {
                    self.waiting.push_front(queued);
                    return;
                }
                continue;
            }
            let bytes = queued.data.len();
            self.group.keep(queued, bytes, deadline, on);
        }
    }

    fn deadline(&self, queued: &Queued) -> Option<Time> {
        let latency = self.latency.unwrap_or(self.label.latency);
        let PathStreamOptions { reliability, grace, .. } = self.options;
        let lifetime = latency::lifetime(reliability, latency, grace);
        (reliability != Reliability::Full).then(|| queued.queued + lifetime)
    }

    /// Gives a message to a path; its number in the flow.
    fn send(&mut self, now: Time, path: usize, number: u64, queued: &Queued) -> Option<u64> {
        let deadline = self.deadline(queued);
        let Dial { connection, flow, numbers, .. } = &mut self.dials[path];
        let Side { endpoint, is_touched, .. } = &mut self.senders[path];
        let depends_on = queued.dependencies.iter().filter_map(|on| numbers.get(on).copied());
        let outgoing = Outgoing {
            data: numbered(number, &queued.data),
            deadline,
            priority: queued.priority,
            depends_on: depends_on.collect(),
            continues: queued.continues.and_then(|on| numbers.get(&on).copied()),
        };
        let in_flow = endpoint.connection((*connection)?)?.send(now, (*flow)?, outgoing).ok()?;
        *is_touched = true;
        numbers.insert(queued.id, in_flow);
        if numbers.len() > MAX_NUMBERS {
            numbers.pop_first();
        }
        Some(in_flow)
    }

    fn receiver_events(&mut self, now: Time) {
        while let Some(event) = self.receiver.endpoint.poll_event() {
            match event {
                Event::FlowOpened { connection, flow, config } => {
                    self.join(now, (connection, flow), &config);
                }
                Event::Closed { connection, .. } => {
                    self.flows.retain(|(id, _)| *id != connection);
                }
                _ => {}
            }
        }
        for place in 0..self.flows.len() {
            let (id, flow) = self.flows[place];
            let Some(connection) = self.receiver.endpoint.connection(id) else { continue };
            while let Some(delivery) = connection.receive(flow) {
                self.receiver.is_touched = true;
                let Delivery::Unit(unit) = delivery else { continue };
                match self.joined.take(&unit) {
                    Some(Ok(Content::Unit(unit))) => self.depacketizer.push(now, &unit),
                    Some(Ok(Content::Gap(datagrams))) => {
                        datagrams.into_iter().for_each(|one| self.depacketizer.abandon(one));
                    }
                    Some(Ok(Content::End { .. }) | Err(_)) | None => {}
                }
            }
        }
    }

    /// A flow was opened: it joins if it has the stream's secret.
    fn join(&mut self, now: Time, (id, flow): (ConnectionId, FlowId), config: &FlowConfig) {
        let Ok(PathLabel { label, .. }) = config.label.parse() else { return };
        if !std::mem::replace(&mut self.has_begun, true) {
            let order = FlowConfig { order: DeliveryOrder::InOrder, ..config.clone() };
            self.depacketizer = Depacketizer::new(DepacketizerOptions {
                release: release(&order, (label.latency, label.grace), true),
                ..DepacketizerOptions::default()
            });
            self.depacketizer.note_transit(now, label.opened);
        }
        if label.session == self.label.session {
            self.flows.push((id, flow));
        } else if let Some(connection) = self.receiver.touch().connection(id) {
            connection.close(now, "");
        }
    }
}
