//! The rules of agreement, and the resulting rows.

use crate::known::{Known, known};
use crate::reference::{Numbers, Run};

/// The required agreement with ns-2; `docs/validation.md` explains the rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// One deterministic run: within this fraction of ns-2's number.
    Fraction(f64),
    /// Several runs: the means and their 95 % intervals decide.
    Means,
}

/// The result for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A difference larger than the rule allows is excluded.
    Agrees,
    /// There is such a difference.
    Differs,
    /// Neither can be shown.
    Undecided,
}

/// Means that lie further apart, as a fraction of ns-2's, differ if their intervals allow it.
const MAX_APART: f64 = 0.05;

/// Means agree only if even the end of the wider interval is no further apart, as a fraction
/// of ns-2's mean.
const MAX_APART_WITH_INTERVAL: f64 = 0.1;

/// A mean, and half the width of its 95 % interval if there are several runs.
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

/// Student's t for 95 % by degrees of freedom, from 1.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

const ONE_FLOW: &[(&str, Rule)] = &[
    ("flow goodput_mbps", Rule::Fraction(0.01)),
    ("queue mean_packets", Rule::Fraction(0.1)),
    ("flow cwnd_cuts", Rule::Fraction(0.1)),
    ("flow retransmitted", Rule::Fraction(0.1)),
    ("flow timeouts", Rule::Fraction(0.1)),
    ("queue drops", Rule::Fraction(0.1)),
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
    /// The pairs of `runs` and ontempo's measurements of each, grouped by scenario.
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
            "single.tcl" | "steady.tcl" | "switched.tcl" => ONE_FLOW,
            "two.tcl" | "two_switched.tcl" => TWO_FLOWS,
            "many.tcl" | "many_switched.tcl" => MANY_FLOWS,
            _ if self.scenario.split(' ').nth(3) == Some("0") => SPACED,
            _ => SPACED_BESIDE_TCP,
        }
    }

    /// One row for each quantity with a rule.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let runs = self.ns2.len();
        let row = |(quantity, rule): &(&'static str, Rule)| Row {
            scenario: self.scenario.clone(),
            runs,
            quantity,
            ns2: Estimate::of(&self.ns2, quantity),
            ontempo: Estimate::of(&self.ontempo, quantity),
            // One run has no interval; such runs are deterministic.
            rule: if runs == 1 && *rule == Rule::Means { Rule::Fraction(MAX_APART) } else { *rule },
            known: known(&self.scenario, quantity),
        };
        self.rules().iter().map(row).collect()
    }
}

impl Estimate {
    fn is_finite(&self) -> bool {
        self.mean.is_finite() && self.half.is_none_or(f64::is_finite)
    }

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
    /// The difference of ontempo from ns-2, as a fraction of the latter; `None` if that is zero.
    pub(crate) fn difference(&self) -> Option<f64> {
        let apart = self.ontempo.mean - self.ns2.mean;
        if apart == 0.0 {
            return Some(0.0);
        }
        (self.ns2.mean != 0.0).then(|| apart / self.ns2.mean)
    }

    /// The result. One unit of the last digit that ns-2 prints is no difference.
    pub(crate) fn finding(&self) -> Finding {
        let apart = (self.ontempo.mean - self.ns2.mean).abs();
        let half = [self.ns2.half, self.ontempo.half].into_iter().flatten().fold(0.0, f64::max);
        // `fold` ignores a NaN.
        let missing = [self.ns2, self.ontempo].iter().any(|estimate| !estimate.is_finite());
        if missing {
            return Finding::Undecided;
        }
        let allowed = |fraction: f64| (fraction * self.ns2.mean.abs()).max(self.last_digit());
        match self.rule {
            Rule::Fraction(fraction) if apart <= allowed(fraction) => Finding::Agrees,
            Rule::Fraction(_) => Finding::Differs,
            Rule::Means if apart > allowed(MAX_APART).max(half) => Finding::Differs,
            Rule::Means if apart + half <= allowed(MAX_APART_WITH_INTERVAL) => Finding::Agrees,
            Rule::Means => Finding::Undecided,
        }
    }

    fn last_digit(&self) -> f64 {
        let printed = |name: &str| self.quantity.ends_with(name);
        match () {
            () if printed("mbps") || printed("jain") => 1e-4,
            () if printed("mean_packets") => 1e-3,
            () => 0.0,
        }
    }

    /// The problem, if any: a difference that is not listed, or a listed one that is
    /// not as stated.
    pub(crate) fn problem(&self) -> Option<String> {
        let measured = format!(
            "{}: {} is {} in ontempo, {} in ns-2",
            self.scenario, self.quantity, self.ontempo.mean, self.ns2.mean
        );
        match (self.finding(), self.known) {
            (Finding::Agrees | Finding::Undecided, None) => None,
            (Finding::Differs, None) => Some(format!("{measured}: no such difference is known")),
            (Finding::Agrees, Some(known)) => {
                Some(format!("{measured}: {:?} has disappeared", known.name()))
            }
            (Finding::Undecided, Some(known)) => {
                Some(format!("{measured}: {:?} can no longer be told", known.name()))
            }
            (Finding::Differs, Some(known)) if known.bounds.hold(self.ontempo.mean) => None,
            (Finding::Differs, Some(known)) => Some(format!(
                "{measured}: outside {} to {}, as {:?} is stated",
                known.bounds.min,
                known.bounds.max,
                known.name()
            )),
        }
    }
}
