//! Measurements of the receiving direction of a connection: equations (2) to (5), losses,
//! violations.

use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_mechanisms::qos::{
    Count, DelayMeter, Delivered, Hysteresis, Meter, Parameter, Specification, Timing, Turn, Value,
    Violation, Watch, loss_percent,
};

use super::offset::Sample;
use super::wire::{Figures, Status};
use ontempo_monitor::in_mib_units;

/// The measurement interval (qosockets, IV).
pub(super) const INTERVAL: Duration = Duration::from_millis(500);

/// A message this far behind the newest counts as a duplicate.
const WINDOW: u64 = 128;

/// Delays with a larger error are not reported.
const MAX_ERROR: Duration = Duration::from_secs(10);

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) sequence: u64,
    pub(super) timing: Timing,
}

/// Sums of the current interval.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    delay: Duration,
    delays: u64,
    jitter: Duration,
    jitters: u64,
}

/// Notes in a direction's figures that `rec_time` is violated; `None` if that was so before, or none is
/// agreed.
pub(super) fn not_recovered(
    agreed: &Specification,
    at: Time,
    lost: Duration,
    figures: &mut Figures,
) -> Option<Violation> {
    let (parameter, asked) = (Parameter::RecTime, agreed.rec_time.value?);
    let mask = 1 << parameter as u16;
    if figures.violated & mask != 0 {
        return None;
    }
    figures.violated |= mask;
    let (asked, delivered) = (Value::Span(asked), Value::Span(lost));
    figures.delivered[parameter as usize] = Some(in_mib_units(delivered));
    Some(Violation { parameter, turn: Turn::Begins, at, asked, delivered })
}

#[derive(Debug)]
pub(super) struct Incoming {
    watch: Watch,
    meter: Meter,
    next_end: Time,
    delays: DelayMeter,
    clock: Sample,
    /// The clock offset as measured here; it is reported to the peer.
    own_clock: Option<Sample>,
    /// One more than the highest sequence number received.
    next: u64,
    /// Bit i: message `next - 1 - i` was received.
    seen: u128,
    /// Messages reported by the sender as sent, now and at the end of the
    /// last interval.
    known: u64,
    known_before: u64,
    known_bytes: u64,
    /// Whether anything arrived from the sender in this interval.
    heard: bool,
    last_heard: Time,
    sums: Sums,
    figures: Figures,
    begun: [u32; Parameter::ALL.len()],
}

impl Incoming {
    pub(super) fn new(
        now: Time,
        agreed: Specification,
        hysteresis: Hysteresis,
        clock: Sample,
        is_measured: bool,
    ) -> Self {
        Self {
            watch: Watch::new(agreed, hysteresis),
            meter: Meter::new(now, INTERVAL),
            next_end: now + INTERVAL,
            delays: DelayMeter::default(),
            clock,
            own_clock: is_measured.then_some(clock),
            next: 0,
            seen: 0,
            known: 0,
            known_before: 0,
            known_bytes: 0,
            heard: false,
            last_heard: now,
            sums: Sums::default(),
            figures: Figures::default(),
            begun: [0; Parameter::ALL.len()],
        }
    }

    pub(super) fn agreed(&self) -> &Specification {
        self.watch.agreed()
    }

    pub(super) fn change(&mut self, agreed: Specification) {
        self.watch.change(agreed);
    }

    /// Counts a message. `None` if it is a duplicate, or arrives after a later one although
    /// order is required.
    pub(super) fn on_message(
        &mut self,
        now: Time,
        size: usize,
        sequence: u32,
        sent: u64,
        violations: &mut Vec<Violation>,
    ) -> Option<Arrival> {
        self.advance(now, violations);
        self.heard = true;
        self.last_heard = now;
        let sequence = self.full(sequence)?;
        let in_order = sequence >= self.next;
        if !self.note(sequence) || (!in_order && self.agreed().permutable.value != Some(true)) {
            return None;
        }
        self.known = self.known.max(self.next);
        let size = Bytes::new(size as u64);
        let timing = self.delays.on_message(self.clock.here(sent), now);
        self.meter.count(now, size);
        self.watch.on_message(now, size, timing, in_order);
        if self.watch.is_violated(Parameter::RecTime) {
            violations.extend(self.watch.on_silence(now));
        }
        self.figures.messages += 1;
        self.figures.bytes += size.get();
        self.sums.delay += timing.delay;
        self.sums.delays += 1;
        if let Some(jitter) = timing.jitter {
            self.sums.jitter += jitter;
            self.sums.jitters += 1;
        }
        Some(Arrival { sequence, timing })
    }

    /// Extends a sequence number: the one nearest to the next expected.
    fn full(&self, sequence: u32) -> Option<u64> {
        let ahead = sequence.wrapping_sub(self.next as u32).cast_signed();
        self.next.checked_add_signed(ahead.into())
    }

    /// Whether it is not a duplicate, as far as the window reaches.
    fn note(&mut self, sequence: u64) -> bool {
        if sequence >= self.next {
            let gone = u32::try_from(sequence - self.next + 1).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(gone).unwrap_or(0) | 1;
            self.next = sequence + 1;
            return true;
        }
        let behind = self.next - 1 - sequence;
        if behind >= WINDOW || self.seen >> behind & 1 == 1 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }

    /// Takes the sender's report.
    pub(super) fn on_status(
        &mut self,
        now: Time,
        status: &Status,
        violations: &mut Vec<Violation>,
    ) {
        self.advance(now, violations);
        self.heard = true;
        self.last_heard = now;
        // Implausible: beyond what 32-bit sequence numbers can distinguish.
        if status.sent_messages.saturating_sub(self.next) < 1 << 31 {
            self.known = self.known.max(status.sent_messages);
            self.known_bytes = self.known_bytes.max(status.sent_bytes);
        }
        if self.known <= self.next {
            self.watch.on_rest(now);
        }
        if let Some((offset, error)) = status.offset
            && let Some(sample) = Sample::of_peer(offset, error, now)
        {
            self.adopt(now, sample);
        }
    }

    /// Takes a clock comparison.
    pub(super) fn on_sample(&mut self, now: Time, sample: Sample) {
        let own = sample.better(self.own_clock, now);
        self.own_clock = Some(own);
        self.adopt(now, own);
    }

    fn adopt(&mut self, now: Time, sample: Sample) {
        let better = sample.better(Some(self.clock), now);
        if better.offset != self.clock.offset {
            // The next delay is not comparable with the last one.
            self.delays = DelayMeter::default();
        }
        self.clock = better;
    }

    /// The clock offset as measured here, and its error bound, ns.
    pub(super) fn own_offset(&self, now: Time) -> Option<(i64, u64)> {
        self.own_clock.map(|own| (own.offset, own.error(now).as_nanos()))
    }

    /// Time since the last arrival from the peer.
    pub(super) fn silent_for(&self, now: Time) -> Duration {
        now.since(self.last_heard)
    }

    /// Ends the intervals that are over at `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: Time, violations: &mut Vec<Violation>) {
        if now >= self.next_end {
            self.end_intervals(now, violations);
        }
    }

    #[cold]
    fn end_intervals(&mut self, now: Time, violations: &mut Vec<Violation>) {
        while let Some(count) = self.meter.ended(now) {
            self.next_end = count.begins + count.span + INTERVAL;
            self.end_interval(count, violations);
        }
        violations.extend(self.watch.on_silence(now));
        for violation in violations {
            if violation.turn == Turn::Begins {
                self.begun[violation.parameter as usize] += 1;
            }
        }
        let watch = &self.watch;
        self.figures.violated = Parameter::ALL
            .into_iter()
            .filter(|parameter| watch.is_violated(*parameter))
            .fold(0, |mask, parameter| mask | 1 << parameter as u16);
        for (delivered, parameter) in self.figures.delivered.iter_mut().zip(Parameter::ALL) {
            *delivered = watch.delivered(parameter).map(in_mib_units);
        }
    }

    fn end_interval(&mut self, count: Count, violations: &mut Vec<Violation>) {
        let messages = self.known - self.known_before;
        self.known_before = self.known;
        let sent = Count { messages, ..count };
        let delivered = Delivered { received: count, sent: self.heard.then_some(sent) };
        self.heard = false;
        violations.extend(self.watch.on_interval(&delivered));
        let end = count.begins + count.span;
        let sums = std::mem::take(&mut self.sums);
        let figures = &mut self.figures;
        figures.lost = self.known.saturating_sub(figures.messages);
        figures.throughput = count.throughput().as_bits_per_sec();
        let loss = loss_percent(messages, count.messages);
        figures.loss = loss.map(|loss| (loss.max(0.0) * 1_000.0).round() as u32);
        let error = self.clock.error(end);
        let mean = |sum: Duration, of: u64| (of > 0).then(|| (sum / of.max(1)).as_nanos());
        let delay = mean(sums.delay, sums.delays).filter(|_| error <= MAX_ERROR);
        figures.delay = delay.map(|delay| (delay, error.as_nanos()));
        figures.jitter = mean(sums.jitter, sums.jitters);
    }

    /// The connection was lost for so long, and is not made anew: `rec_time` is violated, unless it was
    /// before.
    pub(super) fn on_not_recovered(&mut self, now: Time, lost: Duration) -> Option<Violation> {
        let violation = not_recovered(self.watch.agreed(), now, lost, &mut self.figures)?;
        self.begun[Parameter::RecTime as usize] += 1;
        Some(violation)
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Number of violations of each parameter.
    pub(super) fn begun(&self) -> &[u32; Parameter::ALL.len()] {
        &self.begun
    }

    /// Messages and payload sent, by the sender's reports.
    pub(super) fn sent(&self) -> (u64, u64) {
        (self.known, self.known_bytes.max(self.figures.bytes))
    }
}
