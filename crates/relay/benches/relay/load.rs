//! A source and many viewers, all in one thread and over one socket, who count what comes on time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{SyncSender, sync_channel};

use bytes::{Bytes, BytesMut};
use ontempo_foundation::{Duration, Time};
use ontempo_media::Kind;
use ontempo_session::latency::GRACE;
use ontempo_session::message::{Label, REPORTS, Report};
use ontempo_session::with_name;
use ontempo_transport::{
    Configuration, ConnectionId, Delivery, DeliveryOrder, Endpoint, Event, FlowConfig, FlowId,
    Outgoing, Poll, Reliability, Source, Token, Trust,
};
use ontempo_udp::{
    Clock, Datagram, Driver, DriverOptions, DriverStatistics, Next, Protocol, Socket,
    SocketOptions, Transmit,
};

/// 25 frames a second of 5,000 bytes: 1 Mbit/s.
const FRAME: Duration = Duration::from_millis(40);
const FRAME_BYTES: usize = 5_000;
const KEY_EVERY: u64 = 25;

/// From the source until a frame counts as late.
pub(crate) const LATENCY: Duration = Duration::from_millis(500);
const REPORT: Duration = Duration::from_secs(1);

/// The part of the frames that a viewer must have in time to count as served.
pub(crate) const SERVED: f64 = 0.99;

/// Connections begun at a time, fewer than one host may have half open.
const AT_ONCE: usize = 20;

/// The relay, and what it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) trust: Trust,
    pub(crate) source: Token,
    pub(crate) viewer: Token,
}

/// A viewer: its flow of reports, and what has come.
#[derive(Default)]
struct Viewer {
    reports: Option<FlowId>,
    report_due: Time,
    frames: u64,
    /// Frames of the measurement that came in time.
    in_time: u64,
}

/// What has come to all viewers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) open: usize,
    pub(crate) closed: usize,
    /// Why the first was closed.
    pub(crate) reason: Option<String>,
    /// Frames that the source has sent in the measurement.
    pub(crate) frames: u64,
    /// Frames of the measurement that came to viewers, and those that were in time.
    pub(crate) arrived: u64,
    pub(crate) in_time: u64,
    /// Viewers that have had [`SERVED`] of the frames in time.
    pub(crate) served: usize,
    /// Times from the source to a viewer, ms, sorted.
    pub(crate) delays: Vec<f32>,
}

/// The source and all viewers, over one socket.
struct Clients {
    endpoint: Endpoint,
    target: Target,
    wanted: usize,
    /// False: no source comes, and the viewers wait.
    has_source: bool,
    under_way: usize,
    source: Option<(ConnectionId, Option<FlowId>)>,
    viewers: BTreeMap<ConnectionId, Viewer>,
    next_frame: Time,
    wake: Time,
    sent: u64,
    /// The frames that are measured: from the first until before the second.
    measured: (u64, u64),
    figures: Figures,
}

/// What is asked of it.
enum Ask {
    /// The figures.
    Figures(SyncSender<Figures>),
    /// The measurement begins with the next frame, or ends before it.
    Begin,
    End,
}

impl Clients {
    fn connect(&mut self, now: Time, token: Token) -> ConnectionId {
        let Target { address, trust, .. } = &self.target;
        let begun = self.endpoint.connect(now, *address, "relay", trust, token);
        begun.expect("a connection can be begun")
    }

    fn work(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            self.on_event(now, event);
        }
        if self.has_source && self.source.is_none() {
            self.source = Some((self.connect(now, self.target.source.clone()), None));
        }
        while self.under_way < AT_ONCE && self.viewers.len() < self.wanted {
            let id = self.connect(now, self.target.viewer.clone());
            self.viewers.insert(id, Viewer::default());
            self.under_way += 1;
        }
        if now >= self.next_frame {
            self.next_frame = self.next_frame.max(now - FRAME) + FRAME;
            self.send(now);
        }
    }

    fn send(&mut self, now: Time) {
        let Some((id, Some(flow))) = self.source else { return };
        let number = self.sent;
        let is_key = number.is_multiple_of(KEY_EVERY);
        let mut data = [now.as_nanos(), number].map(u64::to_be_bytes).concat();
        data.resize(FRAME_BYTES, number as u8);
        let outgoing = Outgoing {
            data: data.into(),
            deadline: Some(now + LATENCY),
            priority: if is_key { Kind::Key } else { Kind::Frame }.priority(),
            depends_on: if is_key { vec![] } else { vec![number - number % KEY_EVERY] },
            continues: None,
        };
        let connection = self.endpoint.connection(id).expect("the source is connected");
        connection.send(now, flow, outgoing).expect("there is room");
        self.sent += 1;
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Connected { connection: id, .. } => {
                let is_source = self.source.is_some_and(|(source, _)| source == id);
                let label = Label::of(7, LATENCY, GRACE);
                let label = if is_source { with_name(label, None) } else { REPORTS.to_owned() };
                let (order, reliability) = (DeliveryOrder::PartialOrder, Reliability::Deadline);
                let config = match is_source {
                    true => FlowConfig { label, order, reliability },
                    false => FlowConfig { label, ..FlowConfig::default() },
                };
                let opened = self.endpoint.connection(id).map(|open| open.open_flow(config));
                let flow = opened.and_then(Result::ok);
                if is_source {
                    self.source = Some((id, flow));
                } else if let Some(viewer) = self.viewers.get_mut(&id) {
                    viewer.reports = flow;
                    self.under_way -= 1;
                    self.figures.open += 1;
                }
            }
            Event::Readable { connection, flow } => self.read(now, connection, flow),
            Event::Closed { connection, closed } => {
                self.figures.closed += 1;
                self.figures.reason.get_or_insert(closed.to_string());
                let viewer = self.viewers.get(&connection);
                self.under_way -=
                    usize::from(viewer.is_some_and(|viewer| viewer.reports.is_none()));
            }
            _ => {}
        }
    }

    fn read(&mut self, now: Time, id: ConnectionId, flow: FlowId) {
        let Some(connection) = self.endpoint.connection(id) else { return };
        let viewer = self.viewers.get_mut(&id);
        let Some(viewer) = viewer else {
            // The reports of the relay to the source.
            while connection.receive(flow).is_some() {}
            return;
        };
        let (first, last) = self.measured;
        while let Some(delivery) = connection.receive(flow) {
            let Delivery::Unit(unit) = delivery else { continue };
            viewer.frames += 1;
            let (words, _) = unit.data.as_chunks::<8>();
            let &[at, number, ..] = words else { continue };
            let number = u64::from_be_bytes(number);
            if (first..last).contains(&number) {
                let delay = now.since(Time::from_nanos(u64::from_be_bytes(at)));
                viewer.in_time += u64::from(delay <= LATENCY);
                self.figures.arrived += 1;
                self.figures.delays.push((delay.as_secs_f64() * 1e3) as f32);
            }
        }
        if let Some(reports) = viewer.reports.filter(|_| now >= viewer.report_due) {
            viewer.report_due = now + REPORT;
            let (units, whole_datagrams) = (viewer.frames, viewer.frames);
            let report = Report { units, whole_datagrams, ..Report::default() };
            let data: Bytes = serde_json::to_vec(&report).expect("JSON").into();
            let _ = connection.send(now, reports, Outgoing { data, ..Outgoing::default() });
        }
    }
}

impl Clients {
    fn figures(&self) -> Figures {
        let (first, last) = self.measured;
        let frames = last.min(self.sent).saturating_sub(first);
        let least = (frames as f64 * SERVED).ceil() as u64;
        let mut figures = self.figures.clone();
        figures.frames = frames;
        figures.in_time = self.viewers.values().map(|viewer| viewer.in_time).sum();
        figures.served = self.viewers.values().filter(|viewer| viewer.in_time >= least).count();
        figures.delays.sort_by(f32::total_cmp);
        figures
    }
}

impl Protocol for Clients {
    type Command = Ask;

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        let data = BytesMut::from(datagram.data);
        self.endpoint.handle(now, Source::from(&datagram), data);
    }

    fn handle_command(&mut self, _: Time, ask: Ask) {
        match ask {
            Ask::Begin => self.measured = (self.sent, u64::MAX),
            Ask::End => self.measured.1 = self.sent,
            Ask::Figures(reply) => {
                let _ = reply.send(self.figures());
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.wake = Time::NEVER;
        self.endpoint.handle_timeout(now);
        self.work(now);
    }

    fn next_timeout(&self) -> Time {
        self.wake.min(self.next_frame)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.work(now);
        let poll = self.endpoint.poll_transmit(now, buffer);
        self.wake = Time::NEVER;
        match poll {
            Poll::Transmit(of) => {
                buffer.truncate(of.size);
                Next::Transmit(Transmit::from(&of))
            }
            Poll::WaitUntil(until) => {
                self.wake = until;
                Next::WaitUntil(until)
            }
            Poll::Idle => Next::Idle,
        }
    }
}

/// A source and viewers at work. Dropped, they are gone.
pub(crate) struct Load(Driver<Clients>);

impl Load {
    /// So many viewers of a relay, and a source, without which they wait.
    pub(crate) fn start(viewers: usize, has_source: bool, target: Target) -> Self {
        let (places, half_open) = (viewers + 2, viewers + 2);
        // As much as they need: this is not what is measured.
        let receive_memory = ontempo_foundation::Bytes::new(4 << 30);
        let configuration = Configuration {
            connections: places,
            half_open,
            asks_once: true,
            receive_memory,
            ..ontempo_session::configuration()
        };
        let clients = Clients {
            endpoint: Endpoint::new(configuration, [2; 32]),
            target,
            wanted: viewers,
            has_source,
            under_way: 0,
            source: None,
            viewers: BTreeMap::new(),
            next_frame: Time::ZERO,
            wake: Time::NEVER,
            sent: 0,
            measured: (u64::MAX, u64::MAX),
            figures: Figures::default(),
        };
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let buffer = Some(ontempo_foundation::Bytes::new(4 << 20));
        let options = SocketOptions {
            receive_buffer: buffer,
            send_buffer: buffer,
            ..SocketOptions::default()
        };
        let socket = Socket::bind(at, options).expect("a socket");
        let driver = Driver::spawn(socket, clients, Clock::new(), DriverOptions::default());
        Self(driver.expect("a thread"))
    }

    fn ask(&self, ask: Ask) {
        assert!(self.0.command(ask).is_ok(), "the viewers' thread runs");
    }

    pub(crate) fn begin(&self) {
        self.ask(Ask::Begin);
    }

    pub(crate) fn end(&self) {
        self.ask(Ask::End);
    }

    pub(crate) fn figures(&self) -> Figures {
        let (reply, answer) = sync_channel(1);
        self.ask(Ask::Figures(reply));
        answer.recv().expect("an answer")
    }

    /// What the socket has carried.
    pub(crate) fn carried(&self) -> DriverStatistics {
        self.0.statistics()
    }
}
