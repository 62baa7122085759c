//! The sending end of a session: asks first, then sends at a distance that obeys the reports.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::spacing::{Spacing, SpacingParameters};

use super::arrivals::Totals;
use super::receiver::{MAX_RTT, MIN_RTT};
use super::token::Token;
use super::wire::{self, Cookie, DATA_HEADER, Data, Message, Reason, Report, WireError};
use ontempo_udp::{Datagram, Dscp, Ecn, Next, Transmit};

/// How long the answer to a greeting is waited for before it is sent again.
const GREET_AGAIN: Duration = Duration::from_millis(500);

/// How long stragglers are waited for, beside two round trips, before the last count is asked for.
const SETTLE: Duration = Duration::from_millis(200);

/// How long the answer to a question is waited for at least.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How a sender is set up.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions {
    /// The receiver.
    pub destination: SocketAddr,
    /// What it wants to be known, if anything.
    pub token: Option<Token>,
    /// How long it may be silent, at the start and while packets are sent.
    pub patience: Duration,
    /// The packets' ECN.
    pub ecn: Ecn,
    /// The packets' DSCP; the socket's where `None`.
    pub dscp: Option<Dscp>,
    /// Payloads that may wait to be sent.
    pub most_waiting: usize,
    /// Packets that are handed to the system at once where no spacing is asked for, at least 1.
    pub batch: usize,
}

impl SenderOptions {
    /// To `destination`: 3 s of patience, no token, 1,024 payloads, batches of 16.
    pub const fn to(destination: SocketAddr) -> Self {
        Self {
            destination,
            token: None,
            patience: Duration::from_secs(3),
            ecn: Ecn::NotCapable,
            dscp: None,
            most_waiting: 1_024,
            batch: 16,
        }
    }
}

/// Where the distance between packets comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It never changes; from the start of a packet to the start of the next.
    Constant(Duration),
    /// PSP or damped PSP: it obeys the receiver's reports.
    Adaptive(SpacingParameters),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody has answered.
    NobodyAnswers,
    /// The receiver has refused.
    Refused(Reason),
    /// The receiver answers no more.
    Silent,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NobodyAnswers => {
                "nobody answers: is `ontempo probe --listen` running there, and does a firewall let \
                 UDP through?"
            }
            Self::Refused(Reason::Token) => {
                "the receiver wants another token: give the one that it was started with"
            }
            Self::Refused(Reason::Busy) => {
                "the receiver has as many sessions as it takes; try again later"
            }
            Self::Refused(Reason::Version) => "the receiver speaks another version of the protocol",
            Self::Silent => "the receiver answers no more",
        })
    }
}

impl std::error::Error for Failure {}

/// As many payloads wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many payloads wait to be sent as may")
    }
}

impl std::error::Error for Full {}

/// How far the session is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Waits for a challenge, or for its acceptance where the cookie is known.
    Greeting { since: Option<Time>, again: Time, cookie: Option<Cookie> },
    /// May send.
    Open,
    /// Over.
    Failed(Failure),
    /// Over, and the receiver was told.
    Closed,
}

/// What is sent since the last [`Sender::begin`].
#[derive(Debug)]
struct Stretch {
    number: u16,
    pace: Pace,
    /// Made when the session is open.
    controller: Option<Spacing>,
    /// Payloads of this many zeros are sent when none wait.
    filler: Option<usize>,
    sent: u64,
    first_sent: Option<Time>,
    last_sent: Time,
    /// When the next packet may leave.
    due: Time,
    /// No more packets are to be sent; when the last count is asked for next.
    ask_at: Option<Time>,
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
    /// The least answer time of the set-up.
    base_rtt: Option<Duration>,
    /// By the newest report.
    latest_rtt: Option<Duration>,
    stretch: Stretch,
    waiting: VecDeque<Vec<u8>>,
    /// Since when packets were sent that no report has followed.
    unheard_since: Option<Time>,
    says_goodbye: bool,
}

impl Sender {
    /// A session of this number, which must not be foreseeable ([`random`](super::random)).
    pub fn new(options: SenderOptions, session: u64) -> Self {
        Self {
            options,
            session,
            state: State::Greeting { since: None, again: Time::ZERO, cookie: None },
            base_rtt: None,
            latest_rtt: None,
            stretch: Stretch::new(0, Pace::Constant(Duration::ZERO), None),
            waiting: VecDeque::new(),
            unheard_since: None,
            says_goodbye: false,
        }
    }

    /// Sends at this pace from now on, numbers beginning anew; `filler` is the size of payloads
    /// sent when none wait, `None` for no such ones.
    pub fn begin(&mut self, pace: Pace, filler: Option<usize>) {
        let number = self.stretch.number.wrapping_add(1);
        self.stretch = Stretch::new(number, pace, filler);
        self.unheard_since = None;
    }

    /// Sends no more, and asks for the last count until it is [settled](Self::is_settled).
    pub fn stop(&mut self, now: Time) {
        if self.stretch.ask_at.is_none() {
            let wait = SETTLE + self.base_rtt.unwrap_or_default() * 2;
            self.stretch.ask_at = Some(now + wait);
            self.unheard_since = None;
        }
    }

    /// No more packets of this stretch are sent.
    pub const fn is_stopped(&self) -> bool {
        self.stretch.ask_at.is_some()
    }

    /// Ends the session, and tells the receiver once.
    pub fn close(&mut self) {
        if let State::Open = self.state {
            self.says_goodbye = true;
        }
        self.state = State::Closed;
    }

    /// Puts a payload in the queue.
    ///
    /// # Errors
    /// As many wait as may.
    pub fn offer(&mut self, payload: Vec<u8>) -> Result<(), Full> {
        if self.waiting.len() >= self.options.most_waiting {
            return Err(Full);
        }
        self.waiting.push_back(payload);
        Ok(())
    }

    /// The receiver has agreed.
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

    /// The last count of a stopped stretch has come.
    pub const fn is_settled(&self) -> bool {
        self.stretch.is_settled
    }

    /// The base round trip, once known.
    pub const fn base_rtt(&self) -> Option<Duration> {
        self.base_rtt
    }

    /// The round trip by the newest report.
    pub const fn latest_rtt(&self) -> Option<Duration> {
        self.latest_rtt
    }

    /// Packets sent in this stretch.
    pub const fn sent(&self) -> u64 {
        self.stretch.sent
    }

    /// What the receiver has told of this stretch.
    pub fn totals(&self) -> Totals {
        self.stretch.report.map(|report| report.totals).unwrap_or_default()
    }

    /// From the first packet of this stretch to the last.
    pub fn span(&self) -> Duration {
        self.stretch.first_sent.map_or(Duration::ZERO, |first| self.stretch.last_sent.since(first))
    }

    /// The distance asked for now.
    pub fn spacing(&self) -> Duration {
        match (&self.stretch.pace, &self.stretch.controller) {
            (Pace::Constant(spacing), _) => *spacing,
            (_, controller) => controller.as_ref().map_or(Duration::ZERO, Spacing::spacing),
        }
    }

    /// Reports of this stretch that told of a loss.
    pub fn losses(&self) -> u64 {
        self.stretch.controller.as_ref().map_or(0, Spacing::losses)
    }

    /// A datagram has come.
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
        let State::Greeting { since, .. } = self.state else {
            if let (State::Open, Message::Report(report)) = (self.state, message) {
                self.on_report(datagram.received, report);
            }
            return;
        };
        match message {
            Message::Challenge { stamp, cookie } => {
                self.note_rtt(datagram.received, stamp);
                self.state = State::Greeting { since, again: now, cookie: Some(cookie) };
            }
            Message::Accept { stamp } => {
                self.note_rtt(datagram.received, stamp);
                self.state = State::Open;
            }
            Message::Refuse(reason) => self.state = State::Failed(Failure::Refused(reason)),
            _ => {}
        }
    }

    /// The answer to what was stamped so has come.
    fn note_rtt(&mut self, received: Time, stamp: u64) {
        if let Some(rtt) = received.as_nanos().checked_sub(stamp).map(Duration::from_nanos) {
            let rtt = self.base_rtt.map_or(rtt, |least| least.min(rtt));
            self.base_rtt = Some(rtt);
        }
    }

    /// The base round trip as reports keep to it.
    fn report_interval(&self) -> Duration {
        self.base_rtt.unwrap_or_default().max(MIN_RTT).min(MAX_RTT)
    }

    fn on_report(&mut self, received: Time, report: Report) {
        let stretch = &mut self.stretch;
        // What was never sent cannot have come.
        let is_ours = report.stretch == stretch.number && report.totals.next <= stretch.sent;
        let is_old = stretch.report.is_some_and(|last| {
            (report.totals.next, report.totals.received) < (last.totals.next, last.totals.received)
        });
        if !is_ours || is_old {
            return;
        }
        // A stopped one waits for its answer alone.
        if stretch.ask_at.is_none() || report.round > 0 {
            self.unheard_since = None;
        }
        if report.totals.received > 0 {
            let answered = received.as_nanos().checked_sub(report.stamp);
            let rtt = answered.and_then(|span| span.checked_sub(report.held));
            self.latest_rtt = rtt.map(Duration::from_nanos).or(self.latest_rtt);
        }
        let sent = stretch.sent;
        if let Some(controller) = &mut stretch.controller {
            controller.on_report(report.totals.report(), sent);
            // The new spacing holds from the packet before on.
            stretch.due = stretch.last_sent + controller.spacing();
        }
        stretch.is_settled |= stretch.ask_at.is_some() && report.round > 0;
        stretch.report = Some(report);
    }

    /// The time of [`next_timeout`](Self::next_timeout) has come.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.state {
            State::Greeting { since: Some(since), .. } if since + self.options.patience <= now => {
                self.state = State::Failed(Failure::NobodyAnswers);
            }
            State::Open if self.silent_at() <= now => {
                self.state = State::Failed(Failure::Silent);
            }
            _ => {}
        }
    }

    /// When the receiver has been silent for too long.
    fn silent_at(&self) -> Time {
        self.unheard_since.map_or(Time::NEVER, |since| since + self.options.patience)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is wanted.
    pub fn next_timeout(&self) -> Time {
        match self.state {
            State::Greeting { since: Some(since), .. } => since + self.options.patience,
            State::Open => self.silent_at(),
            _ => Time::NEVER,
        }
    }

    /// Writes what is to leave now into `buffer`.
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        if std::mem::take(&mut self.says_goodbye) {
            return self.small(&Message::End, buffer);
        }
        match self.state {
            State::Failed(_) | State::Closed => Next::Idle,
            State::Greeting { again, .. } if now < again => Next::WaitUntil(again),
            State::Greeting { since, cookie, .. } => {
                let since = Some(since.unwrap_or(now));
                self.state = State::Greeting { since, again: now + GREET_AGAIN, cookie };
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
                    let again = now + GREET_AGAIN;
                    self.state = State::Greeting { since, again, cookie: None };
                }
                self.small(&message, buffer)
            }
            State::Open => match self.stretch.ask_at {
                Some(ask_at) => self.ask(now, ask_at, buffer),
                None => self.send(now, buffer),
            },
        }
    }

    fn small(&self, message: &Message<'_>, buffer: &mut Vec<u8>) -> Next {
        wire::write(self.session, message, buffer);
        Next::Transmit(Transmit::to(self.options.destination))
    }

    fn ask(&mut self, now: Time, ask_at: Time, buffer: &mut Vec<u8>) -> Next {
        if self.stretch.is_settled {
            return Next::Idle;
        }
        if now < ask_at {
            return Next::WaitUntil(ask_at);
        }
        self.unheard_since.get_or_insert(now);
        let wait = self.report_interval().max(ASK_AGAIN);
        let stretch = &mut self.stretch;
        stretch.ask_at = Some(now + wait);
        stretch.rounds = stretch.rounds.saturating_add(1);
        let (stretch, round) = (stretch.number, stretch.rounds);
        self.small(&Message::Ask { stretch, round }, buffer)
    }

    fn send(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        if now < self.stretch.due {
            return Next::WaitUntil(self.stretch.due);
        }
        if self.waiting.is_empty() && self.stretch.filler.is_none() {
            return Next::Idle;
        }
        let interval = self.report_interval();
        let stretch = &mut self.stretch;
        if let (Pace::Adaptive(parameters), None) = (stretch.pace, &stretch.controller) {
            stretch.controller = Some(Spacing::new(parameters, interval));
        }
        let segment = self.write_data(now, buffer);
        let mut count = 1;
        if self.spacing() == Duration::ZERO && self.waiting.is_empty() {
            // All of one size, so that the system can cut them.
            let whole = self.options.batch.min(usize::from(u16::MAX) / segment.max(1));
            while count < whole && self.stretch.filler == segment.checked_sub(DATA_HEADER) {
                self.write_data(now, buffer);
                count += 1;
            }
        }
        self.stretch.due = now + self.spacing();
        self.unheard_since.get_or_insert(now);
        Next::Transmit(Transmit {
            ecn: self.options.ecn,
            dscp: self.options.dscp,
            segment: u16::try_from(segment).ok().filter(|_| count > 1),
            ..Transmit::to(self.options.destination)
        })
    }

    /// Writes the next packet of data; answers its bytes.
    fn write_data(&mut self, now: Time, buffer: &mut Vec<u8>) -> usize {
        let start = buffer.len();
        let base_rtt_us = self.report_interval().as_nanos() / 1_000;
        let payload = self.waiting.pop_front();
        let stretch = &mut self.stretch;
        let data = Data {
            stretch: stretch.number,
            number: stretch.sent,
            base_rtt_us: u32::try_from(base_rtt_us).unwrap_or(u32::MAX),
            stamp: now.as_nanos(),
            payload: payload.as_deref().unwrap_or_default(),
        };
        wire::write(self.session, &Message::Data(data), buffer);
        if let (None, Some(filler)) = (payload, stretch.filler) {
            buffer.resize(start + DATA_HEADER + filler, 0);
        }
        stretch.first_sent.get_or_insert(now);
        stretch.last_sent = now;
        stretch.sent += 1;
        buffer.len() - start
    }
}

impl Stretch {
    fn new(number: u16, pace: Pace, filler: Option<usize>) -> Self {
        Self {
            number,
            pace,
            controller: None,
            filler,
            sent: 0,
            first_sent: None,
            last_sent: Time::ZERO,
            due: Time::ZERO,
            ask_at: None,
            rounds: 0,
            report: None,
            is_settled: false,
        }
    }
}
