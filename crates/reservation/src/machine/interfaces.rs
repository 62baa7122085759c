//! Another configuration of the node or of an interface, and the end of an interface.

use std::net::IpAddr;

use ontempo_foundation::{Duration, Rate, Time};

use super::boundary::{ErrorTerms, InterfaceConfig, InterfaceId, Routes};
use super::config::Config;
use super::node::Machine;
use super::state::Neighbour;
use crate::message::{Sender, Session};

impl<R: Routes> Machine<R> {
    /// Other constants and limits; state that is there keeps its times until it is refreshed.
    ///
    /// Another refresh period is announced with the next refresh of each state, which is sent in
    /// full: neighbours time out by the period that they were told last (RFC 2205 section 3.7), and
    /// a number stands for contents that have not changed (RFC 2961 section 4). What no neighbour has
    /// acknowledged yet may be lost: it is sent with the new period at once, as it would have been sent
    /// again.
    pub fn configure(&mut self, now: Time, config: Config) {
        let before = core::mem::replace(&mut self.config, config);
        if before.refresh == self.config.refresh {
            return;
        }
        for session in self.all_sessions() {
            self.edit(session, |machine, state| {
                let mut awaited = Awaited::default();
                for (sender, path) in &mut state.paths {
                    for (by, ours) in &mut path.sent {
                        let is_way = path.outgoing.iter().any(|hop| hop.interface == *by);
                        if is_way && machine.message_ids.awaits_ack(ours) {
                            awaited.paths.push((*sender, *by));
                        } else {
                            machine.forget(ours);
                        }
                    }
                }
                for (previous, up) in &mut state.upstream {
                    if machine.message_ids.awaits_ack(&up.sent) {
                        let confirm = machine.message_ids.awaited_confirm(&up.sent);
                        awaited.resvs.push((*previous, confirm));
                    } else {
                        machine.forget(&mut up.sent);
                    }
                }
                for (sender, by) in awaited.paths {
                    machine.send_path(now, &session, state, &sender, Some(by));
                }
                for (previous, confirm) in awaited.resvs {
                    machine.send_resv(now, &session, state, previous, confirm);
                }
            });
        }
    }

    /// Another configuration of an interface, whose reservations stay, however little may be
    /// reserved now. Next hops are told of what it offers at once. `keeps_keys`: its security
    /// associations are those before.
    pub fn change_interface(
        &mut self,
        now: Time,
        id: InterfaceId,
        config: InterfaceConfig,
        keeps_keys: bool,
    ) {
        let Some(known) = self.interfaces.get_mut(&id) else { return };
        let before = core::mem::replace(&mut known.config, config);
        let offers_the_same = offered(&before) == offered(&known.config);
        if keeps_keys {
            known.config.guard = before.guard;
        }
        known.admission.bound_by(&known.config);
        for session in self.all_sessions() {
            self.edit(session, |machine, state| {
                let senders: Vec<Sender> = state.paths.keys().copied().collect();
                for sender in senders.iter().filter(|_| !offers_the_same) {
                    machine.send_path(now, &session, state, sender, Some(id));
                }
                machine.update(now, &session, state, None);
            });
        }
    }

    /// Disables RSVP on an interface that is gone, and removes its reservation state. Its traffic
    /// control is not called.
    pub fn remove_interface(&mut self, now: Time, id: InterfaceId) {
        self.interfaces.remove(&id);
        for session in self.all_sessions() {
            self.edit(session, |machine, state| {
                state.installed.retain(|(by, _), _| *by != id);
                state.reservations.retain(|(by, _), resv| {
                    if *by == id {
                        machine.message_ids.remove_received(resv.source);
                    }
                    *by != id
                });
                machine.update(now, &session, state, None);
            });
        }
        self.routes_changed(now);
    }

    fn all_sessions(&self) -> Vec<Session> {
        self.sessions.keys().copied().collect()
    }
}

/// Messages of a session that no neighbour has acknowledged yet.
#[derive(Default)]
struct Awaited {
    paths: Vec<(Sender, InterfaceId)>,
    /// With the receiver in their RESV_CONFIRM.
    resvs: Vec<(Neighbour, Option<IpAddr>)>,
}

/// What an interface's PATHs say of it.
type Offered = (Rate, Option<Duration>, u32, Option<ErrorTerms>, [Option<IpAddr>; 2]);

fn offered(config: &InterfaceConfig) -> Offered {
    let hop = |is_v4| config.addresses.iter().copied().find(|one| one.is_ipv4() == is_v4);
    (config.rate, config.latency, config.mtu, config.guaranteed, [hop(true), hop(false)])
}
