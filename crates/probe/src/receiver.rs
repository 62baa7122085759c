//! The receiving end: agrees to sessions, counts what comes, reports.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time};

use super::arrivals::{Arrivals, Totals};
use super::token::Token;
use super::wire::{self, Cookie, Data, Message, Reason, Report, WireError};
use ontempo_udp::secret::equal;
use ontempo_udp::{CookieJar, Datagram, Ecn, Next, Protocol, Transmit};

/// Reports come no more often, whatever round trip a sender tells.
pub(super) const MIN_RTT: Duration = Duration::from_millis(1);

/// Reports come no more rarely.
pub(super) const MAX_RTT: Duration = Duration::from_secs(1);

/// Reports end this long after the last packet.
const REPORTS_END: Duration = Duration::from_secs(2);

/// Answers that wait to be sent; more are dropped, as the network might.
const MAX_ANSWERS: usize = 256;

/// What a receiver agrees to.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverOptions {
    /// What a sender must know; anybody may send where `None`.
    pub token: Option<Token>,
    /// Sessions at once, at least 1.
    pub most_sessions: usize,
    /// How long a session lasts without a packet.
    pub idle: Duration,
    /// Hand the payloads on.
    pub payloads: bool,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self { token: None, most_sessions: 16, idle: Duration::from_secs(30), payloads: false }
    }
}

/// What a receiver tells its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session has begun.
    Began {
        /// Its sender.
        peer: SocketAddr,
        /// Its number.
        session: u64,
    },
    /// A payload has come, in whatever order the network kept.
    Payload {
        /// Its session.
        session: u64,
        /// Which stretch it belongs to.
        stretch: u16,
        /// Its number there.
        number: u64,
        /// What it holds.
        data: Vec<u8>,
    },
    /// A session has ended, or nothing came for too long.
    Ended {
        /// Its sender.
        peer: SocketAddr,
        /// Its number.
        session: u64,
        /// What came in its last stretch.
        totals: Totals,
    },
    /// Somebody was turned away.
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: Reason,
    },
}

struct Session {
    /// The address of ours that it speaks to.
    local: Option<IpAddr>,
    stretch: u16,
    arrivals: Arrivals,
    rtt: Duration,
    /// When anything last came.
    heard: Time,
    /// When the next report is due.
    report_at: Time,
    /// The question that the next report answers.
    round: u16,
}

impl Session {
    /// Counts anew where this stretch is a later one.
    fn reach(&mut self, stretch: u16) {
        if stretch > self.stretch {
            (self.stretch, self.arrivals, self.round) = (stretch, Arrivals::new(), 0);
        }
    }
}

/// Receives from any number of senders, up to a bound.
pub struct Receiver {
    options: ReceiverOptions,
    jar: CookieJar,
    sessions: BTreeMap<(SocketAddr, u64), Session>,
    answers: VecDeque<(Transmit, Vec<u8>)>,
    tell: Box<dyn FnMut(Event) + Send>,
}

impl Receiver {
    /// One that makes its cookies from `secret`, which nobody else may know, and hands events to
    /// `tell`, which must not block.
    pub fn new(
        options: ReceiverOptions,
        secret: u128,
        tell: impl FnMut(Event) + Send + 'static,
    ) -> Self {
        Self {
            options,
            jar: CookieJar::new(secret),
            sessions: BTreeMap::new(),
            answers: VecDeque::new(),
            tell: Box::new(tell),
        }
    }

    /// Sessions under way.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn answer(
        &mut self,
        to: SocketAddr,
        from: Option<IpAddr>,
        session: u64,
        message: &Message<'_>,
    ) {
        if self.answers.len() < MAX_ANSWERS {
            let mut bytes = Vec::new();
            wire::write(session, message, &mut bytes);
            self.answers.push_back((Transmit { source: from, ..Transmit::to(to) }, bytes));
        }
    }

    fn refuse(&mut self, datagram: &Datagram<'_>, session: u64, reason: Reason) {
        self.answer(datagram.source, datagram.local, session, &Message::Refuse(reason));
        (self.tell)(Event::Refused { peer: datagram.source, reason });
    }

    fn on_start(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        session: u64,
        (stamp, cookie, proof): (u64, Cookie, Cookie),
    ) {
        let peer = datagram.source;
        if !self.jar.knows(now, peer, session, &cookie) {
            // An old cookie: the sender will say hello again. No answer to a forged one.
            return;
        }
        let expected = Token::proof(self.options.token, &cookie, session);
        if self.options.token.is_some() && !equal(&proof, &expected) {
            return self.refuse(datagram, session, Reason::Token);
        }
        if !self.sessions.contains_key(&(peer, session)) {
            if self.sessions.len() >= self.options.most_sessions.max(1) {
                return self.refuse(datagram, session, Reason::Busy);
            }
            let new = Session {
                local: datagram.local,
                stretch: 0,
                arrivals: Arrivals::new(),
                rtt: MAX_RTT,
                heard: now,
                report_at: Time::NEVER,
                round: 0,
            };
            self.sessions.insert((peer, session), new);
            (self.tell)(Event::Began { peer, session });
        }
        self.answer(peer, datagram.local, session, &Message::Accept { stamp });
    }

    fn on_data(&mut self, now: Time, datagram: &Datagram<'_>, number: u64, data: Data<'_>) {
        let key = (datagram.source, number);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if data.stretch < session.stretch {
            return;
        }
        session.reach(data.stretch);
        session.heard = now;
        session.local = datagram.local;
        let rtt = Duration::from_micros(u64::from(data.base_rtt_us));
        session.rtt = rtt.max(MIN_RTT).min(MAX_RTT);
        let is_new = session.arrivals.on_packet(
            datagram.received,
            data.number,
            data.stamp,
            datagram.data.len(),
            datagram.ecn == Ecn::Congestion,
        );
        if session.report_at == Time::NEVER {
            session.report_at = now + session.rtt;
        }
        if is_new && self.options.payloads {
            (self.tell)(Event::Payload {
                session: number,
                stretch: data.stretch,
                number: data.number,
                data: data.payload.to_vec(),
            });
        }
    }

    fn on_ask(&mut self, now: Time, peer: SocketAddr, session: u64, (stretch, round): (u16, u16)) {
        let Some(asked) = self.sessions.get_mut(&(peer, session)) else { return };
        asked.heard = now;
        asked.reach(stretch);
        if stretch == asked.stretch {
            asked.round = round;
            let report = report_of(now, asked);
            let local = asked.local;
            self.answer(peer, local, session, &Message::Report(report));
        }
    }

    fn end(&mut self, peer: SocketAddr, session: u64) {
        if let Some(ended) = self.sessions.remove(&(peer, session)) {
            (self.tell)(Event::Ended { peer, session, totals: ended.arrivals.totals() });
        }
    }
}

fn report_of(now: Time, session: &Session) -> Report {
    let arrivals = &session.arrivals;
    Report {
        stretch: session.stretch,
        round: session.round,
        stamp: arrivals.stamp,
        held: now.since(arrivals.last()).as_nanos(),
        totals: arrivals.totals(),
    }
}

impl Protocol for Receiver {
    /// None is known.
    type Command = ();

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        let peer = datagram.source;
        match wire::read(datagram.data) {
            Ok((session, message)) => match message {
                Message::Hello { stamp } => {
                    let cookie = self.jar.bake(now, peer, session);
                    let challenge = Message::Challenge { stamp, cookie };
                    self.answer(peer, datagram.local, session, &challenge);
                }
                Message::Start { stamp, cookie, proof } => {
                    self.on_start(now, &datagram, session, (stamp, cookie, proof));
                }
                Message::Data(data) => self.on_data(now, &datagram, session, data),
                Message::Ask { stretch, round } => {
                    self.on_ask(now, peer, session, (stretch, round));
                }
                Message::End => self.end(peer, session),
                // These are a receiver's own.
                Message::Challenge { .. }
                | Message::Accept { .. }
                | Message::Refuse(_)
                | Message::Report(_) => {}
            },
            // Not told to the program: it is shorter than what asked, and anybody may cause it.
            Err(WireError::Version { session, .. }) if datagram.data.len() >= wire::HELLO => {
                let refusal = Message::Refuse(Reason::Version);
                self.answer(peer, datagram.local, session, &refusal);
            }
            Err(_) => {}
        }
    }

    fn handle_command(&mut self, _: Time, (): ()) {}

    fn handle_timeout(&mut self, now: Time) {
        let idle = self.options.idle;
        let is_over = |session: &Session| session.heard + idle <= now;
        let over: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| is_over(session))
            .map(|(&key, _)| key)
            .collect();
        for (peer, session) in over {
            self.end(peer, session);
        }
        let mut due = Vec::new();
        for (&key, session) in &mut self.sessions {
            if session.report_at <= now {
                due.push((key, session.local, report_of(now, session)));
                let goes_on = now.since(session.heard) < REPORTS_END;
                session.report_at = if goes_on { now + session.rtt } else { Time::NEVER };
            }
        }
        for ((peer, session), local, report) in due {
            self.answer(peer, local, session, &Message::Report(report));
        }
    }

    fn next_timeout(&self) -> Time {
        let ends = |session: &Session| (session.heard + self.options.idle).min(session.report_at);
        self.sessions.values().map(ends).min().unwrap_or(Time::NEVER)
    }

    fn poll_transmit(&mut self, _: Time, buffer: &mut Vec<u8>) -> Next {
        match self.answers.pop_front() {
            Some((transmit, bytes)) => {
                buffer.extend(bytes);
                Next::Transmit(transmit)
            }
            None => Next::Idle,
        }
    }
}
