//! Reserves for each connection through the host's RSVP daemon: the sending end sends PATH, the
//! receiving end RESV.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ontempo_foundation::Bytes;
use ontempo_mechanisms::qos::Specification;
use ontempo_monitor::{Carrier, Reservation};
use ontempo_reservation::local::{self, Client, Notice, Request};
use ontempo_reservation::message::{
    Descriptor, FlowSpec, Mark, Sender, Session, Style, TrafficSpec,
};
use ontempo_reservation::qos::{self as mapping, Packing};

use super::traffic::Flow;
use crate::arguments::{FlowDirection, Service, WrappedRun};
use crate::failure::Failure;

/// TCP header with timestamps, plus IP header.
const HEADERS_V4: Bytes = Bytes::new(52);
const HEADERS_V6: Bytes = Bytes::new(72);

/// How long after the daemon was lost, or not there, it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// But at least so many times as long as the attempt took: sockets are not marked meanwhile.
const RETRY_SHARE: u32 = 10;

/// Reservation state of one direction, and the reason if refused or lost.
pub(super) type State = (Reservation, String);

/// One direction of a connection.
type FlowKey = (Session, Sender);

/// Reservations of the program's connections.
pub(super) struct Reservations {
    specification: Specification,
    direction: FlowDirection,
    /// The daemon's socket; `None` if nothing is to be reserved.
    daemon: Option<PathBuf>,
    /// `None` if nothing is to be reserved, or the daemon is unreachable.
    client: Option<Client>,
    /// An unreachable daemon is not tried before.
    retry_at: Instant,
    /// Why the daemon is unreachable; empty if nothing is to be reserved.
    daemon_error: String,
    sending: BTreeMap<FlowKey, State>,
    /// The DSCP that the network asks for with what is reserved of `sending` (RFC 2996).
    asked: BTreeMap<FlowKey, u8>,
    receiving: BTreeMap<Session, BTreeMap<Sender, State>>,
}

impl Reservations {
    pub(super) fn new(
        arguments: &WrappedRun,
        specification: &Specification,
    ) -> Result<Self, Failure> {
        let mut reservations = Self {
            specification: *specification,
            direction: arguments.direction,
            daemon: None,
            client: None,
            retry_at: Instant::now(),
            daemon_error: String::new(),
            sending: BTreeMap::new(),
            asked: BTreeMap::new(),
            receiving: BTreeMap::new(),
        };
        if arguments.reserve == Service::Guaranteed {
            return Err(Failure::Input(
                "--reserve guaranteed: qos run reserves only controlled load; write \
                 --reserve controlled-load or none"
                    .to_owned(),
            ));
        }
        if arguments.reserve == Service::ControlledLoad {
            // Reject a specification that cannot be reserved before the program starts.
            reservations.traffic(true).map_err(|error| {
                Failure::Input(format!("{}: {error}", arguments.spec.display()))
            })?;
            reservations.daemon = Some(local::socket());
            reservations.connect();
        }
        Ok(reservations)
    }

    /// Connects to the daemon; it knows nothing of earlier requests.
    fn connect(&mut self) {
        let Some(path) = &self.daemon else { return };
        match Client::connect(path) {
            Ok(client) => {
                self.client = Some(client);
                self.daemon_error.clear();
                self.sending.clear();
                self.receiving.clear();
            }
            Err(error) => {
                self.daemon_error = format!("no RSVP daemon at {}: {error}", path.display());
                self.retry_at = Instant::now() + RETRY_INTERVAL;
            }
        }
    }

    /// Reserves for new connections, releases ended ones, and reads the daemon's events.
    pub(super) fn follow(&mut self, flows: &[Flow]) {
        let begins = Instant::now();
        if self.client.is_none() && begins >= self.retry_at {
            self.connect();
        }
        if self.client.is_none() {
            return;
        }
        if let Err(reason) = self.update(flows).and_then(|()| self.read_events()) {
            self.client = None;
            self.asked.clear();
            self.daemon_error = reason;
            let pause = RETRY_INTERVAL.max(begins.elapsed() * RETRY_SHARE);
            self.retry_at = Instant::now() + pause;
        }
    }

    /// The DSCP that the network asks for of each of these connections for which it does, by inode.
    pub(super) fn asked_of(&self, flows: &[Flow]) -> BTreeMap<u64, u8> {
        let asked = |flow: &Flow| Some((flow.inode, *self.asked.get(&flow_key(flow, true))?));
        flows.iter().filter_map(asked).collect()
    }

    /// Whether there are any, or requests for them.
    pub(super) fn are_made(&self) -> bool {
        self.client.is_some() && !(self.sending.is_empty() && self.receiving.is_empty())
    }

    /// Reservation state of one direction of a connection.
    pub(super) fn of(&self, flow: &Flow, sends: bool) -> State {
        let known = if sends {
            self.sending.get(&flow_key(flow, true)).cloned()
        } else {
            let (session, sender) = flow_key(flow, false);
            self.receiving.get(&session).and_then(|of| of.get(&sender)).cloned()
        };
        match known {
            Some((_, reason)) if self.client.is_none() && reason.is_empty() => {
                (Reservation::Lost, self.daemon_error.clone())
            }
            Some(known) => known,
            None if self.daemon_error.is_empty() => (Reservation::None, String::new()),
            None => (Reservation::Refused, self.daemon_error.clone()),
        }
    }

    fn traffic(&self, v4: bool) -> Result<TrafficSpec, mapping::Unreservable> {
        let headers = if v4 { HEADERS_V4 } else { HEADERS_V6 };
        mapping::traffic(&self.specification, Packing { headers, ..Packing::UDP_IPV4 })
    }

    fn update(&mut self, flows: &[Flow]) -> Result<(), String> {
        let sends = |flow: &&Flow| self.direction.sends() && !flow.remote.ip().is_loopback();
        let current: BTreeSet<FlowKey> =
            flows.iter().filter(sends).map(|flow| flow_key(flow, true)).collect();
        let gone: Vec<FlowKey> =
            self.sending.keys().filter(|known| !current.contains(known)).copied().collect();
        for (session, sender) in gone {
            self.sending.remove(&(session, sender));
            self.asked.remove(&(session, sender));
            // A refused request has left nothing to stop.
            let _ = self.request(Request::StopSending { session, sender })?;
        }
        for (session, sender) in current {
            if self.sending.contains_key(&(session, sender)) {
                continue;
            }
            let state = match self.traffic(session.destination.is_ipv4()) {
                Ok(traffic) => self.request(Request::Send { session, sender, traffic })?,
                Err(error) => (Reservation::Refused, error.to_string()),
            };
            self.sending.insert((session, sender), state);
        }
        // A program that has closed its socket receives nothing more.
        let receives = |flow: &&Flow| {
            self.direction.receives() && !flow.is_closed && !flow.remote.ip().is_loopback()
        };
        let mut current: BTreeMap<Session, BTreeSet<Sender>> = BTreeMap::new();
        for flow in flows.iter().filter(receives) {
            let (session, sender) = flow_key(flow, false);
            current.entry(session).or_default().insert(sender);
        }
        let known: Vec<Session> = self.receiving.keys().copied().collect();
        for session in known.into_iter().filter(|session| !current.contains_key(session)) {
            self.receiving.remove(&session);
            let _ = self.request(Request::Release { session })?;
        }
        for (session, senders) in current {
            self.reserve(session, senders)?;
        }
        Ok(())
    }

    /// Reserves a session of the program for these senders, if they have changed.
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
                self.request(Request::Reserve { session, style, flows, confirm: true })?
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

    /// Sends a request to the daemon: the state is requested, or refused with a reason.
    ///
    /// # Errors
    /// The daemon is unreachable.
    fn request(&mut self, request: Request) -> Result<State, String> {
        let Some(client) = &mut self.client else { return Err(self.daemon_error.clone()) };
        match client.ask(request) {
            Ok(_) => Ok((Reservation::Requested, String::new())),
            Err(local::ClientError::Refused(reason)) => Ok((Reservation::Refused, reason)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read_events(&mut self) -> Result<(), String> {
        while let Some(client) = &mut self.client {
            match client.event(Some(Duration::ZERO)) {
                Ok(Some(notice)) => self.on_notice(notice),
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn on_notice(&mut self, notice: Notice) {
        let reserved = || (Reservation::ControlledLoad, String::new());
        match notice {
            Notice::Reserved { session, flows, marks, .. } => {
                let is_for = |sender: &Sender| {
                    flows
                        .iter()
                        .any(|flow| flow.filters.is_empty() || flow.filters.contains(sender))
                };
                for (flow @ (to, sender), state) in &mut self.sending {
                    if *to == session {
                        let was_reserved = state.0 == Reservation::ControlledLoad;
                        self.asked.remove(flow);
                        *state = match (is_for(sender), was_reserved) {
                            (true, _) => reserved(),
                            (false, true) => (Reservation::Lost, "released by the receiver".into()),
                            (false, false) => continue,
                        };
                        if is_for(sender)
                            && let Some(dscp) = Mark::asked_of(sender, &marks)
                        {
                            self.asked.insert(*flow, dscp);
                        }
                    }
                }
            }
            Notice::PathError { session, sender, failure } => {
                if let Some(state) = self.sending.get_mut(&(session, sender)) {
                    *state = (Reservation::Refused, failure.reason);
                    self.asked.remove(&(session, sender));
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
fn flow_key(flow: &Flow, sends: bool) -> FlowKey {
    let (from, to) = if sends { (flow.local, flow.remote) } else { (flow.remote, flow.local) };
    let protocol = if flow.carrier == Carrier::Udp { 17 } else { 6 };
    let sender = |from: SocketAddr| Sender { address: from.ip(), port: from.port() };
    (Session { destination: to.ip(), protocol, port: to.port() }, sender(from))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::thread::{self, JoinHandle};
    use std::{env, fs, process};

    use ontempo_foundation::MessageRate;
    use ontempo_mechanisms::qos::Term;
    use ontempo_reservation::local::{Answer, Reply, line, question};

    use super::super::traffic;
    use super::*;

    /// A daemon that ends after a request, which it returns.
    fn daemon(at: &Path) -> JoinHandle<Request> {
        let _ = fs::remove_file(at);
        let listener = UnixListener::bind(at).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            BufReader::new(&stream).read_until(b'\n', &mut asked).unwrap();
            let asked = question(&asked).unwrap();
            let answer = Reply::Answer { id: asked.id, result: Answer::Done };
            stream.write_all(&line(&answer)).unwrap();
            asked.request
        })
    }

    #[test]
    fn a_daemon_that_was_restarted_is_asked_again() {
        let at = env::temp_dir().join(format!("ontempo-restarted-{}", process::id()));
        let specification = Specification {
            max_rate: Term::firm(MessageRate::per_second(40)),
            size: Term::firm(Bytes::new(1_280)),
            ..Specification::default()
        };
        let mut reservations = Reservations {
            specification,
            direction: FlowDirection::Send,
            daemon: Some(at.clone()),
            client: None,
            retry_at: Instant::now(),
            daemon_error: String::new(),
            sending: BTreeMap::new(),
            asked: BTreeMap::new(),
            receiving: BTreeMap::new(),
        };
        let flow = Flow {
            inode: 1,
            carrier: Carrier::Tcp,
            local: "192.0.2.1:50000".parse().unwrap(),
            remote: "192.0.2.2:5201".parse().unwrap(),
            state: traffic::State::Open,
            is_closed: false,
            counters: None,
        };
        let flows = [flow];
        let first = daemon(&at);
        reservations.follow(&flows);
        let asked = first.join().unwrap();
        assert!(matches!(asked, Request::Send { .. }), "{asked:?}");
        reservations.follow(&flows);
        assert_eq!(reservations.of(&flows[0], true).0, Reservation::Lost);
        assert!(!reservations.are_made());
        let second = daemon(&at);
        let until = Instant::now() + Duration::from_secs(30);
        while !second.is_finished() {
            assert!(Instant::now() < until, "it is not asked again");
            reservations.follow(&flows);
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(second.join().unwrap(), asked);
        fs::remove_file(&at).unwrap();
    }
}
