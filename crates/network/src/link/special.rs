//! Links with extras, and packets that are too large: what few links need, away from the way of most packets.

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::{DropReason, Fate, Link, Occupancy};
use crate::cellreplay::Release;
use crate::{Offered, Verdict};

impl Link {
    /// As [`offer_to_any`](Self::offer_to_any) for a packet that is too large, or on a link with
    /// extras.
    #[cold]
    pub(super) fn offer_special(&mut self, now: Time, size: Bytes, ecn_capable: bool) -> Fate {
        let Some(wire) = &mut self.rest.wire else { unreachable!("a plain link has no extras") };
        if wire.exceeds_mtu(size) {
            return self.drop_packet(DropReason::TooLarge);
        }
        if !wire.conforms(now, size) {
            return self.drop_packet(DropReason::Policer);
        }
        if let Some(release) = wire.release(now, size) {
            return self.offer_replayed(now, release, size, ecn_capable);
        }
        self.settle(now);
        let idle = (now >= self.busy_until).then(|| now.since(self.busy_until));
        let waiting = self.lingering();
        let (wait, rate) = self.estimates(now, size, idle);
        let offered = Offered { now, size, ecn_capable, waiting, idle, wait, rate };
        let rest = &mut *self.rest;
        let marked = match rest.queue.admit(&offered, &mut rest.queue_random) {
            Verdict::Accept => false,
            Verdict::Mark => true,
            Verdict::Drop(reason) => return self.drop_packet(reason),
        };
        rest.marks += u64::from(marked);
        let (starts, sent) = (self.begins(now, size), self.time_to_send(size));
        let Some(wire) = &mut self.rest.wire else { unreachable!("it has the extras") };
        let follows = idle.is_none() && starts == self.busy_until;
        let ends = wire.transmit(starts, follows, size).unwrap_or(starts + sent);
        if let Some(aggregator) = wire.aggregator_mut() {
            aggregator.transmits(now, starts, ends);
        }
        let arrives = (!wire.loses_at(ends)).then(|| (wire.arrival_at(ends), wire.next_harm()));
        self.occupy(starts, ends, size);
        match arrives {
            Some((at, (corrupted, duplicated))) => {
                Fate::Arrives { at, starts, marked, corrupted, duplicated }
            }
            None => self.drop_packet(DropReason::Loss),
        }
    }

    /// As [`offer_to_any`](Self::offer_to_any) on a link that follows a pair of traces: the packet
    /// leaves at once when it is released from the light stage, or after the queue of the heavy trace.
    fn offer_replayed(
        &mut self,
        now: Time,
        Release { at: released, is_light }: Release,
        size: Bytes,
        ecn_capable: bool,
    ) -> Fate {
        let idle = (released >= self.busy_until).then(|| released.since(self.busy_until));
        let rest = &mut *self.rest;
        let Some(wire) = &mut rest.wire else { unreachable!("it has the traces") };
        let waiting = wire.replay_mut().map_or(Occupancy::default(), |replay| {
            replay.settle(now);
            replay.waiting(released)
        });
        let (mut starts, mut ends, mut marked) = (released, released, false);
        if !is_light || idle.is_none() {
            let wait = self.busy_until.since(released);
            let rate = rest.rate;
            let offered = Offered { now: released, size, ecn_capable, waiting, idle, wait, rate };
            match rest.queue.admit(&offered, &mut rest.queue_random) {
                Verdict::Accept => {}
                Verdict::Mark => marked = true,
                Verdict::Drop(reason) => return self.drop_packet(reason),
            }
            starts = released.max(self.busy_until);
            ends = wire.transmit(starts, idle.is_none(), size).unwrap_or(starts);
        }
        if let Some(replay) = wire.replay_mut() {
            replay.admit((released, starts, ends), size);
        }
        rest.marks += u64::from(marked);
        rest.wait += u128::from(starts.since(released).as_nanos());
        let is_lost = wire.loses_at(ends);
        let (corrupted, duplicated) = if is_lost { (false, false) } else { wire.next_harm() };
        self.occupy(starts, ends, size);
        if is_lost {
            return self.drop_packet(DropReason::Loss);
        }
        Fate::Arrives { at: ends, starts, marked, corrupted, duplicated }
    }

    /// When the transmission of a packet starts on a link with extras; until then it waits.
    fn begins(&mut self, now: Time, size: Bytes) -> Time {
        let free = now.max(self.busy_until);
        let aggregator = self.rest.wire.as_mut().and_then(|wire| wire.aggregator_mut());
        let starts = aggregator.map_or(free, |aggregator| aggregator.place(now, free, size));
        if now < self.busy_until || now < starts {
            self.wait_until(starts, now, size);
        }
        starts
    }

    /// What a queue knows of a packet's wait, and of the rate.
    fn estimates(&self, now: Time, size: Bytes, idle: Option<Duration>) -> (Duration, Rate) {
        let nominal = self.rest.rate;
        let Some(schedule) = self.rest.wire.as_ref().and_then(|wire| wire.schedule()) else {
            return (self.busy_until.since(now), nominal);
        };
        match idle {
            Some(_) => (Duration::ZERO, schedule.capacity.mean_rate(self.busy_until, now)),
            // What a router could estimate: it does not know the rates to come.
            None => {
                let present = schedule.rate_of_decisions(now, nominal);
                (present.time_to_send(self.lingering().bytes + size), present)
            }
        }
    }
}
