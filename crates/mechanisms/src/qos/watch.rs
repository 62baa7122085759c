//! Compares what is delivered with what was agreed, and detects begin and end of violations.

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent, Time};

use super::specification::{Parameter, Specification, Value};
use super::{Count, Timing, loss_percent};

/// After how many intervals in a row a violation begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hysteresis {
    /// Consecutive intervals below the agreement before a violation begins; at least one.
    pub begins_after: u32,
    /// Intervals in a row in which it was; one at least.
    pub ends_after: u32,
}

impl Default for Hysteresis {
    /// Two bad intervals begin a violation and four good ones end it: with intervals of half a
    /// second, a second and two.
    fn default() -> Self {
        Self { begins_after: 2, ends_after: 4 }
    }
}

/// Whether a violation begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The violation begins.
    Begins,
    /// The violation ends.
    Ends,
}

/// Begin or end of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub parameter: Parameter,
    /// Whether it begins or ends.
    pub turn: Turn,
    /// When that was found: the end of an interval, or when `rec_time` had passed.
    pub at: Time,
    /// The agreed value.
    pub asked: Value,
    /// The delivered value: the worst since the first bad interval, or, at the end of a violation,
    /// in the last interval.
    pub delivered: Value,
}

/// Delivery in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// What arrived.
    pub received: Count,
    /// What the sender reports as sent in the same interval; `None` if unknown.
    pub sent: Option<Count>,
}

/// A receiver's watch over one flow.
///
/// It takes each message and each ended interval, and returns the violations that began or
/// ended. A rate below `min_rate` is not the network's doing where the sender sent no more.
#[derive(Clone, Debug)]
pub struct Watch {
    agreed: Specification,
    hysteresis: Hysteresis,
    states: [State; Parameter::ALL.len()],
    last_arrival: Option<Time>,
    /// Since when a message is waited for.
    silent_since: Option<Time>,
    worst: Worst,
}

/// Extremes of the messages in the current interval.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    most_delay: Option<Duration>,
    least_delay: Option<Duration>,
    jitter: Option<Duration>,
    gap: Option<Duration>,
    size: Option<Bytes>,
    out_of_order: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    violated: bool,
    in_a_row: u32,
    worst: Option<Value>,
    latest: Option<Value>,
}

impl Watch {
    /// A watch over a flow for which this was agreed.
    pub fn new(agreed: Specification, hysteresis: Hysteresis) -> Self {
        let states = [State::default(); Parameter::ALL.len()];
        let worst = Worst::default();
        Self { agreed, hysteresis, states, last_arrival: None, silent_since: None, worst }
    }

    /// Another specification is agreed from now on: consecutive intervals are counted anew, and a parameter
    /// no longer specified is no longer violated.
    pub fn change(&mut self, agreed: Specification) {
        for (state, parameter) in self.states.iter_mut().zip(Parameter::ALL) {
            let violated = state.violated && agreed.value(parameter).is_some();
            *state = State { violated, latest: state.latest, ..State::default() };
        }
        self.agreed = agreed;
    }

    /// The specification.
    pub fn agreed(&self) -> &Specification {
        &self.agreed
    }

    /// Whether a parameter is violated now.
    pub fn is_violated(&self, parameter: Parameter) -> bool {
        self.states[parameter as usize].violated
    }

    /// The delivered value of a parameter in the last interval with a measurement.
    pub fn delivered(&self, parameter: Parameter) -> Option<Value> {
        self.states[parameter as usize].latest
    }

    /// The sender has nothing under way at `now`: until it has, silence is no disruption.
    pub fn on_rest(&mut self, now: Time) {
        self.silent_since = self.silent_since.max(Some(now));
    }

    /// A message of `size` arrived at `now`; `in_order` says whether all sent before it had, or
    /// were given up.
    pub fn on_message(&mut self, now: Time, size: Bytes, timing: Timing, in_order: bool) {
        let worst = &mut self.worst;
        worst.most_delay = worst.most_delay.max(Some(timing.delay));
        worst.least_delay =
            Some(worst.least_delay.map_or(timing.delay, |least| least.min(timing.delay)));
        worst.jitter = worst.jitter.max(timing.jitter);
        worst.size = worst.size.max(Some(size));
        worst.out_of_order |= !in_order;
        if let Some(last) = self.last_arrival {
            worst.gap = worst.gap.max(Some(now.since(last)));
        }
        self.last_arrival = Some(now);
        self.silent_since = Some(now);
    }

    /// Whether nothing has arrived for longer than `rec_time`: the flow is disrupted. To be asked
    /// while nothing arrives, and after a message.
    pub fn on_silence(&mut self, now: Time) -> Option<Violation> {
        let (since, most) = (self.silent_since?, self.agreed.rec_time.value?);
        let silent = now.since(since);
        let state = &mut self.states[Parameter::RecTime as usize];
        let turn = match (silent > most, state.violated) {
            (true, false) => Turn::Begins,
            (false, true) => Turn::Ends,
            _ => return None,
        };
        state.violated = turn == Turn::Begins;
        state.latest = Some(Value::Span(silent));
        let (asked, delivered) = (Value::Span(most), Value::Span(silent));
        Some(Violation { parameter: Parameter::RecTime, turn, at: now, asked, delivered })
    }

    /// Ends an interval: returns violations that begin or end with it, in the order of the parameters.
    pub fn on_interval(&mut self, delivered: &Delivered) -> impl Iterator<Item = Violation> + '_ {
        let at = delivered.received.begins + delivered.received.span;
        let worst = core::mem::take(&mut self.worst);
        let outcomes = Outcomes { agreed: self.agreed, worst, delivered: *delivered };
        let hysteresis = self.hysteresis;
        self.states.iter_mut().zip(Parameter::ALL).filter_map(move |(state, parameter)| {
            let (asked, outcome) = outcomes.of(parameter)?;
            let turn = state.turn(outcome, hysteresis)?;
            let delivered = match turn {
                Turn::Begins => state.worst.unwrap_or(outcome.value),
                Turn::Ends => outcome.value,
            };
            Some(Violation { parameter, turn, at, asked, delivered })
        })
    }
}

/// Result of one interval for one parameter.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    kept: bool,
    value: Value,
    /// Whether larger values are worse.
    larger_is_worse: bool,
}

struct Outcomes {
    agreed: Specification,
    worst: Worst,
    delivered: Delivered,
}

impl Outcomes {
    /// The agreed and the delivered value of a parameter; `None` if it is not specified, or nothing
    /// was measured.
    fn of(&self, parameter: Parameter) -> Option<(Value, Outcome)> {
        let agreed = &self.agreed;
        let asked = agreed.value(parameter)?;
        let outcome = match parameter {
            Parameter::MinRate => self.least_rate(agreed.min_rate.value?),
            Parameter::MaxRate | Parameter::PeakRate => self.most_rate(parameter),
            Parameter::Size => at_most(self.worst.size?, agreed.size.value?, Value::Size),
            Parameter::MinDelay => {
                let (least, bound) = (self.worst.least_delay?, agreed.min_delay.value?);
                let value = Value::Span(least);
                Outcome { kept: least >= bound, value, larger_is_worse: false }
            }
            Parameter::MaxDelay => self.span(self.worst.most_delay, agreed.max_delay.value)?,
            Parameter::IntDelay => self.span(self.worst.gap, agreed.int_delay.value)?,
            Parameter::Jitter => self.span(self.worst.jitter, agreed.jitter.value)?,
            Parameter::Loss => self.loss(agreed.loss.value?)?,
            // Silence is no matter of intervals: `on_silence`.
            Parameter::RecTime => return None,
            Parameter::Permutable => {
                let kept = agreed.permutable.value? || !self.worst.out_of_order;
                let value = Value::Allowed(!kept);
                Outcome { kept, value, larger_is_worse: true }
            }
        };
        Some((asked, outcome))
    }

    fn span(&self, found: Option<Duration>, bound: Option<Duration>) -> Option<Outcome> {
        Some(at_most(found?, bound?, Value::Span))
    }

    /// Where the sender sent less than was agreed, all that it sent is enough.
    fn least_rate(&self, least: MessageRate) -> Outcome {
        let received = rate_of(&self.delivered.received);
        let owed = match self.delivered.sent {
            Some(sent) => least.min(rate_of(&sent)),
            None => least,
        };
        // A message more or less is a matter of where the interval was cut.
        let one = one_message_in(self.delivered.received.span);
        let kept = received.as_thousandths().saturating_add(one) >= owed.as_thousandths();
        Outcome { kept, value: Value::Rate(received), larger_is_worse: false }
    }

    fn most_rate(&self, parameter: Parameter) -> Outcome {
        let bound = match parameter {
            Parameter::MaxRate => self.agreed.max_rate.value,
            _ => self.agreed.peak_rate.value,
        };
        let offered = rate_of(&self.delivered.sent.unwrap_or(self.delivered.received));
        let one = one_message_in(self.delivered.received.span);
        let kept = bound.is_none_or(|bound| {
            offered.as_thousandths() <= bound.as_thousandths().saturating_add(one)
        });
        Outcome { kept, value: Value::Rate(offered), larger_is_worse: true }
    }

    fn loss(&self, most: Percent) -> Option<Outcome> {
        let sent = self.delivered.sent?.messages;
        let lost = loss_percent(sent, self.delivered.received.messages)?.max(0.0);
        let lost = Percent::from_thousandths((lost * 1_000.0).round() as u32);
        Some(at_most(lost, most, Value::Share))
    }
}

fn at_most<T: PartialOrd + Copy>(found: T, bound: T, value: impl Fn(T) -> Value) -> Outcome {
    Outcome { kept: found <= bound, value: value(found), larger_is_worse: true }
}

fn rate_of(count: &Count) -> MessageRate {
    let nanos = u128::from(count.span.as_nanos()).max(1);
    let thousandths = u128::from(count.messages) * 1_000_000_000_000 / nanos;
    MessageRate::from_thousandths(u64::try_from(thousandths).unwrap_or(u64::MAX))
}

/// One message in a span, in thousandths of a message per second.
fn one_message_in(span: Duration) -> u64 {
    1_000_000_000_000 / span.as_nanos().max(1)
}

impl State {
    /// Counts an interval; returns whether a violation begins or ends with it.
    fn turn(&mut self, outcome: Outcome, hysteresis: Hysteresis) -> Option<Turn> {
        self.latest = Some(outcome.value);
        if outcome.kept == self.violated {
            self.in_a_row += 1;
        } else {
            self.in_a_row = 0;
        }
        if outcome.kept {
            self.worst = self.worst.filter(|_| self.violated);
        } else {
            self.worst = Some(self.worst.map_or(outcome.value, |worst| {
                worse(worst, outcome.value, outcome.larger_is_worse)
            }));
        }
        let needed = if self.violated { hysteresis.ends_after } else { hysteresis.begins_after };
        if self.in_a_row < needed.max(1) {
            return None;
        }
        self.violated = !self.violated;
        self.in_a_row = 0;
        Some(if self.violated { Turn::Begins } else { Turn::Ends })
    }
}

fn worse(one: Value, other: Value, larger_is_worse: bool) -> Value {
    let other_is_larger = match (one, other) {
        (Value::Rate(one), Value::Rate(other)) => other > one,
        (Value::Size(one), Value::Size(other)) => other > one,
        (Value::Span(one), Value::Span(other)) => other > one,
        (Value::Share(one), Value::Share(other)) => other > one,
        _ => larger_is_worse,
    };
    if other_is_larger == larger_is_worse { other } else { one }
}
