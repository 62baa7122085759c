//! Probes: samples of windows, RTTs and queues, and the reactions of controllers.

use std::collections::BTreeSet;

use ontempo_foundation::{Duration, Time};
use ontempo_runtime::{Cell, Flow, ReactionRow, Rows, change_rows};
use ontempo_scenario::Layout;
use ontempo_scenario::model::Scenario;
use ontempo_scenario::tables::{EVENTS, SAMPLES};

use crate::agents::Agent;
use crate::fabric::{Event, Fabric};
use crate::names::Names;

/// Records made during a run.
pub(crate) struct Probes {
    every: Option<Duration>,
    /// Sampled flows, with their names.
    flows: Vec<(usize, String)>,
    /// Sampled links.
    links: Vec<usize>,
    pub(crate) samples: Rows,
    /// Changes of links, and reactions.
    events: Rows,
    reactions: Option<Reactions>,
}

/// Reactions of the congestion controllers.
struct Reactions {
    /// Reductions, timeouts and early responses of each flow already recorded.
    noted: Vec<(u64, u64, u64)>,
    places: Vec<(String, u64)>,
}

impl Probes {
    pub(crate) fn new(scenario: &Scenario, layout: &Layout, fabric: &mut Fabric) -> Self {
        let measure = &scenario.measure;
        let wanted: Option<BTreeSet<&str>> =
            measure.sample_flows.as_ref().map(|names| names.iter().map(String::as_str).collect());
        let flows = layout
            .flows
            .iter()
            .enumerate()
            .filter_map(|(number, flow)| {
                let group = layout.groups[flow.group].as_str();
                let sampled = measure.sample_every.is_some()
                    && wanted.as_ref().is_none_or(|wanted| wanted.contains(group));
                sampled.then(|| (number, format!("{group}.{}", flow.index)))
            })
            .collect();
        let links = (0..layout.links.len())
            .filter(|place| measure.queues.contains(&layout.links[*place].name))
            .collect();
        let reactions = measure.events.then(|| Reactions {
            noted: vec![(0, 0, 0); layout.flows.len()],
            places: layout
                .flows
                .iter()
                .map(|flow| (layout.groups[flow.group].clone(), u64::from(flow.index)))
                .collect(),
        });
        if measure.sample_every.is_some() {
            fabric.schedule(Time::ZERO, Event::Sample);
        }
        let (samples, mut events) = (Rows::of(&SAMPLES), Rows::of(&EVENTS));
        change_rows(&mut events, &scenario.events, scenario.events.len());
        Self { every: measure.sample_every, flows, links, samples, events, reactions }
    }

    pub(crate) fn sample(
        &mut self,
        now: Time,
        names: &Names,
        agents: &[Agent],
        fabric: &mut Fabric,
    ) {
        let seconds = now.as_secs_f64();
        for (flow, name) in &self.flows {
            let agent = &agents[*flow];
            let bytes = agent.receiver().delivered() * agent.packet_size();
            let mut put = |quantity: &str, value: f64| {
                let row: [Cell<'_>; 4] =
                    [seconds.into(), name.as_str().into(), quantity.into(), value.into()];
                self.samples.push(row);
            };
            put("delivered_bytes", bytes as f64);
            if let Some(spaced) = agent.spaced() {
                put("sent_bytes", (agent.totals().sent * agent.packet_size()) as f64);
                if let Some(spacing) = spaced.spacing() {
                    put("spacing_s", spacing.as_secs_f64());
                }
            }
            if let Some(consumer) = agent.receiver().consumer() {
                put("buffered_adus", consumer.buffered(now) as f64);
            }
            let Some(in_flight) = agent.in_flight() else { continue };
            let Some(congestion) = agent.congestion() else {
                put("in_flight_packets", in_flight as f64);
                continue;
            };
            put("cwnd_packets", congestion.cwnd.packets());
            put("in_flight_packets", in_flight as f64);
            if congestion.ssthresh.packets().is_finite() {
                put("ssthresh_packets", congestion.ssthresh.packets());
            }
            if let Some(srtt) = agent.srtt() {
                put("srtt_s", srtt.as_secs_f64());
            }
            if let Some(alpha) = congestion.alpha {
                put("alpha", alpha);
            }
            if let Some(delay) = congestion.queueing_delay {
                put("queueing_delay_s", delay.as_secs_f64());
            }
            if let Some(delay) = congestion.largest_queueing_delay {
                put("largest_queueing_delay_s", delay.as_secs_f64());
            }
            if let Some(rtt) = congestion.smoothed_rtt {
                put("controller_srtt_s", rtt.as_secs_f64());
            }
        }
        for link in &self.links {
            let waiting = fabric.waiting(*link, now) as f64;
            let name = &*names.links[*link].name;
            self.samples.push([
                seconds.into(),
                name.into(),
                "queue_packets".into(),
                waiting.into(),
            ]);
        }
        if let Some(every) = self.every {
            fabric.schedule(now + every, Event::Sample);
        }
    }

    /// The time of the next sample after the one due at `now`.
    pub(crate) fn next_sample(&self, now: Time) -> Time {
        self.every.map_or(Time::NEVER, |every| now + every)
    }

    pub(crate) fn wants_events(&self) -> bool {
        self.reactions.is_some()
    }

    /// Records the reactions of the flow's controller since the last call.
    #[cold]
    pub(crate) fn record_reactions(&mut self, now: Time, flow: u32, agent: &Agent) {
        let (Some(reactions), Some(congestion)) = (&mut self.reactions, agent.congestion()) else {
            return;
        };
        let totals = agent.totals();
        let (reductions, timeouts, early) = reactions.noted[flow as usize];
        let event = if totals.timeouts > timeouts {
            "timeout"
        } else if totals.early_responses > early {
            "early response"
        } else if totals.reductions > reductions {
            "loss"
        } else {
            return;
        };
        reactions.noted[flow as usize] =
            (totals.reductions, totals.timeouts, totals.early_responses);
        let (group, index) = &reactions.places[flow as usize];
        let flow = Flow { number: u64::from(flow), group, index: *index };
        let window = congestion.cwnd.packets();
        ReactionRow { at: now, flow, event, window }.push(&mut self.events);
    }

    /// The rows of `samples` and `events`.
    pub(crate) fn finish(&mut self) -> (Rows, Rows) {
        let samples = std::mem::replace(&mut self.samples, Rows::of(&SAMPLES));
        (samples, std::mem::replace(&mut self.events, Rows::of(&EVENTS)))
    }
}
