//! The simulator's own TCP on the path that the QUIC endpoints take, for comparison.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{RecordBatch, StringArray};
use ontempo_foundation::{Bytes, Duration, Time};
use ontempo_simulator::{Control, Simulation};

use crate::world::{HEADERS, Outcome, PAYLOAD, Path};

/// A window over time, and when it was reduced.
#[derive(Debug)]
pub(crate) struct WindowTrace {
    /// The window in packets every [`STEP`].
    pub(crate) samples: Vec<f64>,
    /// Seconds of the reductions on loss, the one that ends slow start first.
    pub(crate) losses: Vec<f64>,
    pub(crate) early_responses: usize,
}

/// Between two samples of a window.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// When slow start and its after-effects are over, in seconds.
pub(crate) const SETTLED: f64 = 6.0;

impl WindowTrace {
    /// The trace of a QUIC run, sampled.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let end = Time::ZERO + outcome.duration;
        let mut changes = outcome.window_trace.iter().peekable();
        let mut window = 0.0;
        let mut samples = Vec::new();
        let mut now = Time::ZERO;
        while now < end {
            while let Some((_, next)) = changes.next_if(|(at, _)| *at <= now) {
                window = next.packets();
            }
            samples.push(window);
            now += STEP;
        }
        let losses = outcome.log.loss_events.iter().map(|at| at.as_secs_f64()).collect();
        Self { samples, losses, early_responses: outcome.snapshot().early_responses as usize }
    }

    /// The mean window once settled.
    pub(crate) fn mean(&self) -> f64 {
        let settled = &self.samples[(SETTLED / STEP.as_secs_f64()) as usize..];
        settled.iter().sum::<f64>() / settled.len() as f64
    }

    /// The losses once settled.
    fn settled_losses(&self) -> &[f64] {
        &self.losses[self.losses.partition_point(|at| *at < SETTLED)..]
    }

    /// The mean time between two losses, in seconds, once settled; `None` without two.
    pub(crate) fn period(&self) -> Option<f64> {
        let losses = self.settled_losses();
        let (first, last) = (losses.first()?, losses.last()?);
        (losses.len() > 1).then(|| (last - first) / (losses.len() - 1) as f64)
    }

    /// Samples of the `count` whole periods from the first settled loss on.
    pub(crate) fn periods(&self, count: usize) -> &[f64] {
        let losses = self.settled_losses();
        let place = |at: f64| (at / STEP.as_secs_f64()) as usize + 1;
        &self.samples[place(losses[0])..place(losses[count])]
    }
}

/// Runs the simulator's TCP for `duration` under `congestion`, a table of the scenario
/// file.
pub(crate) fn tcp(path: Path, congestion: &str, duration: Duration) -> WindowTrace {
    let size = Bytes::new(u64::from(PAYLOAD)) + HEADERS;
    let Path { rate, delay, buffer } = path;
    let text = format!(
        r#"
        title = "The path of the QUIC endpoints"
        duration = "{duration}"
        hosts = {{ jitter = "0 s" }}

        [topology]
        kind = "graph"

        [[topology.links]]
        from = "client"
        to = "server"
        rate = "{rate}"
        delay = "{delay}"
        queue = {{ kind = "drop-tail", limit = "{buffer}" }}

        [flows.bulk]
        from = "client"
        to = "server"
        application = {{ kind = "ftp" }}
        transport = {{ kind = "tcp", profile = "ns-2", congestion = {congestion}, packet = "{size}" }}

        [measure]
        from = "{SETTLED} s"
        sample-every = "{STEP}"
        events = true
        "#
    );
    let scenario = ontempo_scenario::parse(&text, "same path").expect("it is valid");
    let simulation = Simulation::new(&scenario, 1).expect("it can be set up");
    let results = simulation.run(&Control::default()).expect("nobody cancels");
    let table = |name: &str| &results.table(name).expect("every run has it").batch;
    let samples = table("samples");
    let windows = texts(samples, "quantity").into_iter().zip(numbers(samples, "value"));
    let events = texts(table("events"), "event");
    let times = numbers(table("events"), "time_s");
    let losses = events.iter().zip(times).filter(|(event, _)| *event == "loss");
    WindowTrace {
        samples: windows.filter(|(name, _)| name == "cwnd_packets").map(|(_, cwnd)| cwnd).collect(),
        losses: losses.map(|(_, at)| at).collect(),
        early_responses: events.iter().filter(|event| *event == "early response").count(),
    }
}

fn numbers(batch: &RecordBatch, column: &str) -> Vec<f64> {
    batch[column].as_primitive::<Float64Type>().values().to_vec()
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let keys = batch[column].as_any_dictionary();
    let words: &StringArray = keys.values().as_string();
    keys.normalized_keys().into_iter().map(|key| words.value(key).to_owned()).collect()
}
