//! From a scenario's flows to their sources and message records.

use ontempo_foundation::{Bytes, Duration, RandomStream, Time};
use ontempo_scenario::model::{Application, FlowGroup, Scenario, Transport};
use ontempo_scenario::{LaidFlow, Layout};

use crate::applications::{Cbr, Http, HttpLaws, OnOff, Paced, Prompted, Source};
use crate::messages::{MessageMeasure, Messages, Prompts};

/// The flow whose application answers a message of this flow.
pub fn prompts(scenario: &Scenario, layout: &Layout, flow: &LaidFlow) -> Option<Prompts> {
    let name = &layout.groups[flow.group];
    let (peer, pause) = match &scenario.flows.get(name)?.application {
        Application::Request { of, .. } => (of, Duration::ZERO),
        Application::Respond { .. } => {
            scenario.flows.iter().find_map(|(asking, group)| match &group.application {
                Application::Request { of, think, .. } if of == name => Some((asking, *think)),
                _ => None,
            })?
        }
        _ => return None,
    };
    let is_peer = |one: &LaidFlow| layout.groups[one.group] == *peer && one.index == flow.index;
    let flow = layout.flows.iter().position(is_peer)?;
    Some(Prompts { flow: flow as u32, pause })
}

/// The message record of a flow, if it has messages and something measures or answers them.
pub fn messages(
    scenario: &Scenario,
    group: &FlowGroup,
    payload: Bytes,
    prompts: Option<Prompts>,
) -> Option<Messages> {
    let measure = MessageMeasure {
        from: Time::ZERO + scenario.measure.from,
        records: scenario.measure.messages,
        intervals: scenario.measure.intervals,
    };
    let has_messages = matches!(
        group.application,
        Application::Cbr { .. }
            | Application::Messages { .. }
            | Application::Request { .. }
            | Application::Respond { .. }
    );
    let is_asked = measure.records || measure.intervals.is_some();
    let wanted = prompts.is_some() || has_messages && is_asked;
    wanted.then(|| Messages::new(payload, prompts, &measure))
}

/// The source of a flow with packets of `packet` bytes on the wire, `headers` of which are headers;
/// ADUs are a file. What has a size, a file or a web page, takes as many packets as its bytes fill
/// beside the headers.
pub fn source(
    group: &FlowGroup,
    start: Time,
    (packet, headers): (Bytes, Bytes),
    random: RandomStream,
) -> Source {
    let payload = (packet - headers).get().max(1);
    match &group.application {
        Application::Ftp {} => Source::Ftp,
        Application::Adus { count, .. } => Source::File { packets: *count },
        // The traffic of an external command is unknown here.
        Application::Command { .. } => Source::File { packets: 0 },
        // Of a film more than its application is needed: see `FilmSource`.
        Application::Media { .. } => Source::File { packets: 0 },
        Application::File { size } => Source::File { packets: size.get().div_ceil(payload) },
        Application::Cbr { rate, interval } => {
            let by_rate = || rate.map(|rate| rate.time_to_send(packet));
            let interval = interval.or_else(by_rate).unwrap_or(Duration::MAX);
            Source::Cbr(Cbr { start, interval: interval.max(Duration::from_nanos(1)) })
        }
        Application::OnOff { rate, on, off, shape } => Source::OnOff(Box::new(OnOff::new(
            start,
            rate.time_to_send(packet),
            (*on, *off),
            *shape,
            random,
        ))),
        Application::Http { think, think_shape, objects, objects_shape, size, size_shape } => {
            let laws = HttpLaws {
                think: *think,
                think_shape: *think_shape,
                objects: *objects,
                objects_shape: *objects_shape,
                size: size.get() as f64 / payload as f64,
                size_shape: *size_shape,
            };
            Source::Http(Box::new(Http::new(start, laws, random)))
        }
        Application::Messages { interval, buffer } => {
            let is_ordered = matches!(group.transport, Transport::Tcp(_));
            let buffer = buffer.filter(|_| is_ordered).map(|packets| packets.get());
            let interval = (interval.low, interval.high);
            let payload = Bytes::new(payload);
            Source::Paced(Box::new(Paced::new(
                start, interval, buffer, payload, is_ordered, random,
            )))
        }
        Application::Request { size, .. } => {
            let payload = Bytes::new(payload);
            Source::Prompted(Box::new(Prompted::new(Some(start), (*size, *size), payload, random)))
        }
        Application::Respond { smallest, largest } => {
            let payload = Bytes::new(payload);
            Source::Prompted(Box::new(Prompted::new(None, (*smallest, *largest), payload, random)))
        }
    }
}
