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

/// Frames on which none depends whose sizes are kept, in each half of the span: more than a film has.
const SPARE: usize = 1_024;

/// A frame on which others depend is dropped only if it did not arrive in time at so many times the
/// rate either: with it goes the rest of its group, so that a forecast has to be certain.
const CERTAIN: u64 = 2;

/// Frames on which none depends go among the others where the lifetime is so many times the room for a key picture,
/// and so many round trips: twice those that the default latency has for repairs.
const ROOMS: u64 = 3;
const ROUND_TRIPS: u64 = 8;

/// Frames of priority [`KEEP`] are expected at equal distances if the last two differ by at most such a part, and so
/// much of a lifetime sooner than their deadline: what follows them has to be on time, too.
const ALIKE: u64 = 8;
const SOONER: u64 = 10;

/// Of so many of these the largest is expected.
const KEYS: usize = 3;

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
#[derive(Clone, Debug, Default)]
struct Asked {
    bytes: u64,
    /// The bytes of each frame on which none depends, the first of them.
    spare: Vec<u64>,
    /// Such frames came in several units: the size of one is not known when it begins.
    in_parts: bool,
    /// The largest frame on which others depend, and the largest of these below [`KEEP`].
    largest: Came,
    largest_between: Came,
}

/// A frame that has come: its bytes, and the span in which they came.
type Came = (u64, Duration);

/// Frames at which decoding begins, of priority [`KEEP`].
#[derive(Debug, Default)]
struct Keys {
    /// The last one, when it began, and its distance from the one before.
    last: Option<(u64, Time)>,
    distance: Option<Duration>,
    /// The last two distances are alike.
    are_regular: bool,
    /// The last ones, the latest first.
    came: [Came; KEYS],
}

impl Keys {
    /// A unit of one of them has come.
    fn on_unit(&mut self, now: Time, frame: u64, bytes: u64) {
        match self.last {
            Some((last, began)) if last == frame => {
                let (so_far, _) = self.came[0];
                self.came[0] = (so_far + bytes, now.since(began));
            }
            last => {
                let distance = last.map(|(_, began)| now.since(began));
                self.are_regular = distance.zip(self.distance).is_some_and(|(new, before)| {
                    new.max(before) - new.min(before) <= before / ALIKE
                });
                (self.last, self.distance) = (Some((frame, now)), distance);
                self.came.rotate_right(1);
                self.came[0] = (bytes, Duration::ZERO);
            }
        }
    }

    /// When the next one begins; `None` if they do not come regularly.
    fn next(&self, now: Time) -> Option<Time> {
        let ((_, began), distance) = self.last.zip(self.distance).filter(|_| self.are_regular)?;
        let next = began + distance;
        (now <= next + distance / ALIKE).then_some(next.max(now))
    }
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
    keys: Keys,
    /// The flow needs more than the path bears: frames are dropped before their deadlines.
    pub(super) is_narrow: bool,
    /// The room that spare frames leave for any frame, and where the next key picture is expected for those between;
    /// and the size below which the path bears them beside those that are needed.
    reserve: Duration,
    reserve_between: Duration,
    spare_below: u64,
    /// The lifetime from which on spare frames may go among the others.
    ample: Duration,
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
        /// It goes among units of this priority, above its own: none depends on its frame, but it is small
        /// enough for what the others leave.
        among: Option<u8>,
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
        let among = self.among(now, unit);
        let queued = self.queued.entry(frame).or_default();
        queued.units.insert(id);
        // A frame is as important as its most important part.
        queued.priority = queued.priority.max(unit.priority);
        queued.is_begun = is_begun;
        self.is_new |= before.is_none();
        Fate::Queued { is_begun, among }
    }

    /// Whether none depends on frames of this priority.
    fn is_spare(&self, priority: u8) -> bool {
        self.least_needed.is_some_and(|least| priority < least)
    }

    /// The priority among which a spare unit goes, but stuffing: it is smaller than those of the last seconds that the path
    /// does not bear beside the frames that are needed, and there is time for repairs and for a key picture behind it.
    fn among(&self, now: Time, unit: &Outgoing) -> Option<u8> {
        let fits = cost(unit.data.len() as u64) < self.spare_below;
        let has_time = unit.deadline.is_some_and(|deadline| deadline.since(now) >= self.ample);
        let is_spare = unit.priority > 0 && self.is_spare(unit.priority);
        self.least_needed.filter(|_| self.is_narrow && is_spare && fits && has_time)
    }

    /// The size below which all spare frames of the last seconds fit beside those that are needed.
    fn spare_below(&self, now: Time, borne: Rate) -> u64 {
        if self.asked.iter().any(|asked| asked.in_parts) {
            return 0;
        }
        let span = now.since(self.since) + HALF;
        let all: u64 = self.asked.iter().map(|asked| asked.bytes).sum();
        let mut spare: Vec<u64> =
            self.asked.iter().flat_map(|one| one.spare.iter().copied()).collect();
        let needed = all.saturating_sub(spare.iter().sum());
        let borne = borne.as_bits_per_sec() as f64 / 8.0 * span.as_secs_f64();
        let mut left = (borne as u64).checked_sub(needed);
        spare.sort_unstable();
        let first_left_out = spare.into_iter().find(|bytes| {
            left = left.and_then(|left| left.checked_sub(*bytes));
            left.is_none()
        });
        first_left_out.unwrap_or(u64::MAX)
    }

    /// Sums what the flow asks; stuffing, of priority 0, does not count.
    fn measure(&mut self, now: Time, frame: u64, unit: &Outgoing) {
        if unit.priority == 0 {
            return;
        }
        if now.since(self.since) > HALF {
            let is_recent = now.since(self.since) <= HALF * 2;
            let [last, _] = std::mem::take(&mut self.asked);
            let last = if is_recent { last } else { Asked::default() };
            (self.asked, self.since) = ([Asked::default(), last], now);
        }
        let bytes = cost(unit.data.len() as u64);
        let (first, last, sum) = self.open.entry(frame).or_insert((now, now, 0));
        (*last, *sum) = (now, *sum + bytes);
        let came = (*sum, last.since(*first));
        trim(&mut self.open, OPEN);
        if unit.priority == KEEP {
            self.keys.on_unit(now, frame, bytes);
        }
        let is_spare = self.is_spare(unit.priority);
        let asked = &mut self.asked[0];
        asked.bytes += bytes;
        if is_spare && unit.continues.is_some() {
            asked.in_parts = true;
        } else if is_spare && asked.spare.len() < SPARE {
            asked.spare.push(bytes);
        }
        if self.least_needed.is_some_and(|least| unit.priority >= least) {
            let larger = |before: Came| if came.0 > before.0 { came } else { before };
            asked.largest = larger(asked.largest);
            if unit.priority < KEEP {
                asked.largest_between = larger(asked.largest_between);
            }
        }
    }

    /// What the flow needs; `None` before it was measured for 2 s.
    fn need(&self, now: Time) -> Option<Rate> {
        let span = now.since(self.since) + HALF;
        let bytes = self.asked[0].bytes + self.asked[1].bytes;
        (self.asked[1].bytes > 0).then(|| Rate::of(Bytes::new(bytes), span))
    }

    /// What it has asked of the path in the last 2 to 4 s; nothing, if no frames came; `None` while that is not known.
    pub(super) fn lately(&self, now: Time) -> Option<Rate> {
        let is_silent = self.asked.iter().all(|asked| asked.bytes == 0);
        self.need(now).or_else(|| is_silent.then(|| Rate::from_bits_per_sec(0)))
    }

    /// How much later than it came the largest of these frames ends at this rate: frames that nothing
    /// needs leave it that room.
    fn room(largest: [Came; 2], usable: Rate) -> Duration {
        let [first, second] = largest
            .map(|(bytes, came)| usable.time_to_send(Bytes::new(bytes)).saturating_sub(came));
        first.max(second)
    }

    /// Whether the next key picture would be late behind so many bytes, or what follows it; it is expected to live as
    /// long as this unit, and to be as large as the largest of the last ones that would be on time alone.
    fn delays_key(&self, now: Time, path: &Path, ahead: u64, waiting: &Waiting) -> bool {
        let Some((begins, deadline)) = self.keys.next(now).zip(waiting.deadline) else {
            return false;
        };
        let lifetime = deadline.since(waiting.sent);
        let in_time = self.keys.came.iter().filter(|(bytes, came)| {
            path.arrival(begins, Bytes::new(*bytes)) <= begins + *came + lifetime
        });
        in_time.max().is_some_and(|(bytes, came)| {
            let deadline = begins + *came + (lifetime - lifetime / SOONER);
            path.arrival(now, Bytes::new(ahead + bytes)) > deadline
        })
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
        let [last, before] = &self.asked;
        self.reserve = Self::room([last.largest, before.largest], path.usable());
        let between = [last.largest_between, before.largest_between];
        self.reserve_between = match self.keys.next(now) {
            Some(_) => Self::room(between, path.usable()),
            None => self.reserve,
        };
        self.ample = (self.reserve * ROOMS).max(path.least * ROUND_TRIPS);
        self.spare_below = if self.is_narrow { self.spare_below(now, path.measured) } else { 0 };
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
        let mut dropped: BTreeSet<u64> = BTreeSet::new();
        let mut ahead = before;
        // Frames not begun that may go, with their bytes ahead.
        let mut may_go: BTreeMap<u64, u64> = BTreeMap::new();
        for waiting in queue {
            let Some(frame) = self.queued.get(&waiting.frame) else { continue };
            let bytes = cost(waiting.size);
            ahead += bytes;
            let priority = frame.priority;
            let is_begun = frame.is_begun;
            let may_go_itself = !is_begun && priority < KEEP;
            if may_go_itself {
                *may_go.entry(waiting.frame).or_default() += bytes;
            }
            let Some(deadline) = waiting.deadline else { continue };
            let room = if !is_begun && self.is_spare(priority) {
                self.reserve_between.min(deadline.since(waiting.sent) / 4 * 3)
            } else {
                Duration::ZERO
            };
            loop {
                let delays_key = may_go_itself && self.delays_key(now, path, ahead, waiting);
                if !delays_key && path.arrival(now, Bytes::new(ahead)) + room <= deadline {
                    break;
                }
                let is_certain =
                    delays_key || path.arrival(now, Bytes::new(ahead / CERTAIN)) > deadline;
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
mod tests;
