//! The receiving application of ADUs: takes one at a time and processes it.

use std::collections::{BTreeMap, VecDeque};

use ontempo_foundation::{Duration, Time};
use ontempo_mechanisms::delivery::{DeliveryOrder, Resequencer};
use ontempo_scenario::model;

/// The ADUs that an ADU depends on.
#[derive(Clone, Debug)]
pub(crate) enum Dependencies {
    None,
    Images { adus: u64, tables: u64, in_sequence: bool },
    Listed(BTreeMap<u64, Vec<u64>>),
}

impl From<&model::Dependencies> for Dependencies {
    fn from(written: &model::Dependencies) -> Self {
        match written {
            model::Dependencies::None {} => Self::None,
            model::Dependencies::Images { adus, tables, in_sequence } => {
                Self::Images { adus: *adus, tables: *tables, in_sequence: *in_sequence }
            }
            model::Dependencies::Listed { adus } => {
                let mut listed = BTreeMap::<u64, Vec<u64>>::new();
                for entry in adus {
                    listed.entry(entry.adu).or_default().extend(&entry.on);
                }
                Self::Listed(listed)
            }
        }
    }
}

impl Dependencies {
    /// Writes the ADUs that `adu` depends on into `named`.
    fn name(&self, adu: u64, named: &mut Vec<u64>) {
        named.clear();
        match self {
            Self::None => {}
            Self::Listed(listed) => named.extend(listed.get(&adu).into_iter().flatten()),
            Self::Images { adus, tables, in_sequence } => {
                let place = adu % adus;
                let image = adu - place;
                // Tables arrive in sequence, so depending on the last one means depending on all.
                let table = place.min(*tables);
                if table > 0 {
                    named.push(image + table - 1);
                } else if *in_sequence && image > 0 {
                    named.extend(image - adus..image);
                }
            }
        }
    }
}

/// Times of an ADU, recorded if the scenario asks for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AduRecord {
    pub(crate) emitted: Time,
    /// When it was last sent before it arrived.
    pub(crate) last_emitted: Time,
    pub(crate) arrived: Time,
    pub(crate) delivered: Time,
    pub(crate) retransmissions: u64,
}

/// Resequences ADUs and takes them, each when it may be delivered and the previous one has
/// been processed.
///
/// The times at which ADUs are taken are known when they are released; an event is needed only
/// to notify the transport.
pub(crate) struct Consumer {
    start: Time,
    /// When each ADU is due to be sent.
    interval: Duration,
    processing: Duration,
    dependencies: Dependencies,
    named: Vec<u64>,
    buffer: Resequencer,
    /// When the application has processed all released ADUs.
    idle_from: Time,
    /// When the released ADUs will be taken, the next first.
    taken_at: VecDeque<Time>,
    records: Option<Vec<AduRecord>>,
}

impl Consumer {
    /// Takes `count` ADUs, one due every `interval` from `start`.
    pub(crate) fn new(
        (start, interval): (Time, Duration),
        count: u64,
        order: DeliveryOrder,
        (processing, dependencies): (Duration, Dependencies),
        records: bool,
    ) -> Self {
        let unsent = AduRecord {
            emitted: Time::NEVER,
            last_emitted: Time::NEVER,
            arrived: Time::NEVER,
            delivered: Time::NEVER,
            retransmissions: 0,
        };
        Self {
            start,
            interval,
            processing,
            dependencies,
            named: Vec::new(),
            buffer: Resequencer::new(order, count),
            idle_from: start,
            taken_at: VecDeque::new(),
            records: records.then(|| vec![unsent; count as usize]),
        }
    }

    /// ADU `adu` is sent.
    pub(crate) fn on_sent(&mut self, now: Time, adu: u64) {
        let Some(record) = self.record(adu) else { return };
        if record.arrived == Time::NEVER {
            record.last_emitted = now;
        }
        if record.emitted == Time::NEVER {
            record.emitted = now;
        } else {
            record.retransmissions += 1;
        }
    }

    /// ADU `adu` arrives; duplicates are ignored.
    pub(crate) fn on_arrival(&mut self, now: Time, adu: u64) {
        self.dependencies.name(adu, &mut self.named);
        if self.buffer.arrive(adu, &self.named).is_err() {
            return;
        }
        if let Some(record) = self.record(adu) {
            record.arrived = now;
        }
        while let Some(released) = self.buffer.deliver() {
            let taken = now.max(self.idle_from);
            self.idle_from = taken + self.processing;
            self.taken_at.push_back(taken);
            if let Some(record) = self.record(released) {
                record.delivered = taken;
            }
        }
    }

    /// Removes the next ADU that has been taken by `now`; false if there is none.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let is_due = self.taken_at.front().is_some_and(|taken| *taken <= now);
        if is_due {
            self.taken_at.pop_front();
        }
        is_due
    }

    /// When the next ADU is taken.
    pub(crate) fn next_take(&self) -> Time {
        self.taken_at.front().copied().unwrap_or(Time::NEVER)
    }

    /// ADUs in the receiver's buffer.
    pub(crate) fn buffered(&self, now: Time) -> u64 {
        let released = self.taken_at.partition_point(|taken| *taken <= now);
        self.buffer.buffered() + (self.taken_at.len() - released) as u64
    }

    /// All ADUs: number, due time, record, when processed. What has not happened has the time
    /// [`Time::NEVER`]; deliveries are known ahead of the end of the run.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, Time, &AduRecord, Time)> {
        let records = self.records.iter().flatten().enumerate();
        records.map(move |(adu, record)| {
            let processed = record.delivered + self.processing;
            (adu as u64, self.start + self.interval * adu as u64, record, processed)
        })
    }

    fn record(&mut self, adu: u64) -> Option<&mut AduRecord> {
        self.records.as_mut()?.get_mut(usize::try_from(adu).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(dependencies: &Dependencies, adu: u64) -> Vec<u64> {
        let mut named = Vec::new();
        dependencies.name(adu, &mut named);
        named
    }

    #[test]
    fn an_images_data_depend_on_its_tables_and_a_videos_image_on_the_one_before() {
        let mut images = Dependencies::Images { adus: 4, tables: 2, in_sequence: false };
        assert_eq!(
            [0, 1, 2, 3, 4, 6].map(|adu| named(&images, adu)),
            [vec![], vec![0], vec![1], vec![1], vec![], vec![5]]
        );
        images = Dependencies::Images { adus: 2, tables: 0, in_sequence: true };
        assert_eq!(
            [0, 1, 2, 3].map(|adu| named(&images, adu)),
            [vec![], vec![], vec![0, 1], vec![0, 1]]
        );
    }

    #[test]
    fn an_application_takes_the_next_adu_when_it_is_done_with_the_one_before() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let mut consumer = Consumer::new(
            (Time::ZERO, Duration::ZERO),
            4,
            DeliveryOrder::InOrder,
            (Duration::from_millis(10), Dependencies::None),
            true,
        );
        for (adu, millis) in [(1, 20), (0, 25), (2, 26), (2, 27), (3, 60)] {
            consumer.on_arrival(at(millis), adu);
        }
        assert_eq!([25, 30, 36, 46].map(|millis| consumer.buffered(at(millis))), [3, 3, 2, 1]);
        let taken: Vec<Time> = consumer.rows().map(|(_, _, record, _)| record.delivered).collect();
        assert_eq!(taken, [25, 35, 45, 60].map(at));
        assert_eq!(consumer.next_take(), at(25));
        assert!(consumer.take(at(25)) && !consumer.take(at(34)) && consumer.take(at(35)));
    }
}
