//! Frames of a flow with deadlines: units that are kept or dropped together, and which of them go
//! where the path does not bear all.

use std::collections::{BTreeMap, BTreeSet};

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::bearing::Path;
use crate::flow::Outgoing;

/// Units of this priority and above are never dropped before their deadline: pictures at which
/// decoding begins, sound, tables.
pub(super) const KEEP: u8 = 5;

/// Numbers remembered of units that have left the queue, to know those that continue or need them.
const REMEMBERED: usize = 4096;

/// Frames whose sizes are summed at a time.
const OPEN: usize = 8;

/// A frame on which others depend is dropped only if it did not arrive in time at so many times the
/// rate either: with it goes the rest of its group, so that a forecast has to be certain.
const CERTAIN: u64 = 2;

/// Span over which the need of a flow is measured, in two halves: some groups of pictures.
const HALF: Duration = Duration::from_secs(2);

/// Bytes that a unit takes on the wire beside its own, for each packet of so many.
const PACKET: u64 = 1_200;
const HEADERS: u64 = 64;

/// Frames dropped are compared for so many bytes.
const MEGA: u64 = 1_000_000;

/// Bytes of a unit on the wire, about.
pub(super) fn cost(size: u64) -> u64 {
    size + HEADERS * size.div_ceil(PACKET).max(1)
}

/// A frame of which units are queued.
#[derive(Debug, Default)]
struct Frame {
    priority: u8,
    is_begun: bool,
    /// Queued units.
    units: BTreeSet<u64>,
    /// Queued frames that depend on it.
    dependants: BTreeSet<u64>,
}

/// A queued unit, in the order of sending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) frame: u64,
    pub(super) size: u64,
    pub(super) sent: Time,
    pub(super) deadline: Option<Time>,
}

/// What a flow has lately asked of its path.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    bytes: u64,
    /// The largest frame on which others depend: its bytes, and the span in which they came.
    largest: (u64, Duration),
}

/// The frames of a flow.
#[derive(Debug, Default)]
pub(super) struct Frames {
    queued: BTreeMap<u64, Frame>,
    /// The frame of each of the last units.
    frames: BTreeMap<u64, u64>,
    /// The last frames of which something was sent.
    begun: BTreeSet<u64>,
    /// Units dropped in the queue; true: what depends on them is sent nevertheless, since something
    /// of their frame was sent, and a decoder conceals the rest.
    gone: BTreeMap<u64, bool>,
    /// The least priority on which other frames depend.
    least_needed: Option<u8>,
    /// Frames that come now: when their first and last unit came, and their bytes.
    open: BTreeMap<u64, (Time, Time, u64)>,
    asked: [Asked; 2],
    since: Time,
    /// The flow needs more than the path bears: frames are dropped before their deadlines.
    pub(super) is_narrow: bool,
    /// Frames were queued since the last plan.
    pub(super) is_new: bool,
}

/// What becomes of a new unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is queued.
    Queued {
        /// Something of its frame was sent.
        is_begun: bool,
    },
    /// Its frame is dropped, or one that it depends on and of which nothing was sent.
    Gone,
}

fn trim<K: Ord, V>(map: &mut BTreeMap<K, V>, most: usize) {
    while map.len() > most {
        map.pop_first();
    }
}

impl Frames {
    /// The fate of unit `id`, which is about to be queued.
    pub(super) fn on_push(&mut self, now: Time, id: u64, unit: &Outgoing) -> Fate {
        let before = unit.continues.and_then(|before| self.frames.get(&before).copied());
        let frame = before.unwrap_or(id);
        self.frames.insert(id, frame);
        trim(&mut self.frames, REMEMBERED);
        self.measure(now, frame, unit);
        let cut = unit.continues.and_then(|before| self.gone.get(&before).copied());
        let is_orphan = unit.depends_on.iter().any(|on| self.gone.get(on) == Some(&false));
        if cut.is_some()
            || self.is_narrow && is_orphan && unit.priority < KEEP && !self.begun.contains(&frame)
        {
            self.note_gone(id, cut.unwrap_or(false));
            return Fate::Gone;
        }
        for on in &unit.depends_on {
            let Some(on) = self.frames.get(on).copied().filter(|on| *on != frame) else { continue };
            if let Some(needed) = self.queued.get_mut(&on) {
                needed.dependants.insert(frame);
                let least = self.least_needed.get_or_insert(needed.priority);
                *least = needed.priority.min(*least);
            }
        }
        let is_begun = self.begun.contains(&frame);
        let queued = self.queued.entry(frame).or_default();
        queued.units.insert(id);
        // A frame is as important as its most important part.
        queued.priority = queued.priority.max(unit.priority);
        queued.is_begun = is_begun;
        self.is_new |= before.is_none();
        Fate::Queued { is_begun }
    }

    /// Sums what the flow asks; stuffing, of priority 0, does not count.
    fn measure(&mut self, now: Time, frame: u64, unit: &Outgoing) {
        if unit.priority == 0 {
            return;
        }
        if now.since(self.since) > HALF {
            let is_recent = now.since(self.since) <= HALF * 2;
            let last = if is_recent { self.asked[0] } else { Asked::default() };
            (self.asked, self.since) = ([Asked::default(), last], now);
        }
        let bytes = cost(unit.data.len() as u64);
        let (first, last, sum) = self.open.entry(frame).or_insert((now, now, 0));
        (*last, *sum) = (now, *sum + bytes);
        let came = (*sum, last.since(*first));
        trim(&mut self.open, OPEN);
        let asked = &mut self.asked[0];
        asked.bytes += bytes;
        if self.least_needed.is_some_and(|least| unit.priority >= least) && came.0 > asked.largest.0
        {
            asked.largest = came;
        }
    }

    /// What the flow needs; `None` before it was measured for 2 s.
    fn need(&self, now: Time) -> Option<Rate> {
        let span = now.since(self.since) + HALF;
        let bytes = self.asked[0].bytes + self.asked[1].bytes;
        (self.asked[1].bytes > 0).then(|| Rate::of(Bytes::new(bytes), span))
    }

    /// How much later than it came the largest frame of the last seconds ends at this rate: frames
    /// that nothing needs leave it that room.
    fn reserve(&self, usable: Rate) -> Duration {
        let rooms = self.asked.iter().map(|asked| {
            let (bytes, came) = asked.largest;
            usable.time_to_send(Bytes::new(bytes)).saturating_sub(came)
        });
        rooms.max().unwrap_or(Duration::ZERO)
    }

    /// The frame of one of the last units.
    pub(super) fn frame_of(&self, id: u64) -> Option<u64> {
        self.frames.get(&id).copied()
    }

    /// A unit of this frame leaves the queue to be sent; returns the rest of a frame that this
    /// begins.
    pub(super) fn on_sent(&mut self, id: u64) -> Vec<u64> {
        let Some(frame) = self.frames.get(&id).copied() else { return Vec::new() };
        let begins = self.begun.insert(frame);
        while self.begun.len() > REMEMBERED {
            self.begun.pop_first();
        }
        let Some(queued) = self.queued.get_mut(&frame) else { return Vec::new() };
        queued.units.remove(&id);
        queued.is_begun = true;
        let rest = if begins { queued.units.iter().copied().collect() } else { Vec::new() };
        if queued.units.is_empty() {
            self.queued.remove(&frame);
        }
        rest
    }

    fn note_gone(&mut self, id: u64, in_part: bool) {
        self.gone.insert(id, in_part);
        trim(&mut self.gone, REMEMBERED);
    }

    /// Drops the frame of a queued unit, and if nothing of it was sent, those that depend on it;
    /// returns all their queued units.
    pub(super) fn drop_frame_of(&mut self, id: u64) -> Vec<u64> {
        let Some(frame) = self.frames.get(&id).copied() else { return vec![id] };
        self.drop_frame(frame)
    }

    fn drop_frame(&mut self, frame: u64) -> Vec<u64> {
        let mut units = Vec::new();
        let mut frames = vec![frame];
        while let Some(frame) = frames.pop() {
            let Some(dropped) = self.queued.remove(&frame) else { continue };
            // A player does without tables and key pictures that came before others of their kind.
            let is_missed = !dropped.is_begun && dropped.priority < KEEP;
            dropped.units.iter().for_each(|id| self.note_gone(*id, !is_missed));
            units.extend(dropped.units);
            if is_missed && self.is_narrow {
                let waits = |on: &u64| {
                    self.queued.get(on).is_some_and(|on| !on.is_begun && on.priority < KEEP)
                };
                frames.extend(dropped.dependants.into_iter().filter(waits));
            }
        }
        units
    }

    /// How many queued frames go with this one, it included.
    fn harm(&self, frame: u64) -> u64 {
        let mut all = BTreeSet::from([frame]);
        let mut frames = vec![frame];
        while let Some(queued) = frames.pop().and_then(|frame| self.queued.get(&frame)) {
            frames.extend(queued.dependants.iter().copied().filter(|on| all.insert(*on)));
        }
        all.len() as u64
    }

    /// Before a plan: notes, and returns, whether the flow needs more than the path bears.
    pub(super) fn note_path(&mut self, now: Time, path: &Path) -> bool {
        self.is_new = false;
        self.is_narrow = self.need(now).is_some_and(|need| need > path.usable());
        self.is_narrow
    }

    /// Drops the frames that go so that the others arrive by their deadlines, and returns their
    /// units; for a path that is too narrow. `queue` is in the order of sending; `before` are the bytes that precede it.
    pub(super) fn plan(
        &mut self,
        now: Time,
        path: &Path,
        before: u64,
        queue: &[Waiting],
    ) -> Vec<u64> {
        let reserve = self.reserve(path.usable());
        let mut dropped: BTreeSet<u64> = BTreeSet::new();
        let mut ahead = before;
        // Frames not begun that may go, with their bytes ahead.
        let mut may_go: BTreeMap<u64, u64> = BTreeMap::new();
        for waiting in queue {
            let Some(frame) = self.queued.get(&waiting.frame) else { continue };
            let bytes = cost(waiting.size);
            ahead += bytes;
            let priority = frame.priority;
            if !frame.is_begun && priority < KEEP {
                *may_go.entry(waiting.frame).or_default() += bytes;
            }
            let Some(deadline) = waiting.deadline else { continue };
            let is_spare =
                !frame.is_begun && self.least_needed.is_some_and(|least| priority < least);
            let room = if is_spare {
                reserve.min(deadline.since(waiting.sent) / 4 * 3)
            } else {
                Duration::ZERO
            };
            while path.arrival(now, Bytes::new(ahead)) + room > deadline {
                let is_certain = path.arrival(now, Bytes::new(ahead / CERTAIN)) > deadline;
                let Some(worst) = self.worst(&may_go, is_certain) else { break };
                dropped.extend(self.drop_frame(worst));
                may_go.retain(|frame, bytes| {
                    let stays = self.queued.contains_key(frame);
                    ahead -= if stays { 0 } else { *bytes };
                    stays
                });
                if dropped.contains(&waiting.id) {
                    break;
                }
            }
        }
        dropped.into_iter().collect()
    }

    /// Of the least priority, the frame with which the fewest go for its bytes; only where the
    /// forecast is certain one on which others depend.
    fn worst(&self, may_go: &BTreeMap<u64, u64>, is_certain: bool) -> Option<u64> {
        let least =
            may_go.keys().filter_map(|frame| Some(self.queued.get(frame)?.priority)).min()?;
        if !is_certain && self.least_needed.is_some_and(|needed| least >= needed) {
            return None;
        }
        let of_least = may_go
            .iter()
            .filter(|(frame, _)| self.queued.get(frame).is_some_and(|one| one.priority == least));
        let worst = of_least.map(|(frame, bytes)| (self.harm(*frame), *bytes, *frame));
        worst
            .min_by_key(|(harm, bytes, frame)| (harm * MEGA / (*bytes).max(1), *frame))
            .map(|(.., frame)| frame)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn path(kbit_s: u64) -> Path {
        let round_trip = Duration::from_millis(100);
        Path { bears: Rate::from_bits_per_sec(kbit_s * 1_000), round_trip, least: round_trip }
    }

    /// A flow's queue without a connection.
    #[derive(Default)]
    struct Flow {
        frames: Frames,
        queue: Vec<Waiting>,
        sent: BTreeSet<u64>,
        gone: BTreeSet<u64>,
        next: u64,
    }

    impl Flow {
        /// One that has asked more of its path than any bears.
        fn narrow() -> Self {
            let mut flow = Self::default();
            flow.frames.asked[1].bytes = 1 << 40;
            flow
        }

        fn push(
            &mut self,
            now: Time,
            size: usize,
            priority: u8,
            on: &[u64],
            continues: Option<u64>,
        ) -> u64 {
            let (id, deadline) = (self.next, Some(now + Duration::from_millis(300)));
            self.next += 1;
            let unit = Outgoing {
                data: vec![0; size].into(),
                deadline,
                priority,
                depends_on: on.to_vec(),
                continues,
            };
            match self.frames.on_push(now, id, &unit) {
                Fate::Gone => assert!(self.gone.insert(id)),
                Fate::Queued { .. } => {
                    let frame = self.frames.frame_of(id).expect("just queued");
                    self.queue.push(Waiting { id, frame, size: size as u64, sent: now, deadline });
                }
            }
            id
        }

        fn plan(&mut self, now: Time, path: &Path) -> Vec<u64> {
            if !self.frames.note_path(now, path) {
                return Vec::new();
            }
            let dropped = self.frames.plan(now, path, 0, &self.queue);
            self.queue.retain(|waiting| !dropped.contains(&waiting.id));
            for id in &dropped {
                assert!(self.gone.insert(*id), "{id} is dropped twice");
            }
            dropped
        }

        fn send(&mut self) {
            if !self.queue.is_empty() {
                let id = self.queue.remove(0).id;
                self.frames.on_sent(id);
                self.sent.insert(id);
            }
        }
    }

    #[test]
    fn what_fits_is_kept() {
        let mut flow = Flow::narrow();
        let key = flow.push(ms(0), 20_000, 5, &[], None);
        (0..5).for_each(|_| {
            flow.push(ms(0), 2_000, 3, &[key], None);
        });
        assert!(flow.plan(ms(0), &path(4_000)).is_empty());
    }

    #[test]
    fn of_what_does_not_fit_the_largest_frames_on_which_none_depends_go() {
        let mut flow = Flow::narrow();
        let key = flow.push(ms(0), 60_000, 5, &[], None);
        let reference = flow.push(ms(0), 20_000, 4, &[key], None);
        let small = flow.push(ms(0), 2_000, 3, &[key, reference], None);
        let large = flow.push(ms(0), 40_000, 3, &[key, reference], None);
        let sound = flow.push(ms(0), 500, 6, &[], None);
        assert_eq!(flow.plan(ms(0), &path(3_000)), [large]);
        let left: Vec<u64> = flow.queue.iter().map(|waiting| waiting.id).collect();
        assert_eq!(left, [key, reference, small, sound]);
    }

    #[test]
    fn a_flow_that_asks_no_more_than_its_path_bears_keeps_what_comes_late() {
        let mut flow = Flow::default();
        flow.push(ms(0), 60_000, 5, &[], None);
        flow.push(ms(0), 600_000, 3, &[], None);
        assert!(flow.plan(ms(0), &path(3_000)).is_empty());
    }

    #[test]
    fn what_depends_on_a_dropped_frame_is_dropped_and_so_is_its_rest() {
        let mut flow = Flow::narrow();
        let key = flow.push(ms(0), 10_000, 5, &[], None);
        let first = flow.push(ms(0), 400_000, 4, &[key], None);
        let second = flow.push(ms(0), 1_000, 4, &[key, first], None);
        assert_eq!(flow.plan(ms(0), &path(3_000)), [first, second]);
        let rest = flow.push(ms(1), 1_000, 4, &[key, first], Some(first));
        let third = flow.push(ms(1), 1_000, 4, &[key, second], None);
        assert!(flow.gone.contains(&rest) && flow.gone.contains(&third));
        let next_key = flow.push(ms(2), 1_000, 5, &[], None);
        flow.push(ms(2), 1_000, 4, &[next_key], None);
        assert!(flow.plan(ms(2), &path(3_000)).is_empty());
    }

    proptest! {
        /// A step: what happens, a size, a priority, and how far back its references lie.
        #[test]
        fn no_plan_cuts_a_frame_nor_drops_what_is_to_be_kept(
            steps in prop::collection::vec((0u8..4, 1usize..40_000, 0u8..8, 1u64..6), 1..200),
            kbit_s in 100u64..8_000,
        ) {
            let mut flow = Flow::narrow();
            let mut priorities: Vec<u8> = Vec::new();
            for (at, (what, size, priority, back)) in (0u64..).zip(steps) {
                let now = ms(at * 7);
                match what {
                    0 => flow.send(),
                    1 => {
                        let begun: BTreeSet<u64> =
                            flow.sent.iter().filter_map(|id| flow.frames.frame_of(*id)).collect();
                        for id in flow.plan(now, &path(kbit_s)) {
                            let frame = flow.frames.frame_of(id).expect("of the last units");
                            prop_assert!(!begun.contains(&frame), "{id} is the rest of {frame}");
                            prop_assert!(priorities[id as usize] < KEEP);
                        }
                    }
                    what => {
                        let before = flow.next.checked_sub(back);
                        let continues = before.filter(|_| what == 3);
                        let priority = match continues {
                            Some(before) => priorities[before as usize],
                            None => priority,
                        };
                        let on: Vec<u64> = before.into_iter().collect();
                        let id = flow.push(now, size, priority, &on, continues);
                        priorities.push(priority);
                        let needs_missed = on.iter().any(|on| flow.frames.gone.get(on) == Some(&false));
                        let is_kept = priority >= KEEP || continues.is_some();
                        prop_assert!(!needs_missed || flow.gone.contains(&id) || is_kept);
                    }
                }
                // Every unit is queued, sent or dropped, and one of them.
                let all = flow.queue.len() + flow.sent.len() + flow.gone.len();
                prop_assert_eq!(all as u64, flow.next);
            }
        }
    }
}
