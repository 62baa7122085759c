//! The rules of agreement, and the rows that they yield.

use crate::known::{Known, known};
use crate::reference::{Numbers, Run};

/// How near ontempo must come to ns-2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// One deterministic run: within this fraction of ns-2's number.
    Fraction(f64),
    /// Several runs: the means lie within one of both 95 % intervals, or within 5 %.
    Means,
    /// No rule: shown for what it tells.
    Shown,
}

/// A mean, and half the width of its 95 % interval where there are several runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) half: Option<f64>,
}

/// One quantity of one scenario, in both simulators.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) runs: usize,
    pub(crate) quantity: &'static str,
    pub(crate) ns2: Estimate,
    pub(crate) ontempo: Estimate,
    pub(crate) rule: Rule,
    pub(crate) known: Option<Known>,
}

/// The runs of one scenario in both simulators.
pub(crate) struct Pair {
    pub(crate) scenario: String,
    pub(crate) script: &'static str,
    pub(crate) ns2: Vec<Numbers>,
    pub(crate) ontempo: Vec<Numbers>,
}

/// Student's t for 95 % with as many degrees of freedom, from 1.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

const ONE_FLOW: &[(&str, Rule)] = &[
    ("flow goodput_mbps", Rule::Fraction(0.01)),
    ("queue mean_packets", Rule::Fraction(0.1)),
    ("flow cwnd_cuts", Rule::Fraction(0.1)),
    ("flow retransmitted", Rule::Shown),
    ("flow timeouts", Rule::Shown),
    ("queue drops", Rule::Shown),
];
const TWO_FLOWS: &[(&str, Rule)] = &[
    ("flow1 goodput_mbps", Rule::Means),
    ("flow2 goodput_mbps", Rule::Means),
    ("queue mean_packets", Rule::Means),
    ("flow1 cwnd_cuts", Rule::Means),
    ("flow2 cwnd_cuts", Rule::Means),
    ("flow1 retransmitted", Rule::Means),
    ("flow2 retransmitted", Rule::Means),
    ("queue drops", Rule::Means),
];
const MANY_FLOWS: &[(&str, Rule)] = &[
    ("goodput_mbps", Rule::Means),
    ("jain", Rule::Means),
    ("queue mean_packets", Rule::Means),
    ("queue drops", Rule::Means),
    ("cwnd_cuts", Rule::Means),
    ("retransmitted", Rule::Means),
    ("timeouts", Rule::Means),
];
const SPACED: &[(&str, Rule)] = &[
    ("udp_received_mbps", Rule::Fraction(0.01)),
    ("queue mean_packets", Rule::Fraction(0.1)),
    ("queue drops", Rule::Fraction(0.1)),
];
const SPACED_BESIDE_TCP: &[(&str, Rule)] = &[
    ("udp_received_mbps", Rule::Means),
    ("tcp_mbps", Rule::Means),
    ("queue mean_packets", Rule::Means),
    ("queue drops", Rule::Means),
];

impl Pair {
    /// The pairs of `runs` and what ontempo measured in each, those of one scenario together.
    pub(crate) fn all(runs: Vec<Run>, measured: Vec<Numbers>) -> Vec<Self> {
        let mut pairs: Vec<Self> = Vec::new();
        for (run, ontempo) in runs.into_iter().zip(measured) {
            let scenario = run.scenario();
            let place = pairs.iter().position(|pair| pair.scenario == scenario);
            let pair = match place {
                Some(place) => &mut pairs[place],
                None => {
                    let (ns2, ontempo) = (Vec::new(), Vec::new());
                    pairs.push(Self { scenario, script: run.script, ns2, ontempo });
                    pairs.last_mut().expect("just pushed")
                }
            };
            pair.ns2.push(run.numbers);
            pair.ontempo.push(ontempo);
        }
        pairs
    }

    fn rules(&self) -> &'static [(&'static str, Rule)] {
        match self.script {
            "single.tcl" | "steady.tcl" => ONE_FLOW,
            "two.tcl" => TWO_FLOWS,
            "many.tcl" => MANY_FLOWS,
            _ if self.scenario.split(' ').nth(3) == Some("0") => SPACED,
            _ => SPACED_BESIDE_TCP,
        }
    }

    /// One row for each quantity that a rule speaks of.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |(quantity, rule): &(&'static str, Rule)| Row {
            scenario: self.scenario.clone(),
            runs: self.ns2.len(),
            quantity,
            ns2: Estimate::of(&self.ns2, quantity),
            ontempo: Estimate::of(&self.ontempo, quantity),
            rule: *rule,
            known: known(&self.scenario, quantity),
        };
        self.rules().iter().map(row).collect()
    }
}

impl Estimate {
    fn of(runs: &[Numbers], quantity: &str) -> Self {
        let count = runs.len() as f64;
        let value = |run: &Numbers| match run.get(quantity) {
            Some(value) => *value,
            None => panic!("{quantity} is not among {:?}", run.keys()),
        };
        let mean = runs.iter().map(value).sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (value(run) - mean).powi(2)).sum();
        let half = (runs.len() > 1).then(|| {
            let error = (squares / (count - 1.0) / count).sqrt();
            STUDENT[runs.len() - 2] * error
        });
        Self { mean, half }
    }
}

impl Row {
    /// How far ontempo lies from ns-2, as a fraction of the latter; `None` where that is zero.
    pub(crate) fn difference(&self) -> Option<f64> {
        let apart = self.ontempo.mean - self.ns2.mean;
        if apart == 0.0 {
            return Some(0.0);
        }
        (self.ns2.mean != 0.0).then(|| apart / self.ns2.mean)
    }

    /// Whether the rule is kept. One unit of the last digit that ns-2 prints is no difference.
    pub(crate) fn agrees(&self) -> bool {
        let apart = (self.ontempo.mean - self.ns2.mean).abs();
        let allowed = match self.rule {
            Rule::Fraction(fraction) => fraction * self.ns2.mean.abs(),
            Rule::Means => {
                let halves = [self.ns2.half, self.ontempo.half].into_iter().flatten();
                halves.fold(0.05 * self.ns2.mean.abs(), f64::max)
            }
            Rule::Shown => return true,
        };
        apart <= allowed.max(self.last_digit())
    }

    fn last_digit(&self) -> f64 {
        let printed = |name: &str| self.quantity.ends_with(name);
        match () {
            () if printed("mbps") || printed("jain") => 1e-4,
            () if printed("mean_packets") => 1e-3,
            () => 0.0,
        }
    }

    /// What is wrong, if anything is: a difference that is not known, or a known one that is
    /// not as stated.
    pub(crate) fn problem(&self) -> Option<String> {
        let measured = format!(
            "{}: {} is {} in ontempo, {} in ns-2",
            self.scenario, self.quantity, self.ontempo.mean, self.ns2.mean
        );
        match (self.agrees(), self.known) {
            (true, None) => None,
            (false, None) => Some(format!("{measured}: no such difference is known")),
            (true, Some(known)) => {
                Some(format!("{measured}: {:?} has disappeared", known.difference.name))
            }
            (false, Some(known)) if known.bounds.hold(self.ontempo.mean) => None,
            (false, Some(known)) => Some(format!(
                "{measured}: outside {} to {}, as {:?} is stated",
                known.bounds.least, known.bounds.most, known.difference.name
            )),
        }
    }
}
