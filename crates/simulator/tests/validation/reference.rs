//! The numbers of ns-2 2.35, from `ns2/results.txt`.

use std::collections::BTreeMap;

const RESULTS: &str = include_str!("ns2/results.txt");
const STARTS: &str = "## starts.tcl\n";

/// Numbers by name: `flow goodput_mbps`, `queue drops`.
pub(crate) type Numbers = BTreeMap<String, f64>;

/// One run: the script, its arguments and what it printed.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) script: &'static str,
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) numbers: Numbers,
}

impl Run {
    /// The seed for delays and start times, if any.
    pub(crate) fn seed(&self) -> Option<&'static str> {
        match (self.script, self.arguments.as_slice()) {
            ("many.tcl" | "many_switched.tcl", [.., seed])
            | ("spacing.tcl" | "spacing_apart.tcl", [_, _, _, _, _, seed, ..]) => Some(seed),
            _ => None,
        }
    }

    /// The script and the arguments that identify a scenario: without the seed, the
    /// start time of the second of two flows, and the fractional milliseconds of the delay.
    pub(crate) fn scenario(&self) -> String {
        let shared = match self.script {
            "many.tcl" | "many_switched.tcl" => self.arguments.len() - 1,
            "two.tcl" => 7,
            "two_switched.tcl" => 8,
            "spacing.tcl" | "spacing_apart.tcl" => 5,
            _ => self.arguments.len(),
        };
        let shared =
            self.arguments[..shared].iter().map(|argument| match argument.split_once('.') {
                Some((whole, _fraction)) if self.script.starts_with("two") => format!("{whole}.xx"),
                _ => (*argument).to_owned(),
            });
        let mut scenario = format!("{} {}", self.script, shared.collect::<Vec<_>>().join(" "));
        if let ("spacing.tcl", [_, _, _, _, _, _, delay]) = (self.script, &self.arguments[..]) {
            let whole = delay.split_once('.').map_or(*delay, |(whole, _fraction)| whole);
            scenario += &format!(" {whole}.xx");
        }
        scenario
    }
}

/// Every run of the reference.
pub(crate) fn runs() -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (measured, _starts) = RESULTS.split_once(STARTS).expect("the start times are last");
    for line in measured.lines().filter(|line| !line.starts_with("# ")) {
        if let Some(command) = line.strip_prefix("## ") {
            let mut words = command.split(' ');
            let script = words.next().expect("a script");
            runs.push(Run { script, arguments: words.collect(), numbers: Numbers::new() });
        } else {
            runs.last_mut().expect("a command first").numbers.extend(numbers(line));
        }
    }
    runs
}

/// The numbers of one printed line: an optional subject, then names and values.
fn numbers(line: &str) -> Vec<(String, f64)> {
    let words: Vec<&str> = line.split(' ').collect();
    let subject = if words.len() % 2 == 1 { words[0] } else { "" };
    words[words.len() % 2..]
        .chunks_exact(2)
        .map(|pair| {
            let value = pair[1].parse().unwrap_or_else(|_| panic!("no number in {line:?}"));
            (format!("{subject} {}", pair[0]).trim_start().to_owned(), value)
        })
        .collect()
}

/// The start times of `spacing.tcl`'s senders for this seed, in seconds, in the order in which it
/// draws them.
pub(crate) fn spacing_starts(seed: &str) -> Vec<f64> {
    let (_measured, draws) = RESULTS.split_once(STARTS).expect("the start times are last");
    let of_seed = format!("seed {seed} ");
    let seconds = |line: &str| line.rsplit(' ').next().and_then(|word| word.parse().ok());
    let lines = draws.lines().filter(|line| line.starts_with(&of_seed));
    lines.map(|line| seconds(line).expect("a start time")).collect()
}
