//! A run: from a scenario and a seed to tables.

use std::fmt;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ontempo_foundation::Time;
use ontempo_runtime::{ElementError, FlowTotals, LinkTotals};
use ontempo_scenario::ScenarioError;
use ontempo_scenario::model::Scenario;

use crate::agents::Agent;
use crate::assemble::{Assembly, assemble};
use crate::fabric::{Event, Fabric, Need, Transit};
use crate::names::Names;
use crate::probes::Probes;
use crate::results::{self, Results};
use crate::trace::{self, Ends, Tap, Trace};

/// Why a scenario cannot be set up.
#[derive(Debug)]
pub enum SetupError {
    /// The scenario itself is at fault.
    Scenario(ScenarioError),
    /// A network element refused its parameters.
    Element(ElementError),
    /// Only an emulation can run the scenario.
    NotSimulated {
        /// The field that only an emulation knows what to do with.
        field: String,
        /// Why a simulation does not.
        why: String,
    },
    /// A flow names a group that the scenario does not have.
    UnknownGroup(String),
    /// A link that is to be traced is not there.
    UnknownLink(String),
}

impl SetupError {
    pub(crate) fn unknown_group(name: &str) -> Self {
        Self::UnknownGroup(name.to_owned())
    }

    /// `field` of the group `name` needs a kernel.
    pub(crate) fn not_simulated(name: &str, field: &str, why: &str) -> Self {
        let why = why.to_owned();
        Self::NotSimulated { field: format!("flows.{name}.{field}"), why }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::Element(error) => error.fmt(f),
            Self::NotSimulated { field, why } => {
                write!(f, "this scenario can only be emulated: {field}: {why}")
            }
            Self::UnknownGroup(name) => write!(f, "no flow group is called `{name}`"),
            Self::UnknownLink(name) => write!(f, "no link is called `{name}`"),
        }
    }
}

impl std::error::Error for SetupError {}

impl From<ScenarioError> for SetupError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

impl From<ElementError> for SetupError {
    fn from(error: ElementError) -> Self {
        Self::Element(error)
    }
}

/// A run was cancelled before its end; nothing of it remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// How another thread follows a run and ends it.
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

/// With more flows than this, what they need outgrows the nearer caches.
const FLOWS_IN_CACHE: usize = 200;

/// Events between two looks at the [`Control`].
const EVENTS_PER_LOOK: u32 = 1 << 15;

/// One run of a scenario.
///
/// The same scenario and seed give the same tables, byte for byte, on every machine.
pub struct Simulation {
    pub(crate) agents: Vec<Agent>,
    pub(crate) fabric: Fabric,
    pub(crate) names: Names,
    pub(crate) probes: Probes,
    pub(crate) end: Time,
    pub(crate) measured: Measured,
    /// When the measured span begins.
    begins: Time,
    /// The next time at which something is read off the agents: nothing that happens later is
    /// computed ahead.
    horizon: Time,
    /// How flows appear in traces.
    ends: Arc<[Ends]>,
    /// Places of the links that are traced.
    traced: Vec<usize>,
}

/// The measured span, and the totals with which it began; none where it is the whole run.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) from: Time,
    pub(crate) flows: Vec<FlowTotals>,
    pub(crate) links: Vec<LinkTotals>,
}

impl Simulation {
    /// Sets up the run of `scenario` with `seed`.
    ///
    /// # Errors
    /// Where the scenario names what is not there, or an element refuses its parameters.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, SetupError> {
        let Assembly { layout, agents, mut fabric } = assemble(scenario, seed)?;
        for (number, flow) in layout.flows.iter().enumerate() {
            fabric.schedule(flow.start, Event::Wake(number as u32));
        }
        let probes = Probes::new(scenario, &layout, &mut fabric);
        let begins = Time::ZERO + scenario.measure.from;
        if begins > Time::ZERO {
            fabric.schedule(begins, Event::BeginMeasuring);
        }
        let end = Time::ZERO + scenario.duration;
        let mut simulation = Self {
            agents,
            fabric,
            probes,
            end,
            measured: Measured::default(),
            begins,
            horizon: Time::ZERO,
            ends: trace::ends_of_flows(scenario, &layout),
            traced: Vec::new(),
            names: layout.into(),
        };
        simulation.horizon = simulation.next_reading(Time::ZERO);
        Ok(simulation)
    }

    /// Writes what crosses the link called `link` to `out` as it happens, as pcapng. The run
    /// takes the same way and gives the same tables as without; where `out` fails, it ends as
    /// if cancelled, and [`Trace::finish`] says why.
    ///
    /// # Errors
    /// Where there is no such link.
    pub fn trace(
        &mut self,
        link: &str,
        out: impl Write + Send + 'static,
    ) -> Result<Trace, SetupError> {
        let mut links = self.names.links.iter();
        let place = links.position(|named| *named.name == *link);
        let place = place.ok_or_else(|| SetupError::UnknownLink(link.to_owned()))?;
        let (tap, trace) = Tap::new(link, self.ends.clone(), self.end, Box::new(out));
        self.fabric.set_tap(place, tap);
        self.traced.push(place);
        Ok(trace)
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// [`Cancelled`] where `control` says so, or where a trace cannot be written.
    pub fn run(mut self, control: &Control) -> Result<Results, Cancelled> {
        let mut until_look = EVENTS_PER_LOOK;
        let is_large = self.agents.len() > FLOWS_IN_CACHE;
        let mut needs = Vec::new();
        loop {
            if is_large && self.fabric.must_refill() {
                self.look_ahead(&mut needs);
            }
            let Some((now, event)) = self.fabric.next_event(self.end) else { break };
            self.handle(now, event);
            until_look -= 1;
            if until_look == 0 {
                until_look = EVENTS_PER_LOOK;
                control.reached.store(now.as_nanos(), Ordering::Relaxed);
                let mut traced = self.traced.iter();
                let failed = traced.any(|link| self.fabric.tap_has_failed(*link));
                if failed || control.is_cancelled() {
                    return Err(Cancelled);
                }
            }
        }
        control.reached.store(self.end.as_nanos(), Ordering::Relaxed);
        for agent in &mut self.agents {
            agent.end(self.end);
        }
        Ok(results::collect(&mut self))
    }

    /// Touches what the next few dozen events will read. More flows than the processor's cache
    /// holds cost a wait for memory at every step of every packet; asked for together, these
    /// waits overlap. Nothing else depends on it.
    fn look_ahead(&mut self, needs: &mut Vec<Need>) {
        let mut sum = self.fabric.look_ahead(self.end, needs);
        for need in needs {
            let agent = &self.agents[need.flow as usize];
            sum = sum.wrapping_add(agent.touch(need.ack));
            if let Some(tcp) = agent.tcp() {
                // What it will send on: the answer of a receiver, the next packet of a sender.
                let route = if need.ack { tcp.route() } else { tcp.back() };
                sum = sum.wrapping_add(self.fabric.touch_link(route));
            }
        }
        black_box(sum);
    }

    #[inline]
    fn handle(&mut self, now: Time, event: Event) {
        let fabric = &mut self.fabric;
        match event {
            Event::Packet(handle) => match fabric.advance(now, handle) {
                Transit::Arrived(packet) => {
                    let agent = &mut self.agents[packet.flow as usize];
                    let ack = packet.marks.ack;
                    agent.on_packet(now, packet, fabric);
                    if ack && self.probes.wants_events() {
                        self.probes.note_reactions(now, packet.flow, agent);
                    }
                }
                Transit::Arriving(at, handle) => self.arriving(now, at, handle),
                Transit::Underway => {}
            },
            Event::Wake(flow) => self.agents[flow as usize].on_wake(now, fabric),
            Event::Prompt(flow) => self.agents[flow as usize].on_prompt(now, fabric),
            Event::Retransmit(flow) => {
                let agent = &mut self.agents[flow as usize];
                agent.on_retransmit_timer(now, fabric);
                if self.probes.wants_events() {
                    self.probes.note_reactions(now, flow, agent);
                }
            }
            Event::Acknowledge(flow) => {
                self.agents[flow as usize].on_acknowledge_timer(now, fabric);
            }
            Event::Serve(link) => fabric.on_serve(now, link),
            Event::Take(flow) => self.agents[flow as usize].on_take(now, fabric),
            Event::Sample => {
                self.probes.sample(now, &self.names, &self.agents, fabric);
                self.horizon = self.next_reading(now);
            }
            Event::BeginMeasuring => {
                results::begin_measuring(self, now);
                self.horizon = self.next_reading(now);
            }
        }
    }

    /// A packet will arrive at `at`. Where its receiver answers at once and nobody looks before
    /// then, it is handed over now, which spares an event.
    #[inline]
    fn arriving(&mut self, now: Time, at: Time, handle: u32) {
        let packet = self.fabric.packet(handle);
        let agent = &mut self.agents[packet.flow as usize];
        if at <= self.horizon && agent.takes_ahead(now, packet) {
            let packet = self.fabric.take(handle);
            agent.on_packet(at, packet, &mut self.fabric);
            return;
        }
        if !packet.marks.ack {
            agent.await_arrival(at);
        }
        self.fabric.schedule(at, Event::Packet(handle));
    }

    /// When something is next read off the agents, after `now`.
    fn next_reading(&self, now: Time) -> Time {
        let sample = self.probes.next_sample(now);
        let begin = if self.begins > now { self.begins } else { Time::NEVER };
        self.end.min(sample).min(begin)
    }
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
        while let Some((now, event)) = simulation.fabric.next_event(simulation.end) {
            simulation.handle(now, event);
        }
        for agent in &simulation.agents {
            assert_eq!(agent.totals().sent, 200, "one packet each 20 ms for 4 s");
        }
    }
}
