//! The receiver's buffer of one flow: what is missing, and what is due.

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use super::{MAX_NACKS, NackRange, RistParameters, SEQUENCES};

/// Samples of the offset between both clocks for one correction (rist-common.c, `receiver_enqueue`).
const OFFSET_SAMPLES: usize = 2048;
/// The place of the median in samples in descending order (`recalculate_clock_offset`).
const MEDIAN: usize = OFFSET_SAMPLES.div_ceil(2) + 1;
/// A gap as long as this is taken for a wrap of sequence numbers (`receiver_mark_missing`).
const MAX_GAP: usize = SEQUENCES / 2;
/// Octets by which `missing_counter_max` divides (`init_peer_settings`).
const ASSUMED_NACK: u64 = 28;
/// Packets too late, or without a place, after which the flow begins anew.
const MAX_FAILURES: u64 = 100;
/// The interval in which packets are counted (rist.c, `rist_receiver_create`).
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// A flow without packets is deleted after this, or twice the buffer (flow.c, `create_flow`; peer.h,
/// `RIST_DEFAULT_SESSION_TIMEOUT`).
const FLOW_TIMEOUT: Duration = Duration::from_secs(2);

/// Counters of a receiver, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RistReceiverStatistics {
    /// Packets of media taken into the buffer.
    pub received: u64,
    /// Datagrams given to the application.
    pub delivered: u64,
    /// Sequence numbers that were missing when the next datagram was due.
    pub lost: u64,
    /// Missing packets that came after they were asked for.
    pub recovered: u64,
    /// Packets that came too late.
    pub late: u64,
    /// Packets that were there already.
    pub duplicates: u64,
    /// Packets of media thrown away: no handshake yet, or no place.
    pub refused: u64,
    /// Sequence numbers asked for, each time.
    pub asked: u64,
    /// How often the flow began anew, its buffer emptied.
    pub resets: u64,
    /// Packets lost in this host, since nothing took them from here.
    pub overflowed: u64,
    /// The smoothed round-trip time, without its bounds.
    pub rtt: Duration,
}

/// A packet of media.
#[derive(Clone, Copy, Debug)]
pub(super) struct Media {
    pub sequence: u16,
    pub datagram: u64,
    pub timestamp: Time,
    pub is_retransmission: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    datagram: u64,
    timestamp: Time,
    arrived: Time,
    /// Nanoseconds on the receiver's clock at which it would have arrived with the flow's usual delay.
    packet_time: i128,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    sequence: u16,
    /// When it should have arrived.
    since: Time,
    next_nack: Time,
    nacks: u32,
}

/// Counters that begin anew every second.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    received: u64,
    late: u64,
    full: u64,
    missing: u64,
    recovered: u64,
}

/// The buffer of a flow.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    parameters: RistParameters,
    /// False until a first packet fixes the clock, and after a failure.
    has_items: bool,
    /// The sequence number of the first place of `queue`: the next to be given out.
    base: u16,
    queue: VecDeque<Option<Slot>>,
    occupied: usize,
    /// Nanoseconds from the sender's clock to arrival.
    time_offset: i128,
    offset_samples: Vec<i128>,
    newest_timestamp: Time,
    newest_packet_time: i128,
    last_found: u16,
    missing: VecDeque<Missing>,
    /// Those of `missing` that were asked for.
    asked_for: u64,
    interval: Interval,
    next_count: Time,
    next_check: Time,
    pub last_received: Time,
    last_output: Option<Time>,
    too_late: u64,
    /// One more than the last datagram given out.
    next_datagram: u64,
}

fn nanos(time: Time) -> i128 {
    i128::from(time.as_nanos())
}

fn span(duration: Duration) -> i128 {
    i128::from(duration.as_nanos())
}

impl Flow {
    /// A flow without packets; the application has had all datagrams below `next_datagram`.
    pub(super) fn new(parameters: RistParameters, now: Time, next_datagram: u64) -> Self {
        Self {
            parameters,
            has_items: false,
            base: 0,
            queue: VecDeque::new(),
            occupied: 0,
            time_offset: 0,
            offset_samples: Vec::new(),
            newest_timestamp: Time::ZERO,
            newest_packet_time: i128::MIN,
            last_found: 0,
            missing: VecDeque::new(),
            asked_for: 0,
            interval: Interval::default(),
            next_count: now,
            next_check: now,
            last_received: now,
            last_output: None,
            too_late: 0,
            next_datagram,
        }
    }

    /// True where output has something to look at.
    pub(super) fn is_occupied(&self) -> bool {
        self.occupied > 0
    }

    pub(super) fn next_datagram(&self) -> u64 {
        self.next_datagram
    }

    /// 1.1 times the buffer, after which nothing is asked for or taken.
    fn late_after(&self) -> i128 {
        span(self.parameters.buffer) * 11 / 10
    }

    /// A packet arrives (rist-common.c, `receiver_enqueue`). `wait` is the time from a gap to the first
    /// request.
    pub(super) fn receive(
        &mut self,
        now: Time,
        media: Media,
        wait: Duration,
        statistics: &mut RistReceiverStatistics,
    ) {
        if !self.has_items {
            if media.is_retransmission {
                statistics.refused += 1;
            } else {
                self.begin(now, media, statistics);
            }
            return;
        }
        let packet_time = nanos(media.timestamp) + self.time_offset;
        if media.timestamp > self.newest_timestamp {
            self.newest_timestamp = media.timestamp;
            self.newest_packet_time = packet_time;
        }
        // The mask is librist's (`UINT16_MAX - 1`): an odd number is never the expected one.
        let expected = self.last_found.wrapping_add(1) & (u16::MAX - 1);
        let is_old = packet_time < self.newest_packet_time;
        let is_out_of_order = is_old && media.sequence != expected;
        if is_out_of_order && nanos(now) > packet_time + self.late_after() {
            self.count_late(statistics);
            return;
        }
        let place = usize::from(media.sequence.wrapping_sub(self.base));
        if place == SEQUENCES - 1 {
            self.count_full(media.sequence, packet_time, statistics);
            return;
        }
        if media.timestamp < self.newest_timestamp && place >= MAX_GAP {
            // Its turn has passed. librist keeps it, and gives it out of order if nothing else is left.
            self.interval.received += 1;
            statistics.late += 1;
            if !media.is_retransmission && !is_out_of_order {
                self.last_found = media.sequence;
            }
            return;
        }
        let slot = Slot {
            datagram: media.datagram,
            timestamp: media.timestamp,
            arrived: now,
            packet_time,
        };
        if !self.insert(place, slot) {
            statistics.duplicates += 1;
            return;
        }
        self.interval.received += 1;
        statistics.received += 1;
        if !media.is_retransmission && !is_out_of_order {
            self.look_for_gap(now, media, packet_time, wait);
        }
    }

    /// A packet came in order. Without a gap its delay is a sample of the offset of the clocks.
    fn look_for_gap(&mut self, now: Time, media: Media, packet_time: i128, wait: Duration) {
        if media.sequence.wrapping_sub(1) != self.last_found {
            self.mark_missing(now, media.sequence, packet_time, wait);
        } else {
            self.sample_offset(nanos(now) - nanos(media.timestamp));
        }
        self.last_found = media.sequence;
    }

    /// The first packet fixes the clock: what follows is due as long after it as it was given after it.
    fn begin(&mut self, now: Time, media: Media, statistics: &mut RistReceiverStatistics) {
        statistics.resets += u64::from(self.occupied > 0);
        statistics.received += 1;
        self.queue.clear();
        self.occupied = 0;
        self.missing.clear();
        self.asked_for = 0;
        self.interval = Interval::default();
        self.has_items = true;
        self.next_check = now;
        self.last_received = now;
        self.time_offset = nanos(now) - nanos(media.timestamp);
        self.newest_timestamp = media.timestamp;
        self.base = media.sequence;
        self.last_found = media.sequence;
        let Media { datagram, timestamp, .. } = media;
        self.insert(0, Slot { datagram, timestamp, arrived: now, packet_time: nanos(now) });
    }

    /// Puts a packet into its place; false if it is there. Another of the same number gives way.
    fn insert(&mut self, place: usize, slot: Slot) -> bool {
        if self.queue.len() <= place {
            self.queue.resize(place + 1, None);
        }
        let old = self.queue[place].replace(slot);
        if old.is_none() {
            self.occupied += 1;
        }
        old.is_none_or(|old| {
            let is_same = old.timestamp == slot.timestamp;
            if is_same {
                self.queue[place] = Some(old);
            }
            !is_same
        })
    }

    fn count_late(&mut self, statistics: &mut RistReceiverStatistics) {
        statistics.late += 1;
        self.interval.late += 1;
        // Of librist's three conditions this includes the others.
        if self.interval.late > 5 * self.interval.received {
            self.has_items = false;
        }
    }

    /// The place is the one just given out, which for librist means that the ring is full.
    fn count_full(
        &mut self,
        sequence: u16,
        packet_time: i128,
        statistics: &mut RistReceiverStatistics,
    ) {
        if packet_time > self.newest_packet_time {
            self.last_found = sequence;
        }
        statistics.refused += 1;
        self.interval.full += 1;
        if self.interval.full > MAX_FAILURES {
            self.has_items = false;
        }
    }

    fn slot(&self, sequence: u16) -> Option<&Slot> {
        self.queue.get(usize::from(sequence.wrapping_sub(self.base)))?.as_ref()
    }

    /// rist-common.c, `receiver_mark_missing`, and flow.c, `rist_receiver_missing`: what lies between the
    /// last packet and this one is missing, since evenly spread times between both.
    fn mark_missing(&mut self, now: Time, current: u16, packet_time: i128, wait: Duration) {
        let gap = current.wrapping_sub(self.last_found);
        if usize::from(gap) > MAX_GAP {
            return;
        }
        let last = self.slot(self.last_found).map_or(nanos(now), |slot| slot.packet_time);
        let step = (packet_time - last) / (i128::from(gap) + 1);
        let most = self.most_asked_for();
        for number in 1..gap {
            if self.asked_for > most || self.missing.len() >= SEQUENCES {
                break;
            }
            let expected = last + step * i128::from(number);
            let is_usable =
                expected <= nanos(now) && expected >= nanos(now) - span(self.parameters.buffer);
            let since =
                u64::try_from(expected).ok().filter(|_| is_usable).map_or(now, Time::from_nanos);
            self.missing.push_back(Missing {
                sequence: self.last_found.wrapping_add(number),
                since,
                next_nack: now + wait,
                nacks: 0,
            });
        }
    }

    /// `missing_counter_max` of `init_peer_settings`: 3571 by default.
    fn most_asked_for(&self) -> u64 {
        let megabits = (self.parameters.max_bitrate.as_bits_per_sec() / 1_000_000).max(1);
        let buffer_ms = self.parameters.buffer.as_nanos() / 1_000_000;
        buffer_ms.saturating_mul(megabits) / ASSUMED_NACK
    }

    /// `recalculate_clock_offset`: the median of the delays of packets in order replaces the first's.
    fn sample_offset(&mut self, offset: i128) {
        self.offset_samples.push(offset);
        if self.offset_samples.len() < OFFSET_SAMPLES {
            return;
        }
        let (_, median, _) = self.offset_samples.select_nth_unstable_by(MEDIAN, |a, b| b.cmp(a));
        self.time_offset = *median;
        self.offset_samples.clear();
    }

    /// Gives out what is due (rist-common.c, `receiver_output`).
    pub(super) fn output(
        &mut self,
        now: Time,
        deliver: &mut dyn FnMut(u64),
        statistics: &mut RistReceiverStatistics,
    ) {
        let buffer = span(self.parameters.buffer);
        while self.occupied > 0 {
            let Some(holes) = self.queue.iter().position(Option::is_some) else { return };
            let Some(slot) = self.queue[holes] else { return };
            let age = nanos(now) - nanos(slot.arrived);
            // A packet whose time lies too far ahead goes by its age.
            let is_due = slot.packet_time + buffer <= nanos(now);
            if !is_due && (age <= self.late_after() || (holes > 0 && age <= 2 * buffer)) {
                return;
            }
            statistics.lost += holes as u64;
            self.queue.drain(..=holes);
            self.base = self.base.wrapping_add(holes as u16).wrapping_add(1);
            self.occupied -= 1;
            if age > 2 * buffer && age > self.late_after() {
                statistics.late += 1;
                self.too_late += 1;
                if self.too_late > MAX_FAILURES {
                    self.has_items = false;
                    return;
                }
            } else {
                self.too_late = 0;
                self.give(slot.datagram, deliver, statistics);
            }
            if self.occupied == 0 {
                self.queue.clear();
                let last = *self.last_output.get_or_insert(now);
                // The stream counts as dead, and the next packet begins it anew.
                self.has_items &= now.since(last) <= self.parameters.buffer;
                return;
            }
            self.last_output = Some(now);
        }
    }

    /// Never goes back, also where a flow that began anew does.
    fn give(
        &mut self,
        datagram: u64,
        deliver: &mut dyn FnMut(u64),
        statistics: &mut RistReceiverStatistics,
    ) {
        if datagram < self.next_datagram {
            statistics.late += 1;
            return;
        }
        self.next_datagram = datagram.saturating_add(1);
        statistics.delivered += 1;
        deliver(datagram);
    }

    /// Asks for what is missing (rist-common.c, `receiver_nack_output`, `rist_process_nack`), every 1.1
    /// round-trip times. One packet carries fewer than 200 numbers.
    pub(super) fn ask(
        &mut self,
        now: Time,
        rtt: Duration,
        send: &mut dyn FnMut(Vec<NackRange>),
        statistics: &mut RistReceiverStatistics,
    ) {
        let mut missing = std::mem::take(&mut self.missing);
        let mut group: Vec<NackRange> = Vec::new();
        let mut grouped = 0;
        let late_after = self.late_after();
        missing.retain_mut(|entry| {
            let is_there = self.slot(entry.sequence).is_some();
            let is_late = nanos(now) - nanos(entry.since) > late_after;
            if is_there || is_late || entry.nacks >= self.parameters.max_retries {
                if entry.nacks > 0 {
                    self.asked_for = self.asked_for.saturating_sub(1);
                    self.interval.recovered += u64::from(is_there);
                    statistics.recovered += u64::from(is_there);
                }
                return false;
            }
            if now < entry.next_nack {
                return true;
            }
            if entry.nacks == 0 {
                self.asked_for += 1;
                self.interval.missing += 1;
            }
            entry.next_nack = now + rtt * 11 / 10;
            entry.nacks += 1;
            statistics.asked += 1;
            if grouped == MAX_NACKS - 1 {
                send(std::mem::take(&mut group));
                grouped = 0;
            }
            grouped += 1;
            append(&mut group, entry.sequence);
            true
        });
        self.missing = missing;
        if !group.is_empty() {
            send(group);
        }
    }

    /// The checks of rist-common.c, `receiver_pthread_protocol`; true where the flow is deleted: without
    /// packets for 2 s, or twice the buffer.
    pub(super) fn check(&mut self, now: Time) -> bool {
        if !self.has_items {
            return false;
        }
        if now >= self.next_check {
            self.next_check += self.parameters.buffer;
            let timeout = FLOW_TIMEOUT.max(self.parameters.buffer * 2);
            if now.since(self.last_received) > timeout {
                return true;
            }
        }
        if now >= self.next_count {
            self.next_count += COUNT_INTERVAL;
            self.end_interval();
        }
        false
    }

    /// stats.c, `rist_receiver_flow_statistics`: where more is missing than came, and little comes back,
    /// all requests are forgotten.
    fn end_interval(&mut self) {
        let Interval { received, missing, recovered, .. } = std::mem::take(&mut self.interval);
        let is_hopeless = self.asked_for == 0 || recovered * 10 < missing;
        if is_hopeless && received > 10 && received < missing {
            self.missing.clear();
            self.asked_for = 0;
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.queue.len() + self.missing.len() + self.offset_samples.len()
    }
}

/// Adds a number to ranges: to the last if it continues it (udp.c, `rist_receiver_send_nacks`). A range
/// does not wrap.
fn append(ranges: &mut Vec<NackRange>, sequence: u16) {
    let follows = |range: &NackRange| {
        u32::from(range.first) + u32::from(range.additional) + 1 == u32::from(sequence)
    };
    match ranges.last_mut() {
        Some(range) if follows(range) => range.additional += 1,
        _ => ranges.push(NackRange { first: sequence, additional: 0 }),
    }
}
