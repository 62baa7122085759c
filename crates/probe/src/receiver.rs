//! The receiving end: accepts sessions, counts packets, sends reports.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time, host_prefix};

use super::arrivals::{Arrivals, Totals};
use super::token::Token;
use super::trace::ArrivalLog;
use super::wire::{self, Cookie, Data, Load, Message, Reason, Report, WireError};
use ontempo_udp::secret::equal;
use ontempo_udp::{CookieJar, Datagram, Ecn, Next, Protocol, Transmit};

/// Minimum interval of reports, however short the round trip.
pub(super) const MIN_RTT: Duration = Duration::from_millis(1);

/// Maximum interval of reports.
pub(super) const MAX_RTT: Duration = Duration::from_secs(1);

/// Reports stop this long after the last packet.
const REPORTS_END: Duration = Duration::from_secs(2);

/// Queued answers; more are dropped, as a network might.
const MAX_ANSWERS: usize = 256;

/// Reports of a session are at most so many times what came of it, as RFC 9000, section 8.1, has it.
/// The last report of a step needs that much, where no packet but the requests arrives.
const MAX_REPORTED: u64 = 3;

/// Bytes of the IP and UDP headers, which a path carries in either direction, at least.
const HEADERS: u64 = 28;

/// Where no place is left, a session that was silent for so long yields its own: the longest spacing
/// of `ontempo probe` is 10 s.
const YIELDING: Duration = Duration::from_secs(12);

/// Options of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverOptions {
    /// Token that a sender must prove; `None`: anybody may send.
    pub token: Option<Token>,
    /// Maximum number of sessions, at least 1. If all are taken, a session of another host may take
    /// the place of a silent one, or of one of the host that has most.
    pub most_sessions: usize,
    /// Maximum number of sessions of one host, at least 1: an IPv4 address, or an IPv6 prefix of
    /// 56 bits.
    pub most_sessions_per_host: usize,
    /// Idle timeout of a session.
    pub idle: Duration,
    /// Whether to pass payloads to the program.
    pub payloads: bool,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            token: None,
            most_sessions: 16,
            most_sessions_per_host: 4,
            idle: Duration::from_secs(30),
            payloads: false,
        }
    }
}

/// Events of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session began.
    Began {
        /// Its sender.
        peer: SocketAddr,
        /// Its number.
        session: u64,
    },
    /// A payload arrived, in the order of the network.
    Payload {
        /// Its session.
        session: u64,
        /// Its step.
        step: u16,
        /// Its number in that step.
        number: u64,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// A session ended, or timed out.
    Ended {
        /// Its sender.
        peer: SocketAddr,
        /// Its number.
        session: u64,
        /// Counters of its last step.
        totals: Totals,
    },
    /// A session was refused.
    Refused {
        /// The sender.
        peer: SocketAddr,
        /// The reason.
        reason: Reason,
    },
}

struct Session {
    /// The local address that the sender uses.
    local: Option<IpAddr>,
    step: u16,
    arrivals: Arrivals,
    rtt: Duration,
    /// Time of the last packet.
    heard: Time,
    /// When the next report is due.
    report_at: Time,
    /// The number of the request that the next report answers.
    round: u16,
    /// Bytes that reports may still have, with headers.
    allowance: u64,
    /// Arrivals of load packets, if any came.
    log: Option<Box<ArrivalLog>>,
}

impl Session {
    /// A datagram of it came, which reports may answer.
    fn hear(&mut self, now: Time, bytes: usize) {
        self.heard = now;
        self.allowance += MAX_REPORTED * (bytes as u64 + HEADERS);
    }

    /// The report to send now; `None` if too little came for one more.
    fn report(&mut self, now: Time) -> Option<Report> {
        self.allowance = self.allowance.checked_sub(wire::REPORT as u64 + HEADERS)?;
        let arrivals = &self.arrivals;
        Some(Report {
            step: self.step,
            round: self.round,
            stamp: arrivals.stamp,
            held: now.since(arrivals.last()).as_nanos(),
            totals: arrivals.totals(),
        })
    }

    /// Resets the counters if this step is a later one.
    fn reach(&mut self, step: u16) {
        if step > self.step {
            (self.step, self.arrivals, self.round) = (step, Arrivals::new(), 0);
        }
    }
}

/// Receives from a bounded number of senders, of which each host has a share.
pub struct Receiver {
    options: ReceiverOptions,
    jar: CookieJar,
    sessions: BTreeMap<(SocketAddr, u64), Session>,
    answers: VecDeque<(Transmit, Vec<u8>)>,
    on_event: Box<dyn FnMut(Event) + Send>,
}

impl Receiver {
    /// A receiver that derives its cookies from `secret`, which must be unpredictable, and passes
    /// events to `on_event`, which must not block.
    pub fn new(
        options: ReceiverOptions,
        secret: u128,
        on_event: impl FnMut(Event) + Send + 'static,
    ) -> Self {
        Self {
            options,
            jar: CookieJar::new(secret),
            sessions: BTreeMap::new(),
            answers: VecDeque::new(),
            on_event: Box::new(on_event),
        }
    }

    /// Number of sessions.
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
        (self.on_event)(Event::Refused { peer: datagram.source, reason });
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
            // An expired cookie: the sender will send Hello again. A forged one gets no answer.
            return;
        }
        let expected = Token::proof(self.options.token, &cookie, session);
        if self.options.token.is_some() && !equal(&proof, &expected) {
            return self.refuse(datagram, session, Reason::Token);
        }
        if !self.sessions.contains_key(&(peer, session)) {
            if !self.make_room(now, host_prefix(peer.ip())) {
                return self.refuse(datagram, session, Reason::Busy);
            }
            let new = Session {
                local: datagram.local,
                step: 0,
                arrivals: Arrivals::new(),
                rtt: MAX_RTT,
                heard: now,
                report_at: Time::NEVER,
                round: 0,
                allowance: 0,
                log: None,
            };
            self.sessions.insert((peer, session), new);
            (self.on_event)(Event::Began { peer, session });
        }
        self.answer(peer, datagram.local, session, &Message::Accept { stamp });
    }

    /// Makes room for a session of this host; false if no other has to yield. Where all places are
    /// taken, the session that was silent for the longest time yields: one that was so for
    /// [`YIELDING`], or one of the host that has most, if that is at least two more than the new one's.
    fn make_room(&mut self, now: Time, host: IpAddr) -> bool {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (peer, _) in self.sessions.keys() {
            *counts.entry(host_prefix(peer.ip())).or_default() += 1;
        }
        let own = counts.get(&host).copied().unwrap_or(0);
        let largest = counts.values().copied().max().unwrap_or(0);
        let is_host_full = own >= self.options.most_sessions_per_host.max(1);
        if !is_host_full && self.sessions.len() < self.options.most_sessions.max(1) {
            return true;
        }
        let yields = |(peer, _): &(SocketAddr, u64), session: &Session| {
            let of = host_prefix(peer.ip());
            let has_more = largest > own + 1 && counts.get(&of) == Some(&largest);
            let is_silent = session.heard + YIELDING <= now;
            if is_host_full { of == host && is_silent } else { is_silent || has_more }
        };
        let candidates = self.sessions.iter().filter(|(key, session)| yields(key, session));
        let longest_silent = candidates.min_by_key(|(_, session)| session.heard);
        let Some((&(peer, session), _)) = longest_silent else { return false };
        self.end(peer, session);
        true
    }

    fn on_data(&mut self, now: Time, datagram: &Datagram<'_>, number: u64, data: Data<'_>) {
        let key = (datagram.source, number);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if data.step < session.step {
            return;
        }
        session.reach(data.step);
        session.hear(now, datagram.data.len());
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
            (self.on_event)(Event::Payload {
                session: number,
                step: data.step,
                number: data.number,
                data: data.payload.to_vec(),
            });
        }
    }

    fn on_load(&mut self, now: Time, datagram: &Datagram<'_>, number: u64, load: Load<'_>) {
        let key = (datagram.source, number);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        // What its arrivals may have the log counts by itself.
        session.heard = now;
        session.local = datagram.local;
        let is_new = session.arrivals.on_packet(
            datagram.received,
            u64::from(load.number),
            load.stamp,
            datagram.data.len(),
            datagram.ecn == Ecn::Congestion,
        );
        if is_new {
            let log = session.log.get_or_insert_default();
            log.on_packet(now, datagram.received, &load, datagram.data.len());
        }
    }

    fn on_report_request(
        &mut self,
        now: Time,
        datagram: &Datagram<'_>,
        session: u64,
        (step, round): (u16, u16),
    ) {
        let peer = datagram.source;
        let Some(asked) = self.sessions.get_mut(&(peer, session)) else { return };
        asked.hear(now, datagram.data.len());
        asked.reach(step);
        if step == asked.step {
            asked.round = round;
            let local = asked.local;
            if let Some(report) = asked.report(now) {
                self.answer(peer, local, session, &Message::Report(report));
            }
        }
    }

    /// Sends the arrivals that are due.
    fn report_arrivals(&mut self, now: Time) {
        for (&(peer, number), session) in &mut self.sessions {
            let Some(log) = session.log.as_mut().filter(|log| log.due() <= now) else { continue };
            let mut bytes = Vec::new();
            // Beyond what may wait it is lost, as in a network.
            if log.report(now, number, &mut bytes) && self.answers.len() < MAX_ANSWERS {
                let transmit = Transmit { source: session.local, ..Transmit::to(peer) };
                self.answers.push_back((transmit, bytes));
            }
        }
    }

    fn end(&mut self, peer: SocketAddr, session: u64) {
        if let Some(ended) = self.sessions.remove(&(peer, session)) {
            (self.on_event)(Event::Ended { peer, session, totals: ended.arrivals.totals() });
        }
    }
}

impl Protocol for Receiver {
    /// No commands.
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
                Message::RequestReport { step, round } => {
                    self.on_report_request(now, &datagram, session, (step, round));
                }
                Message::End => self.end(peer, session),
                Message::Load(load) => self.on_load(now, &datagram, session, load),
                // Only receivers send these.
                Message::Challenge { .. }
                | Message::Accept { .. }
                | Message::Refuse(_)
                | Message::Report(_)
                | Message::Arrivals(_) => {}
            },
            // No event: the answer is shorter than the packet, and anybody may cause it.
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
                let report = session.report(now);
                let goes_on = report.is_some() && now.since(session.heard) < REPORTS_END;
                session.report_at = if goes_on { now + session.rtt } else { Time::NEVER };
                due.extend(report.map(|report| (key, session.local, report)));
            }
        }
        for ((peer, session), local, report) in due {
            self.answer(peer, local, session, &Message::Report(report));
        }
        self.report_arrivals(now);
    }

    fn next_timeout(&self) -> Time {
        let log = |session: &Session| session.log.as_ref().map_or(Time::NEVER, |log| log.due());
        let ends = |session: &Session| {
            (session.heard + self.options.idle).min(session.report_at).min(log(session))
        };
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
