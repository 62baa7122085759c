use ontempo_foundation::{Bytes, Duration, Rate, Time};

/// Arrivals whose distances are kept (`CPktTimeWindow<16, 64>` in `core.h`).
const WINDOW: usize = 16;
/// Headers of IPv4, UDP and SRT, which the rate includes (SRT_DATA_HDR_SIZE).
const HEADERS: u64 = 44;

/// The receiving rate over the last 16 packets (`window.cpp`). It is reported to the sender, which
/// does not use it in live mode.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    /// Distance to the arrival before, in microseconds, and size of the packet.
    window: [(u64, u64); WINDOW],
    next: usize,
    last: Time,
}

impl Arrivals {
    pub(super) fn new(now: Time) -> Self {
        Self { window: [(1_000_000, 1_456); WINDOW], next: 0, last: now }
    }

    pub(super) fn on_packet(&mut self, now: Time, payload: Bytes) {
        let micros = now.since(self.last).as_nanos() / 1_000;
        self.window[self.next] = (micros, payload.get());
        self.next = (self.next + 1) % WINDOW;
        self.last = now;
    }

    /// The mean rate of the distances between an eighth and eight times their median; zero if these
    /// are half or fewer (`getPktRcvSpeed_in`).
    pub(super) fn rate(&self) -> Rate {
        let mut distances = self.window.map(|(micros, _)| micros);
        distances.sort_unstable();
        let median = distances[WINDOW / 2];
        let usual = |micros: u64| micros < median.saturating_mul(8) && micros > median / 8;
        let (mut count, mut micros, mut bytes) = (0, 0u64, 0u64);
        for &(distance, size) in self.window.iter().filter(|entry| usual(entry.0)) {
            count += 1;
            micros = micros.saturating_add(distance);
            bytes = bytes.saturating_add(size.saturating_add(HEADERS));
        }
        if count <= WINDOW / 2 {
            return Rate::from_bits_per_sec(0);
        }
        let span = Duration::from_nanos(micros.saturating_mul(1_000));
        Rate::of(Bytes::new(bytes), span)
    }
}
