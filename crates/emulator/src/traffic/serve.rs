//! The thread that serves the flows' sockets and samples their state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::thread;

use ontempo_foundation::{Duration, Time};
use ontempo_runtime::FlowTotals;
use rustix::event::epoll::EventFlags;

use super::{Agent, LOOK_EVERY, Prompt, Sending, Side, Telling, UdpSockets};
use crate::clock::Clock;
use crate::epoll::Epoll;
use crate::forwarder::SPIN;
use crate::lateness::Lateness;
use crate::sleep_quota::SleepQuota;
use crate::{Control, sys};

/// The longest sleep, after which the thread checks for cancellation.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Names of a flow's sockets.
const SIDES: u64 = 3;

/// One sampled quantity.
pub(crate) struct Sample {
    pub(crate) at: Time,
    pub(crate) flow: u32,
    pub(crate) quantity: &'static str,
    pub(crate) value: f64,
}

/// The traffic of a run: its flows (commands have no sockets here), and what is recorded.
pub(crate) struct Traffic {
    pub(crate) agents: Vec<Option<Agent>>,
    pub(crate) starts: Vec<Time>,
    /// Whether each flow is sampled.
    pub(crate) is_sampled: Vec<bool>,
    pub(crate) sample_every: Option<Duration>,
    pub(crate) measured_from: Time,
    pub(crate) samples: Vec<Sample>,
    /// Totals at the start of the measured span.
    pub(crate) before: Vec<FlowTotals>,
    /// Congestion controls in the kernel with readable state.
    pub(crate) telling: Telling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    BeginMeasuring,
    Sample,
    Look,
    Prompt(u32),
    Ask(u32),
}

struct Server<'a> {
    traffic: &'a mut Traffic,
    epoll: Epoll,
    tasks: BinaryHeap<Reverse<(Time, Task)>>,
    /// When each flow is served next.
    asked: Vec<Time>,
    prompts: Vec<Prompt>,
    sending: Sending,
}

/// How the traffic was served.
pub(crate) struct Served {
    /// Of units that applications sent.
    pub(crate) lateness: Lateness,
    /// Whether the thread ran with real-time priority (`SCHED_FIFO`).
    pub(crate) realtime: bool,
}

/// Serves `traffic` until `end`, or until `control` is cancelled.
///
/// # Errors
/// If waiting for events fails.
pub(crate) fn serve(
    traffic: &mut Traffic,
    clock: Clock,
    end: Time,
    control: &Control,
) -> io::Result<Served> {
    // Without CAP_SYS_NICE it runs at ordinary priority.
    let realtime = sys::set_realtime_priority(sys::TRAFFIC_PRIORITY).is_ok();
    // Spacing needs microseconds, for which sleeping is too coarse.
    let is_spaced = traffic.agents.iter().flatten().any(|one| matches!(one, Agent::Spaced(_)));
    let mut server = Server::new(traffic, clock)?;
    let mut quota = SleepQuota::default();
    loop {
        let now = clock.now();
        if now >= end || control.is_cancelled() {
            break;
        }
        server.tasks_until(now)?;
        let next = server.tasks.peek().map(|Reverse(next)| *next);
        let task = next.map(|(_, task)| task);
        let next = next.map_or(end, |(time, _)| time.min(end));
        let now = clock.now();
        quota.count(now, Duration::ZERO);
        let left = next.since(now);
        // Without real-time priority the wait for the processor is longer than what polling would save.
        let is_exact = is_spaced || realtime && matches!(task, Some(Task::Ask(_)));
        let spin = if is_exact { SPIN } else { Duration::ZERO };
        if let Some(pause) = quota.is_overdue().filter(|_| realtime) {
            thread::sleep(std::time::Duration::from_nanos(pause.as_nanos()));
            server.epoll.look()?;
        } else if left <= spin {
            server.epoll.look()?;
        } else {
            server.epoll.wait(now + left.saturating_sub(spin).min(MAX_SLEEP))?;
        }
        let woken = clock.now();
        quota.count(woken, woken.since(now));
        server.ready(woken)?;
    }
    let now = end.min(clock.now());
    let Server { sending, .. } = server;
    traffic.listen(|_| true);
    traffic.agents.iter_mut().flatten().for_each(|agent| agent.end(now));
    Ok(Served { lateness: sending.lateness, realtime })
}

impl<'a> Server<'a> {
    fn new(traffic: &'a mut Traffic, clock: Clock) -> io::Result<Self> {
        let epoll = Epoll::new(clock)?;
        let flows = traffic.agents.len();
        let mut server = Self {
            epoll,
            tasks: BinaryHeap::new(),
            asked: vec![Time::NEVER; flows],
            prompts: Vec::new(),
            sending: Sending::new(clock),
            traffic,
        };
        server.push(Time::ZERO + LOOK_EVERY, Task::Look);
        if server.traffic.sample_every.is_some() {
            server.push(Time::ZERO, Task::Sample);
        }
        if server.traffic.measured_from > Time::ZERO {
            server.push(server.traffic.measured_from, Task::BeginMeasuring);
        }
        for flow in 0..flows {
            let name = flow as u64 * SIDES;
            match &server.traffic.agents[flow] {
                Some(Agent::Tcp(tcp)) => {
                    let listener = &tcp.sockets.listener;
                    server.epoll.add(listener, name + Side::Listener as u64, EventFlags::IN)?;
                }
                Some(Agent::Udp(udp)) => {
                    let sink = &udp.sockets.sink;
                    server.epoll.add(sink, name + Side::Sink as u64, EventFlags::IN)?;
                }
                Some(Agent::Spaced(spaced)) => {
                    let UdpSockets { source, sink } = &spaced.udp.sockets;
                    server.epoll.add(sink, name + Side::Sink as u64, EventFlags::IN)?;
                    server.epoll.add(source, name + Side::Source as u64, EventFlags::IN)?;
                }
                Some(Agent::Film(film)) => {
                    let sink = &film.way.sockets.sink;
                    server.epoll.add(sink, name + Side::Sink as u64, EventFlags::IN)?;
                }
                None => continue,
            }
            server.ask(flow, server.traffic.starts[flow]);
        }
        Ok(server)
    }

    fn push(&mut self, time: Time, task: Task) {
        self.tasks.push(Reverse((time, task)));
    }

    /// Schedules the flow at `time`, unless it is scheduled earlier.
    fn ask(&mut self, flow: usize, time: Time) {
        if time < self.asked[flow] {
            self.asked[flow] = time;
            self.push(time, Task::Ask(flow as u32));
        }
    }

    fn tasks_until(&mut self, now: Time) -> io::Result<()> {
        while let Some(Reverse((time, task))) = self.tasks.peek().copied()
            && time <= now
        {
            self.tasks.pop();
            match task {
                Task::Ask(flow) => {
                    let flow = flow as usize;
                    if self.asked[flow] == time {
                        self.asked[flow] = Time::NEVER;
                        self.on_time(flow, now)?;
                    }
                }
                Task::Prompt(flow) => {
                    let flow = flow as usize;
                    if let Some(agent) = &mut self.traffic.agents[flow] {
                        let next = agent.on_prompt(now, time, &mut self.sending);
                        self.ask(flow, next);
                    }
                }
                Task::Look => {
                    self.traffic.look(now, |_| true);
                    self.push(now + LOOK_EVERY, Task::Look);
                }
                Task::Sample => {
                    self.traffic.sample(now);
                    if let Some(every) = self.traffic.sample_every {
                        self.push(time + every, Task::Sample);
                    }
                }
                Task::BeginMeasuring => {
                    self.traffic.look(now, |_| true);
                    self.traffic.listen(|_| true);
                    self.traffic.before = self.traffic.totals();
                }
            }
        }
        Ok(())
    }

    fn on_time(&mut self, flow: usize, now: Time) -> io::Result<()> {
        let Some(agent) = &mut self.traffic.agents[flow] else { return Ok(()) };
        let was_started = agent.tcp().is_none_or(|tcp| tcp.is_started());
        let next = agent.on_time(now, &mut self.sending);
        if let Some(tcp) = agent.tcp()
            && tcp.is_started()
            && !was_started
        {
            // Before it connects, epoll reports a socket as hung up.
            let name = flow as u64 * SIDES + Side::Source as u64;
            self.epoll.add(&tcp.sockets.source, name, EventFlags::OUT | EventFlags::ET)?;
        }
        self.ask(flow, next);
        Ok(())
    }

    /// Serves the sockets that are ready.
    fn ready(&mut self, now: Time) -> io::Result<()> {
        for place in 0..self.epoll.ready() {
            let Some(name) = self.epoll.name(place) else { continue };
            let flow = (name / SIDES) as usize;
            let side = match name % SIDES {
                0 => Side::Listener,
                1 => Side::Source,
                _ => Side::Sink,
            };
            let Some(agent) = &mut self.traffic.agents[flow] else { continue };
            let had_sink = agent.tcp().is_some_and(|tcp| tcp.sink.is_some());
            let next = agent.on_ready(now, side, &mut self.prompts, &mut self.sending);
            if let Some(sink) = agent.tcp().and_then(|tcp| tcp.sink.as_ref())
                && !had_sink
            {
                let name = flow as u64 * SIDES + Side::Sink as u64;
                self.epoll.add(sink, name, EventFlags::IN)?;
            }
            self.ask(flow, next);
            while let Some(Prompt { flow, at }) = self.prompts.pop() {
                self.push(at, Task::Prompt(flow));
            }
        }
        Ok(())
    }
}

impl Traffic {
    /// Reads the state of the connections from the kernel.
    fn look(&mut self, now: Time, wanted: impl Fn(usize) -> bool) {
        for (flow, agent) in self.agents.iter_mut().enumerate() {
            if let Some(tcp) = agent.as_mut().and_then(Agent::tcp_mut)
                && wanted(flow)
            {
                tcp.look(now);
            }
        }
    }

    /// Records the congestion controls' state of each connection.
    fn listen(&mut self, wanted: impl Fn(usize) -> bool) {
        let mut told = self.telling.read();
        for (flow, agent) in self.agents.iter_mut().enumerate() {
            if let Some(tcp) = agent.as_mut().and_then(Agent::tcp_mut)
                && wanted(flow)
                && let Some(status) = told.remove(&tcp.sockets.connection)
            {
                tcp.pert = Some(status);
            }
        }
    }

    fn sample(&mut self, now: Time) {
        let is_sampled = std::mem::take(&mut self.is_sampled);
        self.look(now, |flow| is_sampled[flow]);
        self.listen(|flow| is_sampled[flow]);
        for (flow, agent) in self.agents.iter().enumerate().filter(|(flow, _)| is_sampled[*flow]) {
            let Some(agent) = agent else { continue };
            let bytes = agent.receiver().delivered() * agent.packet_size();
            let all = [("delivered_bytes", bytes as f64)].into_iter().chain(agent.quantities());
            let flow = flow as u32;
            self.samples.extend(all.map(|(quantity, value)| Sample {
                at: now,
                flow,
                quantity,
                value,
            }));
        }
        self.is_sampled = is_sampled;
    }

    /// Counters of the flows' ends.
    pub(crate) fn totals(&self) -> Vec<FlowTotals> {
        let totals = |agent: &Option<Agent>| agent.as_ref().map(Agent::totals);
        self.agents.iter().map(|agent| totals(agent).unwrap_or_default()).collect()
    }
}
