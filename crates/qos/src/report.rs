//! A connection's metrics for `ontempo monitor` and `ontempo export`.

use ontempo_mechanisms::qos::{Parameter, Specification};

use super::Direction;
use super::core::{Core, lock};
use super::wire::Figures;
use ontempo_monitor::{
    ParameterReport, Reservation, Role, SocketReport, ViolationReport, in_mib_units,
};

/// One report for each direction with a specification or with
/// messages.
pub(super) fn sockets(core: &Core) -> Vec<SocketReport> {
    let outgoing = lock(&core.outgoing);
    let incoming = lock(&core.incoming);
    let (sent, sent_bytes) = core.counter.get();
    let (known, known_bytes) = incoming.sent();
    let nothing = Specification::default();
    let mut sockets = Vec::with_capacity(2);
    if sent > 0 || *outgoing.agreed() != nothing {
        let parameters = parameters(
            core,
            Direction::Sending,
            outgoing.asked(),
            outgoing.agreed(),
            (outgoing.figures(), outgoing.begun()),
        );
        let mut socket = socket(core, Direction::Sending, outgoing.figures());
        (socket.id, socket.parameters) = (sending_id(core), parameters);
        (socket.sent_messages, socket.sent_bytes) = (sent, sent_bytes);
        socket.throughput = outgoing.throughput();
        (socket.rungs, socket.rung, socket.held) = outgoing.rungs();
        sockets.push(socket);
    }
    if known > 0 || *incoming.agreed() != nothing {
        let figures = incoming.figures();
        let parameters = parameters(
            core,
            Direction::Receiving,
            &core.receive_asked,
            incoming.agreed(),
            (figures, incoming.begun()),
        );
        let mut socket = socket(core, Direction::Receiving, figures);
        (socket.id, socket.parameters) = (2 * core.number, parameters);
        (socket.sent_messages, socket.sent_bytes) = (known, known_bytes);
        sockets.push(socket);
    }
    sockets
}

/// The number in a report of the sending direction.
pub(super) fn sending_id(core: &Core) -> u32 {
    2 * core.number - 1
}

fn socket(core: &Core, direction: Direction, figures: &Figures) -> SocketReport {
    let reserved = lock(&core.reserved);
    let standing = reserved.of(direction);
    let (delay, delay_error) = figures.delay.unzip();
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    SocketReport {
        id: 0,
        name: core.name.clone(),
        role: match direction {
            Direction::Sending => Role::Sender,
            Direction::Receiving => Role::Receiver,
        },
        carrier: core.carrier,
        local: core.local().to_string(),
        remote: core.remote().to_string(),
        dscp: core.dscp().get(),
        reservation: standing.map_or(Reservation::None, |standing| standing.state),
        reason: standing.map(|standing| standing.reason.clone()).unwrap_or_default(),
        opened_ms: core.opened_ms,
        sent_messages: 0,
        sent_bytes: 0,
        messages: figures.messages,
        bytes: figures.bytes,
        lost_messages: figures.lost,
        throughput: figures.throughput as f64,
        loss: figures.loss.map(|loss| f64::from(loss) / 1_000.0),
        delay: delay.map(seconds),
        delay_error: delay_error.map(seconds),
        jitter: figures.jitter.map(seconds),
        rungs: 0,
        rung: 0,
        held: None,
        parameters: Vec::new(),
        violations: violations(core, direction),
    }
}

fn violations(core: &Core, direction: Direction) -> Vec<ViolationReport> {
    let kept = core.kept(direction);
    kept.latest.iter().map(|(number, violation)| ViolationReport::of(*number, violation)).collect()
}

fn parameters(
    core: &Core,
    direction: Direction,
    asked: &Specification,
    agreed: &Specification,
    (figures, begun): (&Figures, &[u32; Parameter::ALL.len()]),
) -> Vec<ParameterReport> {
    let kept = core.kept(direction);
    let changed = |parameter: Parameter| {
        let last = kept.latest.iter().rev().find(|(_, one)| one.parameter == parameter);
        last.map(|(_, violation)| {
            let age = core.clock.now().since(violation.at).as_nanos() / 1_000_000;
            (ontempo_udp::Clock::wall() / 1_000_000).saturating_sub(age)
        })
    };
    let agreed = Parameter::ALL.into_iter().filter_map(|one| Some((one, agreed.value(one)?)));
    agreed
        .map(|(parameter, value)| {
            let place = parameter as usize;
            let own = asked.value(parameter);
            ParameterReport {
                parameter: place as u8 + 1,
                asked: own.map(in_mib_units),
                agreed: in_mib_units(value),
                coerced: own.is_some_and(|own| own != value),
                delivered: figures.delivered[place],
                violated: figures.violated >> place & 1 == 1,
                begun: begun[place],
                changed_ms: changed(parameter),
            }
        })
        .collect()
}
