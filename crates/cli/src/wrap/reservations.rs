//! A reservation for each connection, by the host's RSVP daemon: it is announced at the end that
//! sends and reserved at the end that receives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ontempo_foundation::Bytes;
use ontempo_mechanisms::qos::Specification;
use ontempo_monitor::{Carrier, Reservation};
use ontempo_reservation::local::{self, Client, Notice, Request};
use ontempo_reservation::message::{Descriptor, FlowSpec, Sender, Session, Style, TrafficSpec};
use ontempo_reservation::qos::{self as mapping, Packing};

use super::traffic::Flow;
use crate::arguments::{FlowDirection, Service, WrappedRun};
use crate::failure::Failure;

/// TCP's header with time stamps, and that of IP, which is larger in IPv6.
const HEADERS_V4: Bytes = Bytes::new(52);
const HEADERS_V6: Bytes = Bytes::new(72);

/// How one direction of a connection stands, and why, where it is refused or lost.
type State = (Reservation, String);

/// One direction of a connection.
type Way = (Session, Sender);

/// What is asked of the daemon.
pub(super) struct Reservations {
    asked: Specification,
    direction: FlowDirection,
    /// `None` where nothing is to be reserved, or the daemon is gone.
    client: Option<Client>,
    /// Why there is no daemon; empty where nothing is to be reserved.
    missing: String,
    sending: BTreeMap<Way, State>,
    receiving: BTreeMap<Session, BTreeMap<Sender, State>>,
}

impl Reservations {
    pub(super) fn new(arguments: &WrappedRun, asked: &Specification) -> Result<Self, Failure> {
        let mut made = Self {
            asked: *asked,
            direction: arguments.direction,
            client: None,
            missing: String::new(),
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
        };
        if arguments.reserve == Service::Guaranteed {
            return Err(Failure::Input(
                "--reserve guaranteed: qos run reserves controlled load alone; write \
                 --reserve controlled-load or none"
                    .to_owned(),
            ));
        }
        if arguments.reserve == Service::ControlledLoad {
            // What cannot be asked for is said before anything runs.
            made.traffic(true).map_err(|error| {
                Failure::Input(format!("{}: {error}", arguments.spec.display()))
            })?;
            let path: PathBuf = local::socket();
            match Client::connect(&path) {
                Ok(client) => made.client = Some(client),
                Err(error) => {
                    made.missing = format!("no RSVP daemon at {}: {error}", path.display());
                }
            }
        }
        Ok(made)
    }

    /// Asks for what is new, gives up what has ended, and takes what the daemon tells.
    pub(super) fn follow(&mut self, flows: &[Flow]) {
        if self.client.is_none() {
            return;
        }
        if let Err(reason) = self.bring_into_line(flows).and_then(|()| self.listen()) {
            self.client = None;
            self.missing = reason;
        }
    }

    /// How a connection's direction stands.
    pub(super) fn of(&self, flow: &Flow, sends: bool) -> State {
        let known = if sends {
            self.sending.get(&way(flow, true)).cloned()
        } else {
            let (session, sender) = way(flow, false);
            self.receiving.get(&session).and_then(|of| of.get(&sender)).cloned()
        };
        match known {
            Some((_, reason)) if self.client.is_none() && reason.is_empty() => {
                (Reservation::Lost, self.missing.clone())
            }
            Some(known) => known,
            None if self.missing.is_empty() => (Reservation::None, String::new()),
            None => (Reservation::Refused, self.missing.clone()),
        }
    }

    fn traffic(&self, v4: bool) -> Result<TrafficSpec, mapping::Unreservable> {
        let headers = if v4 { HEADERS_V4 } else { HEADERS_V6 };
        mapping::traffic(&self.asked, Packing { headers, ..Packing::UDP_IPV4 })
    }

    fn bring_into_line(&mut self, flows: &[Flow]) -> Result<(), String> {
        let sends = |flow: &&Flow| self.direction.sends() && !flow.remote.ip().is_loopback();
        let wanted: BTreeSet<Way> =
            flows.iter().filter(sends).map(|flow| way(flow, true)).collect();
        let gone: Vec<Way> =
            self.sending.keys().filter(|known| !wanted.contains(known)).copied().collect();
        for (session, sender) in gone {
            self.sending.remove(&(session, sender));
            // One that was refused was never there.
            let _ = self.ask(Request::StopSending { session, sender })?;
        }
        for (session, sender) in wanted {
            if self.sending.contains_key(&(session, sender)) {
                continue;
            }
            let state = match self.traffic(session.destination.is_ipv4()) {
                Ok(traffic) => self.ask(Request::Send { session, sender, traffic })?,
                Err(error) => (Reservation::Refused, error.to_string()),
            };
            self.sending.insert((session, sender), state);
        }
        let receives = |flow: &&Flow| self.direction.receives() && !flow.remote.ip().is_loopback();
        let mut wanted: BTreeMap<Session, BTreeSet<Sender>> = BTreeMap::new();
        for flow in flows.iter().filter(receives) {
            let (session, sender) = way(flow, false);
            wanted.entry(session).or_default().insert(sender);
        }
        let known: Vec<Session> = self.receiving.keys().copied().collect();
        for session in known.into_iter().filter(|session| !wanted.contains_key(session)) {
            self.receiving.remove(&session);
            let _ = self.ask(Request::Release { session })?;
        }
        for (session, senders) in wanted {
            self.reserve(session, senders)?;
        }
        Ok(())
    }

    /// Reserves for these senders to one of the program's ports, where they are not those before.
    fn reserve(&mut self, session: Session, senders: BTreeSet<Sender>) -> Result<(), String> {
        let before = self.receiving.get(&session);
        if before.is_some_and(|before| before.keys().eq(senders.iter())) {
            return Ok(());
        }
        let state = match self.traffic(session.destination.is_ipv4()) {
            Ok(traffic) => {
                let flowspec = FlowSpec::ControlledLoad(traffic);
                let flow = |sender: &Sender| Descriptor { flowspec, filters: vec![*sender] };
                let flows = senders.iter().map(flow).collect();
                let style = Style::FixedFilter;
                self.ask(Request::Reserve { session, style, flows, confirm: true })?
            }
            Err(error) => (Reservation::Refused, error.to_string()),
        };
        let mut before = self.receiving.remove(&session).unwrap_or_default();
        let states = senders.into_iter().map(|sender| {
            let known = before.remove(&sender);
            (sender, known.unwrap_or_else(|| state.clone()))
        });
        self.receiving.insert(session, states.collect());
        Ok(())
    }

    /// What the daemon says to a request: nothing yet, or why not.
    ///
    /// # Errors
    /// Where the daemon is gone.
    fn ask(&mut self, request: Request) -> Result<State, String> {
        let Some(client) = &mut self.client else { return Err(self.missing.clone()) };
        match client.ask(request) {
            Ok(_) => Ok((Reservation::Requested, String::new())),
            Err(local::ClientError::Refused(reason)) => Ok((Reservation::Refused, reason)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn listen(&mut self) -> Result<(), String> {
        while let Some(client) = &mut self.client {
            match client.event(Some(Duration::ZERO)) {
                Ok(Some(notice)) => self.note(notice),
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn note(&mut self, notice: Notice) {
        let reserved = || (Reservation::ControlledLoad, String::new());
        match notice {
            Notice::Reserved { session, flows, .. } => {
                let is_for = |sender: &Sender| {
                    flows
                        .iter()
                        .any(|flow| flow.filters.is_empty() || flow.filters.contains(sender))
                };
                for ((to, sender), state) in &mut self.sending {
                    if *to == session {
                        let had = state.0 == Reservation::ControlledLoad;
                        *state = match (is_for(sender), had) {
                            (true, _) => reserved(),
                            (false, true) => (Reservation::Lost, "the receiver gave it up".into()),
                            (false, false) => continue,
                        };
                    }
                }
            }
            Notice::PathError { session, sender, failure } => {
                if let Some(state) = self.sending.get_mut(&(session, sender)) {
                    *state = (Reservation::Refused, failure.reason);
                }
            }
            Notice::Confirmed { session, flows, .. } => {
                self.set(&session, &flows, &reserved());
            }
            Notice::ResvError { session, flow, failure } if !failure.in_place => {
                self.set(&session, &[flow], &(Reservation::Refused, failure.reason));
            }
            _ => {}
        }
    }

    fn set(&mut self, session: &Session, flows: &[Descriptor], state: &State) {
        let Some(known) = self.receiving.get_mut(session) else { return };
        for sender in flows.iter().flat_map(|flow| &flow.filters) {
            if let Some(place) = known.get_mut(sender) {
                *place = state.clone();
            }
        }
    }
}

/// Session and sender of a connection's direction.
fn way(flow: &Flow, sends: bool) -> Way {
    let (from, to) = if sends { (flow.local, flow.remote) } else { (flow.remote, flow.local) };
    let protocol = if flow.carrier == Carrier::Udp { 17 } else { 6 };
    let sender = |from: SocketAddr| Sender { address: from.ip(), port: from.port() };
    (Session { destination: to.ip(), protocol, port: to.port() }, sender(from))
}
