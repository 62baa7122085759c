//! Scheduled links: packets wait for an event in which one of them is served.

use ontempo_foundation::{Bytes, Time};
use ontempo_network::Queued;

use super::{Event, Fabric};
use crate::routes::Step;

impl Fabric {
    /// Enqueues a packet at a scheduled link, and serves the link if it is free.
    #[cold]
    pub(super) fn enqueue(&mut self, now: Time, link: usize, handle: u32) {
        // A packet that may leave now leaves before this one arrives, whichever event was first.
        self.serve(now, link);
        let packet = self.packets.get(handle);
        let queued = Queued {
            handle,
            flow: packet.flow,
            class: self.groups[packet.flow as usize],
            size: Bytes::new(u64::from(packet.size)),
            ecn_capable: packet.marks.is_ecn_capable(),
            l4s: packet.marks.is_l4s(),
            enqueued: now,
        };
        let Some(scheduled) = &mut self.scheduled[link] else { return };
        if let Some(watch) = &mut self.watches[link] {
            watch.enqueued(handle, packet, scheduled.link().occupancy().packets);
        }
        scheduled.enqueue(now, queued);
        self.settle_drops(now, link);
        self.serve(now, link);
    }

    /// Handles the event of a scheduled link.
    #[cold]
    pub(crate) fn on_serve(&mut self, now: Time, link: u32) {
        let link = link as usize;
        if self.scheduled[link].as_mut().is_some_and(|scheduled| scheduled.is_due(now)) {
            self.serve(now, link);
        }
    }

    /// Lets a scheduled link transmit now and schedules its next event.
    fn serve(&mut self, now: Time, link: usize) {
        loop {
            let Some(scheduled) = &mut self.scheduled[link] else { return };
            let next = scheduled.link().next_dequeue(now);
            if next > now {
                if scheduled.needs_event_at(next) {
                    self.wheel.push(next, Event::Serve(link as u32));
                }
                return;
            }
            let departure = scheduled.dequeue(now);
            self.settle_drops(now, link);
            let Some(departure) = departure else { continue };
            let handle = departure.packet.handle;
            if let Some(watch) = &mut self.watches[link] {
                watch.departed(now, self.packets.get(handle), &departure);
            }
            match departure.arrives {
                Some(at) => {
                    self.packets.get_mut(handle).marks.congestion |= departure.marked;
                    if departure.corrupted | departure.duplicated {
                        self.harm(at, handle, departure.corrupted, departure.duplicated);
                    }
                    self.pass_on(at, handle);
                }
                None => self.lose(now, handle),
            }
        }
    }

    /// Forwards a packet that leaves a scheduled link. Its arrival is always an event,
    /// so that a flow's packets arrive in order whatever the scheduler did.
    fn pass_on(&mut self, at: Time, handle: u32) {
        let packet = self.packets.get(handle);
        let next = self.steps[packet.step as usize];
        if next.0 == Step::ARRIVED.0 || !next.may_be_offered_ahead() {
            self.wheel.push(at, Event::Packet(handle));
        } else if let Some(at) = self.offer_again(at, handle) {
            self.wheel.push(at, Event::Packet(handle));
        }
    }

    /// A packet that arrives at `at` has bit errors, or a copy arrives with it.
    #[cold]
    pub(super) fn harm(&mut self, at: Time, handle: u32, corrupted: bool, duplicated: bool) {
        let packet = self.packets.get_mut(handle);
        if corrupted {
            packet.marks.corrupt();
        }
        if duplicated {
            let mut copy = *packet;
            copy.marks.leave_out();
            let copy = self.packets.insert(copy);
            self.wheel.push(at, Event::Packet(copy));
        }
    }

    /// Removes from the network what a scheduled link dropped.
    fn settle_drops(&mut self, now: Time, link: usize) {
        loop {
            let Some(scheduled) = &mut self.scheduled[link] else { return };
            let waiting = scheduled.link().occupancy().packets;
            let Some(dropped) = scheduled.take_drop() else { return };
            let handle = dropped.packet.handle;
            let packet = *self.packets.get(handle);
            if let Some(watch) = &mut self.watches[link] {
                watch.dropped(handle, &packet, waiting, dropped.reason);
            }
            self.lose(now, handle);
        }
    }
}
