//! Requests to the network: the DSCP of packets, and a reservation by the
//! host's RSVP daemon.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration as Wall;

use ontempo_foundation::Bytes;
use ontempo_mechanisms::qos::{Specification, Term};
use ontempo_reservation::local::{Client, Notice, Request, socket};
use ontempo_reservation::message::{AdSpec, Descriptor, FlowSpec, Mark, Sender, Session, Style};
use ontempo_reservation::qos::{self as mapping, Packing};

use super::wire::{TCP_HEADER, UDP_HEADER};
use super::{Direction, Reserve};
use ontempo_monitor::{Carrier, Reservation};
use ontempo_udp::Dscp;

/// Assumed message size if none is specified.
const UNKNOWN_SIZE: Bytes = Bytes::new(1_500);

/// The DSCP that RFC 4594 recommends for such a flow.
pub(super) fn dscp(agreed: &Specification) -> Dscp {
    Dscp::new(mapping::dscp(agreed).bits()).unwrap_or_default()
}

/// Reservation of one direction.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    direction: Direction,
    session: Session,
    sender: Sender,
    service: Reserve,
    agreed: Specification,
    packing: Packing,
    pub(super) state: Reservation,
    pub(super) reason: String,
    /// What the network asks packets to be marked with, while it grants the reservation.
    pub(super) dscp: Option<Dscp>,
    /// Only one end reserves: there is nothing to ask the network for.
    is_one_sided: bool,
}

/// Who reserves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserving {
    /// This end's service.
    pub(super) service: Reserve,
    /// Whether the other end does.
    pub(super) peer: bool,
}

/// Reservations of one connection; dropping it releases them.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    client: Option<Client>,
    /// The daemon is gone; when it returns, the request is repeated.
    is_deserted: bool,
    pub(super) standing: Vec<Standing>,
}

/// A packet's overhead in QUIC (RFC 9000, sections 17.3 and 19.8; RFC 9001, section 5.3): first
/// byte and number, 5; the connection's id, 8; a stream's frame, its header and that of a unit,
/// 30; the tag, 16.
const QUIC_HEADER: usize = 5 + 8 + 30 + 16;

/// How messages of one transport become packets; TCP with the timestamps option, QUIC
/// with packets of the minimum size that every path carries.
fn packing(carrier: Carrier, is_ipv4: bool) -> Packing {
    let ip = if is_ipv4 { 20 } else { 40 };
    let (above, mtu) = match carrier {
        Carrier::Tcp => (32 + TCP_HEADER, 1_500),
        Carrier::Udp => (8 + UDP_HEADER, 1_500),
        Carrier::Quic => (8 + QUIC_HEADER + TCP_HEADER, ip + 8 + 1_200),
    };
    Packing { headers: Bytes::new(ip + above as u64), mtu: Bytes::new(mtu) }
}

impl Reserved {
    /// Requests reservations for both directions as far as they are specified; immediate
    /// refusals are reported.
    pub(super) fn ask(
        Reserving { service, peer }: Reserving,
        carrier: Carrier,
        (local, remote): (SocketAddr, SocketAddr),
        (sending, receiving): (&Specification, &Specification),
    ) -> Self {
        let protocol = if carrier == Carrier::Tcp { 6 } else { 17 };
        let of = |direction, from: SocketAddr, to: SocketAddr, agreed: &Specification| {
            let rated = agreed.max_rate.value.is_some() || agreed.peak_rate.value.is_some();
            rated.then(|| Standing {
                direction,
                session: Session { destination: to.ip(), protocol, port: to.port() },
                sender: Sender { address: from.ip(), port: from.port() },
                service,
                agreed: Specification {
                    size: Term { value: agreed.size.value.or(Some(UNKNOWN_SIZE)), ..agreed.size },
                    ..*agreed
                },
                packing: packing(carrier, to.is_ipv4()),
                state: Reservation::Requested,
                reason: String::new(),
                dscp: None,
                is_one_sided: false,
            })
        };
        let standing = [
            of(Direction::Sending, local, remote, sending),
            of(Direction::Receiving, remote, local, receiving),
        ];
        let mut asked = Self::default();
        let one_sided = match (service != Reserve::None, peer) {
            (false, false) => return asked,
            (true, true) => None,
            (true, false) => Some((Reservation::Refused, "the other end does not reserve")),
            (false, true) => Some((Reservation::None, "the other end reserves, this end does not")),
        };
        asked.standing.extend(standing.into_iter().flatten());
        if let Some((state, reason)) = one_sided {
            for standing in &mut asked.standing {
                standing.end(state, reason.to_owned());
                standing.is_one_sided = true;
            }
            return asked;
        }
        let path = socket();
        if !asked.standing.is_empty()
            && let Err(error) = asked.connect(&path)
        {
            let reason = format!("no RSVP daemon at {}: {error}", path.display());
            for standing in &mut asked.standing {
                standing.end(Reservation::Refused, reason.clone());
            }
        }
        asked
    }

    fn connect(&mut self, path: &Path) -> io::Result<()> {
        let client = self.client.insert(Client::connect(path)?);
        for standing in &mut self.standing {
            standing.end(Reservation::Requested, String::new());
            let asked = standing.request(None).map(|request| client.ask(request));
            if let Some(Err(error)) = asked {
                standing.end(Reservation::Refused, error.to_string());
            }
        }
        Ok(())
    }

    /// Changes since the last call.
    pub(super) fn poll(&mut self) -> Vec<Standing> {
        let mut changed = Vec::new();
        if self.is_deserted && self.connect(&socket()).is_ok() {
            self.is_deserted = false;
            changed.clone_from(&self.standing);
        }
        while let Some(client) = &mut self.client {
            match client.event(Some(Wall::ZERO)) {
                Ok(Some(notice)) => {
                    for standing in &mut self.standing {
                        if standing.session == *notice.session() && standing.on(&notice, client) {
                            changed.push(standing.clone());
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    (self.client, self.is_deserted) = (None, true);
                    for standing in &mut self.standing {
                        standing.end(Reservation::Lost, error.to_string());
                        changed.push(standing.clone());
                    }
                }
            }
        }
        changed
    }

    /// Another specification is agreed: the network is asked for it in place of the one before, also
    /// where that was refused.
    pub(super) fn change(&mut self, direction: Direction, agreed: &Specification) -> Vec<Standing> {
        let Some(client) = &mut self.client else { return Vec::new() };
        let of = |one: &&mut Standing| one.direction == direction && !one.is_one_sided;
        let Some(standing) = self.standing.iter_mut().find(of) else { return Vec::new() };
        let size = Term { value: agreed.size.value.or(Some(UNKNOWN_SIZE)), ..agreed.size };
        let asked = Specification { size, ..*agreed };
        if asked.max_rate.value.is_none() && asked.peak_rate.value.is_none()
            || standing.agreed == asked
        {
            return Vec::new();
        }
        standing.agreed = asked;
        if standing.is_ended() {
            standing.end(Reservation::Requested, String::new());
        }
        let before = (standing.state, standing.reason.clone());
        if let Some(request) = standing.request(None)
            && let Err(error) = client.ask(request)
        {
            standing.end(Reservation::Refused, error.to_string());
        }
        let is_changed = before != (standing.state, standing.reason.clone());
        is_changed.then(|| standing.clone()).into_iter().collect()
    }

    /// Whether the network has refused or ended what this end sends: less may be granted.
    pub(super) fn is_sending_refused(&self) -> bool {
        self.of(Direction::Sending).is_some_and(|one| one.is_ended() && !one.is_one_sided)
    }

    /// Whether all that was asked for is granted; until then `None`.
    ///
    /// # Errors
    /// Why something is not, or is not any more.
    pub(super) fn granted(&self) -> Result<Option<()>, String> {
        if self.standing.is_empty() {
            return Err("neither end asks for a rate, or for a reservation".to_owned());
        }
        let missing = |one: &&Standing| {
            !matches!(one.state, Reservation::ControlledLoad | Reservation::Guaranteed)
        };
        match self.standing.iter().find(missing) {
            None => Ok(Some(())),
            Some(one) if one.state == Reservation::Requested => Ok(None),
            Some(one) => Err(one.reason.clone()),
        }
    }

    /// Why the receiving direction is not reserved, for the peer.
    pub(super) fn refusal(&self) -> Option<String> {
        let standing = self.of(Direction::Receiving).filter(|one| !one.is_one_sided)?;
        (standing.state == Reservation::Refused).then(|| standing.reason.clone())
    }

    /// The receiver reports that its reservation was refused; the network tells only the receiver.
    pub(super) fn on_refused(&mut self, reason: &str) -> Vec<Standing> {
        let waits = |standing: &&mut Standing| {
            standing.direction == Direction::Sending && standing.state == Reservation::Requested
        };
        let mut refused = Vec::new();
        for standing in self.standing.iter_mut().filter(waits) {
            standing.end(Reservation::Refused, format!("at the receiver: {reason}"));
            refused.push(standing.clone());
        }
        refused
    }

    /// The reservation of one direction, if requested.
    pub(super) fn of(&self, direction: Direction) -> Option<&Standing> {
        self.standing.iter().find(|standing| standing.direction == direction)
    }
}

impl Standing {
    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    fn end(&mut self, state: Reservation, reason: String) {
        (self.state, self.reason, self.dscp) = (state, reason, None);
    }

    fn is_ended(&self) -> bool {
        matches!(self.state, Reservation::Refused | Reservation::Lost)
    }

    fn granted(&self) -> Reservation {
        match self.service {
            Reserve::Guaranteed => Reservation::Guaranteed,
            _ => Reservation::ControlledLoad,
        }
    }

    /// The request to the daemon: PATH for a sender, RESV for a receiver. Guaranteed
    /// service waits for the path's ADSPEC.
    fn request(&mut self, path: Option<&AdSpec>) -> Option<Request> {
        let (session, sender) = (self.session, self.sender);
        let traffic = match mapping::traffic(&self.agreed, self.packing) {
            Ok(traffic) => traffic,
            Err(unreservable) => {
                self.end(Reservation::Refused, unreservable.to_string());
                return None;
            }
        };
        if self.direction == Direction::Sending {
            return Some(Request::Send { session, sender, traffic });
        }
        let flowspec = match (self.service, path) {
            (Reserve::Guaranteed, None) => return Some(Request::Watch { session }),
            (Reserve::Guaranteed, Some(path)) => {
                match mapping::flowspec(&self.agreed, self.packing, Some(path)) {
                    Ok(flowspec @ FlowSpec::Guaranteed { .. }) => flowspec,
                    Ok(FlowSpec::ControlledLoad(_)) => {
                        let reason =
                            "the path offers no guaranteed service, or no max_delay is agreed";
                        self.end(Reservation::Refused, reason.to_owned());
                        return None;
                    }
                    Err(unreservable) => {
                        self.end(Reservation::Refused, unreservable.to_string());
                        return None;
                    }
                }
            }
            _ => FlowSpec::ControlledLoad(traffic),
        };
        let flows = vec![Descriptor { flowspec, filters: vec![sender] }];
        Some(Request::Reserve { session, style: Style::FixedFilter, flows, confirm: true })
    }

    /// Takes a report of the daemon about this session; returns whether the state has changed.
    fn on(&mut self, notice: &Notice, client: &mut Client) -> bool {
        let before = (self.state, self.reason.clone());
        let is_ours = |flows: &[Descriptor]| {
            flows.iter().any(|flow| flow.filters.is_empty() || flow.filters.contains(&self.sender))
        };
        match notice {
            Notice::Path { sender, adspec: Some(adspec), .. }
                if *sender == self.sender
                    && self.direction == Direction::Receiving
                    && self.service == Reserve::Guaranteed =>
            {
                if let Some(request) = self.request(Some(adspec))
                    && let Err(error) = client.ask(request)
                {
                    self.end(Reservation::Refused, error.to_string());
                }
            }
            Notice::Confirmed { flows, .. } if is_ours(flows) => {
                self.end(self.granted(), String::new());
            }
            Notice::Reserved { flows, marks, .. } if is_ours(flows) => {
                self.end(self.granted(), String::new());
                self.dscp = Mark::asked_of(&self.sender, marks).and_then(Dscp::new);
            }
            Notice::Reserved { .. } if self.state == self.granted() => {
                self.end(Reservation::Lost, "the receiver or the network has ended it".to_owned());
            }
            Notice::PathGone { sender, .. }
                if *sender == self.sender && self.state == self.granted() =>
            {
                self.end(Reservation::Lost, "the sender's announcement has ended".to_owned());
            }
            Notice::PathError { sender, failure, .. } if *sender == self.sender => {
                self.end(Reservation::Refused, format!("{}: {}", failure.node, failure.reason));
            }
            Notice::ResvError { flow, failure, .. }
                if is_ours(std::slice::from_ref(flow)) && !failure.in_place =>
            {
                let state = if self.state == self.granted() {
                    Reservation::Lost
                } else {
                    Reservation::Refused
                };
                self.end(state, format!("{}: {}", failure.node, failure.reason));
            }
            _ => {}
        }
        before != (self.state, self.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::MessageRate;
    use ontempo_reservation::message::Dclass;

    use super::*;

    /// A reservation of a flow that this end sends, and what the daemon says of it.
    fn sending() -> (Standing, Client) {
        let at = std::env::temp_dir().join(format!("ontempo-dclass-{}", std::process::id()));
        let _ = std::fs::remove_file(&at);
        let listener = std::os::unix::net::UnixListener::bind(&at).expect("a socket");
        let client = Client::connect(&at).expect("it listens");
        std::fs::remove_file(&at).expect("it is there");
        drop(listener);
        let rated = Specification {
            max_rate: Term::firm(MessageRate::per_second(40)),
            ..Specification::default()
        };
        let [local, remote] = ["10.0.0.1:4000", "10.0.0.2:5000"].map(|at| at.parse().expect("one"));
        let reserving = Reserving { service: Reserve::ControlledLoad, peer: true };
        let none = Specification::default();
        let mut asked = Reserved::ask(reserving, Carrier::Udp, (local, remote), (&rated, &none));
        (asked.standing.remove(0), client)
    }

    #[test]
    fn the_dscp_is_what_the_daemon_says_while_it_is_reserved_and_never_network_control() {
        let (mut standing, mut client) = sending();
        let (session, sender) = (standing.session, standing.sender);
        let other = Sender { port: 9, ..sender };
        let flowspec = match standing.request(None) {
            Some(Request::Send { traffic, .. }) => FlowSpec::ControlledLoad(traffic),
            other => panic!("{other:?}"),
        };
        let flows = vec![Descriptor { flowspec, filters: vec![sender] }];
        let style = Style::FixedFilter;
        let reserved = |marks: &[(Vec<Sender>, &[u8])]| {
            let mark = |(senders, dscps): &(Vec<Sender>, &[u8])| Mark {
                senders: senders.clone(),
                dscps: Dclass::try_from(dscps.to_vec()).expect("they are DSCPs"),
            };
            let marks = marks.iter().map(mark).collect();
            Notice::Reserved { session, style, flows: flows.clone(), marks }
        };
        let own = || vec![sender];
        for (marks, expected) in [
            (vec![(own(), &[34][..])], Some(34)),
            (vec![(vec![other], &[26]), (own(), &[14, 12, 10])], Some(10)),
            (vec![(Vec::new(), &[46])], Some(46)),
            (vec![(vec![other], &[26])], None),
            (vec![(own(), &[0, 48, 56, 63])], None),
            (vec![(own(), &[48, 18])], Some(18)),
            (Vec::new(), None),
        ] {
            standing.on(&reserved(&marks), &mut client);
            assert_eq!(standing.dscp.map(Dscp::get), expected, "{marks:?}");
            assert_eq!(standing.state, Reservation::ControlledLoad);
        }
        standing.on(&reserved(&[(own(), &[34])]), &mut client);
        let nothing = Notice::Reserved { session, style, flows: Vec::new(), marks: Vec::new() };
        assert!(standing.on(&nothing, &mut client));
        assert_eq!((standing.state, standing.dscp), (Reservation::Lost, None));
    }
}
