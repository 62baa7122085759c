//! A run: from a scenario and a seed to tables.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ontempo_foundation::{Duration, Time};
use ontempo_scenario::Layout;
use ontempo_scenario::model::{Application, Scenario};

use crate::assemble::{Assembly, assemble};
use crate::custom::{CustomLaws, NoCustomLaws};
use crate::errors::{Cancelled, SetupError};
use crate::fabric::{Event, Need, Transit};
use crate::names::Names;
use crate::probes::Probes;
use crate::results::{self, Results};
use crate::run::{Measured, Run};
use crate::trace::{self, Ends, Tap, Trace};

/// Follows the progress of a run from another thread, and cancels it.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    reached: AtomicU64,
}

impl Control {
    /// Ends the run within a few milliseconds.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// True once [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The virtual time that the run has reached.
    pub fn reached(&self) -> Time {
        Time::from_nanos(self.reached.load(Ordering::Relaxed))
    }
}

/// With more flows than this, their state outgrows the nearer caches. Below, looking ahead costs more than
/// the waits: 500 flows are 9 % faster without, one cell of 350 flows 15 %.
const FLOWS_IN_CACHE: usize = 1_000;

/// Events between two checks of the [`Control`].
const EVENTS_PER_LOOK: u32 = 1 << 15;

/// One run of a scenario.
///
/// The same scenario and seed give the same tables, byte for byte, on every machine.
pub struct Simulation {
    run: Run,
    /// When the measured span begins.
    begins: Time,
    /// The next time at which agents are read: nothing later than that is
    /// computed ahead.
    horizon: Time,
    /// Addresses and ports of flows in traces.
    ends: Arc<[Ends]>,
    /// Places of the links that are traced.
    traced: Vec<usize>,
}

impl Simulation {
    /// Sets up the run of `scenario` with `seed`.
    ///
    /// # Errors
    /// If the scenario names an unknown group or link, or an element refuses its parameters.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, SetupError> {
        Self::with_controllers(scenario, seed, &NoCustomLaws)
    }

    /// As [`new`](Self::new); flows may also have the congestion controllers of `laws`.
    ///
    /// # Errors
    /// As of `new`, or if a flow names a controller that `laws` lacks.
    pub fn with_controllers(
        scenario: &Scenario,
        seed: u64,
        laws: &dyn CustomLaws,
    ) -> Result<Self, SetupError> {
        let Assembly { layout, agents, mut fabric } = assemble(scenario, seed, laws)?;
        for (number, flow) in layout.flows.iter().enumerate() {
            fabric.schedule(flow.start, Event::Wake(number as u32));
        }
        let probes = Probes::new(scenario, &layout, &mut fabric);
        let begins = Time::ZERO + scenario.measure.from;
        if begins > Time::ZERO {
            fabric.schedule(begins, Event::BeginMeasuring);
        }
        let end = Time::ZERO + scenario.duration;
        let ends = trace::ends_of_flows(scenario, &layout);
        let latencies = latencies(scenario, &layout);
        let (names, measured) = (Names { latencies, ..layout.into() }, Measured::default());
        let mut simulation = Self {
            run: Run { agents, fabric, names, probes, end, measured },
            begins,
            horizon: Time::ZERO,
            ends,
            traced: Vec::new(),
        };
        simulation.horizon = simulation.next_reading(Time::ZERO);
        Ok(simulation)
    }

    /// Writes the packets that cross the link `link` to `out` as they pass, as pcapng. The
    /// tables are the same as without a trace; if `out` fails, the run ends as
    /// if cancelled, and [`Trace::finish`] returns the error.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn trace(
        &mut self,
        link: &str,
        out: impl Write + Send + 'static,
    ) -> Result<Trace, SetupError> {
        let mut links = self.run.names.links.iter();
        let place = links.position(|named| *named.name == *link);
        let place = place.ok_or_else(|| SetupError::UnknownLink(link.to_owned()))?;
        let names = trace::names_of_hosts(&self.run.names);
        let shown = (self.ends.clone(), names.as_slice());
        let (tap, trace) = Tap::new(link, shown, self.run.end, Box::new(out));
        self.run.fabric.set_tap(place, tap);
        self.traced.push(place);
        Ok(trace)
    }

    /// The links over which nothing passes from some time to the end of the run, and since when.
    pub fn standing_still(&self) -> Vec<(String, Time)> {
        let names = &self.run.names;
        let name = |at: usize| names.links[names.schedules[at].0].name.to_string();
        let links = results::standing_still(names, self.run.end);
        links.map(|(at, since)| (name(at), since)).collect()
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// [`Cancelled`] if `control` was cancelled, or if a trace cannot be written.
    pub fn run(mut self, control: &Control) -> Result<Results, Cancelled> {
        let mut until_look = EVENTS_PER_LOOK;
        let is_large = self.run.agents.len() > FLOWS_IN_CACHE;
        let mut needs = Vec::new();
        self.run.fabric.see_far(is_large);
        loop {
            let mut next = self.run.fabric.next_sorted(self.run.end);
            if next.is_none() {
                if is_large {
                    self.look_ahead(&mut needs);
                } else {
                    self.run.fabric.refill(self.run.end);
                }
                next = self.run.fabric.next_sorted(self.run.end);
            }
            let Some((now, event)) = next else { break };
            self.handle(now, event);
            until_look -= 1;
            if until_look == 0 {
                until_look = EVENTS_PER_LOOK;
                control.reached.store(now.as_nanos(), Ordering::Relaxed);
                let mut traced = self.traced.iter();
                let failed = traced.any(|link| self.run.fabric.tap_has_failed(*link));
                if failed || control.is_cancelled() {
                    return Err(Cancelled);
                }
            }
        }
        control.reached.store(self.run.end.as_nanos(), Ordering::Relaxed);
        for agent in &mut self.run.agents {
            agent.end(self.run.end);
        }
        self.run.fabric.end();
        Ok(results::collect(&mut self.run))
    }

    /// Prefetches the state of the next few dozen events. With more flows than the processor's
    /// cache holds, every step of every packet waits for memory; reading ahead overlaps these
    /// waits. It changes no result.
    fn look_ahead(&mut self, needs: &mut Vec<Need>) {
        let mut sum = self.run.fabric.look_ahead(self.run.end, needs);
        for need in needs {
            let agent = &self.run.agents[need.flow as usize];
            sum = sum.wrapping_add(agent.touch(need.ack));
            if let Some(tcp) = agent.tcp() {
                // The state that the reply needs: the receiver's ACK, the sender's next packet.
                let route = if need.ack { tcp.route() } else { tcp.back() };
                sum = sum.wrapping_add(self.run.fabric.touch_links(route));
            }
        }
        black_box(sum);
    }

    #[inline(always)]
    fn handle(&mut self, now: Time, event: Event) {
        let fabric = &mut self.run.fabric;
        let handle = match event {
            Event::Packet(handle) => handle,
            Event::Wake(flow) => return self.wake(now, flow),
            _ => return self.handle_other(now, event),
        };
        match fabric.advance(now, handle) {
            Transit::Arrived => {
                let packet = fabric.packet(handle);
                let (flow, ack) = (packet.flow, packet.marks.ack);
                let agent = &mut self.run.agents[flow as usize];
                agent.on_arrival(now, handle, fabric);
                if ack && self.run.probes.wants_events() {
                    self.run.probes.record_reactions(now, flow, agent);
                }
            }
            Transit::Arriving(at) => self.arriving(now, at, handle),
            Transit::Underway => {}
        }
    }

    /// A sender may send again: of spaced packets one event of two.
    #[inline(never)]
    fn wake(&mut self, now: Time, flow: u32) {
        self.run.agents[flow as usize].on_wake(now, &mut self.run.fabric);
    }

    /// Any event but a packet's and a sender's.
    #[inline(never)]
    fn handle_other(&mut self, now: Time, event: Event) {
        let fabric = &mut self.run.fabric;
        match event {
            Event::Packet(_) | Event::Wake(_) => unreachable!("they are handled on their own"),
            Event::Prompt(flow) => self.run.agents[flow as usize].on_prompt(now, fabric),
            Event::Retransmit(flow) => {
                let agent = &mut self.run.agents[flow as usize];
                agent.on_retransmit_timer(now, fabric);
                if self.run.probes.wants_events() {
                    self.run.probes.record_reactions(now, flow, agent);
                }
            }
            Event::Probe(flow) => {
                let agent = &mut self.run.agents[flow as usize];
                agent.on_probe_timer(now, fabric);
                if self.run.probes.wants_events() {
                    self.run.probes.record_reactions(now, flow, agent);
                }
            }
            Event::Acknowledge(flow) => {
                self.run.agents[flow as usize].on_acknowledge_timer(now, fabric);
            }
            Event::Serve(link) => fabric.on_serve(now, link),
            Event::Take(flow) => self.run.agents[flow as usize].on_take(now, fabric),
            Event::Lost(handle) => {
                let packet = fabric.take(handle);
                self.run.agents[packet.flow as usize].on_lost(now, packet, fabric);
            }
            Event::Sample => {
                self.run.probes.sample(now, &self.run.names, &self.run.agents, fabric);
                self.horizon = self.next_reading(now);
            }
            Event::BeginMeasuring => {
                results::begin_measuring(&mut self.run, now);
                self.horizon = self.next_reading(now);
            }
        }
    }

    /// A packet will arrive at `at`. If its receiver answers at once or only counts it, and no agent is
    /// read before then, it is delivered now, which saves an event.
    #[inline]
    fn arriving(&mut self, now: Time, at: Time, handle: u32) {
        let packet = self.run.fabric.packet(handle);
        if !packet.marks.ack {
            let agent = &mut self.run.agents[packet.flow as usize];
            if at <= self.horizon && agent.takes_ahead(now, (at, self.horizon), packet) {
                return agent.on_arrival(at, handle, &mut self.run.fabric);
            }
            agent.await_arrival(at);
        }
        self.run.fabric.schedule(at, Event::Packet(handle));
    }

    /// When agents are next read, after `now`.
    fn next_reading(&self, now: Time) -> Time {
        let sample = self.run.probes.next_sample(now);
        let begin = if self.begins > now { self.begins } else { Time::NEVER };
        self.run.end.min(sample).min(begin)
    }
}

/// For each group, the latencies of players for which its films are judged.
fn latencies(scenario: &Scenario, layout: &Layout) -> Vec<Vec<Duration>> {
    let of = |name: &String| match scenario.flows.get(name).map(|group| &group.application) {
        Some(Application::Media { latency, .. }) => latency.clone(),
        _ => Vec::new(),
    };
    layout.groups.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_sends_between_its_start_and_its_stop() {
        let text = r#"
            duration = "20 s"
            [topology]
            kind = "dumbbell"
            bottleneck = { rate = "10 Mbit/s", delay = "10 ms" }
            access = { rate = "10 Mbit/s", delay = "1 ms" }
            [flows.voice]
            application = { kind = "cbr", interval = "20 ms" }
            transport = { kind = "udp" }
            start = "5 s"
            stop = "9 s"
            [flows.video]
            application = { kind = "cbr", interval = "20 ms" }
            transport = { kind = "tcp" }
            start = "5 s"
            stop = "9 s"
        "#;
        let scenario = ontempo_scenario::parse(text, "stop.toml").expect("it is valid");
        let mut simulation = Simulation::new(&scenario, 1).expect("it can be set up");
        let end = simulation.run.end;
        loop {
            simulation.run.fabric.refill(end);
            let Some((now, event)) = simulation.run.fabric.next_sorted(end) else { break };
            simulation.handle(now, event);
        }
        for agent in &simulation.run.agents {
            assert_eq!(agent.totals().sent, 200, "one packet each 20 ms for 4 s");
        }
    }
}
