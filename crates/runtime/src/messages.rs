//! The messages of a flow: when each was sent and received, recorded as the scenario asks.

use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_mechanisms::qos::{Count, DelayMeter, Meter, Timing};

use crate::applications::Message;

/// One message received.
#[derive(Clone, Copy, Debug)]
pub struct MessageRecord {
    /// Its number in its flow, from 0.
    pub number: u64,
    /// What was sent.
    pub message: Message,
    /// When the application had all of it.
    pub received: Time,
    /// Time from sending to reception.
    pub timing: Timing,
}

/// Which measures of messages a run records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageMeasure {
    /// When the measured span begins.
    pub(crate) from: Time,
    /// Record the times of each message.
    pub(crate) records: bool,
    /// Count per interval of this length.
    pub(crate) intervals: Option<Duration>,
}

/// The flow that a received message prompts to send, and after what delay.
#[derive(Clone, Copy, Debug)]
pub struct Prompts {
    /// The flow, by its number.
    pub flow: u32,
    /// From the message's arrival to the prompt.
    pub pause: Duration,
}

/// The interval counter of one end, and its finished counts.
#[derive(Debug)]
struct Counts {
    meter: Meter,
    ended: Vec<Count>,
}

impl Counts {
    fn new(measure: &MessageMeasure) -> Option<Self> {
        let interval = measure.intervals?;
        Some(Self { meter: Meter::new(measure.from, interval), ended: Vec::new() })
    }

    fn count(&mut self, now: Time, payload: Bytes) {
        self.until(now);
        self.meter.count(now, payload);
    }

    fn until(&mut self, now: Time) {
        while let Some(count) = self.meter.ended(now) {
            self.ended.push(count);
        }
    }
}

/// Messages sent and received at both ends of a flow.
#[derive(Debug)]
pub struct Messages {
    /// Payload of a packet in bytes.
    payload: Bytes,
    prompts: Option<Prompts>,
    from: Time,
    sent: Option<Counts>,
    received: Option<Counts>,
    delays: DelayMeter,
    number: u64,
    records: Option<Vec<MessageRecord>>,
}

impl Messages {
    pub(crate) fn new(payload: Bytes, prompts: Option<Prompts>, measure: &MessageMeasure) -> Self {
        Self {
            payload,
            prompts,
            from: measure.from,
            sent: Counts::new(measure),
            received: Counts::new(measure),
            delays: DelayMeter::default(),
            number: 0,
            records: measure.records.then(Vec::new),
        }
    }

    /// Payload of a packet in bytes.
    pub fn payload(&self) -> Bytes {
        self.payload
    }

    /// The application has given a message to the transport.
    pub fn sent(&mut self, at: Time, payload: Bytes) {
        if let Some(counts) = &mut self.sent {
            counts.count(at, payload);
        }
    }

    /// The application has received all of message `number`.
    pub fn received(&mut self, now: Time, number: u64, message: Message) {
        if let Some(counts) = &mut self.received {
            counts.count(now, message.payload);
        }
        let Some(records) = self.records.as_mut().filter(|_| now >= self.from) else { return };
        let timing = self.delays.on_message(message.made, now);
        records.push(MessageRecord { number, message, received: now, timing });
    }

    /// As [`received`](Self::received), for messages that arrive in order and are counted as sent
    /// when they arrive.
    pub fn received_in_order(&mut self, now: Time, message: Message) -> Option<Prompts> {
        self.sent(message.written, message.payload);
        self.received(now, self.number, message);
        self.number += 1;
        self.prompts
    }

    /// The run has ended.
    pub fn end(&mut self, now: Time) {
        for counts in [&mut self.sent, &mut self.received].into_iter().flatten() {
            counts.until(now);
            counts.ended.extend(counts.meter.cut(now));
        }
    }

    /// The messages received, if the scenario records them.
    pub fn records(&self) -> &[MessageRecord] {
        self.records.as_deref().unwrap_or_default()
    }

    /// What was sent and received, interval by interval.
    pub fn intervals(&self) -> impl Iterator<Item = (Count, Count)> + '_ {
        let ended = |counts: &Option<Counts>| {
            counts.as_ref().map(|counts| counts.ended.clone()).unwrap_or_default()
        };
        ended(&self.sent).into_iter().zip(ended(&self.received))
    }
}
