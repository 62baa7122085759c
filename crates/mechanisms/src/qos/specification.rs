//! The QoS specification of one end of a flow, and how two ends agree on one (qosockets, II.B).

use core::fmt;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};

/// One parameter of a specification at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term<T> {
    /// The value; `None` if not specified.
    pub value: Option<T>,
    /// Coerced: whether this end gives way to a lower value of the other.
    pub coerced: bool,
}

impl<T> Default for Term<T> {
    /// No demand, and so nothing to give way with.
    fn default() -> Self {
        Self { value: None, coerced: false }
    }
}

impl<T> Term<T> {
    /// A value that is not coerced.
    pub const fn firm(value: T) -> Self {
        Self { value: Some(value), coerced: false }
    }

    /// A demand that gives way.
    pub const fn coerced(value: T) -> Self {
        Self { value: Some(value), coerced: true }
    }
}

/// The QoS specification of one end of a flow of messages.
///
/// `Specification::default()` specifies nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specification {
    /// Least messages per second.
    pub min_rate: Term<MessageRate>,
    /// Most messages per second over an interval of measurement.
    pub max_rate: Term<MessageRate>,
    /// Most messages per second at any time.
    pub peak_rate: Term<MessageRate>,
    /// Largest message.
    pub size: Term<Bytes>,
    /// Least delay from sending to arrival.
    pub min_delay: Term<Duration>,
    /// Most delay from sending to arrival.
    pub max_delay: Term<Duration>,
    /// Most time between the arrivals of two messages.
    pub int_delay: Term<Duration>,
    /// Most difference between the delays of two consecutive messages.
    pub jitter: Term<Duration>,
    /// Most messages lost.
    pub loss: Term<Percent>,
    /// Maximum duration of a disruption.
    pub rec_time: Term<Duration>,
    /// Whether messages may be delivered out of their order.
    pub permutable: Term<bool>,
}

/// The name of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // They are the fields of `Specification`.
pub enum Parameter {
    MinRate,
    MaxRate,
    PeakRate,
    Size,
    MinDelay,
    MaxDelay,
    IntDelay,
    Jitter,
    Loss,
    RecTime,
    Permutable,
}

impl Parameter {
    /// All, in the order of the paper.
    pub const ALL: [Self; 11] = [
        Self::MinRate,
        Self::MaxRate,
        Self::PeakRate,
        Self::Size,
        Self::MinDelay,
        Self::MaxDelay,
        Self::IntDelay,
        Self::Jitter,
        Self::Loss,
        Self::RecTime,
        Self::Permutable,
    ];

    /// As it is written in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MinRate => "min_rate",
            Self::MaxRate => "max_rate",
            Self::PeakRate => "peak_rate",
            Self::Size => "size",
            Self::MinDelay => "min_delay",
            Self::MaxDelay => "max_delay",
            Self::IntDelay => "int_delay",
            Self::Jitter => "jitter",
            Self::Loss => "loss",
            Self::RecTime => "rec_time",
            Self::Permutable => "permutable",
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Value of a parameter: specified, or delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Value {
    Rate(MessageRate),
    Size(Bytes),
    Span(Duration),
    Share(Percent),
    Allowed(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => rate.fmt(f),
            Self::Size(size) => size.fmt(f),
            Self::Span(span) => span.fmt(f),
            Self::Share(share) => share.fmt(f),
            Self::Allowed(true) => f.write_str("allowed"),
            Self::Allowed(false) => f.write_str("not allowed"),
        }
    }
}

/// Why a specification cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// One parameter is above another that it must not exceed.
    Above {
        /// The parameter that is too large, and its value.
        larger: (Parameter, Value),
        /// The parameter that it must not exceed, and its value.
        bound: (Parameter, Value),
    },
    /// A rate or a size of nothing.
    Zero(Parameter),
    /// `int_delay` is shorter than the time between two messages at `max_rate`.
    IntervalTooShort {
        /// The specified value.
        asked: Duration,
        /// The time between two messages.
        between: Duration,
    },
    /// `max_delay` is shorter than the path takes without any queue.
    BelowLatency {
        /// The specified value.
        asked: Duration,
        /// The latency of the path.
        latency: Duration,
    },
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Above { larger: (larger, value), bound: (bound, limit) } => {
                write!(f, "{larger} ({value}) is above {bound} ({limit})")
            }
            Self::Zero(parameter) => write!(f, "{parameter} is 0; more is needed"),
            Self::IntervalTooShort { asked, between } => write!(
                f,
                "int_delay ({asked}) is shorter than the time between two messages at max_rate \
                 ({between})"
            ),
            Self::BelowLatency { asked, latency } => write!(
                f,
                "max_delay ({asked}) is shorter than the path takes without any queue ({latency})"
            ),
        }
    }
}

impl core::error::Error for Contradiction {}

/// A parameter that the ends specify differently, and at least one that would have to give way
/// does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The parameter.
    pub parameter: Parameter,
    /// The sender's value.
    pub sender: Value,
    /// The receiver's value.
    pub receiver: Value,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parameter, sender, receiver } = self;
        write!(f, "{parameter}: the sender asks for {sender}, the receiver for {receiver}, ")?;
        f.write_str("and the end that would have to give way is not coerced")
    }
}

/// Why two ends do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Parameters in which they differ; at least one.
    Conflicts(Vec<Conflict>),
    /// The agreed specification would contradict itself.
    Contradiction(Contradiction),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflicts(conflicts) => {
                for (place, conflict) in conflicts.iter().enumerate() {
                    let separator = if place == 0 { "" } else { "; " };
                    write!(f, "{separator}{conflict}")?;
                }
                Ok(())
            }
            Self::Contradiction(contradiction) => {
                write!(f, "what both ends could agree on contradicts itself: {contradiction}")
            }
        }
    }
}

impl core::error::Error for Refusal {}

impl Specification {
    /// The specified value of a parameter.
    pub fn value(&self, parameter: Parameter) -> Option<Value> {
        match parameter {
            Parameter::MinRate => self.min_rate.value.map(Value::Rate),
            Parameter::MaxRate => self.max_rate.value.map(Value::Rate),
            Parameter::PeakRate => self.peak_rate.value.map(Value::Rate),
            Parameter::Size => self.size.value.map(Value::Size),
            Parameter::MinDelay => self.min_delay.value.map(Value::Span),
            Parameter::MaxDelay => self.max_delay.value.map(Value::Span),
            Parameter::IntDelay => self.int_delay.value.map(Value::Span),
            Parameter::Jitter => self.jitter.value.map(Value::Span),
            Parameter::Loss => self.loss.value.map(Value::Share),
            Parameter::RecTime => self.rec_time.value.map(Value::Span),
            Parameter::Permutable => self.permutable.value.map(Value::Allowed),
        }
    }

    /// Whether it can hold at all.
    ///
    /// # Errors
    /// Names the first parameters that contradict each other.
    pub fn check(&self) -> Result<(), Contradiction> {
        self.ordered(self.min_rate, Parameter::MinRate, self.max_rate, Parameter::MaxRate)?;
        self.ordered(self.min_rate, Parameter::MinRate, self.peak_rate, Parameter::PeakRate)?;
        self.ordered(self.max_rate, Parameter::MaxRate, self.peak_rate, Parameter::PeakRate)?;
        self.ordered(self.min_delay, Parameter::MinDelay, self.max_delay, Parameter::MaxDelay)?;
        let nothing = [
            (Parameter::MaxRate, self.max_rate.value == Some(MessageRate::default())),
            (Parameter::PeakRate, self.peak_rate.value == Some(MessageRate::default())),
            (Parameter::Size, self.size.value == Some(Bytes::ZERO)),
        ];
        if let Some((parameter, _)) = nothing.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(Contradiction::Zero(parameter));
        }
        if let (Some(asked), Some(rate)) = (self.int_delay.value, self.max_rate.value) {
            let between = Duration::from_nanos(1_000_000_000_000 / rate.as_thousandths().max(1));
            if asked < between {
                return Err(Contradiction::IntervalTooShort { asked, between });
            }
        }
        Ok(())
    }

    /// Whether `max_delay` is feasible on a path with `latency` and an empty queue.
    ///
    /// # Errors
    /// Where it does not.
    pub fn check_path(&self, latency: Duration) -> Result<(), Contradiction> {
        match self.max_delay.value {
            Some(asked) if asked < latency => Err(Contradiction::BelowLatency { asked, latency }),
            _ => Ok(()),
        }
    }

    fn ordered<T: PartialOrd>(
        &self,
        smaller: Term<T>,
        smaller_name: Parameter,
        larger: Term<T>,
        larger_name: Parameter,
    ) -> Result<(), Contradiction> {
        match (smaller.value, larger.value) {
            (Some(low), Some(high)) if low > high => {
                let named = |name| self.value(name).map(|value| (name, value));
                match (named(smaller_name), named(larger_name)) {
                    (Some(larger), Some(bound)) => Err(Contradiction::Above { larger, bound }),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Which of two demands is the lesser one, that both ends can accept.
#[derive(Clone, Copy)]
enum Lesser {
    /// Rates, sizes, and the least delay.
    Smaller,
    /// Upper bounds of times and losses, and permission to change the order.
    Larger,
}

/// Brings the specifications of both ends to one (qosockets, II.B.4): where they differ, the end
/// that asks for more gives way, if its flag says that it is coerced. What only one end asks for
/// holds for both.
///
/// # Errors
/// All parameters in which an end would have to give way that does not; or that what they would
/// agree on contradicts itself.
pub fn agree(sender: &Specification, receiver: &Specification) -> Result<Specification, Refusal> {
    let mut conflicts = Vec::new();
    let mut settled = Settling { sender, receiver, conflicts: &mut conflicts };
    let agreed = Specification {
        min_rate: settled.settle(Parameter::MinRate, |end| end.min_rate, Lesser::Smaller),
        max_rate: settled.settle(Parameter::MaxRate, |end| end.max_rate, Lesser::Smaller),
        peak_rate: settled.settle(Parameter::PeakRate, |end| end.peak_rate, Lesser::Smaller),
        size: settled.settle(Parameter::Size, |end| end.size, Lesser::Smaller),
        min_delay: settled.settle(Parameter::MinDelay, |end| end.min_delay, Lesser::Smaller),
        max_delay: settled.settle(Parameter::MaxDelay, |end| end.max_delay, Lesser::Larger),
        int_delay: settled.settle(Parameter::IntDelay, |end| end.int_delay, Lesser::Larger),
        jitter: settled.settle(Parameter::Jitter, |end| end.jitter, Lesser::Larger),
        loss: settled.settle(Parameter::Loss, |end| end.loss, Lesser::Larger),
        rec_time: settled.settle(Parameter::RecTime, |end| end.rec_time, Lesser::Larger),
        permutable: settled.settle(Parameter::Permutable, |end| end.permutable, Lesser::Larger),
    };
    if !conflicts.is_empty() {
        return Err(Refusal::Conflicts(conflicts));
    }
    agreed.check().map_err(Refusal::Contradiction)?;
    Ok(agreed)
}

struct Settling<'a> {
    sender: &'a Specification,
    receiver: &'a Specification,
    conflicts: &'a mut Vec<Conflict>,
}

impl Settling<'_> {
    fn settle<T: Ord + Copy>(
        &mut self,
        parameter: Parameter,
        of: impl Fn(&Specification) -> Term<T>,
        lesser: Lesser,
    ) -> Term<T> {
        let (sender, receiver) = (of(self.sender), of(self.receiver));
        let coerced = sender.coerced && receiver.coerced;
        let (Some(sent), Some(received)) = (sender.value, receiver.value) else {
            return Term { value: sender.value.or(receiver.value), coerced };
        };
        let common = match lesser {
            Lesser::Smaller => sent.min(received),
            Lesser::Larger => sent.max(received),
        };
        let gives_way = |end: Term<T>, value: T| value == common || end.coerced;
        if !gives_way(sender, sent) || !gives_way(receiver, received) {
            let values = (self.sender.value(parameter), self.receiver.value(parameter));
            if let (Some(sender), Some(receiver)) = values {
                self.conflicts.push(Conflict { parameter, sender, receiver });
            }
        }
        Term { value: Some(common), coerced }
    }
}
