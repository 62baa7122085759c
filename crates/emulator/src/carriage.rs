//! How well packets were carried, and what is to be said of it.

use ontempo_foundation::{Bytes, Duration, Rate};
use ontempo_scenario::Layout;

use crate::lateness::Lateness;

/// Packets that are later than this, beyond what the model says, are worth a word.
const NOTABLY_LATE: Duration = Duration::from_micros(500);

/// How many packets the fastest link may send between two steps of the clock: more, and the times
/// at which they leave are as coarse as the steps.
const MAX_PER_STEP: u64 = 2;

/// How well packets were carried.
#[derive(Clone, Debug)]
pub struct Carriage {
    /// Packets handed to their hosts.
    pub packets: u64,
    /// Packets that a host did not take.
    pub refused: u64,
    /// Packets between addresses that no way joins.
    pub strangers: u64,
    /// Connections that broke before the end, and why.
    pub broken: Vec<String>,
    /// How late packets were handed over.
    pub lateness: Lateness,
    /// Whether the thread that carries went before all ordinary ones.
    pub went_first: bool,
}

impl Carriage {
    /// What was not as the model has it, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.went_first {
            warnings.push(
                "the network's thread could not be put before all others (the right to is \
                 missing), so that packets may be late"
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
        let broken = self.broken.iter();
        warnings.extend(broken.map(|flow| format!("a connection broke before the end: {flow}")));
        if self.refused > 0 {
            warnings.push(format!("{} packets were not taken by their hosts", self.refused));
        }
        if self.strangers > 0 {
            let what = "packets had addresses that no way joins, and were dropped";
            warnings.push(format!("{} {what}", self.strangers));
        }
        warnings
    }
}

/// What is to be said before a run whose clock goes in steps of `step`, where a link of `layout`
/// sends several packets of `largest` in one.
pub(crate) fn coarse_clock(step: Duration, layout: &Layout, largest: Bytes) -> Option<String> {
    let rates = layout.links.iter().map(|link| link.rate).filter(|rate| *rate < Rate::UNLIMITED);
    let packet = rates.max()?.time_to_send(largest);
    (step > packet * MAX_PER_STEP).then(|| {
        format!(
            "this machine's clock goes in steps of {step}, too coarse for a link that sends a \
             packet in {packet}; what leaves within a step leaves at once"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> Carriage {
        Carriage {
            packets: 1,
            refused: 0,
            strangers: 0,
            broken: Vec::new(),
            lateness: Lateness::default(),
            went_first: true,
        }
    }

    #[test]
    fn a_clock_that_is_too_coarse_for_the_rate_is_told_of_with_both_figures() {
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
        let said = |step| coarse_clock(step, &layout, Bytes::new(1500));
        assert_eq!(said(Duration::from_nanos(30)), None);
        assert_eq!(said(Duration::from_micros(24)), None);
        // Without high-resolution timers, Linux counts 250 ticks a second.
        let warning = said(Duration::from_millis(4)).expect("a warning");
        assert!(warning.contains("steps of 4 ms") && warning.contains("12 us"), "{warning}");
    }

    #[test]
    fn late_packets_are_told_of() {
        let mut carriage = fine();
        for micros in [10, 2000] {
            carriage.lateness.note(Duration::from_micros(micros));
        }
        let [warning] = &carriage.warnings()[..] else { panic!("{:?}", carriage.warnings()) };
        assert!(warning.contains("2 ms late"), "{warning}");
        assert_eq!(fine().warnings(), [""; 0]);
    }
}
