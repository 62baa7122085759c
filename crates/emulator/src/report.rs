//! How exactly packets were forwarded, and the warnings that follow from it.

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_scenario::Layout;

use crate::lateness::Lateness;

/// A 99th percentile of lateness above this yields a warning, of packets as of units.
const NOTABLY_LATE: Duration = Duration::from_micros(500);

/// Packets that the fastest link may send between two ticks of the clock; with more, departure
/// times are as coarse as the ticks.
const MAX_PER_STEP: u64 = 2;

/// How exactly packets were forwarded.
#[derive(Clone, Debug)]
pub struct ForwardingReport {
    /// Packets delivered to hosts.
    pub packets: u64,
    /// Packets that the kernel refused to deliver to a host.
    pub refused: u64,
    /// Packets between addresses without a route.
    pub unroutable: u64,
    /// Connections that failed before the end, with the reason.
    pub broken: Vec<String>,
    /// A sentence for each way in which a film was not carried as it was to be: a program that ended, or
    /// datagrams that were lost outside the network.
    pub failures: Vec<String>,
    /// Delivery time minus due time, over all packets.
    pub lateness: Lateness,
    /// Whether the threads that forward and that serve applications ran with real-time priority (`SCHED_FIFO`).
    pub realtime: bool,
    /// Over all units that an application sent and nothing prevented from being sent: the time at
    /// which the call to send began minus the time at which the unit was due.
    pub sending: Lateness,
}

impl ForwardingReport {
    /// One sentence for each way in which the run deviated from the model.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.realtime {
            warnings.push(
                "the emulator's threads got no real-time priority (CAP_SYS_NICE is missing), so that \
                 packets may be late, and units sent late"
                    .to_owned(),
            );
        }
        let late = self.lateness.quantile(0.99);
        if late > NOTABLY_LATE {
            warnings.push(format!(
                "this machine was too slow or too busy for the rates of this scenario: 1 % of the \
                 packets left more than {late} late"
            ));
        }
        let late = self.sending.quantile(0.99);
        if late > NOTABLY_LATE {
            warnings.push(format!(
                "this machine was too busy for the applications of this scenario: 1 % of their units were \
                 sent more than {late} late, so that units which came late may be the machine's doing and \
                 not the network's"
            ));
        }
        let broken = self.broken.iter();
        warnings.extend(broken.map(|flow| format!("a connection failed before the end: {flow}")));
        warnings.extend(self.failures.iter().cloned());
        if self.refused > 0 {
            warnings.push(format!(
                "the kernel refused to deliver {} packets to their hosts",
                self.refused
            ));
        }
        if self.unroutable > 0 {
            let what = "packets had addresses without a route, and were dropped";
            warnings.push(format!("{} {what}", self.unroutable));
        }
        warnings
    }
}

/// A warning if a link of `layout` sends several packets of size `largest` within one tick `step`
/// of the clock.
pub(crate) fn coarse_clock(step: Duration, layout: &Layout, largest: Bytes) -> Option<String> {
    let rates = layout.links.iter().map(|link| link.rate).filter(|rate| *rate < Rate::UNLIMITED);
    let packet = rates.max()?.time_to_send(largest);
    (step > packet * MAX_PER_STEP).then(|| {
        format!(
            "this machine's clock ticks in steps of {step}, too coarse for a link that sends a \
             packet in {packet}; packets of one step leave together"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> ForwardingReport {
        ForwardingReport {
            packets: 1,
            refused: 0,
            unroutable: 0,
            broken: Vec::new(),
            failures: Vec::new(),
            lateness: Lateness::default(),
            realtime: true,
            sending: Lateness::default(),
        }
    }

    #[test]
    fn a_clock_too_coarse_for_the_rate_gives_a_warning_with_both_values() {
        let text = r#"
            duration = "1 s"
            [topology]
            kind = "dumbbell"
            bottleneck = { rate = "10 Mbit/s", delay = "1 ms" }
            access = { rate = "1 Gbit/s", delay = "1 ms" }
            [flows.f]
            application = { kind = "ftp" }
            transport = { kind = "tcp" }
        "#;
        let scenario = ontempo_scenario::parse(text, "clock.toml").expect("it is valid");
        let layout = scenario.layout(1).expect("it can be laid out");
        let warning_at = |step| coarse_clock(step, &layout, Bytes::new(1500));
        assert_eq!(warning_at(Duration::from_nanos(30)), None);
        assert_eq!(warning_at(Duration::from_micros(24)), None);
        // Without high-resolution timers, Linux counts 250 ticks a second.
        let warning = warning_at(Duration::from_millis(4)).expect("a warning");
        assert!(warning.contains("steps of 4 ms") && warning.contains("12 us"), "{warning}");
    }

    #[test]
    fn late_packets_give_a_warning() {
        let mut report = fine();
        for micros in [10, 2000] {
            report.lateness.note(Duration::from_micros(micros));
        }
        let [warning] = &report.warnings()[..] else { panic!("{:?}", report.warnings()) };
        assert!(warning.contains("2 ms late"), "{warning}");
        assert_eq!(fine().warnings(), [""; 0]);
    }

    #[test]
    fn units_sent_late_give_a_warning_of_their_own() {
        let mut report = fine();
        for late in 0..99 {
            report.sending.note(Duration::from_micros(late));
        }
        report.sending.note(Duration::from_millis(14));
        assert_eq!(report.warnings(), [""; 0], "1 % is late, not more");
        report.sending.note(Duration::from_millis(14));
        let [warning] = &report.warnings()[..] else { panic!("{:?}", report.warnings()) };
        assert!(warning.contains("sent more than 14 ms late"), "{warning}");
    }
}
