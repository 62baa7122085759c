//! When to poll the stack for packets: pacing, and delayed acknowledgements.

use ontempo_foundation::{Bytes, Duration, Packets, Rate, Time};
use ontempo_mechanisms::ack::{AckDecision, AckPolicy, Segment};
use ontempo_mechanisms::pacing::{Pacer, interval_at_rate};

use crate::config::PacingConfig;
use crate::quic::Account;
use crate::wire::AckRequest;

/// Maximum bytes sent at once: one system call.
const MAX_BATCH: u64 = 64 << 10;

/// The least size of a full packet, bytes (RFC 9000, section 14.1): what leaves at once is counted in these, also behind
/// a shorter one.
const FULL: Bytes = Bytes::new(1_200);

/// Paces packets: by the spacing or the rate that the congestion control sets, otherwise by
/// cwnd per round trip.
#[derive(Debug)]
pub(super) struct Gate {
    config: Option<PacingConfig>,
    pacer: Pacer,
    /// Time between the last packets.
    interval: Duration,
    /// Packets that may be sent back to back after an idle period.
    burst: u64,
    /// Packets that may be sent at once at any time.
    quantum: u64,
}

impl Gate {
    pub(super) fn new(config: Option<PacingConfig>) -> Self {
        let (pacer, interval) = (Pacer::default(), Duration::ZERO);
        Self { config, pacer, interval, burst: burst(config), quantum: 1 }
    }

    /// Number of packets that may be sent at `now`, at most `most`; otherwise when the next may.
    pub(super) fn allowed(&self, now: Time, most: usize) -> Result<usize, Time> {
        let earliest = self.pacer.earliest();
        if earliest > now {
            return Err(earliest);
        }
        let due = match self.interval.as_nanos() {
            0 => u64::MAX,
            interval => 1 + now.since(earliest).as_nanos() / interval,
        };
        let allowed = due.min(self.burst).max(self.quantum);
        Ok(usize::try_from(allowed).unwrap_or(usize::MAX).clamp(1, most.max(1)))
    }

    /// A packet of `size` was sent at `now`.
    pub(super) fn on_sent(&mut self, now: Time, size: Bytes, account: &Account) {
        self.interval = self.distance(size, account);
        // A spacing set by the controller is kept, whatever pacing is configured.
        let spaced = account.spacing.is_some_and(|spacing| spacing > Duration::ZERO);
        self.burst = if spaced { 1 } else { burst(self.config) };
        self.quantum = if spaced { 1 } else { self.quantum(size.max(FULL), account) };
        self.pacer.set_burst(Packets::new(self.burst));
        self.pacer.on_sent(now, self.interval);
    }

    /// Packets of `size` that the rate sends in the configured time.
    fn quantum(&self, size: Bytes, account: &Account) -> u64 {
        let span = self.config.map_or(Duration::ZERO, |config| config.quantum);
        let most = (MAX_BATCH / size.get().max(1)).max(1);
        match self.distance(size, account).as_nanos() {
            0 => 1,
            interval => (span.as_nanos() / interval).clamp(1, most),
        }
    }

    fn distance(&self, size: Bytes, account: &Account) -> Duration {
        if let Some(spacing) = account.spacing {
            return spacing;
        }
        let Some(config) = self.config else { return Duration::ZERO };
        let rate = account.rate.or_else(|| {
            let rate = Rate::of(account.window, account.srtt?).as_bits_per_sec() as f64;
            Some(Rate::from_bits_per_sec((rate * config.gain.max(0.01)) as u64))
        });
        rate.map_or(Duration::ZERO, |rate| interval_at_rate(rate, size))
    }
}

fn burst(config: Option<PacingConfig>) -> u64 {
    config.map_or(u64::MAX, |config| config.burst.get().max(1))
}

/// Delays acknowledgements by the policy that the peer requested.
#[derive(Debug, Default)]
pub(super) struct AckGate {
    /// `None`: the stack acknowledges by itself.
    policy: Option<AckPolicy>,
    largest: Option<u64>,
    newest_at: Option<Time>,
    /// When a number came last that did not follow the largest.
    gap_at: Option<Time>,
    due: Due,
}

/// Acknowledgements that are due.
#[derive(Clone, Copy, Debug, Default)]
enum Due {
    #[default]
    Nothing,
    Now,
    At(Time),
}

impl AckGate {
    pub(super) fn set(&mut self, request: AckRequest) {
        self.policy = match request {
            // The stack handles these by itself.
            AckRequest::Immediate | AckRequest::Delayed => None,
            AckRequest::Adaptive => Some(AckPolicy::Adaptive(Box::default())),
        };
    }

    /// When a packet came last that was newer than all before: one that is older, others who have seen it can send
    /// again.
    pub(super) fn newest_at(&self) -> Option<Time> {
        self.newest_at
    }

    /// When a gap between packets was last seen to begin or to be filled.
    pub(super) fn gap_at(&self) -> Option<Time> {
        self.gap_at
    }

    /// Packet `number` was received. A number that does not follow the largest begins a gap, fills
    /// one or is a duplicate: it is acknowledged immediately.
    pub(super) fn on_packet(&mut self, now: Time, number: u64) {
        let in_order = self.largest.is_none_or(|largest| number == largest + 1);
        if !in_order {
            self.gap_at = Some(now);
        }
        if Some(number) > self.largest {
            (self.largest, self.newest_at) = (Some(number), Some(now));
        }
        let Some(policy) = &mut self.policy else { return };
        self.due =
            match (self.due, policy.on_segment(now, Segment { in_order, ..Segment::in_order() })) {
                (Due::Now, _) | (_, AckDecision::SendNow) => Due::Now,
                (_, AckDecision::HoldUntil(until)) => Due::At(until),
            };
    }

    /// Until when an acknowledgement is delayed, if nothing else is to be sent.
    pub(super) fn holds(&mut self, now: Time) -> Option<Time> {
        let Due::At(until) = self.due else { return None };
        if until > now {
            return Some(until);
        }
        self.due = Due::Now;
        if let Some(policy) = &mut self.policy {
            policy.on_timer(now);
        }
        None
    }

    /// All due acknowledgements have been sent.
    pub(super) fn release(&mut self) {
        self.due = Due::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1_250);

    /// Packets sent at each time, over 100 ms, with a controller that sets `rate`.
    fn departures(rate: Rate) -> Vec<(Time, usize)> {
        let account = Account { rate: Some(rate), ..Account::default() };
        let mut gate = Gate::new(Some(PacingConfig::default()));
        let (mut now, mut all) = (Time::from_secs_f64(1.0), Vec::new());
        while now < Time::from_secs_f64(1.1) {
            match gate.allowed(now, usize::MAX) {
                Ok(count) => {
                    all.push((now, count));
                    (0..count).for_each(|_| gate.on_sent(now, SIZE, &account));
                }
                Err(until) => now = until,
            }
        }
        all
    }

    #[test]
    fn a_slow_stream_leaves_packet_by_packet_after_the_first_burst() {
        let all = departures(Rate::from_bits_per_sec(4_000_000));
        let after = all.iter().skip_while(|(at, _)| *at == all[0].0);
        assert!(after.clone().count() > 30 && after.clone().all(|(_, count)| *count == 1));
    }

    #[test]
    fn a_fast_stream_leaves_a_millisecond_s_packets_at_once_and_keeps_its_rate() {
        let all = departures(Rate::from_bits_per_sec(100_000_000));
        assert!(all[1..].iter().filter(|(at, _)| *at > all[0].0).all(|(_, count)| *count == 10));
        let packets: usize = all.iter().map(|(_, count)| count).sum();
        assert!((1_000..=1_020).contains(&packets), "{packets} packets");
    }

    #[test]
    fn behind_a_short_packet_leave_no_more_than_behind_a_full_one() {
        let account =
            Account { rate: Some(Rate::from_bits_per_sec(100_000_000)), ..Account::default() };
        let at_once = |size| {
            let mut gate = Gate::new(Some(PacingConfig::default()));
            let (mut now, mut most) = (Time::from_secs_f64(1.0), 0);
            for _ in 0..20 {
                match gate.allowed(now, usize::MAX) {
                    Ok(_) => gate.on_sent(now, size, &account),
                    Err(until) => now = until,
                }
                most = most.max(gate.quantum);
            }
            most
        };
        assert_eq!((at_once(Bytes::new(40)), at_once(FULL)), (10, 10));
    }

    #[test]
    fn what_leaves_at_once_is_never_more_than_a_call_carries() {
        let all = departures(Rate::from_bits_per_sec(20_000_000_000));
        let most = all.iter().map(|(_, count)| *count).max();
        assert_eq!(most, Some((MAX_BATCH / SIZE.get()) as usize));
    }
}
