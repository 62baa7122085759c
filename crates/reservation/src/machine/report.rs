//! What a node knows, for its operator.

use super::Machine;
use super::boundary::{InterfaceId, Routes};
use crate::local::{PathStatus, ReservationStatus, SessionStatus};

impl<R: Routes> Machine<R> {
    /// All sessions, in order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionStatus> {
        let index = |id: InterfaceId| (id != InterfaceId::LOCAL).then_some(id.0);
        self.sessions.iter().map(move |(session, state)| SessionStatus {
            session: *session,
            paths: state
                .paths
                .iter()
                .map(|(sender, path)| PathStatus {
                    sender: *sender,
                    traffic: path.traffic,
                    previous: path.hop.address,
                    incoming: index(path.incoming),
                    outgoing: path.outgoing.iter().filter_map(|hop| index(hop.interface)).collect(),
                })
                .collect(),
            reservations: state
                .reservations
                .iter()
                .flat_map(|((interface, next), resv)| {
                    resv.flows.values().map(move |flow| ReservationStatus {
                        style: resv.style,
                        next: *next,
                        interface: index(*interface),
                        senders: flow.filters.iter().copied().collect(),
                        flowspec: flow.flowspec,
                    })
                })
                .collect(),
        })
    }
}
