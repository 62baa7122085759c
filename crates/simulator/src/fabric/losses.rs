//! Packets that are lost, and senders that come to know.

use ontempo_foundation::{Duration, Time};
use ontempo_network::{DropReason, Fate};

use super::{Event, Fabric};
use crate::packet::Packet;

impl Fabric {
    /// A link has dropped a packet.
    #[cold]
    pub(super) fn lose_at(&mut self, now: Time, link: usize, handle: u32, fate: Fate) {
        let mut at = now;
        if !self.known_after.is_empty()
            && fate == Fate::Dropped(DropReason::Loss)
            && self.is_told(handle).is_some()
        {
            at = self.links[link].missed_arrival();
        }
        self.lose(at, handle);
    }

    /// Removes a packet that is lost; `at`: when it would have left the link.
    pub(super) fn lose(&mut self, at: Time, handle: u32) {
        if let Some(after) = self.is_told(handle) {
            let packet = *self.packets.get(handle);
            self.count_lost(&packet);
            self.wheel.push(at + after, Event::Lost(handle));
            return;
        }
        let packet = self.packets.remove(handle);
        self.count_lost(&packet);
    }

    /// Of the packets that the flow counts as sent, so that it loses no more than it has sent.
    #[inline]
    fn count_lost(&mut self, packet: &Packet) {
        let is_counted = packet.marks.is_counted(self.is_measuring);
        self.dropped[packet.flow as usize] += u64::from(is_counted);
    }

    /// How long after its loss the packet's sender comes to know; `None` if it never does.
    fn is_told(&self, handle: u32) -> Option<Duration> {
        let packet = self.packets.get(handle);
        let known_after = self.known_after.get(packet.flow as usize).copied().flatten();
        known_after.filter(|_| !packet.marks.ack)
    }

    /// The flow's sender comes to know of each loss so long after it.
    pub(crate) fn tell_losses(&mut self, flow: u32, after: Duration) {
        self.known_after.resize(self.groups.len(), None);
        self.known_after[flow as usize] = Some(after);
    }
}
