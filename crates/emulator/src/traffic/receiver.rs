//! The receiving application: counts delivered units and compares them with their due times.

use ontempo_foundation::Time;
use ontempo_mechanisms::playout::Playout;
use ontempo_runtime::{Message, Messages, Source};

use super::Prompt;

/// One unit of a stream: when it was due to be sent and when it was delivered, if it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitRecord {
    pub(crate) unit: u64,
    pub(crate) due: Time,
    pub(crate) delivered: Option<Time>,
}

/// Counters and records of a receiver.
#[derive(Default)]
pub(crate) struct Receiver {
    /// Units that arrived.
    delivered: u64,
    playout: Option<Playout>,
    records: Option<Vec<UnitRecord>>,
    messages: Option<Messages>,
}

impl Receiver {
    pub(crate) fn new(
        playout: Option<Playout>,
        record_units: bool,
        messages: Option<Messages>,
    ) -> Self {
        let records = (record_units && playout.is_some()).then(Vec::new);
        Self { delivered: 0, playout, records, messages }
    }

    /// Delivers `unit` to the application; `due` is when a unit of a stream was due to be sent.
    pub(crate) fn deliver(&mut self, now: Time, unit: u64, due: Option<Time>) {
        self.delivered += 1;
        let (Some(playout), Some(due)) = (&mut self.playout, due) else { return };
        playout.on_unit(due, now);
        if let Some(records) = &mut self.records {
            records.push(UnitRecord { unit, due, delivered: Some(now) });
        }
    }

    /// `unit` is the next of those that arrive in order; a message that it completes is counted,
    /// and may prompt another flow.
    pub(crate) fn deliver_in_order(
        &mut self,
        now: Time,
        unit: u64,
        source: &mut Source,
        prompts: &mut Vec<Prompt>,
    ) {
        self.deliver(now, unit, source.due(unit));
        if let Some(messages) = &mut self.messages
            && let Some(message) = source.completed(unit, messages.payload())
            && let Some(prompt) = messages.received_in_order(now, message)
        {
            prompts.push(Prompt { flow: prompt.flow, at: now + prompt.pause });
        }
    }

    /// A message of one packet was given to the transport.
    pub(crate) fn sent(&mut self, now: Time) {
        if let Some(messages) = &mut self.messages {
            messages.sent(now, messages.payload());
        }
    }

    /// Message `number`, sent at `sent`, has arrived.
    pub(crate) fn received(&mut self, now: Time, number: u64, sent: Time) {
        if let Some(messages) = &mut self.messages {
            let message = Message { made: sent, written: sent, payload: messages.payload() };
            messages.received(now, number, message);
        }
    }

    /// The run has ended; of units that arrive in order, those from `next` up to, but not
    /// including, `offered` have not arrived.
    pub(crate) fn end_in_order(&mut self, now: Time, source: &Source, next: u64, offered: u64) {
        if let Some(messages) = &mut self.messages {
            for message in source.incomplete(next, offered, messages.payload()) {
                messages.sent(message.written, message.payload);
            }
        }
        // An application that sends without limit has no due units.
        if self.playout.is_some() {
            (next..offered).for_each(|unit| self.miss(unit, source.due(unit)));
        }
        self.end(now);
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, now: Time) {
        if let Some(messages) = &mut self.messages {
            messages.end(now);
        }
    }

    /// `unit`, due at `due`, had not been delivered when the run ended.
    pub(crate) fn miss(&mut self, unit: u64, due: Option<Time>) {
        let (Some(playout), Some(due)) = (&mut self.playout, due) else { return };
        playout.on_missing(1, due);
        if let Some(records) = &mut self.records {
            records.push(UnitRecord { unit, due, delivered: None });
        }
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn playout(&self) -> Option<&Playout> {
        self.playout.as_ref()
    }

    pub(crate) fn messages(&self) -> Option<&Messages> {
        self.messages.as_ref()
    }

    pub(crate) fn records(&self) -> &[UnitRecord] {
        self.records.as_deref().unwrap_or_default()
    }
}
