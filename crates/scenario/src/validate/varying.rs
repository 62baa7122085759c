//! Schedules, outages and events: traces that can be read, times within the run, links that exist.

use ontempo_foundation::{Bytes, Duration, Time};

use super::links::MAX_DELAY;
use super::{Findings, random};
use crate::backbone::Backbone;
use crate::model::{
    Delay, Event, LinkChange, LinkSpec, MarkovState, Outage, PeriodicStep, QueueSpec, Scenario,
    ScheduleSpec, Topology,
};
use crate::path::FieldPath;
use crate::traces::{TraceError, read_csv, read_light, read_mahimahi};

/// The most outages of a link, events of a scenario, or steps of a schedule that are written out.
const MAX_ITEMS: usize = 10_000;
/// The most changes of a random schedule in a run, on average.
pub(super) const MAX_CHANGES: u64 = 1_000_000;

/// What is wrong with the changes of one link.
pub(super) fn link(spec: &LinkSpec, duration: Duration, path: &FieldPath, findings: &mut Findings) {
    if let Some(schedule) = &spec.schedule {
        self::schedule(schedule, duration, &path.key("schedule"), findings);
        if matches!(schedule, ScheduleSpec::Random { .. }) {
            random::link(spec, duration, path, findings);
        }
        if let ScheduleSpec::Cellreplay { .. } = schedule {
            cellreplay(spec, path, findings);
        }
    }
    let path = path.key("outages");
    few(spec.outages.len(), "outages", &path, findings);
    for (place, Outage { at, lasts }) in spec.outages.iter().enumerate() {
        let path = path.index(place);
        within(*at, duration, &path.key("at"), findings);
        let what = "the outage takes no time; write for = \"1 s\"";
        findings.require(*lasts > Duration::ZERO, &path.key("for"), what);
    }
}

/// What is wrong with the events of a scenario.
pub(super) fn events(scenario: &Scenario, backbone: &Backbone<'_>, findings: &mut Findings) {
    let path = FieldPath::root("events");
    few(scenario.events.len(), "events", &path, findings);
    for (place, event) in scenario.events.iter().enumerate().take(MAX_ITEMS) {
        self::event(scenario, event, backbone, &path.index(place), findings);
    }
}

/// What is wrong with `event` as one more of the scenario.
pub(super) fn next_event(scenario: &Scenario, event: &Event, findings: &mut Findings) {
    let (path, place) = (FieldPath::root("events"), scenario.events.len());
    few(place + 1, "events", &path, findings);
    let backbone = Backbone::new(&scenario.topology);
    self::event(scenario, event, &backbone, &path.index(place), findings);
}

fn event(
    scenario: &Scenario,
    event: &Event,
    backbone: &Backbone<'_>,
    path: &FieldPath,
    findings: &mut Findings,
) {
    within(event.at, scenario.duration, &path.key("at"), findings);
    let spec = scenario.link_spec(&event.link, backbone);
    if spec.is_none() {
        // Links of hosts change, too: one stands for all.
        let group = scenario.flows.keys().next();
        let group = group.filter(|_| matches!(scenario.topology, Topology::Dumbbell { .. }));
        let of_host = group.map(|group| format!("{group}.0.source -> left"));
        let known = backbone.links.iter().map(|link| link.name.as_str());
        findings.unknown(&path.key("link"), "link", &event.link, known.chain(of_host.as_deref()));
    }
    if let Some(ScheduleSpec::Cellreplay { .. }) = spec.and_then(|spec| spec.schedule.as_ref()) {
        let what =
            "the link follows a CellReplay pair of traces, which no event changes; leave it out";
        findings.add(&path.key("link"), what);
    }
    let path = path.key("set");
    let what = "nothing changes; write set = { rate = \"2 Mbit/s\" }";
    findings.require(event.set != LinkChange::default(), &path, what);
    values(event.set.delay, event.set.loss, &path, findings);
}

fn schedule(spec: &ScheduleSpec, duration: Duration, path: &FieldPath, findings: &mut Findings) {
    match spec {
        ScheduleSpec::Csv { file, text, repeat_every } => {
            let fields = [("file", file.as_ref()), ("text", text.as_ref())];
            let Some(text) = text_of(fields, path, findings) else { return };
            match read_csv(text) {
                Err(error) => misread(&error, "text", path, findings),
                Ok(rows) => {
                    let last = rows.last().map_or(Time::ZERO, |row| row.time);
                    if let Some(every) = repeat_every
                        && last.since(Time::ZERO) >= *every
                    {
                        let what = format!(
                            "{every} is not after the last row, at {last}; a later time is needed"
                        );
                        findings.add(&path.key("repeat-every"), what);
                    }
                }
            }
        }
        ScheduleSpec::Mahimahi { file, text } => {
            let fields = [("file", file.as_ref()), ("text", text.as_ref())];
            let Some(text) = text_of(fields, path, findings) else { return };
            if let Err(error) = read_mahimahi(text) {
                misread(&error, "text", path, findings);
            }
        }
        ScheduleSpec::Cellreplay { light, light_text, heavy, heavy_text, timer, opportunity } => {
            let fields = [("light", light.as_ref()), ("light-text", light_text.as_ref())];
            if let Some(Err(error)) = text_of(fields, path, findings).map(read_light) {
                misread(&error, "light-text", path, findings);
            }
            let fields = [("heavy", heavy.as_ref()), ("heavy-text", heavy_text.as_ref())];
            if let Some(Err(error)) = text_of(fields, path, findings).map(read_mahimahi) {
                misread(&error, "heavy-text", path, findings);
            }
            if *timer > MAX_DELAY {
                let what = format!("{timer} is absurd; at most 1 h will do");
                findings.add(&path.key("timer"), what);
            }
            let what = "an opportunity carries nothing; write opportunity = \"1400 bytes\"";
            findings.require(*opportunity > Bytes::ZERO, &path.key("opportunity"), what);
        }
        ScheduleSpec::Periodic { steps } => periodic(steps, &path.key("steps"), findings),
        ScheduleSpec::Markov { states } => markov(states, duration, &path.key("states"), findings),
        // Needs the link's own values.
        ScheduleSpec::Random { .. } => {}
    }
}

/// The trace of a schedule, of the fields for its file and its text.
fn text_of<'a>(
    [(file_field, file), (text_field, text)]: [(&str, Option<&'a String>); 2],
    path: &FieldPath,
    findings: &mut Findings,
) -> Option<&'a str> {
    match (file, text) {
        (None, Some(text)) => return Some(text),
        (None, None) => {
            let example = if file_field == "file" { "trace.csv" } else { "trace.txt" };
            findings.add(path, format!("there is no trace; write {file_field} = \"{example}\""));
        }
        (Some(_), Some(_)) => {
            let what = format!("the trace is given as `{text_field}` already; leave one out");
            findings.add(&path.key(file_field), what);
        }
        (Some(name), None) => {
            let what = format!("{name:?} has not been read; load the scenario from its file");
            findings.add(&path.key(file_field), what);
        }
    }
    None
}

fn misread(error: &TraceError, field: &str, path: &FieldPath, findings: &mut Findings) {
    findings.add(&path.key(field), format!("line {}: {}", error.line, error.what));
}

/// What has no meaning on a link that follows a pair of traces.
fn cellreplay(spec: &LinkSpec, path: &FieldPath, findings: &mut Findings) {
    let is_drop_tail = matches!(spec.queue, QueueSpec::DropTail { .. });
    let what = "the queue of a CellReplay pair of traces is a drop-tail one; write queue = { kind = \
                \"drop-tail\", limit = \"100 packets\" }";
    findings.require(is_drop_tail, &path.key("queue"), what);
    let what = "packets of a CellReplay pair of traces keep their order; leave this out";
    findings.require(!spec.reordering, &path.key("reordering"), what);
    let what = "the base delay of the light trace takes the place of the delay, so that nothing would \
                be drawn from a law; write delay = \"20 ms\"";
    findings.require(matches!(spec.delay, Delay::Fixed(_)), &path.key("delay"), what);
    let what = "an outage of a CellReplay pair of traces is part of the traces; leave this out";
    findings.require(spec.outages.is_empty(), &path.key("outages"), what);
}

fn periodic(steps: &[PeriodicStep], path: &FieldPath, findings: &mut Findings) {
    let what = "there is no step; write steps = [{ for = \"10 s\", rate = \"8 Mbit/s\" }]";
    findings.require(!steps.is_empty(), path, what);
    few(steps.len(), "steps", path, findings);
    let together: Duration = steps.iter().map(|step| step.lasts).sum();
    let what = "the steps together last longer than any run; shorter ones are needed";
    findings.require(together < Duration::MAX, path, what);
    for (place, step) in steps.iter().enumerate() {
        let path = path.index(place);
        let what = "the step takes no time; write for = \"10 s\"";
        findings.require(step.lasts > Duration::ZERO, &path.key("for"), what);
        values(step.delay, step.loss, &path, findings);
    }
}

fn markov(states: &[MarkovState], duration: Duration, path: &FieldPath, findings: &mut Findings) {
    let what = "a chain needs two states or more; write another, such as { mean-time = \"1 s\", \
                rate = \"2 Mbit/s\" }";
    findings.require(states.len() >= 2, path, what);
    few(states.len(), "states", path, findings);
    for (place, state) in states.iter().enumerate() {
        let path = path.index(place);
        values(state.delay, state.loss, &path, findings);
        let least = duration / MAX_CHANGES;
        if state.mean_time <= least {
            let what = format!(
                "{} is too short for a run of {duration}; more than {least} is needed",
                state.mean_time
            );
            findings.add(&path.key("mean-time"), what);
        }
    }
}

pub(super) fn values(
    delay: Option<Duration>,
    loss: Option<f64>,
    path: &FieldPath,
    findings: &mut Findings,
) {
    if let Some(delay) = delay {
        delay_at(delay, &path.key("delay"), findings);
    }
    if let Some(loss) = loss {
        findings.probability(&path.key("loss"), loss);
    }
}

/// Reports a delay, written at `path`, that is too long.
pub(super) fn delay_at(delay: Duration, path: &FieldPath, findings: &mut Findings) {
    if delay > MAX_DELAY {
        findings.add(path, format!("a delay of {delay} is absurd; at most 1 h will do"));
    }
}

fn within(at: Duration, duration: Duration, path: &FieldPath, findings: &mut Findings) {
    if at >= duration {
        let what = format!("{at} is not before the end of the run, {duration}");
        findings.add(path, what);
    }
}

fn few(count: usize, noun: &str, path: &FieldPath, findings: &mut Findings) {
    if count > MAX_ITEMS {
        findings.add(path, format!("{count} {noun} are too many; at most {MAX_ITEMS} will do"));
    }
}
