//! Changes of links while an emulation runs: who asks, and the forwarding thread that applies them.
//!
//! A change is an event of the scenario at a time shortly ahead. The link's new schedule, and no other,
//! is laid out as that of a run whose scenario has the event from the start, and handed to the forwarding thread,
//! which replaces the link's schedule before that time. So a change does exactly what the same event
//! in the scenario's file does.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use ontempo_foundation::{Duration, Rate, Time};
use ontempo_network::Schedule;
use ontempo_scenario::model::{Delay, DelayLaw, LossSpec, Routers, Scenario};
use ontempo_scenario::{LaidLink, Layout};
use rustix::event::{EventfdFlags, eventfd};

use crate::clock::Clock;

/// How far ahead a change is: the forwarding thread has it by then. If it was late, the next attempt
/// is as many times further ahead.
const AHEAD: Duration = Duration::from_millis(5);
const FURTHER: u64 = 6;
const ATTEMPTS: u32 = 4;

/// How long the forwarding thread may take to answer.
const ANSWER: StdDuration = StdDuration::from_secs(2);

/// How long a change waits for the run to begin.
const BEGIN: StdDuration = StdDuration::from_secs(10);
const LOOK_EVERY: StdDuration = StdDuration::from_millis(5);

/// A change on its way to the forwarding thread.
struct Change {
    link: usize,
    schedule: Arc<Schedule>,
    /// From when on the schedule differs from the present one.
    at: Time,
    /// Whether it came in time, and was made.
    answer: SyncSender<bool>,
}

/// The forwarding thread's end of the changes.
#[derive(Debug)]
pub(crate) struct Incoming {
    changes: Receiver<Change>,
    /// Readable when a change waits.
    wake: Arc<OwnedFd>,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "link {} at {}", self.link, self.at)
    }
}

impl Incoming {
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Makes the changes that wait at `now`, by `make`, which returns false for a link that cannot be
    /// changed.
    pub(crate) fn take(&self, now: Time, mut make: impl FnMut(usize, Arc<Schedule>) -> bool) {
        // Its count is of no interest.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        for Change { link, schedule, at, answer } in self.changes.try_iter() {
            // Nobody waits for a late answer.
            let _ = answer.try_send(now < at && make(link, schedule));
        }
    }
}

/// Values of a link at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkState {
    /// Its name.
    pub link: String,
    /// Its rate; of opportunities, their mean.
    pub rate: Rate,
    /// Its delay, the mean of a random one.
    pub delay: Duration,
    /// The probability that a packet is lost on the wire, on average.
    pub loss: f64,
    /// Why it cannot be changed while the emulation runs.
    pub fixed: Option<&'static str>,
}

/// Why a link is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotChanged {
    /// The request is wrong: what would be right.
    Wrong(String),
    /// The emulation has ended.
    Over,
}

/// Changes links of a running emulation, from any thread.
#[derive(Clone, Debug)]
pub struct Links(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seed: u64,
    /// Set when the run begins.
    clock: OnceLock<Clock>,
    sender: SyncSender<Change>,
    wake: Arc<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// With the changes so far.
    scenario: Scenario,
    links: Vec<LaidLink>,
    is_over: bool,
}

impl Links {
    /// The links of `layout`, and the end of the forwarding thread.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub(crate) fn new(
        scenario: &Scenario,
        layout: &Layout,
        seed: u64,
    ) -> io::Result<(Self, Incoming)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        // One change at a time waits for its answer.
        let (sender, changes) = sync_channel(1);
        let (scenario, links) = (scenario.clone(), layout.links.clone());
        let state = Mutex::new(State { scenario, links, is_over: false });
        let shared = Shared { seed, clock: OnceLock::new(), sender, wake: wake.clone(), state };
        Ok((Self(Arc::new(shared)), Incoming { changes, wake }))
    }

    /// The run begins.
    pub(crate) fn begin(&self, clock: Clock) {
        // Nobody begins a run twice.
        let _ = self.0.clock.set(clock);
    }

    /// Takes no more changes; returns the scenario with all changes that were made as events behind
    /// its own, and the links' final schedules.
    pub(crate) fn end(&self) -> (Scenario, Vec<LaidLink>) {
        let mut state = self.lock();
        state.is_over = true;
        (state.scenario.clone(), state.links.clone())
    }

    /// A thread that panicked leaves the state as it was before its change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.0.clock.get().map_or(Time::ZERO, Clock::now)
    }

    /// The links with their present values.
    pub fn states(&self) -> Vec<LinkState> {
        let (state, now) = (self.lock(), self.now());
        let routers = state.scenario.emulation.routers;
        state.links.iter().map(|laid| state_of(laid, routers, now)).collect()
    }

    /// Gives `link` the values of `settings`, each written as `rate=2 Mbit/s`, `delay=40 ms` or
    /// `loss=0.01`; returns when they hold, in time of the run.
    ///
    /// # Errors
    /// If there is no such link, it cannot be changed, a setting is wrong, or the run has ended.
    pub fn change(&self, link: &str, settings: &[String]) -> Result<Time, NotChanged> {
        self.await_begin()?;
        let mut state = self.lock();
        let routers = state.scenario.emulation.routers;
        let wrong = |error: &dyn std::fmt::Display| NotChanged::Wrong(error.to_string());
        let place = state.links.iter().position(|laid| laid.name == link);
        if let Some(why) = place.and_then(|place| fixed(&state.links[place], routers)) {
            let what = format!("link `{link}` cannot be changed while it runs: {why}");
            return Err(NotChanged::Wrong(what));
        }
        for attempt in 0..ATTEMPTS {
            let at = self.now() + AHEAD * FURTHER.pow(attempt);
            let since = at.since(Time::ZERO);
            if state.is_over || since >= state.scenario.duration {
                return Err(NotChanged::Over);
            }
            let event = state.scenario.change(since, link, settings);
            let event = event.map_err(|error| wrong(&error))?;
            let place = place.ok_or_else(|| wrong(&format!("link: there is no link `{link}`")))?;
            let Some(schedule) = state.scenario.schedule_with(&event, self.0.seed) else {
                return Err(wrong(&format!("link `{link}`: its values cannot be laid out")));
            };
            if self.send(place, schedule.clone(), at)? {
                state.links[place].schedule = Some(schedule);
                state.scenario.events.push(event);
                return Ok(at);
            }
        }
        let what = "this machine is too busy: the forwarding thread took no change in time";
        Err(NotChanged::Wrong(what.to_owned()))
    }

    fn await_begin(&self) -> Result<(), NotChanged> {
        let mut waited = StdDuration::ZERO;
        while self.0.clock.get().is_none() {
            if waited >= BEGIN {
                let what = "the emulation has not begun yet; try again later";
                return Err(NotChanged::Wrong(what.to_owned()));
            }
            if self.lock().is_over {
                return Err(NotChanged::Over);
            }
            sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
        Ok(())
    }

    /// Whether the forwarding thread made the change.
    fn send(&self, link: usize, schedule: Arc<Schedule>, at: Time) -> Result<bool, NotChanged> {
        let (answer, answered) = sync_channel(1);
        match self.0.sender.try_send(Change { link, schedule, at, answer }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Ok(false),
            Err(TrySendError::Disconnected(_)) => return Err(NotChanged::Over),
        }
        // It fails only where a wake-up is pending.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
        match answered.recv_timeout(ANSWER) {
            Ok(made) => Ok(made),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                Err(NotChanged::Over)
            }
        }
    }
}

/// Why a link cannot be changed while the emulation runs.
fn fixed(laid: &LaidLink, routers: Routers) -> Option<&'static str> {
    if laid.aggregation.is_some() {
        return Some("it sends in aggregates, which are laid out ahead; change it by [[events]]");
    }
    if laid.schedule.as_ref().is_some_and(|schedule| schedule.cellreplay.is_some()) {
        return Some("it follows a CellReplay pair of traces, which is known before the run");
    }
    match routers {
        Routers::Kernel => Some("the kernel's routers shape it (emulation.routers = \"kernel\")"),
        Routers::Modelled => None,
    }
}

fn state_of(laid: &LaidLink, routers: Routers, now: Time) -> LinkState {
    let schedule = laid.schedule.as_deref();
    let delay = match &laid.delay {
        Delay::Fixed(delay) => *delay,
        Delay::Law(law) => DelayLaw::mean(law),
    };
    LinkState {
        link: laid.name.clone(),
        rate: schedule.map_or(laid.rate, |schedule| schedule.capacity.rate_at(now)),
        delay: schedule.and_then(|schedule| schedule.delay_at(now)).unwrap_or(delay),
        loss: schedule
            .and_then(|schedule| schedule.loss_at(now))
            .unwrap_or_else(|| laid.loss.as_ref().map_or(0.0, mean_loss)),
        fixed: fixed(laid, routers),
    }
}

/// The probability that a packet is lost, on average.
fn mean_loss(spec: &LossSpec) -> f64 {
    match spec {
        LossSpec::Bernoulli { rate } => *rate,
        // The share of time in the state in which all is lost.
        LossSpec::Gilbert { p, q } if p + q > 0.0 => p / (p + q),
        // A list of packets has no rate.
        LossSpec::Gilbert { .. } | LossSpec::Trace { .. } => 0.0,
    }
}
