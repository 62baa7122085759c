//! What the operator is told: neighbours, flows, classes, and the errors of a minute.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time};
use ontempo_reservation::machine::{Change, ControlRequest, InterfaceId, Reservation};
use ontempo_reservation::message::{Sender, Session};

use super::neighbours_file::TOUCH;
use super::state::Daemon;
use crate::log::Level;

/// Neighbours are looked at so often, at most.
const LOOK: Duration = Duration::from_secs(1);
/// Questions to the neighbours after a restart, after an application has asked again, or after an
/// interface was away, and the time between two.
const QUESTIONS: u32 = 4;
const ASKING: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Age of the file of neighbours at most, while any is heard.
const NEIGHBOURS_AGE: Duration = Duration::from_secs(TOUCH.as_secs());

/// What was told already.
#[derive(Debug)]
pub(super) struct Observed {
    neighbours: BTreeSet<(InterfaceId, IpAddr)>,
    /// Not before this.
    next: Time,
    /// At this at the latest.
    look_at: Time,
    /// Neighbours before a restart and those of interfaces that were away, how many questions they get
    /// still, when the last was, and the next.
    recalled: Vec<(InterfaceId, IpAddr)>,
    questions: u32,
    asked: Time,
    ask_at: Time,
    /// When the neighbours are written down again at the latest.
    write_at: Time,
    /// Packets received until the last look.
    packets_in: u64,
    dropped: u64,
    refused: u64,
    /// Requests refused since the start.
    refusals: u64,
    /// When the errors since the first one are told.
    sum_at: Time,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            neighbours: BTreeSet::new(),
            next: Time::ZERO,
            look_at: Time::NEVER,
            recalled: Vec::new(),
            questions: 0,
            asked: Time::ZERO,
            ask_at: Time::NEVER,
            write_at: Time::NEVER,
            packets_in: 0,
            dropped: 0,
            refused: 0,
            refusals: 0,
            sum_at: Time::NEVER,
        }
    }
}

impl Observed {
    /// When [`Daemon::observe`] is due.
    pub(super) fn due(&self) -> Time {
        self.look_at.min(self.sum_at).min(self.ask_at)
    }

    /// Neighbours heard at the last look.
    pub(super) fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// Requests refused since the start.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }
}

impl Daemon<'_> {
    pub(super) fn count_error(&mut self, dropped: u64, refused: u64) {
        self.observed.dropped += dropped;
        self.observed.refused += refused;
        self.observed.refusals += refused;
        if self.observed.sum_at == Time::NEVER {
            self.observed.sum_at = self.now() + MINUTE;
        }
    }

    /// Tells of neighbours that are new or silent, and of the errors of a minute.
    pub(super) fn observe(&mut self, now: Time) {
        if self.observed.ask_at <= now {
            self.ask_neighbours(now);
        }
        if self.observed.sum_at <= now {
            let (dropped, refused) = (self.observed.dropped, self.observed.refused);
            (self.observed.dropped, self.observed.refused) = (0, 0);
            self.observed.sum_at = Time::NEVER;
            self.say(
                Level::Warning,
                &format!("in a minute: {dropped} packets dropped, {refused} requests refused"),
            );
        }
        if now < self.observed.next {
            // Who has sent since the last look is looked at soon.
            if self.packets_in != self.observed.packets_in {
                self.observed.look_at = self.observed.next;
            }
            return;
        }
        self.look(now);
        self.check_disciplines();
        self.settle();
    }

    /// Looks at once, so that the next daemon knows the neighbours that were heard last.
    pub(super) fn look(&mut self, now: Time) {
        self.observed.packets_in = self.packets_in;
        let machine = self.config.machine();
        let silence = machine.lifetime(machine.refresh);
        let heard: BTreeSet<(InterfaceId, IpAddr)> = self
            .machine
            .neighbours()
            .filter(|(.., at)| now.since(*at) < silence)
            .map(|(by, address, _)| (by, address))
            .collect();
        let before = std::mem::replace(&mut self.observed.neighbours, heard.clone());
        if heard != before || self.observed.write_at <= now {
            self.remember(&heard);
            self.observed.write_at = now + NEIGHBOURS_AGE;
        }
        for (by, address) in heard.difference(&before) {
            let by = self.name_of(*by);
            self.say(Level::Notice, &format!("neighbour {address} by {by} is up"));
        }
        for (by, address) in before.difference(&heard) {
            let by = self.name_of(*by);
            let line = format!("neighbour {address} by {by} is down: nothing heard for {silence}");
            self.say(Level::Notice, &line);
        }
        self.observed.next = now + LOOK;
        // One that falls silent is told a little late, rather than with a wake-up each second.
        let pause = LOOK.max(machine.refresh);
        self.observed.look_at = if heard.is_empty() { Time::NEVER } else { now + pause };
    }

    /// Writes the neighbours down, for the daemon after a restart.
    fn remember(&mut self, neighbours: &BTreeSet<(InterfaceId, IpAddr)>) {
        let Some(file) = &self.neighbours_file else { return };
        let named = neighbours.iter().map(|(by, address)| (self.name_of(*by), *address));
        if let Err(error) = file.write(named) {
            self.say(Level::Warning, &error.to_string());
        }
    }

    /// Reads the neighbours of a daemon before this one, to ask them for their state rather than to wait
    /// for their refreshes.
    pub(super) fn recall_neighbours(&mut self) {
        let Some(file) = &self.neighbours_file else { return };
        let known = |(name, address): (String, IpAddr)| {
            Some((InterfaceId(self.interfaces.get(&name)?.index), address))
        };
        let neighbours: Vec<_> = file.read().into_iter().filter_map(known).collect();
        if neighbours.is_empty() {
            return;
        }
        self.ask_for_state(neighbours);
    }

    /// Asks the neighbours of an interface that was away: what they reserve by it has ended here and not at
    /// them, who would tell it with their next refreshes only.
    pub(super) fn ask_neighbours_of(&mut self, returned: InterfaceId) {
        let (now, machine) = (self.now(), self.config.machine());
        let silence = machine.lifetime(machine.refresh);
        let neighbours: Vec<_> = self
            .machine
            .neighbours()
            .filter(|(by, _, at)| *by == returned && now.since(*at) < silence)
            .map(|(by, address, _)| (by, address))
            .collect();
        if !neighbours.is_empty() {
            self.ask_for_state(neighbours);
        }
    }

    fn ask_for_state(&mut self, neighbours: Vec<(InterfaceId, IpAddr)>) {
        self.say(Level::Notice, &format!("asks {} neighbours for their state", neighbours.len()));
        let now = self.now();
        // As long as the classes of before: an application may ask again late.
        let machine = self.config.machine();
        self.machine.recover(now + machine.lifetime(machine.refresh));
        // Not those of interfaces that are no more, nor any twice.
        let interfaces = &self.interfaces;
        self.observed.recalled.retain(|known| {
            let is_there = interfaces.values().any(|one| one.index == known.0.0);
            is_there && !neighbours.contains(known)
        });
        self.observed.recalled.extend(neighbours);
        self.ask_again(now);
    }

    /// Asks the recalled neighbours, now and some times more: an application that sends has come back,
    /// whose reservation could not be taken before its PATH was here.
    pub(super) fn ask_again(&mut self, now: Time) {
        if self.machine.recovers(now) {
            self.observed.questions = QUESTIONS;
            // Many applications that come back at once do not hasten it.
            self.observed.ask_at = self.observed.ask_at.min(now.max(self.observed.asked + ASKING));
        }
    }

    /// Asks them: several times, since a RESV counts only after its PATH.
    fn ask_neighbours(&mut self, now: Time) {
        for (by, address) in &self.observed.recalled {
            self.machine.ask(*by, *address);
        }
        self.observed.asked = now;
        self.observed.questions -= 1;
        let more = self.observed.questions > 0;
        self.observed.ask_at = if more { now + ASKING } else { Time::NEVER };
        self.settle();
    }

    /// One line for a change of state.
    pub(super) fn log_change(&mut self, change: &Change) {
        let (level, line) = match change {
            Change::Path { session, sender, previous, by } => {
                let from = SocketAddr::new(sender.address, sender.port);
                let by = self.origin(*by, *previous);
                (Level::Info, format!("PATH of {from} to {} {by}", flow(session)))
            }
            Change::PathEnded { session, sender } => {
                let from = SocketAddr::new(sender.address, sender.port);
                (Level::Info, format!("PATH of {from} to {} has ended", flow(session)))
            }
            Change::Resv { session, next, by } => {
                (Level::Info, format!("RESV for {} {}", flow(session), self.origin(*by, *next)))
            }
            Change::ResvEnded { session, next, by } => {
                let by = self.origin(*by, *next);
                (Level::Info, format!("RESV for {} {by} has ended", flow(session)))
            }
            Change::Marked { session, senders, dscps, unserved, previous, by } => {
                let of = flow_from(session, senders);
                let told = if *by == InterfaceId::LOCAL {
                    "an application of this host".to_owned()
                } else {
                    format!("{previous} by {}", self.name_of(*by))
                };
                let asked = if dscps.is_empty() {
                    format!("no DSCP is asked of {told} for {of}")
                } else {
                    format!("DSCP {dscps} is asked of {told} for {of}")
                };
                if unserved.is_empty() {
                    (Level::Info, asked)
                } else {
                    (
                        Level::Warning,
                        format!("{asked}; {unserved}, which others ask for, does not fit it"),
                    )
                }
            }
            Change::Unmarkable { session, next, by, dscps } => {
                let by = self.origin(*by, *next);
                let line = format!(
                    "left out DSCP {dscps} asked for {} {by}: no host marks best effort or network \
                     control because it is asked to",
                    flow(session)
                );
                (Level::Warning, line)
            }
            Change::Refused { session, neighbour, by, cause } => {
                self.count_error(0, 1);
                let by = self.origin(*by, *neighbour);
                (Level::Warning, format!("refused a request for {} {by}: {cause}", flow(session)))
            }
        };
        self.say(level, &line);
    }

    fn origin(&self, by: InterfaceId, neighbour: IpAddr) -> String {
        if by == InterfaceId::LOCAL {
            return "of this host".to_owned();
        }
        format!("from {neighbour} by {}", self.name_of(by))
    }

    /// One line for a class that is made, changed or removed; none for what was refused, and what ends with
    /// the requests that make it. `before`: the class that it had before these.
    pub(super) fn log_class(&mut self, request: &ControlRequest, before: String) {
        let (interface, handle) = request.place();
        let name = self.name_of(interface);
        let class = match request {
            ControlRequest::Remove(..) => before,
            _ => match self.enforcement.class_name(interface, handle) {
                // Another of the same requests has ended it.
                gone if gone.is_empty() => before,
                class => class,
            },
        };
        if class.is_empty() {
            return;
        }
        let of = |reservation: &Reservation| {
            format!("{} for {}", reservation.rate, flow(&reservation.session))
        };
        let line = match request {
            ControlRequest::Add(.., new) => format!("{name}: class {class} made: {}", of(new)),
            ControlRequest::Modify(.., new) => {
                format!("{name}: class {class} changed: {}", of(new))
            }
            ControlRequest::Remove(..) => format!("{name}: class {class} removed"),
        };
        self.say(Level::Info, &line);
    }
}

/// The same, with who sends them.
fn flow_from(session: &Session, senders: &[Sender]) -> String {
    if senders.is_empty() {
        return flow(session);
    }
    let from = |sender: &Sender| SocketAddr::new(sender.address, sender.port).to_string();
    let from: Vec<String> = senders.iter().map(from).collect();
    format!("{} from {}", flow(session), from.join(" and "))
}

/// Where a session's packets go.
fn flow(session: &Session) -> String {
    let to = SocketAddr::new(session.destination, session.port);
    match session.protocol {
        6 => format!("tcp {to}"),
        17 => format!("udp {to}"),
        other => format!("protocol {other} {to}"),
    }
}
