//! What the operator is told: neighbours, flows, classes, and the errors of a minute.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ontempo_foundation::{Duration, Time};
use ontempo_reservation::machine::{Change, ControlRequest, InterfaceId, Reservation};
use ontempo_reservation::message::Session;

use super::state::Daemon;
use crate::log::Level;

/// Neighbours are looked at so often, at most.
const LOOK: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What was told already.
#[derive(Debug)]
pub(super) struct Observed {
    neighbours: BTreeSet<(InterfaceId, IpAddr)>,
    /// Not before this.
    next: Time,
    /// At this at the latest.
    look_at: Time,
    dropped: u64,
    refused: u64,
    /// When the errors since the first one are told.
    sum_at: Time,
}

impl Default for Observed {
    fn default() -> Self {
        let neighbours = BTreeSet::new();
        let (next, look_at, sum_at) = (Time::ZERO, Time::NEVER, Time::NEVER);
        Self { neighbours, next, look_at, dropped: 0, refused: 0, sum_at }
    }
}

impl Observed {
    /// When [`Daemon::observe`] is due.
    pub(super) fn due(&self) -> Time {
        self.look_at.min(self.sum_at)
    }
}

impl Daemon<'_> {
    pub(super) fn count_error(&mut self, dropped: u64, refused: u64) {
        self.observed.dropped += dropped;
        self.observed.refused += refused;
        if self.observed.sum_at == Time::NEVER {
            self.observed.sum_at = self.now() + MINUTE;
        }
    }

    /// Tells of neighbours that are new or silent, and of the errors of a minute.
    pub(super) fn observe(&mut self, now: Time) {
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
            return;
        }
        let machine = self.config.machine();
        let silence = machine.lifetime(machine.refresh);
        let heard: BTreeSet<(InterfaceId, IpAddr)> = self
            .machine
            .neighbours()
            .filter(|(.., at)| now.since(*at) < silence)
            .map(|(by, address, _)| (by, address))
            .collect();
        let before = std::mem::replace(&mut self.observed.neighbours, heard.clone());
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

    /// One line for a change of state.
    pub(super) fn tell(&mut self, change: &Change) {
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

    /// One line for a class that is made, changed or removed.
    pub(super) fn tell_class(&mut self, request: &ControlRequest, removed: Option<String>) {
        let (interface, handle) = request.place();
        let name = self.name_of(interface);
        let class = self.enforcement.class_name(interface, handle);
        let of = |reservation: &Reservation| {
            format!("{} for {}", reservation.rate, flow(&reservation.session))
        };
        let line = match request {
            ControlRequest::Add(.., new) => format!("{name}: class {class} made: {}", of(new)),
            ControlRequest::Modify(.., new) => {
                format!("{name}: class {class} changed: {}", of(new))
            }
            ControlRequest::Remove(..) => {
                format!("{name}: class {} removed", removed.unwrap_or_default())
            }
        };
        self.say(Level::Info, &line);
    }
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
