//! Runs of ontempo, with the quantities that the scripts of ns-2 print.

use std::collections::BTreeMap;

use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, Float64Array, StringArray, UInt64Array};
use ontempo_simulator::{Control, Results, Simulation};

use crate::reference::{Numbers, Run};
use crate::scenarios::scenario;

/// ontempo's measurements of `run`.
pub(crate) fn run(run: &Run) -> Numbers {
    let text = scenario(run.script, &run.arguments);
    let seed = run.seed().map_or(1, |seed| seed.parse().expect("a seed"));
    let parsed =
        ontempo_scenario::parse(&text, run.script).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let simulation = Simulation::new(&parsed, seed).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let results = simulation.run(&Control::default()).expect("nobody cancels");
    let flows = Flows::of(&results);
    let mut numbers = queue(
        &results,
        if run.script.starts_with("spacing") { "mid -> sink" } else { "bottleneck" },
    );
    match run.script {
        "many.tcl" | "many_switched.tcl" => numbers.extend(flows.together()),
        "spacing.tcl" | "spacing_apart.tcl" => numbers.extend(flows.spacing()),
        _ => numbers.extend(flows.apart()),
    }
    numbers
}

fn column<'a, T: 'static>(results: &'a Results, table: &str, name: &str) -> &'a T {
    let batch = &results.table(table).expect("a table of every run").batch;
    let column = batch.column_by_name(name).unwrap_or_else(|| panic!("no column {name}"));
    column.as_any().downcast_ref().expect("a column of its kind")
}

fn texts(results: &Results, table: &str, name: &str) -> Vec<String> {
    let column: &DictionaryArray<Int32Type> = column(results, table, name);
    let texts = column.downcast_dict::<StringArray>().expect("text");
    texts.into_iter().map(|text| text.unwrap_or_default().to_owned()).collect()
}

fn counts(results: &Results, table: &str, name: &str) -> Vec<f64> {
    let column: &UInt64Array = column(results, table, name);
    column.values().iter().map(|count| *count as f64).collect()
}

fn values(results: &Results, table: &str, name: &str) -> Vec<f64> {
    let column: &Float64Array = column(results, table, name);
    column.values().to_vec()
}

/// The bottleneck: the link of that name, or between the nodes `left` and `right`.
fn queue(results: &Results, name: &str) -> Numbers {
    let names = texts(results, "links", "link");
    let place = names
        .iter()
        .position(|link| link == name || link == "left -> right")
        .unwrap_or_else(|| panic!("no bottleneck among {names:?}"));
    let count = |name: &str| counts(results, "links", name)[place];
    let drops = count("dropped_full") + count("dropped_early");
    BTreeMap::from([
        ("queue arrivals".to_owned(), count("arrivals")),
        ("queue departures".to_owned(), count("departures")),
        ("queue drops".to_owned(), drops),
        ("queue mean_packets".to_owned(), values(results, "links", "mean_packets")[place]),
    ])
}

/// The table `flows` in columns.
struct Flows {
    groups: Vec<String>,
    transports: Vec<String>,
    megabits: Vec<f64>,
    retransmitted: Vec<f64>,
    timeouts: Vec<f64>,
    reductions: Vec<f64>,
}

impl Flows {
    fn of(results: &Results) -> Self {
        let goodput = values(results, "flows", "goodput_bps");
        Self {
            groups: texts(results, "flows", "group"),
            transports: texts(results, "flows", "transport"),
            megabits: goodput.iter().map(|bits| bits / 1e6).collect(),
            retransmitted: counts(results, "flows", "retransmitted"),
            timeouts: counts(results, "flows", "timeouts"),
            reductions: counts(results, "flows", "reductions"),
        }
    }

    /// Each flow's own numbers, as `report_tcp` prints them.
    fn apart(&self) -> Numbers {
        let mut numbers = Numbers::new();
        for (place, group) in self.groups.iter().enumerate() {
            for (name, column) in [
                ("goodput_mbps", &self.megabits),
                ("retransmitted", &self.retransmitted),
                ("timeouts", &self.timeouts),
                ("cwnd_cuts", &self.reductions),
            ] {
                numbers.insert(format!("{group} {name}"), column[place]);
            }
        }
        numbers
    }

    /// The sums over all flows, and Jain's index, as `many.tcl` prints them.
    fn together(&self) -> Numbers {
        let sum = |column: &[f64]| column.iter().sum::<f64>();
        let total = sum(&self.megabits);
        let squares: f64 = self.megabits.iter().map(|rate| rate * rate).sum();
        BTreeMap::from([
            ("goodput_mbps".to_owned(), total),
            ("jain".to_owned(), total * total / (squares * self.megabits.len() as f64)),
            ("retransmitted".to_owned(), sum(&self.retransmitted)),
            ("timeouts".to_owned(), sum(&self.timeouts)),
            ("cwnd_cuts".to_owned(), sum(&self.reductions)),
        ])
    }

    /// The means over the senders of one kind, as `spacing.tcl` prints them.
    fn spacing(&self) -> Numbers {
        let mean = |transport: &str| {
            let of_kind = self.transports.iter().zip(&self.megabits);
            let rates: Vec<f64> =
                of_kind.filter(|(kind, _)| *kind == transport).map(|(_, rate)| *rate).collect();
            rates.iter().sum::<f64>() / rates.len().max(1) as f64
        };
        BTreeMap::from([
            ("udp_received_mbps".to_owned(), mean("udp")),
            ("tcp_mbps".to_owned(), mean("tcp")),
        ])
    }
}
