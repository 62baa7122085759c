use ontempo_foundation::{Bytes, Time};

use super::packet::MAX_PAYLOAD;
use super::{MaxBandwidth, SrtParameters};

/// Headers that the rate includes (SRT_DATA_HDR_SIZE).
const HEADERS: f64 = 44.0;
/// "No limit": 1 Gbit/s, in bytes per second (BW_INFINITE in `common.h`).
const UNLIMITED: f64 = 125_000_000.0;
/// A new packet whose number is a multiple of this is followed at once by the next one, so that the
/// receiver can estimate the bandwidth (PUMASK_SEQNO_PROBE).
const PROBE_EVERY: u64 = 16;
/// The average payload is that of about so many packets (`updatePayloadSize` in `congctl.cpp`).
const AVERAGED_PAYLOADS: u64 = 128;

/// When the next data packet may leave: LiveCC's period (`congctl.cpp`), kept as `packData` keeps it.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    limit: MaxBandwidth,
    /// Overhead as a factor, 1.25 by default.
    overhead: f64,
    input: InputRate,
    average_payload: u64,
    /// Nanoseconds; whole microseconds.
    interval: i64,
    /// Nanoseconds by which packets left late; negative after a probe.
    credit: i64,
    next_send: Option<Time>,
    /// When the sender looks for a packet; `None` until something happens.
    due: Option<Time>,
}

impl Pacing {
    pub(super) fn new(parameters: &SrtParameters) -> Self {
        let mut pacing = Self {
            limit: parameters.max_bandwidth,
            overhead: 1.0 + parameters.overhead.as_f64() / 100.0,
            input: InputRate::default(),
            average_payload: MAX_PAYLOAD.get(),
            interval: 0,
            credit: 0,
            next_send: None,
            due: None,
        };
        pacing.update();
        pacing
    }

    /// The application gave a datagram.
    pub(super) fn on_input(&mut self, now: Time, payload: Bytes) {
        if self.limit == MaxBandwidth::Measured {
            self.input.on_packet(now, payload);
        }
    }

    /// With each ACK, loss report and check of the timers (`updateCC`, `updatePktSndPeriod`).
    pub(super) fn update(&mut self) {
        let rate = match self.limit {
            MaxBandwidth::Unlimited => UNLIMITED,
            MaxBandwidth::Fixed(rate) => rate.as_bits_per_sec() as f64 / 8.0,
            MaxBandwidth::Input(rate) => rate.as_bits_per_sec() as f64 / 8.0 * self.overhead,
            MaxBandwidth::Measured => self.input.rate * self.overhead,
        };
        // A rate of 0 is none (`setMaxBW`).
        let rate = if rate < 1.0 { UNLIMITED } else { rate };
        let micros = 1e6 * (self.average_payload as f64 + HEADERS) / rate;
        self.interval = micros as i64 * 1_000;
    }

    /// There may be something to send: at once, unless a packet is scheduled (`CSndUList::update`).
    pub(super) fn wake(&mut self, now: Time) {
        self.due.get_or_insert(now);
    }

    /// When to look for a packet.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Before looking for a packet.
    pub(super) fn begin(&mut self, now: Time) {
        if let Some(planned) = self.next_send {
            self.credit = self.credit.saturating_add(signed(now.since(planned).as_nanos()));
        }
    }

    /// Nothing to send until the next [`wake`](Self::wake).
    pub(super) fn idle(&mut self) {
        (self.next_send, self.credit, self.due) = (None, 0, None);
    }

    /// A packet leaves; `new` is its number if it was never sent.
    pub(super) fn on_sent(&mut self, now: Time, payload: Bytes, new: Option<u64>) {
        let weighted = self.average_payload * (AVERAGED_PAYLOADS - 1) + payload.get();
        self.average_payload = weighted / AVERAGED_PAYLOADS;
        let wait = if new.is_some_and(|sequence| sequence % PROBE_EVERY == 0) {
            self.credit = self.credit.saturating_sub(self.interval);
            0
        } else if self.credit >= self.interval {
            self.credit -= self.interval;
            0
        } else {
            self.interval.saturating_sub(core::mem::take(&mut self.credit))
        };
        let wait = u64::try_from(wait).unwrap_or(0);
        let next = now + ontempo_foundation::Duration::from_nanos(wait);
        (self.next_send, self.due) = (Some(next), Some(next));
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

/// The rate of the media (`CRateEstimator` in `buffer.cpp`), bytes per second.
#[derive(Clone, Debug)]
struct InputRate {
    rate: f64,
    since: Option<Time>,
    packets: u64,
    bytes: u64,
    /// The first period is 500 ms, or ends with 2,000 packets; later ones are 1 s.
    is_first: bool,
}

impl Default for InputRate {
    fn default() -> Self {
        Self { rate: UNLIMITED, since: None, packets: 0, bytes: 0, is_first: true }
    }
}

impl InputRate {
    fn on_packet(&mut self, now: Time, payload: Bytes) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.packets += 1;
        self.bytes += payload.get();
        let seconds = now.since(since).as_secs_f64();
        let period = if self.is_first { 0.5 } else { 1.0 };
        if seconds > period || (self.is_first && self.packets > 2_000 && seconds > 0.0) {
            self.rate = (self.bytes as f64 + self.packets as f64 * HEADERS) / seconds;
            *self =
                Self { rate: self.rate, since: Some(now), packets: 0, bytes: 0, is_first: false };
        }
    }
}
