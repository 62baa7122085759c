//! The receiver's part: which load packets arrived, and when.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use crate::wire::{self, ARRIVALS_HEADER, Load, Message, RECORD};

/// Interval of reports while load packets arrive.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_millis(10);

/// Records of a report at most, so that it is not longer than a path may bear; the older half was
/// in the report before, so that one may be lost.
const MAX_RECORDS: usize = 100;

/// Bytes received and not yet answered, at most.
const MAX_CREDIT: usize = 64 << 10;

/// The last arrivals of a session, in bounded memory.
///
/// All reports together are never longer than all that came.
#[derive(Debug)]
pub(crate) struct ArrivalLog {
    records: VecDeque<(u32, u64)>,
    /// Load packets that arrived.
    count: u64,
    /// Of these, not yet reported.
    fresh: usize,
    due: Time,
    credit: usize,
}

impl Default for ArrivalLog {
    fn default() -> Self {
        Self { records: VecDeque::new(), count: 0, fresh: 0, due: Time::NEVER, credit: 0 }
    }
}

impl ArrivalLog {
    /// When a report is due.
    pub(crate) const fn due(&self) -> Time {
        self.due
    }

    /// Notes a packet of `bytes` of UDP payload.
    pub(crate) fn on_packet(&mut self, now: Time, received: Time, load: &Load<'_>, bytes: usize) {
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back((load.number, received.as_nanos()));
        self.count += 1;
        self.fresh += 1;
        self.credit = (self.credit + bytes).min(MAX_CREDIT);
        let is_full = self.fresh >= MAX_RECORDS / 2;
        self.due = match load.is_urgent || is_full {
            true => now,
            false => self.due.min(now + REPORT_INTERVAL),
        };
    }

    /// Writes the report that is due; false if it would be longer than what came.
    pub(crate) fn report(&mut self, now: Time, session: u64, to: &mut Vec<u8>) -> bool {
        self.due = Time::NEVER;
        let affordable = self.credit.saturating_sub(ARRIVALS_HEADER) / RECORD;
        let wanted = (self.fresh + MAX_RECORDS / 2).min(self.records.len());
        let count = wanted.min(affordable);
        if count == 0 {
            return false;
        }
        let mut records = Vec::with_capacity(count * RECORD);
        for &(number, at) in self.records.range(self.records.len() - count..) {
            wire::push_record(number, at, &mut records);
        }
        let first = self.count - count as u64;
        let arrivals = wire::Arrivals::new(first, now.as_nanos(), &records);
        let start = to.len();
        wire::write(session, &Message::Arrivals(arrivals), to);
        self.credit -= to.len() - start;
        self.fresh = 0;
        true
    }
}
