//! The sending end of a session: a handshake, then packets with a spacing that follows the reports.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::spacing::{Spacing, SpacingParameters};

use super::arrivals::Totals;
use super::bound::{Bound, LeftOut};
use super::receiver::{MAX_RTT, MIN_RTT};
use super::token::Token;
use super::wire::{self, Cookie, DATA_HEADER, Data, Message, Reason, Report, WireError};
use ontempo_udp::{Datagram, Dscp, Ecn, Next, Transmit};

/// How long to wait for an answer before sending Hello again.
const HELLO_INTERVAL: Duration = Duration::from_millis(500);

/// Wait for late packets, beside two round trips, before the last report is requested.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// Packets without spacing of so much time may leave at once.
const BATCH_SPAN: Duration = Duration::from_millis(1);

/// Minimum wait for an answer to a request.
const REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// Options of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions {
    /// The receiver.
    pub destination: SocketAddr,
    /// Its token, if it requires one.
    pub token: Option<Token>,
    /// Timeout without an answer, in the handshake and while packets are sent.
    pub timeout: Duration,
    /// The packets' ECN.
    pub ecn: Ecn,
    /// The packets' DSCP; `None`: the socket's.
    pub dscp: Option<Dscp>,
    /// Maximum number of queued payloads.
    pub max_queued: usize,
    /// Packets sent by one call if the spacing is zero, at least 1.
    pub batch: usize,
    /// Whether constant spacings are kept on a path that does not bear them, which floods it.
    pub beyond_path: bool,
    /// Chooses the numbers that packets do not have, so that a receiver cannot pretend arrivals:
    /// unpredictable, and unknown to it; `None`: all numbers are used.
    pub secret: Option<u64>,
}

impl SenderOptions {
    /// To `destination`: a timeout of 3 s, no token, 1,024 payloads, batches of 16.
    pub const fn to(destination: SocketAddr) -> Self {
        Self {
            destination,
            token: None,
            timeout: Duration::from_secs(3),
            ecn: Ecn::NotCapable,
            dscp: None,
            max_queued: 1_024,
            batch: 16,
            beyond_path: false,
            secret: None,
        }
    }

    /// Bytes of IP and UDP headers of a packet.
    pub(crate) fn headers(&self) -> usize {
        if self.destination.ip().to_canonical().is_ipv4() { 28 } else { 48 }
    }
}

/// What sets the spacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Constant, from the start of a packet to the start of the next.
    Constant(Duration),
    /// PSP or damped PSP: set by the receiver's reports.
    Adaptive(SpacingParameters),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer in the handshake.
    NobodyAnswers,
    /// The receiver refused the session.
    Refused(Reason),
    /// The receiver stopped answering.
    Silent,
    /// The receiver reported a packet that was never sent.
    False,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NobodyAnswers => {
                "no answer: is `ontempo probe --listen` running there, and does a firewall let UDP \
                 through?"
            }
            Self::Refused(Reason::Token) => {
                "wrong token: use the one that the receiver was started with"
            }
            Self::Refused(Reason::Busy) => {
                "the receiver has its maximum number of sessions; try again later"
            }
            Self::Refused(Reason::Version) => "the receiver speaks another version of the protocol",
            Self::Silent => "the receiver stopped answering",
            Self::False => "the receiver reported packets that were never sent",
        })
    }
}

impl std::error::Error for Failure {}

/// The queue of payloads is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of payloads is full")
    }
}

impl std::error::Error for Full {}

/// State of a session.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Waiting for a challenge, or with a cookie, for acceptance.
    Handshake { since: Option<Time>, again: Time, cookie: Option<Cookie> },
    /// Sending.
    Open,
    /// Over.
    Failed(Failure),
    /// Closed by this side.
    Closed,
}

/// State since the last [`Sender::begin`].
#[derive(Debug)]
struct Step {
    number: u16,
    pace: Pace,
    /// Created when the session is open.
    controller: Option<Spacing>,
    /// Created with the first packet.
    bound: Option<Bound>,
    left_out: Option<LeftOut>,
    /// The bound, and not the pace, set the distance of packets.
    is_bounded: bool,
    /// Size of the zero payloads sent while the queue is empty.
    filler: Option<usize>,
    sent: u64,
    first_sent: Option<Time>,
    last_sent: Time,
    /// When the next packet may be sent.
    due: Time,
    /// Set when stopped: when the last report is requested next.
    request_at: Option<Time>,
    rounds: u16,
    report: Option<Report>,
    is_settled: bool,
}

/// One session to one receiver.
#[derive(Debug)]
pub struct Sender {
    options: SenderOptions,
    session: u64,
    state: State,
    /// The smallest round trip of the handshake.
    base_rtt: Option<Duration>,
    /// From the newest report.
    latest_rtt: Option<Duration>,
    step: Step,
    waiting: VecDeque<Vec<u8>>,
    /// When the first packet without a following report was sent.
    no_report_since: Option<Time>,
    end_pending: bool,
}

impl Sender {
    /// A session with this number, which must be unpredictable ([`random`](ontempo_udp::random)).
    pub fn new(options: SenderOptions, session: u64) -> Self {
        Self {
            options,
            session,
            state: State::Handshake { since: None, again: Time::ZERO, cookie: None },
            base_rtt: None,
            latest_rtt: None,
            step: Step::new(0, Pace::Constant(Duration::ZERO), None),
            waiting: VecDeque::new(),
            no_report_since: None,
            end_pending: false,
        }
    }

    /// Begins a step with this pace; packet numbers start anew. `filler` is the size of payloads
    /// sent while the queue is empty; `None`: none are sent.
    pub fn begin(&mut self, pace: Pace, filler: Option<usize>) {
        let number = self.step.number.wrapping_add(1);
        self.step = Step::new(number, pace, filler);
        // A program's own payloads keep their numbers.
        let secret = self.options.secret.filter(|_| filler.is_some());
        self.step.left_out = secret.map(|secret| LeftOut::new(secret, number));
        self.no_report_since = None;
    }

    /// Stops sending and requests the last report until it is [settled](Self::is_settled).
    pub fn stop(&mut self, now: Time) {
        if self.step.request_at.is_none() {
            let wait = SETTLE_TIME + self.base_rtt.unwrap_or_default() * 2;
            self.step.request_at = Some(now + wait);
            self.no_report_since = None;
        }
    }

    /// Whether the step was stopped.
    pub const fn is_stopped(&self) -> bool {
        self.step.request_at.is_some()
    }

    /// Ends the session; one End packet is sent.
    pub fn close(&mut self) {
        if let State::Open = self.state {
            self.end_pending = true;
        }
        self.state = State::Closed;
    }

    /// Queues a payload.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn offer(&mut self, payload: Vec<u8>) -> Result<(), Full> {
        if self.waiting.len() >= self.options.max_queued {
            return Err(Full);
        }
        self.waiting.push_back(payload);
        Ok(())
    }

    /// Whether the receiver has accepted.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Why the session failed, if it did.
    pub const fn failure(&self) -> Option<Failure> {
        match self.state {
            State::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whether the last report of a stopped step has arrived.
    pub const fn is_settled(&self) -> bool {
        self.step.is_settled
    }

    /// The base round trip, once known.
    pub const fn base_rtt(&self) -> Option<Duration> {
        self.base_rtt
    }

    /// The round trip of the newest report.
    pub const fn latest_rtt(&self) -> Option<Duration> {
        self.latest_rtt
    }

    /// Packets sent in this step.
    pub const fn sent(&self) -> u64 {
        self.step.sent
    }

    /// Counters of the last report of this step.
    pub fn totals(&self) -> Totals {
        self.step.report.map(|report| report.totals).unwrap_or_default()
    }

    /// From the first packet of this step to the last.
    pub fn span(&self) -> Duration {
        self.step.first_sent.map_or(Duration::ZERO, |first| self.step.last_sent.since(first))
    }

    /// The present spacing.
    pub fn spacing(&self) -> Duration {
        match (&self.step.pace, &self.step.controller) {
            (Pace::Constant(spacing), _) => *spacing,
            (_, controller) => controller.as_ref().map_or(Duration::ZERO, Spacing::spacing),
        }
    }

    /// The present spacing as sent: no more than the path was seen to bear.
    fn bounded_spacing(&self, now: Time) -> Duration {
        let spacing = self.spacing();
        self.step.bound.as_ref().map_or(spacing, |bound| bound.gap(now).max(spacing))
    }

    /// Whether the path was not seen to bear the pace of this step.
    pub const fn is_bounded(&self) -> bool {
        self.step.is_bounded
    }

    /// Reports of this step with a loss.
    pub fn losses(&self) -> u64 {
        self.step.controller.as_ref().map_or(0, Spacing::losses)
    }

    /// Takes a datagram.
    pub fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        if datagram.source != self.options.destination {
            return;
        }
        let message = match wire::read(datagram.data) {
            Ok((session, message)) if session == self.session => message,
            Err(WireError::Version { session, .. }) if session == self.session => {
                Message::Refuse(Reason::Version)
            }
            _ => return,
        };
        let State::Handshake { since, .. } = self.state else {
            if let (State::Open, Message::Report(report)) = (self.state, message) {
                self.on_report(datagram.received, report);
            }
            return;
        };
        match message {
            Message::Challenge { stamp, cookie } => {
                self.note_rtt(datagram.received, stamp, since);
                self.state = State::Handshake { since, again: now, cookie: Some(cookie) };
            }
            Message::Accept { stamp } => {
                self.note_rtt(datagram.received, stamp, since);
                self.state = State::Open;
            }
            Message::Refuse(reason) => self.state = State::Failed(Failure::Refused(reason)),
            _ => {}
        }
    }

    /// Takes a round-trip sample from a returned time stamp. One from before the handshake began is
    /// not of ours, and would make the wait for the last report as long as the receiver likes.
    fn note_rtt(&mut self, received: Time, stamp: u64, since: Option<Time>) {
        if since.is_none_or(|since| stamp < since.as_nanos()) {
            return;
        }
        if let Some(rtt) = received.as_nanos().checked_sub(stamp).map(Duration::from_nanos) {
            let rtt = self.base_rtt.map_or(rtt, |least| least.min(rtt));
            self.base_rtt = Some(rtt);
        }
    }

    /// The expected interval of reports.
    fn report_interval(&self) -> Duration {
        self.base_rtt.unwrap_or_default().max(MIN_RTT).min(MAX_RTT)
    }

    fn on_report(&mut self, received: Time, mut report: Report) {
        let step = &mut self.step;
        if report.step != step.number {
            return;
        }
        let next = step.left_out.as_ref().map_or(step.sent, |left_out| left_out.next(step.sent));
        // A report about packets never sent is invalid.
        let is_ours = report.totals.next <= next;
        if let Some(left_out) = step.left_out.as_mut().filter(|_| is_ours) {
            report.totals.next = left_out.sent_below(report.totals.next);
            if report.totals.received > report.totals.next {
                self.state = State::Failed(Failure::False);
                return;
            }
        }
        let is_old = step.report.is_some_and(|last| {
            (report.totals.next, report.totals.received) < (last.totals.next, last.totals.received)
        });
        if !is_ours || is_old {
            return;
        }
        // A stopped step waits only for its own answer.
        if step.request_at.is_none() || report.round > 0 {
            self.no_report_since = None;
        }
        let is_of_step = step.first_sent.is_some_and(|first| report.stamp >= first.as_nanos());
        if report.totals.received > 0 && is_of_step {
            let answered = received.as_nanos().checked_sub(report.stamp);
            let rtt = answered.and_then(|span| span.checked_sub(report.held));
            self.latest_rtt = rtt.map(Duration::from_nanos).or(self.latest_rtt);
        }
        let sent = step.sent;
        if let Some(bound) = &mut step.bound {
            bound.on_report(received, report.totals.next, report.totals.received);
        }
        if let Some(controller) = &mut step.controller {
            controller.on_report(report.totals.report(), sent);
        }
        if step.bound.is_some() || step.controller.is_some() {
            // The new spacing applies from the previous packet on.
            let last_sent = step.last_sent;
            self.step.due = last_sent + self.bounded_spacing(received);
        }
        let step = &mut self.step;
        step.is_settled |= step.request_at.is_some() && report.round > 0;
        step.report = Some(report);
    }

    /// Call it at [`next_timeout`](Self::next_timeout).
    pub fn handle_timeout(&mut self, now: Time) {
        match self.state {
            State::Handshake { since: Some(since), .. } if since + self.options.timeout <= now => {
                self.state = State::Failed(Failure::NobodyAnswers);
            }
            State::Open if self.silent_at() <= now => {
                self.state = State::Failed(Failure::Silent);
            }
            _ => {}
        }
    }

    /// When the receiver counts as silent.
    fn silent_at(&self) -> Time {
        self.no_report_since.map_or(Time::NEVER, |since| since + self.options.timeout)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn next_timeout(&self) -> Time {
        match self.state {
            State::Handshake { since: Some(since), .. } => since + self.options.timeout,
            State::Open => self.silent_at(),
            _ => Time::NEVER,
        }
    }

    /// Writes the next packet to `buffer`.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        if std::mem::take(&mut self.end_pending) {
            return self.small(&Message::End, buffer);
        }
        match self.state {
            State::Failed(_) | State::Closed => Next::Idle,
            State::Handshake { again, .. } if now < again => Next::WaitUntil(again),
            State::Handshake { since, cookie, .. } => {
                let since = Some(since.unwrap_or(now));
                self.state = State::Handshake { since, again: now + HELLO_INTERVAL, cookie };
                let stamp = now.as_nanos();
                let message = match cookie {
                    None => Message::Hello { stamp },
                    Some(cookie) => {
                        let proof = Token::proof(self.options.token, &cookie, self.session);
                        Message::Start { stamp, cookie, proof }
                    }
                };
                // A cookie ages: where no answer comes, the next greeting begins anew.
                if cookie.is_some() {
                    let again = now + HELLO_INTERVAL;
                    self.state = State::Handshake { since, again, cookie: None };
                }
                self.small(&message, buffer)
            }
            State::Open => match self.step.request_at {
                Some(request_at) => self.ask(now, request_at, buffer),
                None => self.send(now, buffer),
            },
        }
    }

    fn small(&self, message: &Message<'_>, buffer: &mut Vec<u8>) -> Next {
        wire::write(self.session, message, buffer);
        Next::Transmit(Transmit::to(self.options.destination))
    }

    fn ask(&mut self, now: Time, request_at: Time, buffer: &mut Vec<u8>) -> Next {
        if self.step.is_settled {
            return Next::Idle;
        }
        if now < request_at {
            return Next::WaitUntil(request_at);
        }
        self.no_report_since.get_or_insert(now);
        let wait = self.report_interval().max(REQUEST_INTERVAL);
        let step = &mut self.step;
        step.request_at = Some(now + wait);
        step.rounds = step.rounds.saturating_add(1);
        let (step, round) = (step.number, step.rounds);
        self.small(&Message::RequestReport { step, round }, buffer)
    }

    fn send(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        if now < self.step.due {
            return Next::WaitUntil(self.step.due);
        }
        if self.waiting.is_empty() && self.step.filler.is_none() {
            return Next::Idle;
        }
        let interval = self.report_interval();
        let step = &mut self.step;
        if let (Pace::Adaptive(parameters), None) = (step.pace, &step.controller) {
            step.controller = Some(Spacing::new(parameters, interval));
        }
        if !(self.options.beyond_path && matches!(step.pace, Pace::Constant(_))) {
            step.bound.get_or_insert_with(|| Bound::new(now, interval));
        }
        let segment = self.write_data(now, buffer);
        let mut count = 1;
        let spacing = self.bounded_spacing(now);
        if self.spacing() == Duration::ZERO && self.waiting.is_empty() {
            // All of one size, so that the system can segment them; no more than are due in a
            // millisecond.
            let due = BATCH_SPAN.as_nanos().checked_div(spacing.as_nanos()).unwrap_or(u64::MAX);
            let batch = self.options.batch.min(usize::try_from(due).unwrap_or(usize::MAX));
            let whole = batch.min(usize::from(u16::MAX) / segment.max(1));
            while count < whole && self.step.filler == segment.checked_sub(DATA_HEADER) {
                self.write_data(now, buffer);
                count += 1;
            }
        }
        self.step.is_bounded |= spacing > self.spacing() && self.step.report.is_some();
        self.step.due = now + spacing * count as u64;
        self.no_report_since.get_or_insert(now);
        Next::Transmit(Transmit {
            ecn: self.options.ecn,
            dscp: self.options.dscp,
            segment: u16::try_from(segment).ok().filter(|_| count > 1),
            ..Transmit::to(self.options.destination)
        })
    }

    /// Writes the next data packet; returns its size.
    fn write_data(&mut self, now: Time, buffer: &mut Vec<u8>) -> usize {
        let start = buffer.len();
        let base_rtt_us = self.report_interval().as_nanos() / 1_000;
        let payload = self.waiting.pop_front();
        let step = &mut self.step;
        let sent = step.sent;
        let number = step.left_out.as_mut().map_or(sent, |left_out| left_out.number(sent));
        let data = Data {
            step: step.number,
            number,
            base_rtt_us: u32::try_from(base_rtt_us).unwrap_or(u32::MAX),
            stamp: now.as_nanos(),
            payload: payload.as_deref().unwrap_or_default(),
        };
        wire::write(self.session, &Message::Data(data), buffer);
        if let (None, Some(filler)) = (payload, step.filler) {
            buffer.resize(start + DATA_HEADER + filler, 0);
        }
        step.first_sent.get_or_insert(now);
        step.last_sent = now;
        step.sent += 1;
        buffer.len() - start
    }
}

impl Step {
    fn new(number: u16, pace: Pace, filler: Option<usize>) -> Self {
        Self {
            number,
            pace,
            controller: None,
            bound: None,
            left_out: None,
            is_bounded: false,
            filler,
            sent: 0,
            first_sent: None,
            last_sent: Time::ZERO,
            due: Time::ZERO,
            request_at: None,
            rounds: 0,
            report: None,
            is_settled: false,
        }
    }
}
