//! All sending flows, and how their units are written to streams and datagrams.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use noq_proto::{Dir, SendDatagramError, StreamId, VarInt, WriteError};
use ontempo_foundation::{Bytes as Size, Time};

use super::carried::{Carried, Handed};
use super::control::Control;
use super::send_flow::{GivenUp, SendError, SendFlow, Way, longest_unit};
use super::statistics::SendStatistics;
use super::{Connection, ConnectionEvent, FlowError, Flows, Violation};
use crate::config::{Configuration, DATAGRAM_BUFFER};
use crate::flow::{FlowConfig, FlowId, Outgoing, Reliability};
use crate::wire::{
    FlowOpened, FragmentHeader, Limits, MAX_LABEL, MAX_UNIT_HEADER, Message, ReceiverReport,
    UnitHeader,
};

/// Error code of RESET_STREAM: the units on the stream were dropped.
const DROPPED: VarInt = VarInt::from_u32(1);

/// Maximum units in one stream.
const MAX_IN_BATCH: usize = 64;

/// Bytes buffered in the QUIC stack beyond cwnd; they can no longer be reprioritised, nor
/// dropped silently.
const WRITTEN_AHEAD: u64 = 16 << 10;

/// All sending flows.
#[derive(Debug)]
pub(super) struct Sending {
    flows: Flows<SendFlow>,
    next: u64,
    /// Flows with a number below this may be opened.
    flow_credit: u64,
    /// A flow could not be opened for lack of credit.
    wants_flow: bool,
    /// Streams not yet acknowledged: their flow and units.
    streams: BTreeMap<StreamId, (u64, Vec<u64>)>,
    /// The peer's receive limits.
    peer: Limits,
    /// The flow whose turn it is among equal priorities.
    turn: u64,
    /// The cwnd that the stack was last given.
    window: u64,
    /// Fragments of the current unit that the stack has not accepted.
    datagrams: VecDeque<Bytes>,
    /// Units with a deadline in datagrams that we repair; `None`: they go on streams.
    carried: Option<Carried>,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            flows: Flows::new(),
            next: 0,
            flow_credit: 0,
            wants_flow: false,
            streams: BTreeMap::new(),
            peer: Limits { flows: 0, units: 0, bytes: 0, unit_bytes: 0 },
            turn: 0,
            window: 0,
            datagrams: VecDeque::new(),
            carried: None,
        }
    }
}

/// Result of an attempt to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Wrote,
    /// The stack accepts nothing more, of any flow.
    Blocked,
}

impl Sending {
    /// Units with a deadline are carried in datagrams, and repaired by us.
    pub(super) fn carrying(carried: Option<Carried>) -> Self {
        Self { carried, ..Self::default() }
    }

    /// The peer's receive limits became known.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.peer = limits;
        self.flow_credit = limits.flows;
    }

    /// New credit for flows; true if a flow waits for it.
    pub(super) fn on_flow_credit(&mut self, flows: u64) -> bool {
        let is_new = flows > self.flow_credit;
        self.flow_credit = self.flow_credit.max(flows);
        is_new && std::mem::take(&mut self.wants_flow)
    }

    pub(super) fn open(
        &mut self,
        config: FlowConfig,
        control: &mut Control,
    ) -> Result<u64, FlowError> {
        if config.label.len() > MAX_LABEL {
            return Err(FlowError::LabelTooLong);
        }
        let unfinished = self.flows.values().filter(|flow| !flow.finished).count();
        if unfinished as u64 >= self.peer.flows {
            return Err(FlowError::TooMany { most: self.peer.flows });
        }
        if self.next >= self.flow_credit {
            self.wants_flow = true;
            return Err(FlowError::NotTaken { most: self.peer.flows });
        }
        let flow = self.next;
        self.next += 1;
        control.send(&Message::FlowOpened(FlowOpened {
            flow,
            order: config.order,
            reliability: config.reliability,
            label: config.label.clone(),
        }));
        let opened = SendFlow::new(flow, config, self.peer.units, self.peer.bytes);
        self.flows.insert(flow, opened);
        Ok(flow)
    }

    pub(super) fn send(
        &mut self,
        now: Time,
        flow: u64,
        unit: Outgoing,
        config: &Configuration,
    ) -> Result<u64, SendError> {
        let flow = self.flows.get_mut(&flow).ok_or(SendError::NoFlow)?;
        flow.push(now, unit, &self.peer, config)
    }

    pub(super) fn longest_unit(&self, config: &Configuration) -> u64 {
        longest_unit(&self.peer, config)
    }

    pub(super) fn finish(&mut self, flow: u64) {
        if let Some(flow) = self.flows.get_mut(&flow) {
            flow.finished = true;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
            && self.datagrams.is_empty()
            && self.flows.values().all(|flow| flow.is_idle() && flow.finished == flow.finish_sent)
    }

    pub(super) fn next_deadline(&self) -> Time {
        let deadlines = self.flows.values().filter_map(SendFlow::next_deadline);
        deadlines.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn statistics(&mut self, now: Time, flow: u64) -> Option<SendStatistics> {
        self.flows.get_mut(&flow).map(|flow| flow.statistics(now))
    }

    /// An open flow; `None` if it has ended.
    fn flow(&mut self, flow: u64) -> Result<Option<&mut SendFlow>, Violation> {
        if flow >= self.next {
            return Err(Violation::Absurd);
        }
        Ok(self.flows.get_mut(&flow))
    }

    pub(super) fn on_credit(&mut self, flow: u64, units: u64, bytes: u64) -> Result<(), Violation> {
        if let Some(flow) = self.flow(flow)? {
            flow.on_credit(units, bytes);
        }
        Ok(())
    }

    pub(super) fn on_report(&mut self, flow: u64, report: ReceiverReport) -> Result<(), Violation> {
        if let Some(flow) = self.flow(flow)? {
            flow.statistics.report = report;
        }
        Ok(())
    }

    pub(super) fn on_settled(&mut self, flow: u64, arrived: &[u64]) -> Result<Vec<u64>, Violation> {
        self.flow(flow)?.ok_or(Violation::Unasked)?.on_settled(arrived)
    }

    /// All of a stream was acknowledged: these units of this flow.
    pub(super) fn on_finished(&mut self, stream: StreamId) -> Option<(u64, Vec<u64>)> {
        let (number, units) = self.streams.remove(&stream)?;
        if let Some(flow) = self.flows.get_mut(&number) {
            units.iter().for_each(|id| flow.on_arrived(*id));
        }
        Some((number, units))
    }

    /// Drops units past their deadline, and reports them to the peer.
    fn drop_late(&mut self, now: Time, stack: &mut noq_proto::Connection, control: &mut Control) {
        for flow in self.flows.values_mut() {
            while let Some(given_up) = flow.give_up(now) {
                let stream = match given_up {
                    Some(GivenUp::Stream(stream)) => stream,
                    Some(GivenUp::Carried(id)) => {
                        if let Some(carried) = &mut self.carried {
                            carried.forget(flow.number, id);
                        }
                        continue;
                    }
                    None => continue,
                };
                let Some((_, units)) = self.streams.get(&stream) else { continue };
                // A stream shared with other units continues for them.
                if flow.are_given_up(units) {
                    let _ = stack.send_stream(stream).reset(DROPPED);
                    self.streams.remove(&stream);
                    if flow.writing.as_ref().is_some_and(|(writing, _)| *writing == stream) {
                        flow.writing = None;
                    }
                }
            }
            while let Some(units) = flow.tell_dropped() {
                control.send(&Message::Dropped { flow: flow.number, units });
            }
        }
    }

    /// Signals the end of finished flows, and removes those that are resolved.
    pub(super) fn end_flows(
        &mut self,
        now: Time,
        control: &mut Control,
        events: &mut VecDeque<ConnectionEvent>,
    ) {
        for flow in self.flows.values_mut() {
            let all_sent = flow.config.reliability != Reliability::None || flow.head().is_none();
            if flow.finished && !flow.finish_sent && all_sent {
                let units = flow.next_id();
                control.send(&Message::FlowFinished { flow: flow.number, units });
                flow.finish_sent = true;
            }
        }
        self.flows.retain(|number, flow| {
            let is_over = flow.is_over();
            if is_over {
                events.push_back(ConnectionEvent::FlowSettled(
                    FlowId::outgoing(*number),
                    flow.statistics(now),
                ));
            }
            !is_over
        });
    }

    /// The next flow to send: the one whose next unit has the highest priority, in turn among
    /// equals.
    fn choose(&self, refused: &[u64], is_carried: bool) -> Option<u64> {
        let key = |flow: &SendFlow| {
            if refused.contains(&flow.number) || self.is_carried(flow) != is_carried {
                return None;
            }
            if flow.writing.is_some() {
                return Some(u16::MAX);
            }
            let (_, priority) = flow.head()?;
            let free = flow.config.reliability == Reliability::None || flow.has_credit();
            free.then_some(priority.into())
        };
        let turn = |flow: &SendFlow| flow.number.wrapping_sub(self.turn);
        self.flows
            .values()
            .filter_map(|flow| Some((key(flow)?, std::cmp::Reverse(turn(flow)), flow.number)))
            .max()
            .map(|(.., number)| number)
    }

    /// Whether the next unit of a flow goes in datagrams that we repair.
    fn is_carried(&self, flow: &SendFlow) -> bool {
        self.carried.is_some()
            && flow.config.reliability == Reliability::Deadline
            && flow.writing.is_none()
            && flow.head_deadline().is_some()
    }

    /// Hands pieces to the stack until it has `most` in its queue: what is repaired first, then the unit
    /// that is begun, then the next one.
    fn hand_over(&mut self, now: Time, most: usize, stack: &mut noq_proto::Connection) {
        loop {
            let Some(carried) = &mut self.carried else { return };
            if carried.queued() >= most {
                return;
            }
            if !carried.has_piece() && !self.begin_carried(stack) {
                return;
            }
            let Some(carried) = &mut self.carried else { return };
            match carried.hand_over(now, stack) {
                Handed::Piece => {}
                Handed::TooLarge(flow, id) => {
                    carried.forget(flow, id);
                    if let Some(flow) = self.flows.get_mut(&flow) {
                        flow.give_up_carried(id);
                    }
                }
                Handed::Nothing => return,
            }
        }
    }

    /// Begins the next unit of a flow that is carried; false if there is none.
    fn begin_carried(&mut self, stack: &mut noq_proto::Connection) -> bool {
        let Some(most) = stack.datagrams().max_size() else { return false };
        let Some(number) = self.choose(&[], true) else { return false };
        self.turn = number + 1;
        let Some(flow) = self.flows.get_mut(&number) else { return false };
        let deadline = flow.head_deadline().unwrap_or(Time::NEVER);
        let Some((header, data)) = flow.pop(Way::Carried) else { return false };
        if let Some(carried) = &mut self.carried {
            carried.begin(header, data, deadline, most);
        }
        true
    }

    fn write_all(&mut self, stack: &mut noq_proto::Connection, config: &Configuration) -> bool {
        let mut wrote = self.write_fragments(stack) == Progress::Wrote;
        let mut refused = Vec::new();
        while let Some(number) = self.choose(&refused, false) {
            let Some(flow) = self.flows.get(&number) else { break };
            let progress = if flow.config.reliability == Reliability::None {
                self.write_datagrams(number, stack)
            } else {
                self.write_stream(number, stack, config)
            };
            match progress {
                Progress::Wrote => {
                    wrote = true;
                    self.turn = number + 1;
                }
                // That streams are blocked does not mean that datagrams are, nor the reverse.
                Progress::Blocked => refused.push(number),
            }
        }
        wrote
    }

    /// Continues the stream being written, or begins one with the next units.
    fn write_stream(
        &mut self,
        number: u64,
        stack: &mut noq_proto::Connection,
        config: &Configuration,
    ) -> Progress {
        let Some(flow) = self.flows.get_mut(&number) else { return Progress::Blocked };
        let mut begun = false;
        if flow.writing.is_none() {
            let Some(stream) = stack.streams().open(Dir::Uni) else { return Progress::Blocked };
            let priority = flow.head().map_or(0, |(_, priority)| priority);
            let _ = stack.send_stream(stream).set_priority(priority.into());
            let (units, chunks) = batch(flow, stream, config.batch);
            self.streams.insert(stream, (number, units));
            flow.writing = Some((stream, chunks));
            begun = true;
        }
        let Some((stream, chunks)) = &mut flow.writing else { return Progress::Blocked };
        let mut send = stack.send_stream(*stream);
        while !chunks.is_empty() {
            let mut left: &mut [Bytes] = chunks.make_contiguous();
            let whole = left.len();
            match send.write_chunks(&mut left) {
                Ok(_) => {
                    let taken = whole - left.len();
                    chunks.drain(..taken);
                }
                Err(WriteError::Blocked) => {
                    return if begun { Progress::Wrote } else { Progress::Blocked };
                }
                // It was reset: the units are dropped already.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => break,
            }
        }
        let _ = send.finish();
        flow.writing = None;
        Progress::Wrote
    }

    /// Passes fragments of the next unit to the stack, as many as it accepts.
    fn write_datagrams(&mut self, number: u64, stack: &mut noq_proto::Connection) -> Progress {
        if self.datagrams.is_empty() {
            let Some(most) = stack.datagrams().max_size() else { return Progress::Blocked };
            let Some(flow) = self.flows.get_mut(&number) else { return Progress::Blocked };
            let Some((header, data)) = flow.pop(Way::Unrepaired) else { return Progress::Blocked };
            self.datagrams = fragments(header, &data, most);
        }
        self.write_fragments(stack)
    }

    fn write_fragments(&mut self, stack: &mut noq_proto::Connection) -> Progress {
        if self.datagrams.is_empty() {
            return Progress::Blocked;
        }
        while let Some(datagram) = self.datagrams.pop_front() {
            let size = datagram.len() as u64;
            match stack.datagrams().send(datagram, false) {
                Ok(()) => {
                    if let Some(carried) = &mut self.carried {
                        carried.on_other(size);
                    }
                }
                Err(SendDatagramError::Blocked(datagram)) => {
                    self.datagrams.push_front(datagram);
                    return Progress::Blocked;
                }
                // The path MTU has shrunk since the unit was fragmented: the unit is lost.
                Err(_) => self.datagrams.clear(),
            }
        }
        Progress::Wrote
    }

    /// Limits the bytes buffered in the stack.
    fn set_window(&mut self, stack: &mut noq_proto::Connection, window: Size, most: Size) {
        let window = window.get().saturating_add(WRITTEN_AHEAD).min(most.get().max(WRITTEN_AHEAD));
        if window != self.window {
            self.window = window;
            stack.set_send_window(window);
        }
    }
}

/// Takes the next units, as many as share a stream.
fn batch(flow: &mut SendFlow, stream: StreamId, most: Size) -> (Vec<u64>, VecDeque<Bytes>) {
    let mut units = Vec::new();
    let mut chunks = VecDeque::new();
    let mut small = BytesMut::new();
    let mut header_bytes = Vec::new();
    loop {
        let Some((header, data)) = flow.pop(Way::Stream(stream)) else { break };
        units.push(header.id);
        header_bytes.clear();
        header.write(&mut header_bytes);
        small.put_slice(&header_bytes);
        if data.len() as u64 > most.get() {
            chunks.push_back(small.split().freeze());
            chunks.push_back(data);
            break;
        }
        small.put_slice(&data);
        // The next one's header is assumed to be as long as this one's.
        let used = small.len() + header_bytes.len();
        let fits = |size: u64| used as u64 + size <= most.get();
        if units.len() >= MAX_IN_BATCH || !flow.has_credit() || !flow.head_size().is_some_and(fits)
        {
            break;
        }
    }
    if !small.is_empty() {
        chunks.push_back(small.freeze());
    }
    (units, chunks)
}

/// Fragments a unit into datagrams of at most `most` bytes.
fn fragments(header: UnitHeader, data: &Bytes, most: usize) -> VecDeque<Bytes> {
    let (flow, id, length) = (header.flow, header.id, header.length);
    let mut datagrams = VecDeque::new();
    let mut offset = 0;
    let mut front = Vec::with_capacity(MAX_UNIT_HEADER);
    let mut next = FragmentHeader::First(header);
    loop {
        front.clear();
        next.write(&mut front);
        let room = most.saturating_sub(front.len()).max(1);
        let end = data.len().min(offset + room);
        let mut datagram = BytesMut::with_capacity(front.len() + end - offset);
        datagram.put_slice(&front);
        datagram.put_slice(&data[offset..end]);
        datagrams.push_back(datagram.freeze());
        offset = end;
        if offset >= data.len() {
            return datagrams;
        }
        next = FragmentHeader::Later { flow, id, length, offset: offset as u64 };
    }
}

impl Connection {
    /// Hands pieces of units to the stack, for `most` packets.
    pub(super) fn hand_over(&mut self, now: Time, most: usize) {
        if self.control.is_idle() {
            self.sending.hand_over(now, most, &mut self.stack);
        }
    }

    /// Packets were made, with so many bytes of datagrams in them.
    pub(super) fn on_datagrams_left(&mut self, now: Time, bytes: u64) {
        let account = self.account.read();
        let space = self.stack.datagrams().send_buffer_space() as u64;
        if let Some(carried) = &mut self.sending.carried {
            carried.on_transmit(now, bytes, &account);
            carried.reconcile((DATAGRAM_BUFFER as u64).saturating_sub(space));
        }
    }

    /// Learns which pieces have arrived, and which are to be sent again.
    pub(super) fn learn_of_pieces(&mut self, now: Time) {
        let account = self.account.read();
        let Some(carried) = &mut self.sending.carried else { return };
        for (number, unit) in carried.learn(now, &account) {
            if let Some(flow) = self.sending.flows.get_mut(&number) {
                flow.on_arrived(unit);
            }
            self.trace.unit(now, "arrived", FlowId::outgoing(number), unit, &[]);
        }
    }

    /// When pieces may be to be sent again.
    pub(super) fn next_repair(&self) -> Time {
        self.sending.carried.as_ref().map_or(Time::NEVER, Carried::next_timeout)
    }

    /// Drops late units and writes what the stack accepts.
    pub(super) fn write_units(&mut self, now: Time) {
        let sending = &mut self.sending;
        let written = self.control.is_idle();
        sending.drop_late(now, &mut self.stack, &mut self.control);
        sending.set_window(&mut self.stack, self.account.read().window, self.config.send_bytes);
        if written {
            self.urgent |= sending.write_all(&mut self.stack, &self.config);
        }
        for flow in sending.flows.values_mut() {
            flow.count_blocked(now);
            if flow.has_room_again(&sending.peer, &self.config) {
                self.events.push_back(ConnectionEvent::Writable(FlowId::outgoing(flow.number)));
            }
        }
        sending.end_flows(now, &mut self.control, &mut self.events);
    }
}
