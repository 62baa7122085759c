//! A connection whose sender's address changes: it is bound to the addresses with which it began.

use ontempo_foundation::Time;
use ontempo_runtime::AddressChanges;

use super::{ACK_SIZE, Tcp};
use crate::fabric::Fabric;
use crate::packet::Packet;

/// The sender's addresses.
pub(crate) struct Addresses {
    changes: AddressChanges,
    /// With which the receiver has its connection.
    connection: u8,
}

impl Tcp {
    /// The sender's address changes at these times.
    pub(crate) fn with_address_changes(mut self, changes: AddressChanges) -> Self {
        self.changes_address = !changes.is_empty();
        let addresses = Addresses { changes, connection: 0 };
        self.addresses = self.changes_address.then(|| Box::new(addresses));
        self.is_at_ease = self.may_be_at_ease();
        self
    }

    /// Whether an arriving packet belongs to the connection. Data from another address belong to none, and
    /// are answered by a reset (RFC 9293, section 3.10.7.1); what was sent to an address that the sender
    /// no longer has is lost; a reset ends the connection.
    ///
    /// Packets carry no address: that of data is the one that the sender had at the time stamped on
    /// them, and a reset goes to that address, the answer to a SYN, too.
    pub(super) fn is_of_connection(
        &mut self,
        now: Time,
        packet: &Packet,
        fabric: &mut Fabric,
    ) -> bool {
        let Some(addresses) = &mut self.addresses else { return true };
        let stamped = addresses.changes.before(packet.stamp);
        let is_syn = packet.is_syn();
        if !packet.marks.ack {
            if is_syn {
                addresses.connection = stamped;
            } else if stamped != addresses.connection {
                self.reset(now, packet.stamp, fabric);
                return false;
            }
            return true;
        }
        let is_reset = packet.is_reset();
        let to = if is_syn || is_reset { stamped } else { addresses.connection };
        if to != addresses.changes.before(now) {
            return false;
        }
        if is_reset {
            self.is_reset = true;
            self.retransmit_timer.clear();
        }
        !self.is_reset
    }

    /// The receiver has no connection with the address of data that were sent at `stamp`.
    fn reset(&mut self, now: Time, stamp: Time, fabric: &mut Fabric) {
        let mut reset = Packet::data(self.flow, self.back, 0, now, ACK_SIZE);
        reset.stamp = stamp;
        reset.marks.ack = true;
        reset.set_reset();
        fabric.send(now, reset);
    }
}
