//! The sending direction of a connection: counters, and the receiver's reports.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use std::cmp::Ordering;

use ontempo_foundation::{Bytes, Duration, Rate, Time};
use ontempo_mechanisms::qos::{
    Ladder, Parameter, Refusal, Specification, Step, Turn, Violation, agree,
};

use super::incoming::not_recovered;
use super::wire::{Change, Figures};
use ontempo_monitor::from_mib_units;

/// Counters updated for each message; on a cache line of their own, as another thread may receive.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// Counts a message; returns its number, from 0.
    #[inline]
    pub(super) fn count(&self, size: usize) -> u64 {
        self.bytes.fetch_add(size as u64, Relaxed);
        self.messages.fetch_add(1, Relaxed)
    }

    /// The same, if no other thread counts meanwhile: no atomic operation is needed.
    #[inline]
    pub(super) fn count_alone(&self, size: usize) {
        self.bytes.store(self.bytes.load(Relaxed) + size as u64, Relaxed);
        self.messages.store(self.messages.load(Relaxed) + 1, Relaxed);
    }

    /// A message that was counted last was not sent; no other thread counts meanwhile.
    pub(super) fn take_back(&self, size: usize) {
        self.bytes.store(self.bytes.load(Relaxed) - size as u64, Relaxed);
        self.messages.store(self.messages.load(Relaxed) - 1, Relaxed);
    }

    /// The number of the next message.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.messages.load(Relaxed)
    }

    /// Messages and payload sent.
    pub(super) fn get(&self) -> (u64, u64) {
        (self.messages.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// Specifications for the sender to step down to and up again, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderOptions {
    /// In place of the first specification, in descending order.
    pub below: Vec<Specification>,
    /// How long a violation lasts before a step down.
    pub step_down_after: Duration,
    /// How long without one before a step up.
    pub step_up_after: Duration,
}

#[derive(Debug)]
struct Climbing {
    rungs: Vec<Specification>,
    ladder: Ladder,
    /// The rung now.
    rung: usize,
    /// The rung at which an operator holds it.
    held: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    asked: Specification,
    /// The receiver's specification in the handshake.
    peer: Specification,
    agreed: Specification,
    change: Option<Change>,
    changed: u32,
    figures: Figures,
    begun: [u32; Parameter::ALL.len()],
    climbing: Option<Climbing>,
    last: (Time, u64),
    throughput: f64,
}

impl Outgoing {
    pub(super) fn new(
        now: Time,
        asked: Specification,
        peer: Specification,
        agreed: Specification,
        ladder: Option<&LadderOptions>,
    ) -> Self {
        let climbing = ladder.map(|options| {
            let rungs: Vec<_> = [asked].into_iter().chain(options.below.iter().copied()).collect();
            let ladder = Ladder::new(rungs.len(), options.step_down_after, options.step_up_after);
            Climbing { rungs, ladder, rung: 0, held: None }
        });
        Self {
            asked,
            peer,
            agreed,
            change: None,
            changed: 0,
            figures: Figures::default(),
            begun: [0; Parameter::ALL.len()],
            climbing,
            last: (now, 0),
            throughput: 0.0,
        }
    }

    pub(super) fn asked(&self) -> &Specification {
        &self.asked
    }

    pub(super) fn agreed(&self) -> &Specification {
        &self.agreed
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    pub(super) fn begun(&self) -> &[u32; Parameter::ALL.len()] {
        &self.begun
    }

    /// Bits per second in the last interval.
    pub(super) fn throughput(&self) -> f64 {
        self.throughput
    }

    /// Asks for another specification: both ends agree on it as in the handshake.
    pub(super) fn change(&mut self, asked: Specification) -> Result<Specification, Refusal> {
        asked.check().map_err(Refusal::Contradiction)?;
        let agreed = agree(&asked, &self.peer)?;
        (self.asked, self.agreed) = (asked, agreed);
        self.changed += 1;
        self.change = Some(Change { number: self.changed, send: asked });
        Ok(agreed)
    }

    /// Holds the ladder at a rung, or lets it step by itself again, from where it was.
    pub(super) fn hold(&mut self, rung: Option<u32>) {
        let Some(climbing) = &mut self.climbing else { return };
        let rung = rung.map(|rung| usize::try_from(rung).unwrap_or(usize::MAX));
        // What is beyond is no order of this ladder.
        if rung.is_none_or(|rung| rung < climbing.rungs.len()) {
            climbing.held = rung;
        }
    }

    /// How many rungs there are, the rung now, and the held one.
    pub(super) fn rungs(&self) -> (u32, u32, Option<u32>) {
        let number = |rung: usize| u32::try_from(rung).unwrap_or(u32::MAX);
        self.climbing.as_ref().map_or((0, 0, None), |climbing| {
            (number(climbing.rungs.len()), number(climbing.rung), climbing.held.map(number))
        })
    }

    /// The change to send again, until the receiver acknowledges it.
    pub(super) fn to_tell(&self) -> Option<Change> {
        self.change
    }

    /// Takes the receiver's report; returns violations that began or ended with it.
    pub(super) fn on_status(&mut self, now: Time, change: u32, figures: Figures) -> Vec<Violation> {
        if self.change.is_some_and(|sent| sent.number == change) {
            self.change = None;
        }
        let before = self.figures.violated;
        self.figures = figures;
        let mut violations = Vec::new();
        for (place, parameter) in Parameter::ALL.into_iter().enumerate() {
            let bit = |mask: u16| mask >> place & 1 == 1;
            let turn = match (bit(before), bit(figures.violated)) {
                (false, true) => Turn::Begins,
                (true, false) => Turn::Ends,
                _ => continue,
            };
            self.begun[place] += u32::from(turn == Turn::Begins);
            let delivered = figures.delivered[place].map(|value| from_mib_units(parameter, value));
            if let Some(asked) = self.agreed.value(parameter) {
                let delivered = delivered.unwrap_or(asked);
                violations.push(Violation { parameter, turn, at: now, asked, delivered });
            }
        }
        violations
    }

    /// The connection was lost for so long, and is not made anew: `rec_time` is violated, unless it was
    /// before.
    pub(super) fn on_not_recovered(&mut self, now: Time, lost: Duration) -> Option<Violation> {
        let violation = not_recovered(&self.agreed, now, lost, &mut self.figures)?;
        self.begun[Parameter::RecTime as usize] += 1;
        Some(violation)
    }

    /// Ends a half second: the throughput, and whether to step; a refused reservation counts as a
    /// violation.
    pub(super) fn on_tick(
        &mut self,
        now: Time,
        bytes: u64,
        is_refused: bool,
    ) -> Option<(Step, Specification)> {
        let (since, before) = std::mem::replace(&mut self.last, (now, bytes));
        let rate = Rate::of(Bytes::new(bytes.saturating_sub(before)), now.since(since));
        self.throughput = rate.as_bits_per_sec() as f64;
        let climbing = self.climbing.as_mut()?;
        if climbing.held.is_none() {
            let is_violated = is_refused || self.figures.violated != 0;
            let _ = climbing.ladder.on_interval(now, is_violated);
        }
        let rung = climbing.held.unwrap_or(climbing.ladder.rung());
        let before = std::mem::replace(&mut climbing.rung, rung);
        let step = match rung.cmp(&before) {
            Ordering::Less => Step::Up(rung),
            Ordering::Equal => return None,
            Ordering::Greater => Step::Down(rung),
        };
        let asked = *climbing.rungs.get(rung)?;
        // A rung that the peer would refuse is skipped: the agreement stays.
        self.change(asked).ok().map(|agreed| (step, agreed))
    }
}
