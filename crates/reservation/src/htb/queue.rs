//! The queues of what is not reserved.

use ontempo_foundation::{Bytes, Duration};

use super::Device;
use super::layout::BEST_EFFORT;

/// How long best effort waits in a full FIFO, at the rate that reservations leave to it.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Packets that a FIFO takes at least, so that a window of TCP can begin on a slow link.
const FEWEST: u64 = 8;
/// FQ-CoDel's target and interval (RFC 8290 section 4), of links where a packet takes less.
const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);
/// Packets of all flows under FQ-CoDel, which drops from the longest before.
const MOST: u64 = 1024;
/// Packets of a class of control that wait.
const CONTROL: u64 = 128;

/// What best effort waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// FQ-CoDel (RFC 8290): a queue for each flow, none of them long.
    FqCodel,
    /// One queue, bounded in bytes by the time that they wait: where the kernel has no FQ-CoDel.
    Fifo,
}

/// What best effort waits in now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BestEffortQueue {
    FqCodel,
    Fifo { limit: Bytes },
}

impl BestEffortQueue {
    /// The queue, and the line that makes it.
    pub(super) fn new(kind: QueueKind, device: &Device, reserved: u64) -> (Self, String) {
        match kind {
            QueueKind::FqCodel => (Self::FqCodel, fq_codel(device)),
            QueueKind::Fifo => {
                let limit = limit(device, reserved);
                (Self::Fifo { limit }, bfifo(device, limit))
            }
        }
    }

    pub(super) fn kind(self) -> QueueKind {
        match self {
            Self::FqCodel => QueueKind::FqCodel,
            Self::Fifo { .. } => QueueKind::Fifo,
        }
    }

    /// The line that fits a FIFO to what is reserved now.
    pub(super) fn follow(&mut self, device: &Device, reserved: u64) -> Option<String> {
        let Self::Fifo { limit: before } = self else { return None };
        let limit = limit(device, reserved);
        if limit == *before {
            return None;
        }
        *before = limit;
        Some(bfifo(device, limit))
    }
}

/// In whole packets, so that not every reservation changes it.
fn limit(device: &Device, reserved: u64) -> Bytes {
    let rate = u128::from(device.beside(reserved).as_bits_per_sec());
    let bytes = rate * u128::from(MAX_WAIT.as_nanos()) / 8 / 1_000_000_000;
    let frame = device.frame().get().max(1);
    let packets = u64::try_from(bytes / u128::from(frame)).unwrap_or(u64::MAX);
    Bytes::new(packets.clamp(FEWEST, u64::from(u32::MAX) / frame) * frame)
}

fn bfifo(device: &Device, limit: Bytes) -> String {
    let name = &device.name;
    format!("qdisc replace dev {name} parent 1:{BEST_EFFORT:x} bfifo limit {}", limit.get())
}

/// CoDel sees no queue in one packet on its way out: its target is longer than that.
fn fq_codel(device: &Device) -> String {
    let Device { name, rate, .. } = device;
    let frame = device.frame();
    let packet = rate.time_to_send(frame).as_nanos() / 1_000;
    let target = (packet + packet / 2).max(TARGET.as_nanos() / 1_000);
    let interval = (target * 2).max(INTERVAL.as_nanos() / 1_000);
    format!(
        "qdisc replace dev {name} parent 1:{BEST_EFFORT:x} fq_codel limit {MOST} target {target}us \
         interval {interval}us quantum {} ecn",
        frame.get()
    )
}

/// The line for the queue of a class of control.
pub(super) fn control(name: &str, class: u16) -> String {
    format!("qdisc replace dev {name} parent 1:{class:x} pfifo limit {CONTROL}")
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Rate;
    use proptest::prelude::*;

    use super::*;

    fn device(rate: u64) -> Device {
        let rate = Rate::from_bits_per_sec(rate);
        Device {
            name: "d0".to_owned(),
            rate,
            reservable: rate,
            mtu: Bytes::new(1500),
            header: Bytes::new(14),
            uncounted: Bytes::ZERO,
        }
    }

    #[test]
    fn fq_codels_target_is_longer_than_a_packet_takes() {
        let line = |rate| BestEffortQueue::new(QueueKind::FqCodel, &device(rate), 0).1;
        assert!(
            line(100_000_000).contains("target 5000us interval 100000us"),
            "{}",
            line(100_000_000)
        );
        // 1,514 bytes at 500 kbit/s are 24.2 ms.
        assert!(line(500_000).contains("target 36336us interval 100000us"), "{}", line(500_000));
    }

    proptest! {
        #[test]
        fn a_fifo_holds_what_leaves_in_a_tenth_of_a_second_or_a_few_packets(
            rate in 10_000u64..10_000_000_000, share in 0.0f64..1.2,
        ) {
            let device = device(rate);
            let reserved = (rate as f64 * share) as u64;
            let (mut queue, line) = BestEffortQueue::new(QueueKind::Fifo, &device, 0);
            prop_assert!(line.contains(" bfifo limit "), "{line}");
            queue.follow(&device, reserved);
            let BestEffortQueue::Fifo { limit } = queue else { panic!("it stays a FIFO") };
            let wait = limit.get() as f64 * 8.0 / (rate.saturating_sub(reserved)) as f64;
            prop_assert!(limit.get() == 8 * 1514 || wait <= 0.1, "{wait} s");
            prop_assert!(limit.get() >= 8 * 1514);
            prop_assert_eq!(queue.follow(&device, reserved), None);
        }
    }
}
