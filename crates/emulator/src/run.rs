//! A run: set-up, execution, teardown.

use std::fs::File;
use std::process::ExitStatus;
use std::thread;

use ontempo_foundation::{Duration, Time};
use ontempo_scenario::Layout;
use ontempo_scenario::model::Scenario;

use crate::assemble::{self, network, traffic};
use crate::changes::{Incoming, Links};
use crate::clock::Clock;
use crate::commands::{self, Programs, Supervised};
use crate::error::EmulationError;
use crate::forwarder::{Forwarded, Forwarder};
use crate::namespace::Namespaces;
use crate::network::Spans;
use crate::report::coarse_clock;
use crate::results::{self, Ran, Results};
use crate::routers::Routed;
use crate::routes::Host;
use crate::trace::{Tap, Trace};
use crate::traffic::{Served, Traffic, serve};
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
    /// Present if links may be changed while it runs.
    control: Option<(Links, Option<Incoming>)>,
    /// Links that are traced.
    taps: Vec<(usize, Tap)>,
}

impl<'a> Emulation<'a> {
    /// Sets up the hosts of `scenario`.
    ///
    /// # Errors
    /// If only a simulation can run the scenario, if this process is not root, if a run of that
    /// name
    /// is active, or if the system refuses.
    pub fn new(scenario: &'a Scenario, options: Options) -> Result<Self, EmulationError> {
        limits::check_fields(scenario, options.version)?;
        commands::check(scenario)?;
        if !rustix::process::geteuid().is_root() {
            return Err(EmulationError::System(
                "network namespaces and TUN devices need root; run it with sudo".to_owned(),
            ));
        }
        let layout = scenario.layout(options.seed)?;
        let routed = limits::routed(scenario, &layout)?;
        let namespaces = Namespaces::make(scenario, &layout, routed.as_ref(), &options)?;
        Ok(Self { scenario, options, layout, routed, namespaces, control: None, taps: Vec::new() })
    }

    /// The name of the run.
    pub fn name(&self) -> &str {
        self.namespaces.lock.run()
    }

    /// Writes the packets that cross the link `link` to `out` as they pass, as pcapng, of a run that
    /// `control` cancels.
    ///
    /// # Errors
    /// If there is no such link, or `out` cannot be written.
    pub fn trace(
        &mut self,
        link: &str,
        out: File,
        control: &Control,
    ) -> Result<Trace, EmulationError> {
        let place = self.layout.links.iter().position(|laid| laid.name == link);
        let place = place
            .ok_or_else(|| EmulationError::Input(format!("--trace: there is no link `{link}`")))?;
        let until = Time::ZERO + self.scenario.duration;
        let (tap, trace) = Tap::new(link, &self.layout, until, out, control.flag())
            .map_err(|error| EmulationError::system(&format!("the trace of {link}"), &error))?;
        self.taps.push((place, tap));
        Ok(trace)
    }

    /// Lets the links be changed while the emulation runs.
    ///
    /// # Errors
    /// If the system refuses a descriptor.
    pub fn links(&mut self) -> Result<Links, EmulationError> {
        if let Some((links, _)) = &self.control {
            return Ok(links.clone());
        }
        let (links, incoming) = Links::new(self.scenario, &self.layout, self.options.seed)
            .map_err(|error| EmulationError::system(&"the control", &error))?;
        self.control = Some((links.clone(), Some(incoming)));
        Ok(links)
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
        let tasks = commands::tasks(self.scenario, &self.layout, &self.namespaces, version)?;
        let programs = Programs::begin(tasks, control)?;
        let lead = if programs.is_empty() { LEAD } else { LEAD_OF_PROGRAMS };
        let clock = Clock::starting_in(lead);
        let forwarder = self.forwarder(spans, clock)?;
        let links = self.control.as_ref().map(|(links, _)| links);
        if let Some(links) = links {
            links.begin(clock);
        }
        let ran = run_all(forwarder, &mut traffic, programs, clock, end, control);
        let changed = links.map(Links::end);
        let (forwarded, served, programs) = ran?;
        if control.is_cancelled() {
            return Err(EmulationError::Cancelled);
        }
        let changed = changed.map(|(mut scenario, links)| {
            scenario.seed = self.options.seed;
            self.layout.links = links;
            scenario
        });
        let ran = Ran { forwarded, served, traffic, programs };
        Ok(results::collect(self.scenario, &self.layout, changed, ran))
    }

    fn forwarder(&mut self, spans: Spans, clock: Clock) -> Result<Forwarder, EmulationError> {
        let incoming = self.control.as_mut().and_then(|(_, incoming)| incoming.take());
        let routed = self.routed.as_ref();
        let changeable = incoming.is_some();
        let mut network =
            network(self.scenario, &self.layout, &self.options, routed, spans, changeable)?;
        self.taps.drain(..).for_each(|(link, tap)| network.set_tap(link, tap));
        let interfaces = std::mem::take(&mut self.namespaces.interfaces);
        Forwarder::new(clock, network, interfaces, self.namespaces.mtu, incoming)
            .map_err(|error| EmulationError::system(&"the network", &error))
    }

    /// The hosts, and the routers if kernels route: name, namespace, and addresses of both versions, or of
    /// IPv4 where the kernel has no IPv6.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &str, Vec<std::net::IpAddr>)> {
        let addresses = |host: &Host| {
            let routers = self.routed.iter().flat_map(|routed| routed.addresses(host));
            let all = host.ends.iter().copied().chain(routers.map(|(_, end)| end));
            let versions = self.namespaces.versions;
            all.flat_map(|end| versions.iter().map(move |version| end.ip(*version))).collect()
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
        commands::require_program(words)?;
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
    programs: Programs,
    clock: Clock,
    end: Time,
    control: &Control,
) -> Result<(Forwarded, Served, Supervised), EmulationError> {
    thread::scope(|scope| {
        let forwarding = scope.spawn(move || ending(forwarder.run(end, control), control));
        let supervising =
            scope.spawn(move || ending(programs.supervise(clock, end, control), control));
        // On a thread of its own, since its priority lasts as long as the thread.
        let serving = scope.spawn(move || ending(serve(traffic, clock, end, control), control));
        let served = joined(serving.join());
        let supervised = joined(supervising.join())?;
        let forwarded = joined(forwarding.join())
            .map_err(|error| EmulationError::system(&"the network", &error))?;
        let served = served.map_err(|error| EmulationError::system(&"the traffic", &error))?;
        Ok((forwarded, served, supervised))
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
