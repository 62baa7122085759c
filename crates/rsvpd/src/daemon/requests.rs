//! Requests of applications, and the events for them.

use ontempo_reservation::local::{
    Answer, Census, EnforcedStatus, InterfaceStatus, Notice, ProtocolStatus, Question, Reply,
    Request, Room, Status, question,
};
use ontempo_reservation::machine::{Event, InterfaceId, check_flows, is_of_host};
use rustix::event::PollFlags;

use super::owners::{Held, Wanted, leave};
use super::state::{Daemon, SETTLING};
use crate::applications::Id;

/// Sessions that one application may watch.
const MAX_WATCHED: usize = 1024;

/// How much of each kind of state a status lists. All kinds together are below the bytes that may
/// wait for an application.
const ROOM: Room = Room { places: 1_000, bytes: 512 << 10 };

const SHARE: &str = "the applications of this user have a quarter of the sessions, or of the flows, \
                     that the node may have, which is their share";
/// One more sender or watched session.
const PLACE: Held = Held { places: 1, flows: 0 };
const GROUP: &str = "the destination is a multicast group; this daemon serves unicast flows only";
const OTHER_APPLICATION: &str = "another application of this host has this sender or reservation";
const OTHER_RESERVATION: &str = "another application of this host has a reservation of this session that \
                                 cannot stand beside this one: each sender needs one of its own (FF), at \
                                 one application";

impl Daemon<'_> {
    /// Something has come from an application, or may go to it.
    pub(super) fn serve_application(&mut self, id: Id, flags: PollFlags) {
        let can_write = flags.contains(PollFlags::OUT);
        if can_write && !(self.applications.flush(id) && self.send_pending(id)) {
            return self.close_application(id);
        }
        if !flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            return;
        }
        let received = self.applications.receive(id);
        for line in received.lines {
            if !self.answer(id, &line) {
                return self.close_application(id);
            }
        }
        if received.ended {
            self.close_application(id);
        }
    }

    /// Answers a request; false where the connection must be closed.
    fn answer(&mut self, id: Id, line: &[u8]) -> bool {
        let Question { id: number, request } = match question(line) {
            Ok(question) => question,
            Err(reason) => {
                self.applications
                    .send(id, &Reply::Answer { id: 0, result: Answer::Refused(reason) });
                return false;
            }
        };
        let watched = match &request {
            Request::Watch { session } => Some(*session),
            _ => None,
        };
        let result = self.carry_out(id, request);
        let mut stands = self.applications.send(id, &Reply::Answer { id: number, result });
        if let Some(session) = watched {
            let known = self.owners.paths.iter().filter(|((to, _), _)| *to == session);
            for ((session, sender), (traffic, adspec)) in known {
                let (session, sender) = (*session, *sender);
                let (traffic, adspec) = (*traffic, *adspec);
                let notice = Reply::Event(Notice::Path { session, sender, traffic, adspec });
                stands &= self.applications.send_path(id, (session, sender), &notice);
            }
        }
        // Events of this request before the answer of the next.
        self.settle();
        stands
    }

    /// Sends the present state of the senders that have changed while earlier bytes waited; false
    /// where the connection must be closed.
    fn send_pending(&mut self, id: Id) -> bool {
        while let Some((session, sender)) = self.applications.next_pending(id) {
            let notice = match self.owners.paths.get(&(session, sender)).copied() {
                Some((traffic, adspec)) => Notice::Path { session, sender, traffic, adspec },
                None => Notice::PathGone { session, sender },
            };
            if !self.applications.send(id, &Reply::Event(notice)) {
                return false;
            }
        }
        true
    }

    /// Whether the applications of this one's user have their share, a quarter of the sessions and of
    /// the flows, and would have more with so many. Root may have all.
    fn exceeds_share(&self, id: Id, more: Held) -> bool {
        let Some(user) = self.applications.user(id) else { return true };
        let limits = self.config.machine().limits;
        let held = self.owners.held_by(self.applications.of_user(user));
        let exceeds = |held, more, limit: usize| more > 0 && held + more > (limit / 4).max(1);
        user != 0
            && (exceeds(held.places, more.places, limits.sessions)
                || exceeds(held.flows, more.flows, limits.all_flows))
    }

    fn carry_out(&mut self, id: Id, request: Request) -> Answer {
        let now = self.now();
        let is_other = |owner: Option<&Id>| owner.is_some_and(|owner| *owner != id);
        let refused = |reason: &str| Answer::Refused(reason.to_owned());
        match request {
            // The kernel's routes of a group are not read, so that no PATH would go anywhere.
            Request::Send { session, .. } if session.destination.is_multicast() => {
                return refused(GROUP);
            }
            Request::Send { session, .. } if !is_of_host(session.destination) => {
                return refused("the destination is no host's address");
            }
            Request::Send { session, sender, traffic } => {
                if is_other(self.owners.senders.get(&(session, sender))) {
                    return refused(OTHER_APPLICATION);
                }
                let is_new = !self.owners.senders.contains_key(&(session, sender));
                if is_new && self.exceeds_share(id, PLACE) {
                    return refused(SHARE);
                }
                if let Err(error) = self.machine.announce(now, session, sender, traffic) {
                    return refused(&error.to_string());
                }
                self.owners.add_sender((session, sender), id);
                if is_new {
                    self.ask_again(now);
                }
            }
            Request::StopSending { session, sender } => {
                if self.owners.senders.get(&(session, sender)) != Some(&id) {
                    return refused("this connection has no such sender");
                }
                self.machine.withdraw(now, session, sender);
                self.owners.remove_sender(&(session, sender));
            }
            Request::Watch { session } => {
                let watched = self.owners.watchers.iter().filter(|(_, owner)| *owner == id);
                if watched.count() >= MAX_WATCHED {
                    return refused("a connection may watch 1,024 sessions");
                }
                let is_new = !self.owners.watchers.contains(&(session, id));
                if is_new && self.exceeds_share(id, PLACE) {
                    return refused(SHARE);
                }
                self.owners.add_watcher(session, id);
                self.machine.open(now, session);
            }
            Request::Reserve { session, style, flows, confirm } => {
                // Their RESV is one: who joins it can make the others' fail.
                let mut owners = self.owners.receivers.get(&session).into_iter().flatten();
                let user = self.applications.user(id);
                if owners.any(|(owner, _)| self.applications.user(*owner) != user) {
                    return refused(OTHER_APPLICATION);
                }
                if let Err(error) = check_flows(&session, style, &flows) {
                    return refused(&error.to_string());
                }
                let more = Held {
                    places: usize::from(!self.owners.is_receiver(&session, id)),
                    flows: flows.len().saturating_sub(self.owners.flows_of(&session, id)),
                };
                let own = Wanted { style, flows, confirm };
                let Some(all) = self.owners.joined(&session, id, own.clone()) else {
                    return refused(OTHER_RESERVATION);
                };
                if self.exceeds_share(id, more) {
                    return refused(SHARE);
                }
                let Wanted { style, flows, confirm } = all;
                if let Err(error) = self.machine.reserve(now, session, style, &flows, confirm) {
                    return refused(&error.to_string());
                }
                self.owners.add_receiver(session, id, own);
            }
            Request::Release { session } => {
                if !self.owners.is_receiver(&session, id) {
                    return refused("this connection has no reservation for that session");
                }
                let rest = self.owners.rest(&session, id);
                leave(&mut self.machine, now, session, rest);
                self.owners.remove_receiver(&session, id);
            }
            Request::Status => return Answer::Status(Box::new(self.status())),
        }
        Answer::Done
    }

    /// Ends a connection with its senders and reservations.
    fn close_application(&mut self, id: Id) {
        let now = self.now();
        self.applications.close(id);
        let ending = self.owners.all_of(Some(id));
        let unwatched = self.owners.forget(id);
        ending.end(&mut self.machine, now);
        for session in unwatched {
            self.machine.close(session);
        }
    }

    pub(super) fn notify(&mut self, event: Event) {
        let Some(notice) = event.notice() else { return };
        self.owners.record(&notice);
        let recipients = self.owners.recipients(&notice);
        let path = match &notice {
            Notice::Path { session, sender, .. } | Notice::PathGone { session, sender } => {
                Some((*session, *sender))
            }
            _ => None,
        };
        for id in recipients {
            let reply = Reply::Event(self.owners.notice_for(&notice, id));
            let stands = match path {
                Some(path) => self.applications.send_path(id, path, &reply),
                None => self.applications.send(id, &reply),
            };
            if !stands {
                self.close_application(id);
            }
        }
    }

    fn status(&self) -> Status {
        let census = self.machine.census();
        let machine = self.config.machine();
        let (names, mut enforced) = (self.interfaces.keys(), ROOM);
        Status {
            process: std::process::id(),
            up_s: self.started.elapsed().as_secs_f64(),
            interfaces: names.map(|name| self.interface_status(name, &mut enforced)).collect(),
            sessions: self.machine.sessions_within(ROOM),
            census: Census {
                sessions: census.sessions,
                paths: census.paths,
                reservations: census.reservations,
                enforced: census.enforced,
            },
            protocol: ProtocolStatus {
                refresh_ms: machine.refresh.as_nanos() / 1_000_000,
                refreshes_lost: machine.refreshes_lost,
                blockade_periods: machine.blockade_periods,
                settling_ms: SETTLING.as_nanos() / 1_000_000,
                ttl: machine.ttl,
            },
            dropped: self.dropped.clone(),
            bad_packets: self.bad_packets,
            packets_in: self.packets_in,
            packets_out: self.packets_out,
            neighbours: self.observed.neighbours(),
            refused: self.observed.refusals(),
        }
    }

    fn interface_status(&self, name: &str, room: &mut Room) -> InterfaceStatus {
        let known = &self.interfaces[name];
        let config = &self.config.interfaces[name];
        let id = InterfaceId(known.index);
        let enforced = self.machine.enforced(id).map(|(handle, reservation)| EnforcedStatus {
            class: self.enforcement.class_name(id, handle),
            session: reservation.session,
            senders: reservation.filters.clone(),
            rate: reservation.rate.as_bits_per_sec(),
            burst: reservation.burst.get(),
            flowspec: reservation.flowspec,
        });
        InterfaceStatus {
            name: name.to_owned(),
            index: known.index,
            addresses: known.addresses.clone(),
            mtu: known.mtu,
            rate: config.rate.as_bits_per_sec(),
            reservable: config.reservable().as_bits_per_sec(),
            reserved: self.machine.reserved(id).as_bits_per_sec(),
            latency_us: config.latency.map(|latency| latency.as_nanos() / 1_000),
            authenticated: config.is_authenticated(),
            adopted: self.enforcement.adopted(id),
            enforced: room.list(enforced),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    use netlink_packet_route::link::LinkLayerType;
    use ontempo_foundation::Time;
    use ontempo_reservation::message::{Descriptor, FlowSpec, Sender, Session, Style, TrafficSpec};

    use super::*;
    use crate::applications::tests::connect_as;
    use crate::config::Config;
    use crate::link_layer::LinkLayer;
    use crate::packets::Packets;
    use crate::routes::Interface;

    const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// Reserves for senders with these ports.
    fn reserve(ports: &[u16]) -> Request {
        reserve_at(9, ports)
    }

    fn reserve_at(port: u16, ports: &[u16]) -> Request {
        let address = HERE.into();
        let traffic =
            TrafficSpec { rate: 1e4, burst: 4e3, peak: 1e4, smallest: 64, largest: 1_500 };
        let flow = |port: &u16| Descriptor {
            flowspec: FlowSpec::ControlledLoad(traffic),
            filters: vec![Sender { address, port: *port }],
        };
        let session = Session { destination: address, protocol: 17, port };
        let flows = ports.iter().map(flow).collect();
        Request::Reserve { session, style: Style::FixedFilter, flows, confirm: true }
    }

    #[test]
    fn an_application_reserves_beside_those_of_its_own_user_alone() {
        if !ontempo_testing::require_root() {
            return;
        }
        let folder = std::env::temp_dir().join(format!("ontempo-joins-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (socket, config) = (folder.join("socket"), folder.join("rsvpd.toml"));
        let text = format!(
            "socket = {socket:?}\n[limits]\nall-flows = 64\n[interfaces.l0]\nrate = \"1 Mbit/s\"\n\
             enforce = false\n"
        );
        fs::write(&config, text).expect("a configuration");
        let config = Config::read(&config).expect("it is right");
        let packets = Packets::open().expect("root may");
        let mut log = |_: crate::log::Level, _: &str| {};
        let mut daemon = Daemon::open(config, packets, &mut log).expect("it opens");
        // An address of none of this machine's interfaces: nothing is sent.
        let layer = LinkLayer::of(LinkLayerType::Loopback, None);
        let lo = Interface { index: 1, mtu: 1_500, up: true, layer, addresses: vec![HERE.into()] };
        daemon.set_up("l0", &lo).expect("it enforces nothing");
        for path in [&folder, &socket] {
            fs::set_permissions(path, Permissions::from_mode(0o777)).expect("its owner may");
        }
        let users = [64_001, 64_001, 64_002, 0];
        let clients = users.map(|user| connect_as(user, &socket, 1));
        assert!(daemon.applications.accept(Time::from_nanos(1)).is_none());
        let ids: Vec<Id> = daemon.applications.connections().map(|(id, ..)| id).collect();
        let ids: [Id; 4] = ids.try_into().expect("four");
        assert_eq!(ids.map(|id| daemon.applications.user(id)), users.map(Some));
        let [first, second, other, root] = ids;
        // A group's routes are not read.
        let traffic =
            TrafficSpec { rate: 1e4, burst: 4e3, peak: 1e4, smallest: 64, largest: 1_500 };
        let group = Session { destination: [239, 1, 1, 1].into(), protocol: 17, port: 9 };
        let sender = Sender { address: HERE.into(), port: 1 };
        let send = Request::Send { session: group, sender, traffic };
        let answer = daemon.carry_out(first, send);
        assert!(matches!(answer, Answer::Refused(reason) if reason == GROUP));
        for nowhere in [[0, 0, 0, 0], [255, 255, 255, 255]] {
            let session = Session { destination: nowhere.into(), ..group };
            let answer = daemon.carry_out(first, Request::Send { session, sender, traffic });
            assert!(matches!(answer, Answer::Refused(reason) if reason.contains("no host's")));
        }
        let mut ask = |id, ports: &[u16]| match daemon.carry_out(id, reserve(ports)) {
            Answer::Refused(reason) => reason,
            answer => format!("{answer:?}"),
        };
        assert_eq!(ask(first, &[1]), "Done");
        // What it asks for is checked before it is joined with the other's.
        assert!(ask(second, &[]).contains("do not fit the style"), "no flows");
        assert_eq!(ask(second, &[2]), "Done");
        let invented: Vec<u16> = (100..160).collect();
        for id in [other, root] {
            assert_eq!(ask(id, &invented), OTHER_APPLICATION);
        }
        assert_eq!(ask(first, &[1, 3, 4, 5, 6]), "Done");
        for id in [first, second] {
            daemon.close_application(id);
        }
        let mut ask = |id, ports: &[u16]| daemon.carry_out(id, reserve(ports));
        assert!(matches!(ask(root, &[7]), Answer::Done));
        assert!(matches!(ask(other, &[8]), Answer::Refused(reason) if reason == OTHER_APPLICATION));
        // A user has a quarter of the flows, and keeps what it has; root has all.
        let mut count = |id, port, count: u16| {
            let ports: Vec<u16> = (100..100 + count).collect();
            match daemon.carry_out(id, reserve_at(port, &ports)) {
                Answer::Refused(reason) => reason,
                answer => format!("{answer:?}"),
            }
        };
        assert_eq!(count(other, 10, 17), SHARE);
        assert_eq!([count(other, 10, 12), count(other, 11, 4)], ["Done", "Done"]);
        assert_eq!([count(other, 12, 1), count(other, 11, 5)], [SHARE, SHARE]);
        assert_eq!([count(other, 10, 11), count(other, 11, 5)], ["Done", "Done"]);
        assert_eq!(count(root, 13, 40), "Done");
        drop((daemon, clients));
        fs::remove_dir_all(folder).expect("it is there");
    }
}
