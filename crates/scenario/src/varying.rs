//! From schedule, outages and events of a link to the one schedule of its run.

use std::collections::BTreeMap;
use std::sync::Arc;

use ontempo_foundation::{Duration, RandomStream, Rate, Time};
use ontempo_network::{
    Capacity, CellReplay, Opportunities, RateLaw, RateSteps, Schedule, ScheduleError, Steps,
    Timeline,
};

use crate::model::{Event, LinkSpec, MarkovState, Outage, Scenario, ScheduleSpec};
use crate::random;
use crate::traces::{TraceRow, read_csv, read_light, read_mahimahi};

/// Nothing leaves.
const NOTHING: Rate = Rate::from_bits_per_sec(0);

/// The schedules of a scenario's links in the run with one seed.
pub(crate) struct Schedules<'a> {
    seed: u64,
    duration: Duration,
    events: BTreeMap<&'a str, Vec<&'a Event>>,
    /// Of links without events or draws, by the address of their specification.
    shared: BTreeMap<usize, Option<Arc<Schedule>>>,
    /// What traces say, by the address of the links' specification: each is read once, however many
    /// links have events.
    read: BTreeMap<usize, Result<Base, ScheduleError>>,
}

/// What holds in a part of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ruler {
    /// The link's own rate, or its schedule.
    Link,
    /// The event of this place.
    Event(usize),
    Outage,
}

/// Values of a link over time, before events and outages. Clones share them.
#[derive(Clone)]
struct Base {
    rate: RateLaw,
    delay: Option<Steps<Option<Duration>>>,
    loss: Option<Steps<Option<f64>>>,
    cellreplay: Option<Arc<CellReplay>>,
}

/// The schedule of a link alone, in a run of this duration; `drawn_as` names its streams.
pub(crate) fn schedule_of(
    spec: &LinkSpec,
    duration: Duration,
    seed: u64,
    drawn_as: &str,
) -> Result<Schedule, ScheduleError> {
    Schedules::of_events([], duration, seed).lay(spec, &[], drawn_as)
}

impl<'a> Schedules<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        Self::of_events(&scenario.events, scenario.duration, seed)
    }

    /// As of a scenario with these events, in the order of its file.
    pub(crate) fn of_events(
        all: impl IntoIterator<Item = &'a Event>,
        duration: Duration,
        seed: u64,
    ) -> Self {
        let mut events: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in all {
            events.entry(&event.link).or_default().push(event);
        }
        // A stable sort: of equal times, the last in the file comes last.
        events.values_mut().for_each(|events| events.sort_by_key(|event| event.at));
        Self { seed, duration, events, shared: BTreeMap::new(), read: BTreeMap::new() }
    }

    /// The schedule of the link `name`; `None` if nothing changes. `drawn_as` names the stream of a
    /// random schedule.
    pub(crate) fn of(
        &mut self,
        spec: &LinkSpec,
        name: &str,
        drawn_as: &str,
    ) -> Option<Arc<Schedule>> {
        let is_random = matches!(
            spec.schedule,
            Some(ScheduleSpec::Markov { .. } | ScheduleSpec::Random { .. })
        );
        let has_events = self.events.contains_key(name);
        if spec.schedule.is_none() && spec.outages.is_empty() && !has_events {
            return None;
        }
        let address = std::ptr::from_ref(spec).addr();
        let is_shared = !is_random && !has_events;
        if let Some(schedule) = self.shared.get(&address).filter(|_| is_shared) {
            return schedule.clone();
        }
        let events = self.events.get(name).cloned().unwrap_or_default();
        // What cannot be laid out is no valid scenario.
        let schedule = self.lay(spec, &events, drawn_as).ok().map(Arc::new);
        if is_shared {
            self.shared.insert(address, schedule.clone());
        }
        schedule
    }

    fn lay(
        &mut self,
        spec: &LinkSpec,
        events: &[&Event],
        drawn_as: &str,
    ) -> Result<Schedule, ScheduleError> {
        let base = match &spec.schedule {
            None => Base::of_rate(RateLaw::Constant(spec.rate)),
            Some(
                schedule @ (ScheduleSpec::Csv { .. }
                | ScheduleSpec::Mahimahi { .. }
                | ScheduleSpec::Cellreplay { .. }),
            ) => {
                let address = std::ptr::from_ref(spec).addr();
                self.read.entry(address).or_insert_with(|| read(spec, schedule)).clone()?
            }
            Some(ScheduleSpec::Periodic { steps }) => {
                let mut time = Time::ZERO;
                let rows = steps.iter().map(|step| {
                    let row = TraceRow {
                        time,
                        rate: Some(step.rate.unwrap_or(spec.rate)),
                        delay: step.delay,
                        loss: step.loss,
                    };
                    time += step.lasts;
                    row
                });
                let rows: Vec<TraceRow> = rows.collect();
                changing(&rows, Some(time.since(Time::ZERO)))?
            }
            Some(ScheduleSpec::Markov { states }) => {
                let mut random = RandomStream::new(self.seed, &format!("link {drawn_as} schedule"));
                changing(&draw(states, spec.rate, self.duration, &mut random), None)?
            }
            Some(ScheduleSpec::Random { rate, min_rate, max_rate, delay, episodes, .. }) => {
                let parts = random::Parts { rate, bounds: (*min_rate, *max_rate), delay, episodes };
                let stream = |part: &str| {
                    RandomStream::new(self.seed, &format!("link {drawn_as} schedule {part}"))
                };
                let values = parts.draw(spec.rate, spec.delay.mean(), self.duration, stream);
                // What goes on longer than a run, such as a relay, meets the same again.
                let period = Some(self.duration);
                Base {
                    rate: rate_law(values.rate, period)?,
                    delay: optional(values.delay, period)?,
                    loss: optional(values.loss, period)?,
                    cellreplay: None,
                }
            }
        };
        let rate = rate_parts(&base.rate, &spec.outages, events);
        let values = |event: &Event| event.set.delay;
        let delay = timeline(base.delay, events, values)?;
        let loss = timeline(base.loss, events, |event| event.set.loss)?;
        Ok(Schedule { capacity: Capacity::new(rate)?, delay, loss, cellreplay: base.cellreplay })
    }
}

impl Base {
    fn of_rate(rate: RateLaw) -> Self {
        Self { rate, delay: None, loss: None, cellreplay: None }
    }
}

/// What the trace of a link says.
fn read(spec: &LinkSpec, schedule: &ScheduleSpec) -> Result<Base, ScheduleError> {
    match schedule {
        ScheduleSpec::Csv { text, repeat_every, .. } => {
            let rows = read_csv(text.as_deref().unwrap_or_default()).unwrap_or_default();
            base(spec, &rows, *repeat_every)
        }
        ScheduleSpec::Mahimahi { text, .. } => {
            let times = read_mahimahi(text.as_deref().unwrap_or_default()).unwrap_or_default();
            Ok(Base::of_rate(RateLaw::Opportunities(Arc::new(Opportunities::new(times)?))))
        }
        ScheduleSpec::Cellreplay { light_text, heavy_text, timer, opportunity, .. } => {
            let light = read_light(light_text.as_deref().unwrap_or_default());
            let light = light.map_err(|_| ScheduleError::Empty)?;
            let times = read_mahimahi(heavy_text.as_deref().unwrap_or_default());
            let heavy = Opportunities::of_size(times.unwrap_or_default(), *opportunity)?;
            let cell = CellReplay { light, timer: *timer, opportunity: *opportunity };
            let rate = RateLaw::Opportunities(Arc::new(heavy));
            Ok(Base { cellreplay: Some(Arc::new(cell)), ..Base::of_rate(rate) })
        }
        // They are no traces.
        ScheduleSpec::Periodic { .. }
        | ScheduleSpec::Markov { .. }
        | ScheduleSpec::Random { .. } => Err(ScheduleError::Empty),
    }
}

/// Values of rows in which `None` changes nothing.
fn base(
    spec: &LinkSpec,
    rows: &[TraceRow],
    period: Option<Duration>,
) -> Result<Base, ScheduleError> {
    let rates = rows.iter().filter_map(|row| Some((row.time, row.rate?)));
    let rates = from_the_start(rates.collect(), spec.rate);
    let delays = rows.iter().filter_map(|row| Some((row.time, Some(row.delay?))));
    let losses = rows.iter().filter_map(|row| Some((row.time, Some(row.loss?))));
    Ok(Base {
        rate: rate_law(rates, period)?,
        delay: optional(from_the_start(delays.collect(), None), period)?,
        loss: optional(from_the_start(losses.collect(), None), period)?,
        cellreplay: None,
    })
}

/// Values of rows in which `None` is the link's own.
fn changing(rows: &[TraceRow], period: Option<Duration>) -> Result<Base, ScheduleError> {
    let rates = rows.iter().filter_map(|row| Some((row.time, row.rate?))).collect();
    let delays = rows.iter().map(|row| (row.time, row.delay)).collect();
    let losses = rows.iter().map(|row| (row.time, row.loss)).collect();
    Ok(Base {
        rate: rate_law(rates, period)?,
        delay: optional(delays, period)?,
        loss: optional(losses, period)?,
        cellreplay: None,
    })
}

fn from_the_start<T: Copy>(mut steps: Vec<(Time, T)>, first: T) -> Vec<(Time, T)> {
    if steps.first().is_none_or(|(time, _)| *time > Time::ZERO) {
        steps.insert(0, (Time::ZERO, first));
    }
    steps
}

fn rate_law(steps: Vec<(Time, Rate)>, period: Option<Duration>) -> Result<RateLaw, ScheduleError> {
    Ok(match steps[..] {
        [(Time::ZERO, rate)] => RateLaw::Constant(rate),
        _ => RateLaw::Steps(Arc::new(RateSteps::new(Steps::new(steps, period)?))),
    })
}

/// The steps, unless all are `None`.
fn optional<T: Copy>(
    steps: Vec<(Time, Option<T>)>,
    period: Option<Duration>,
) -> Result<Option<Steps<Option<T>>>, ScheduleError> {
    if steps.iter().all(|(_, value)| value.is_none()) {
        return Ok(None);
    }
    Steps::new(steps, period).map(Some)
}

/// The stay of a Markov chain in each state until the end of the run.
fn draw(
    states: &[MarkovState],
    nominal: Rate,
    duration: Duration,
    random: &mut RandomStream,
) -> Vec<TraceRow> {
    let (mut rows, mut time, mut place) = (Vec::new(), Time::ZERO, 0);
    while let Some(state) = states.get(place)
        && time.since(Time::ZERO) < duration
    {
        rows.push(TraceRow {
            time,
            rate: Some(state.rate.unwrap_or(nominal)),
            delay: state.delay,
            loss: state.loss,
        });
        let stay = state.mean_time.mul_f64(random.exponential(1.0));
        time += stay.max(Duration::from_nanos(1));
        let others = states.len().saturating_sub(1) as f64;
        let step = 1 + (random.uniform() * others) as usize;
        place = (place + step) % states.len();
    }
    rows
}

/// The laws of the rate, each from a time on: outages before events before the link's own.
fn rate_parts(base: &RateLaw, outages: &[Outage], events: &[&Event]) -> Vec<(Time, RateLaw)> {
    let at = |time: Duration| Time::ZERO + time;
    let mut outages: Vec<(Time, Time)> =
        outages.iter().map(|one| (at(one.at), at(one.at) + one.lasts)).collect();
    outages.sort_unstable();
    let changes = events
        .iter()
        .enumerate()
        .filter_map(|(place, event)| event.set.rate.map(|rate| (at(event.at), (place, rate))));
    let changes: Vec<(Time, (usize, Rate))> = changes.collect();
    let mut times = vec![Time::ZERO];
    times.extend(outages.iter().flat_map(|(begins, ends)| [*begins, *ends]));
    times.extend(changes.iter().map(|(time, _)| *time));
    times.sort_unstable();
    times.dedup();
    let mut parts: Vec<(Time, RateLaw)> = Vec::new();
    let mut last = None;
    let (mut next_outage, mut out_until) = (0, Time::ZERO);
    for time in times {
        while let Some((_, ends)) = outages.get(next_outage).filter(|(begins, _)| *begins <= time) {
            out_until = out_until.max(*ends);
            next_outage += 1;
        }
        let begun = changes.partition_point(|(from, _)| *from <= time);
        let change = begun.checked_sub(1).map(|last| changes[last].1);
        let (ruler, law) = match change {
            _ if time < out_until => (Ruler::Outage, RateLaw::Constant(NOTHING)),
            Some((place, rate)) => (Ruler::Event(place), RateLaw::Constant(rate)),
            None => (Ruler::Link, base.clone()),
        };
        if last != Some(ruler) {
            parts.push((time, law));
        }
        last = Some(ruler);
    }
    parts
}

/// The link's own steps until the first event with a value, and its values from then on.
fn timeline<T: Copy + PartialEq>(
    base: Option<Steps<Option<T>>>,
    events: &[&Event],
    value: impl Fn(&Event) -> Option<T>,
) -> Result<Option<Timeline<Option<T>>>, ScheduleError> {
    let mut changes: BTreeMap<Time, T> = BTreeMap::new();
    for event in events {
        // Of equal times, the last in the file holds.
        if let Some(value) = value(event) {
            changes.insert(Time::ZERO + event.at, value);
        }
    }
    if base.is_none() && changes.is_empty() {
        return Ok(None);
    }
    let mut parts = Vec::new();
    if !changes.contains_key(&Time::ZERO) {
        parts.push((Time::ZERO, base.unwrap_or_else(|| Steps::constant(None))));
    }
    parts.extend(changes.into_iter().map(|(time, value)| (time, Steps::constant(Some(value)))));
    Timeline::new(parts).map(Some)
}
