//! The sender's side: which path carries which unit, and what is sent again where one has gone silent.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};
use ontempo_transport::{ConnectionStatistics, SendStatistics};

use super::{
    CarryReason, MAX_PATHS, MAX_RETURN_AFTER, PathEvent, PathFigures, PathMode, RETURN_AFTER,
    SILENT, SILENT_STANDBY,
};
use crate::latency::MEASURED_FOR;

/// Bytes of kept messages: twice what a flow has in flight.
const MAX_KEPT: usize = 16 << 20;

/// Bytes of memory counted for each kept message beside its data.
const MESSAGE_BYTES: usize = 256;

/// What a path's connection says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Grows whenever the receiver has acknowledged something.
    pub(crate) progress: u64,
    /// Every message of the flow below this number was acknowledged or dropped.
    pub(crate) settled: u64,
    /// Bytes of the flow that are queued or in flight.
    pub(crate) held: u64,
    pub(crate) round_trip: Option<Duration>,
    /// Congestion window, bytes.
    pub(crate) window: u64,
    /// Of this connection.
    pub(crate) bytes_sent: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
}

impl Sample {
    pub(crate) fn of(over: &ConnectionStatistics, flow: &SendStatistics) -> Self {
        Self {
            progress: over.acks_received,
            settled: flow.settled,
            held: flow.held_bytes,
            round_trip: over.round_trip,
            window: over.window.get(),
            bytes_sent: over.bytes_sent,
            packets_sent: over.packets_sent,
            packets_lost: over.packets_lost,
        }
    }
}

/// A path.
#[derive(Clone, Debug)]
struct Path {
    is_open: bool,
    sample: Sample,
    /// Bytes given to it since the sample.
    given: u64,
    /// When something was acknowledged last.
    alive: Time,
    /// `progress` of its connection's first sample, and whether it has grown since: before that a round trip is no
    /// silence.
    first: Option<u64>,
    is_answered: bool,
    /// Since when it has units that are not acknowledged.
    busy: Option<Time>,
    is_up: bool,
    /// Since when it has answered without a gap.
    steady: Time,
    /// It came soon after the stream began over another, and has not been silent: it need not be steady to carry.
    is_initial: bool,
    /// When it began to carry by its return, and how long it is to be steady before that.
    returned: Option<Time>,
    return_after: Duration,
    /// Of earlier connections.
    before: PathFigures,
}

impl Path {
    fn new() -> Self {
        Self {
            is_open: false,
            sample: Sample::default(),
            given: 0,
            alive: Time::ZERO,
            first: None,
            is_answered: false,
            busy: None,
            is_up: false,
            steady: Time::ZERO,
            is_initial: false,
            returned: None,
            return_after: RETURN_AFTER,
            before: PathFigures::default(),
        }
    }

    /// How long nothing has been acknowledged that could have been.
    fn silence(&self, now: Time) -> Duration {
        let first = self.sample.round_trip.filter(|_| !self.is_answered);
        now.since(self.alive + first.unwrap_or_default())
    }

    /// How long until this many bytes more have arrived, by what its window lets through.
    fn expected(&self, bytes: usize) -> f64 {
        /// Of a path that has measured nothing.
        const UNKNOWN: Duration = Duration::from_millis(333);
        let round_trip = self.sample.round_trip.unwrap_or(UNKNOWN).as_secs_f64().max(1e-4);
        let before = (self.sample.held + self.given) as f64 + bytes as f64;
        let window = self.sample.window.max(1) as f64;
        (before / window).max(0.5) * round_trip
    }
}

/// A message that may have to be sent again on another path.
struct Kept<M> {
    number: u64,
    message: M,
    bytes: usize,
    deadline: Option<Time>,
    /// Its number in the flow of each path that has it.
    on: [Option<u64>; MAX_PATHS],
}

/// Paths to try, in this order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Targets {
    paths: [usize; MAX_PATHS],
    count: usize,
    /// All of them, not the first that takes it.
    pub(crate) all: bool,
}

impl Targets {
    fn add(&mut self, path: usize) {
        self.paths[self.count] = path;
        self.count += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.paths.into_iter().take(self.count)
    }
}

/// The paths of a sender.
pub(crate) struct Group<M> {
    mode: PathMode,
    paths: Vec<Path>,
    carrying: usize,
    /// Of the stream; `None`: nothing is too late.
    latency: Option<Duration>,
    /// When the first path had its flow.
    began: Option<Time>,
    next: u64,
    kept: VecDeque<Kept<M>>,
    kept_bytes: usize,
    /// Numbers of messages to be sent again.
    again: VecDeque<u64>,
    events: VecDeque<PathEvent>,
}

impl<M> Group<M> {
    pub(crate) fn new(mode: PathMode, count: usize) -> Self {
        let paths = vec![Path::new(); count.clamp(1, MAX_PATHS)];
        let (kept, again, events) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (carrying, latency, began, next, kept_bytes) = (0, None, None, 0, 0);
        Self { mode, paths, carrying, latency, began, next, kept, kept_bytes, again, events }
    }

    /// What comes this long after what the fastest path brings is too late.
    pub(crate) fn set_latency(&mut self, latency: Option<Duration>) {
        self.latency = latency;
    }

    /// The number of the next message.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// A path has a connection with a new flow.
    pub(crate) fn opened(&mut self, now: Time, path: usize) {
        let began = *self.began.get_or_insert(now);
        let it = &mut self.paths[path];
        (it.is_open, it.sample) = (true, Sample::default());
        (it.first, it.is_answered) = (None, false);
        self.mark_up(now, path);
        self.kept.iter_mut().for_each(|kept| kept.on[path] = None);
        // The first that is there carries: all are steady before the first unit.
        if self.next == 0 {
            self.paths[path].steady = Time::ZERO;
            let first = self.ups().next();
            self.carrying = first.unwrap_or(self.carrying);
        } else {
            let it = &mut self.paths[path];
            it.is_initial = now.since(began) < MEASURED_FOR && it.before.failures == 0;
            if !self.paths[self.carrying].is_up {
                self.carry(now, path);
            }
        }
        self.requeue();
    }

    /// The connection of a path is gone.
    pub(crate) fn closed(&mut self, now: Time, path: usize) {
        if !std::mem::take(&mut self.paths[path].is_open) {
            return;
        }
        let before = self.figures(path);
        self.paths[path].before = PathFigures { round_trip: None, ..before };
        self.paths[path].sample = Sample::default();
        self.kept.iter_mut().for_each(|kept| kept.on[path] = None);
        self.mark_down(path);
        self.choose(now);
        self.requeue();
    }

    /// What a path says at `now`; then [`look`](Self::look).
    pub(crate) fn sample(&mut self, now: Time, path: usize, sample: Sample) {
        let it = &mut self.paths[path];
        it.is_answered |= sample.progress > *it.first.get_or_insert(sample.progress);
        if sample.progress > it.sample.progress {
            it.alive = now;
        }
        (it.sample, it.given) = (sample, 0);
        it.busy = (sample.held > 0).then(|| it.busy.unwrap_or(now));
    }

    /// Decides which paths are up and which one carries, after all were sampled.
    pub(crate) fn look(&mut self, now: Time) {
        let before: Vec<bool> = self.paths.iter().map(|path| path.is_up).collect();
        for place in 0..self.paths.len() {
            let is_carrier = self.carries(place);
            let path = &self.paths[place];
            let silence = path.silence(now);
            // Of questions alone, several may be lost in turn.
            let since_busy = path.busy.filter(|_| is_carrier).map(|busy| now.since(busy));
            let is_silent = since_busy.is_some_and(|busy| busy.min(silence) >= SILENT);
            if path.is_up && (is_silent || silence >= SILENT_STANDBY) {
                self.mark_down(place);
            } else if path.is_open && !path.is_up && silence < SILENT {
                self.mark_up(now, place);
            }
        }
        let has_moved = self.choose(now);
        if has_moved || self.paths.iter().map(|path| path.is_up).ne(before) {
            self.requeue();
        }
        self.forget(now);
    }

    fn carries(&self, path: usize) -> bool {
        match self.mode {
            PathMode::Duplicate => false,
            PathMode::Failover => path == self.carrying,
            PathMode::Balance => self.paths[path].is_up,
        }
    }

    fn ups(&self) -> impl Iterator<Item = usize> {
        self.paths.iter().enumerate().filter(|(_, path)| path.is_up).map(|(place, _)| place)
    }

    fn mark_up(&mut self, now: Time, path: usize) {
        let it = &mut self.paths[path];
        (it.is_up, it.alive, it.steady) = (true, now, now);
        self.events.push_back(PathEvent::Up(path));
    }

    fn mark_down(&mut self, path: usize) {
        let it = &mut self.paths[path];
        it.is_initial = false;
        if std::mem::take(&mut it.is_up) {
            it.before.failures += 1;
            self.events.push_back(PathEvent::Down(path));
        }
    }

    /// Whether what is sent on this path may arrive in time: how much longer it is under way than on the fastest is half of what
    /// the round trip is longer, where both directions are alike.
    fn is_in_time(&self, path: usize) -> bool {
        let fastest = self.ups().filter_map(|up| self.paths[up].sample.round_trip).min();
        let (own, Some(latency)) = (self.paths[path].sample.round_trip, self.latency) else {
            return true;
        };
        own.zip(fastest).is_none_or(|(own, fastest)| own.saturating_sub(fastest) / 2 < latency)
    }

    /// The path that carries alone; true if it is another one.
    fn choose(&mut self, now: Time) -> bool {
        if self.mode != PathMode::Failover {
            return false;
        }
        // The one that was heard last, of equal ones the first.
        let heard_last = |among: &mut dyn Iterator<Item = usize>| {
            among.min_by_key(|place| now.since(self.paths[*place].alive))
        };
        let in_time = heard_last(&mut self.ups().filter(|path| self.is_in_time(*path)));
        let preferred = if !self.paths[self.carrying].is_up {
            in_time.or_else(|| heard_last(&mut self.ups()))
        } else if self.is_in_time(self.carrying) {
            let is_steady = |place: &usize| {
                let path = &self.paths[*place];
                path.is_up
                    && (path.is_initial || now.since(path.steady) >= path.return_after)
                    && now.since(path.alive) < SILENT
                    && self.is_in_time(*place)
            };
            (0..self.carrying).find(is_steady)
        } else {
            in_time
        };
        let Some(path) = preferred else { return false };
        self.carry(now, path);
        true
    }

    fn carry(&mut self, now: Time, path: usize) {
        let is_slow = !self.is_in_time(self.carrying);
        let before = &mut self.paths[self.carrying];
        let why = if !before.is_up {
            CarryReason::Silent(now.since(before.alive))
        } else if is_slow {
            (before.steady, before.is_initial) = (now, false);
            CarryReason::TooSlow(before.sample.round_trip.unwrap_or_default())
        } else {
            CarryReason::Preferred
        };
        if why == CarryReason::Preferred {
            let it = &mut self.paths[path];
            it.returned = Some(now).filter(|_| !std::mem::take(&mut it.is_initial));
        } else {
            let is_soon = before.returned.is_some_and(|at| now.since(at) < MAX_RETURN_AFTER);
            before.return_after = if is_soon {
                (before.return_after * 2).min(MAX_RETURN_AFTER)
            } else {
                RETURN_AFTER
            };
        }
        self.carrying = path;
        self.events.push_back(PathEvent::Carries { path, why });
    }

    /// Where the next message of so many bytes is to be sent.
    pub(crate) fn targets(&self, bytes: usize) -> Targets {
        let mut targets = Targets::default();
        match self.mode {
            // Also where it is silent: what is sent there may arrive after all.
            PathMode::Duplicate => {
                let open = self.paths.iter().enumerate().filter(|(_, path)| path.is_open);
                open.for_each(|(place, _)| targets.add(place));
                targets.all = true;
            }
            PathMode::Failover if self.paths[self.carrying].is_open => {
                targets.add(self.carrying);
            }
            PathMode::Failover => {}
            PathMode::Balance => {
                self.ups().for_each(|path| targets.add(path));
                let expected = |path: &usize| self.paths[*path].expected(bytes);
                targets.paths[..targets.count]
                    .sort_by(|one, other| expected(one).total_cmp(&expected(other)));
            }
        }
        targets
    }

    /// A message was given to paths: `on` has its numbers in their flows.
    pub(crate) fn keep(
        &mut self,
        message: M,
        bytes: usize,
        deadline: Option<Time>,
        on: [Option<u64>; MAX_PATHS],
    ) {
        for (path, _) in on.iter().enumerate().filter(|(_, number)| number.is_some()) {
            self.count(path, bytes);
        }
        self.kept_bytes += bytes + MESSAGE_BYTES;
        self.kept.push_back(Kept { number: self.next, message, bytes, deadline, on });
        self.next += 1;
        // One with a deadline is better given up than waited for.
        while self.kept_bytes > MAX_KEPT
            && self.kept.front().is_some_and(|kept| kept.deadline.is_some())
        {
            self.pop();
        }
    }

    fn count(&mut self, path: usize, bytes: usize) {
        self.paths[path].given += bytes as u64;
        self.paths[path].before.units += 1;
    }

    /// Whether another message may be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.kept_bytes <= MAX_KEPT
    }

    fn pop(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.kept_bytes -= kept.bytes + MESSAGE_BYTES;
        }
    }

    fn is_done(&self, now: Time, kept: &Kept<M>) -> bool {
        let is_settled = |(path, number): (&Path, &Option<u64>)| {
            number.is_some_and(|number| number < path.sample.settled)
        };
        self.paths.iter().zip(&kept.on).any(is_settled)
            || kept.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Removes what has arrived, and what is too late.
    fn forget(&mut self, now: Time) {
        while self.kept.front().is_some_and(|kept| self.is_done(now, kept)) {
            self.pop();
        }
    }

    /// Collects what no path carries that is up.
    fn requeue(&mut self) {
        self.again.clear();
        if self.ups().next().is_none() {
            return;
        }
        let is_carried = |kept: &Kept<M>| {
            self.paths.iter().zip(&kept.on).any(|(path, on)| path.is_up && on.is_some())
        };
        let left = self.kept.iter().filter(|kept| !is_carried(kept));
        self.again = left.map(|kept| kept.number).collect();
    }

    /// The next message to be sent again, with its number, and where; [`sent_again`](Self::sent_again)
    /// says that it was.
    pub(crate) fn next_again(&mut self, now: Time) -> Option<(u64, &M, Targets)> {
        loop {
            let number = *self.again.front()?;
            let first = self.kept.front().map_or(self.next, |kept| kept.number);
            let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            let place = place
                .filter(|place| self.kept.get(*place).is_some_and(|kept| !self.is_done(now, kept)));
            let Some(place) = place else {
                self.again.pop_front();
                continue;
            };
            let mut targets = self.targets(self.kept[place].bytes);
            if self.mode == PathMode::Duplicate {
                // Not where it is already, silent.
                targets = Targets::default();
                self.ups().for_each(|path| targets.add(path));
            }
            return Some((number, &self.kept[place].message, targets));
        }
    }

    pub(crate) fn sent_again(&mut self, number: u64, path: usize, in_flow: u64) {
        if self.again.front() == Some(&number) {
            self.again.pop_front();
        }
        let first = self.kept.front().map_or(self.next, |kept| kept.number);
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(kept) = place.and_then(|place| self.kept.get_mut(place)) {
            kept.on[path] = Some(in_flow);
            let bytes = kept.bytes;
            self.count(path, bytes);
        }
    }

    /// Nothing is left that has neither arrived nor is too late.
    pub(crate) fn is_settled(&mut self, now: Time) -> bool {
        self.forget(now);
        self.kept.is_empty()
    }

    pub(crate) fn is_up(&self, path: usize) -> bool {
        self.paths[path].is_up
    }

    pub(crate) fn poll_event(&mut self) -> Option<PathEvent> {
        self.events.pop_front()
    }

    pub(crate) fn figures(&self, path: usize) -> PathFigures {
        let Path { sample, before, is_up, .. } = &self.paths[path];
        let carries = match self.mode {
            PathMode::Duplicate => *is_up,
            _ => self.carries(path),
        };
        PathFigures {
            is_up: *is_up,
            carries,
            round_trip: sample.round_trip,
            bytes_sent: before.bytes_sent + sample.bytes_sent,
            packets_sent: before.packets_sent + sample.packets_sent,
            packets_lost: before.packets_lost + sample.packets_lost,
            ..*before
        }
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
