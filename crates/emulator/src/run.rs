//! A run: set-up, execution, teardown.

use std::process::ExitStatus;
use std::thread;

use ontempo_foundation::{Duration, Time};
use ontempo_scenario::Layout;
use ontempo_scenario::model::Scenario;

use crate::assemble::{self, network, traffic};
use crate::clock::Clock;
use crate::commands::{self, Log, Task};
use crate::error::EmulationError;
use crate::forwarder::{Forwarded, Forwarder};
use crate::namespace::Namespaces;
use crate::network::Spans;
use crate::report::coarse_clock;
use crate::results::{self, Results};
use crate::routers::Routed;
use crate::routes::Host;
use crate::traffic::{Traffic, serve};
use crate::{Control, Options, limits};

/// From the end of setting up to the start of the run, so that all threads wait for it.
const LEAD: Duration = Duration::from_millis(20);

/// The same if the scenario starts programs: a server must be listening by then.
const LEAD_OF_PROGRAMS: Duration = Duration::from_millis(500);

/// A scenario's hosts, set up on this machine; dropping it removes them.
pub struct Emulation<'a> {
    scenario: &'a Scenario,
    options: Options,
    layout: Layout,
    /// Present if kernels route.
    routed: Option<Routed>,
    namespaces: Namespaces,
}

impl<'a> Emulation<'a> {
    /// Sets up the hosts of `scenario`.
    ///
    /// # Errors
    /// If only a simulation can run the scenario, if this process is not root, if a run of that
    /// name
    /// is active, or if the system refuses.
    pub fn new(scenario: &'a Scenario, options: Options) -> Result<Self, EmulationError> {
        limits::check(scenario, options.version)?;
        commands::check(scenario)?;
        if !rustix::process::geteuid().is_root() {
            return Err(EmulationError::System(
                "network namespaces and TUN devices need root; run it with sudo".to_owned(),
            ));
        }
        let layout = scenario.layout(options.seed)?;
        let routed = limits::routed(scenario, &layout)?;
        let namespaces = Namespaces::make(scenario, &layout, routed.as_ref(), &options)?;
        Ok(Self { scenario, options, layout, routed, namespaces })
    }

    /// One sentence for each way in which this machine will deviate from the scenario, as far as it
    /// is known before the run.
    pub fn warnings(&self) -> Vec<String> {
        let largest = assemble::largest_packet(self.scenario);
        coarse_clock(Clock::step(), &self.layout, largest).into_iter().collect()
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    /// [`EmulationError::Cancelled`] if `control` was cancelled; others if the kernel lacks a
    /// feature
    /// that the scenario needs, or if a command or a system call fails.
    pub fn run(mut self, control: &Control) -> Result<Results, EmulationError> {
        let end = Time::ZERO + self.scenario.duration;
        let measure = &self.scenario.measure;
        let spans = Spans {
            measured_from: Time::ZERO + measure.from,
            sample_every: measure.sample_every,
            end,
        };
        let mut traffic = traffic(self.scenario, &self.layout, &self.options, &self.namespaces)?;
        let version = self.options.version;
        let tasks = commands::tasks(self.scenario, &self.layout, &self.namespaces, version);
        let lead = if tasks.is_empty() { LEAD } else { LEAD_OF_PROGRAMS };
        let clock = Clock::starting_in(lead);
        let forwarder = self.forwarder(spans, clock)?;
        let (forwarded, logs) = run_all(forwarder, &mut traffic, tasks, clock, end, control)?;
        if control.is_cancelled() {
            return Err(EmulationError::Cancelled);
        }
        Ok(results::collect(self.scenario, &self.layout, forwarded, traffic, logs))
    }

    fn forwarder(&mut self, spans: Spans, clock: Clock) -> Result<Forwarder, EmulationError> {
        let network =
            network(self.scenario, &self.layout, &self.options, self.routed.as_ref(), spans)?;
        let interfaces = std::mem::take(&mut self.namespaces.interfaces);
        Forwarder::new(clock, network, interfaces, self.namespaces.mtu)
            .map_err(|error| EmulationError::system(&"the network", &error))
    }

    /// The hosts, and the routers if kernels route: name, namespace, and addresses of both
    /// versions.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &str, Vec<std::net::IpAddr>)> {
        let addresses = |host: &Host| {
            let routers = self.routed.iter().flat_map(|routed| routed.addresses(host));
            let all = host.ends.iter().copied().chain(routers.map(|(_, end)| end));
            all.flat_map(|end| [end.v4().into(), end.v6().into()]).collect()
        };
        let hosts = self.namespaces.hosts.iter().zip(&self.namespaces.names);
        hosts.map(move |(host, name)| (host.name.as_str(), name.as_str(), addresses(host)))
    }

    /// Runs `words` in the network of the host called `host`, with this process's input and
    /// output, while packets are forwarded and no flow of the scenario runs.
    ///
    /// # Errors
    /// Where there is no such host or program, or the system fails.
    pub fn shell(
        mut self,
        host: &str,
        words: &[String],
        control: &Control,
    ) -> Result<ExitStatus, EmulationError> {
        let Some(namespace) = self
            .hosts()
            .find(|(name, ..)| *name == host)
            .map(|(_, namespace, _)| namespace.to_owned())
        else {
            let known: Vec<&str> = self.hosts().map(|(name, ..)| name).take(20).collect();
            return Err(EmulationError::Input(format!(
                "there is no host `{host}`; hosts are: {}",
                known.join(", ")
            )));
        };
        if let Some(program) = words.first().filter(|program| !commands::is_program(program)) {
            return Err(EmulationError::Input(format!(
                "there is no program `{program}` on this machine"
            )));
        }
        let spans = Spans { measured_from: Time::ZERO, sample_every: None, end: Time::NEVER };
        let forwarder = self.forwarder(spans, Clock::starting_in(Duration::ZERO))?;
        thread::scope(|scope| {
            let forwarding = scope.spawn(move || forwarder.run(Time::NEVER, control));
            let ended = commands::attached(&namespace, words, control);
            control.cancel();
            joined(forwarding.join())
                .map_err(|error| EmulationError::system(&"the network", &error))?;
            ended.map_err(|error| EmulationError::system(&host, &error))
        })
    }
}

/// Forwards packets on one thread, runs the flows on another and supervises programs on a third;
/// the first failure ends all.
fn run_all(
    forwarder: Forwarder,
    traffic: &mut Traffic,
    tasks: Vec<Task>,
    clock: Clock,
    end: Time,
    control: &Control,
) -> Result<(Forwarded, Vec<Log>), EmulationError> {
    thread::scope(|scope| {
        let forwarding = scope.spawn(move || ending(forwarder.run(end, control), control));
        let supervising = scope.spawn(move || {
            if tasks.is_empty() {
                return Ok(Vec::new());
            }
            ending(commands::supervise(tasks, clock, end, control), control)
        });
        let served = ending(serve(traffic, clock, end, control), control);
        let logs = joined(supervising.join())?;
        let forwarded = joined(forwarding.join())
            .map_err(|error| EmulationError::system(&"the network", &error))?;
        served.map_err(|error| EmulationError::system(&"the traffic", &error))?;
        Ok((forwarded, logs))
    })
}

/// Passes `done` on; a failure cancels the other threads.
fn ending<T, E>(done: Result<T, E>, control: &Control) -> Result<T, E> {
    if done.is_err() {
        control.cancel();
    }
    done
}

fn joined<T>(joined: thread::Result<T>) -> T {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
