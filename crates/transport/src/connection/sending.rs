//! All sending flows, and how their units are written to streams and datagrams.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};
use noq_proto::{Dir, SendDatagramError, StreamId, VarInt, WriteError};
use ontempo_foundation::{Bytes as Size, Rate, Time};

use super::bearing::Bearing;
use super::control::Control;
use super::repairs::Unacknowledged;
use super::send_flow::{GivenUp, SendError, SendFlow, Writing, longest_unit};
use super::statistics::SendStatistics;
use super::{Connection, ConnectionEvent, FlowError, Flows, Violation};
use crate::config::Configuration;
use crate::flow::{FlowConfig, FlowId, Outgoing, Reliability};
use crate::quic::Account;
use crate::wire::{
    DatagramHeader, FlowOpened, Limits, MAX_LABEL, MAX_UNIT_HEADER, Message, ReceiverReport,
    UnitHeader,
};

/// Error code of RESET_STREAM: the units on the stream were dropped.
const DROPPED: VarInt = VarInt::from_u32(1);

/// Maximum units in one stream.
const MAX_IN_BATCH: usize = 64;

/// Bytes buffered in the QUIC stack beyond cwnd; they can no longer be reprioritised, nor
/// dropped silently.
const WRITTEN_AHEAD: u64 = 16 << 10;

/// Streams of a flow written at a time: a large unit does not delay one of a higher priority.
const MAX_WRITING: usize = 4;

/// Of what the path bears, the part that flows may need where something may be sent twice.
const ROOMY: f64 = 0.7;

/// All sending flows.
#[derive(Debug)]
pub(super) struct Sending {
    flows: Flows<SendFlow>,
    /// Of those that were open when the connection ended.
    last: BTreeMap<u64, SendStatistics>,
    next: u64,
    /// Flows with a number below this may be opened.
    flow_credit: u64,
    /// A flow could not be opened for lack of credit.
    wants_flow: bool,
    pub(super) unacknowledged: Unacknowledged,
    /// The peer's receive limits.
    pub(super) peer: Limits,
    /// The flow whose turn it is among equal priorities.
    turn: u64,
    /// The cwnd that the stack was last given.
    window: u64,
    /// Bytes written to streams.
    pub(super) written: u64,
    /// Fragments of the current unit that the stack has not accepted.
    datagrams: VecDeque<Bytes>,
    /// What the path bears.
    bearing: Bearing,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            flows: Flows::new(),
            last: BTreeMap::new(),
            next: 0,
            flow_credit: 0,
            wants_flow: false,
            unacknowledged: Unacknowledged::default(),
            peer: Limits { flows: 0, units: 0, bytes: 0, unit_bytes: 0 },
            turn: 0,
            window: 0,
            written: 0,
            datagrams: VecDeque::new(),
            bearing: Bearing::default(),
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

    /// The rate that an encoder may have.
    pub(super) fn target(&self) -> Option<Rate> {
        self.bearing.target()
    }

    /// Measures what the path bears, and drops the frames that it does not bear.
    fn plan(&mut self, now: Time, account: &Account) {
        let is_filled = self.flows.values().any(SendFlow::is_filled);
        self.bearing.update(now, account, is_filled);
        let Some(path) = self.bearing.path() else {
            self.flows.values_mut().for_each(SendFlow::on_wide_path);
            return;
        };
        let buffered = account.window.get().saturating_add(WRITTEN_AHEAD);
        self.flows.values_mut().for_each(|flow| flow.plan(now, &path, buffered));
    }

    /// True if the path bears so much more than is asked of it that something may be sent twice.
    pub(super) fn has_room(&self, now: Time) -> bool {
        if self.waits() {
            return false;
        }
        let Some(path) = self.bearing.path() else { return true };
        let needs = self.flows.values().map(|flow| flow.need(now).map(Rate::as_bits_per_sec));
        let need = needs.sum::<Option<u64>>();
        need.is_some_and(|need| need as f64 <= ROOMY * path.bears.as_bits_per_sec() as f64)
    }

    /// True if more waits than the stack has accepted.
    pub(super) fn waits(&self) -> bool {
        !self.datagrams.is_empty() || self.flows.values().any(SendFlow::is_filled)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.unacknowledged.streams.is_empty()
            && self.datagrams.is_empty()
            && self.flows.values().all(|flow| flow.is_idle() && flow.finished == flow.finish_sent)
    }

    pub(super) fn next_deadline(&self) -> Time {
        let deadlines = self.flows.values().filter_map(SendFlow::next_deadline);
        deadlines.min().unwrap_or(Time::NEVER)
    }

    pub(super) fn statistics(&mut self, now: Time, flow: u64) -> Option<SendStatistics> {
        let open = self.flows.get_mut(&flow).map(|flow| flow.statistics(now));
        open.or_else(|| self.last.get(&flow).copied())
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

    /// All of a stream was acknowledged.
    pub(super) fn on_finished(&mut self, stream: StreamId) {
        let Some(on) = self.unacknowledged.streams.remove(&stream) else { return };
        if let Some(flow) = self.flows.get_mut(&on.flow) {
            on.units.iter().for_each(|id| flow.on_arrived(*id));
        }
    }

    /// Drops units past their deadline.
    fn drop_late(&mut self, now: Time, stack: &mut noq_proto::Connection) {
        for flow in self.flows.values_mut() {
            while let Some(given_up) = flow.give_up(now) {
                let Some(GivenUp { stream }) = given_up else { continue };
                let Some(on) = self.unacknowledged.streams.get(&stream) else { continue };
                // A stream shared with other units continues for them.
                if flow.are_given_up(&on.units) {
                    let _ = stack.send_stream(stream).reset(DROPPED);
                    self.unacknowledged.streams.remove(&stream);
                    flow.writing.retain(|writing| writing.stream != stream);
                }
            }
        }
    }

    /// Reports dropped units to the peer.
    fn tell_dropped(&mut self, control: &mut Control) {
        for flow in self.flows.values_mut() {
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
    fn choose(&self, refused: &[u64]) -> Option<u64> {
        let key = |flow: &SendFlow| {
            if refused.contains(&flow.number) {
                return None;
            }
            if !flow.writing.is_empty() {
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

    fn write_all(
        &mut self,
        now: Time,
        stack: &mut noq_proto::Connection,
        config: &Configuration,
    ) -> bool {
        let mut wrote = self.write_fragments(stack) == Progress::Wrote;
        let mut refused = Vec::new();
        while let Some(number) = self.choose(&refused) {
            let Some(flow) = self.flows.get(&number) else { break };
            let progress = if flow.config.reliability == Reliability::None {
                self.write_datagrams(number, stack)
            } else {
                self.write_stream(now, number, stack, config)
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
        now: Time,
        number: u64,
        stack: &mut noq_proto::Connection,
        config: &Configuration,
    ) -> Progress {
        let Some(flow) = self.flows.get_mut(&number) else { return Progress::Blocked };
        let mut begun = false;
        let head = flow.head().filter(|_| flow.has_credit()).map(|(_, priority)| priority);
        let overtakes = head.zip(flow.writing.last()).is_some_and(|(priority, writing)| {
            priority > writing.priority && flow.writing.len() < MAX_WRITING
        });
        if (flow.writing.is_empty() || overtakes)
            && let Some(stream) = stack.streams().open(Dir::Uni)
        {
            let priority = head.unwrap_or(0);
            let has_deadlines = flow.config.reliability == Reliability::Deadline;
            let rank = rank(priority, has_deadlines.then_some(stream));
            let _ = stack.send_stream(stream).set_priority(rank);
            let (units, chunks) = batch(flow, (stream, priority), config.batch);
            let data = if has_deadlines { chunks.iter().cloned().collect() } else { Vec::new() };
            self.unacknowledged.begin(now, stream, (number, units), data);
            flow.writing.push(Writing { stream, chunks, priority });
            begun = true;
        }
        let Some(Writing { stream, chunks, .. }) = flow.writing.last_mut() else {
            return Progress::Blocked;
        };
        let mut send = stack.send_stream(*stream);
        while !chunks.is_empty() {
            let mut left: &mut [Bytes] = chunks.make_contiguous();
            let whole = left.len();
            match send.write_chunks(&mut left) {
                Ok(written) => {
                    self.written += written as u64;
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
        flow.writing.pop();
        Progress::Wrote
    }

    /// Passes fragments of the next unit to the stack, as many as it accepts.
    fn write_datagrams(&mut self, number: u64, stack: &mut noq_proto::Connection) -> Progress {
        if self.datagrams.is_empty() {
            let Some(most) = stack.datagrams().max_size() else { return Progress::Blocked };
            let Some(flow) = self.flows.get_mut(&number) else { return Progress::Blocked };
            let Some((header, data)) = flow.pop(None) else { return Progress::Blocked };
            self.datagrams = fragments(header, &data, most);
        }
        self.write_fragments(stack)
    }

    fn write_fragments(&mut self, stack: &mut noq_proto::Connection) -> Progress {
        if self.datagrams.is_empty() {
            return Progress::Blocked;
        }
        while let Some(datagram) = self.datagrams.pop_front() {
            match stack.datagrams().send(datagram, false) {
                Ok(()) => {}
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

/// Streams that are ordered among equal priorities. One in so many is sent before those that were opened just
/// before it.
const RANKED: u64 = 1 << 22;

/// The priority of a stream in the stack, which sends packets of equal ones in turn. In turn, units with
/// deadlines would all come late where one after the other some are on time: the stream that was opened
/// first goes first.
fn rank(priority: u8, stream: Option<StreamId>) -> i32 {
    let among_equals = stream.map_or(0, |stream| RANKED - 1 - stream.index() % RANKED);
    i32::from(priority) * RANKED as i32 + among_equals as i32
}

/// Takes the next units, as many as share a stream of this priority: none of a higher one.
fn batch(
    flow: &mut SendFlow,
    (stream, priority): (StreamId, u8),
    most: Size,
) -> (Vec<u64>, VecDeque<Bytes>) {
    let mut units = Vec::new();
    let mut chunks = VecDeque::new();
    let mut small = BytesMut::new();
    let mut header_bytes = Vec::new();
    loop {
        let Some((header, data)) = flow.pop(Some(stream)) else { break };
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
        // The rest of a begun frame goes before a frame of a higher priority, which does not wait with it.
        let is_higher = flow.head().is_some_and(|(_, next)| next > priority);
        if is_higher
            || units.len() >= MAX_IN_BATCH
            || !flow.has_credit()
            || !flow.head_size().is_some_and(fits)
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
    let mut next = DatagramHeader::First(header);
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
        next = DatagramHeader::Later { flow, id, length, offset: offset as u64 };
    }
}

impl Connection {
    /// Drops late units and writes what the stack accepts.
    pub(super) fn write_units(&mut self, now: Time) {
        let (most, must_wait) = (self.max_written(), self.must_wait_for_welcome());
        let sending = &mut self.sending;
        let may_write = self.control.is_idle() && !must_wait;
        sending.drop_late(now, &mut self.stack);
        let account = self.account.read();
        sending.plan(now, &account);
        sending.tell_dropped(&mut self.control);
        sending.set_window(&mut self.stack, account.window, most);
        if may_write {
            self.urgent |= sending.write_all(now, &mut self.stack, &self.config);
        }
        for flow in sending.flows.values_mut() {
            flow.count_blocked(now);
            if flow.has_room_again(&sending.peer, &self.config) {
                self.events.push_back(ConnectionEvent::Writable(FlowId::outgoing(flow.number)));
            }
        }
        self.trace_fates(now);
        self.sending.end_flows(now, &mut self.control, &mut self.events);
    }

    /// Writes to the trace what has become of units.
    pub(super) fn trace_fates(&mut self, now: Time) {
        for (number, flow) in &mut self.sending.flows {
            for (unit, fate) in flow.fates() {
                self.trace.unit(now, fate.name(), FlowId::outgoing(*number), unit, &[]);
            }
        }
    }

    /// Forgets all units: the connection has ended. Of flows their statistics are kept.
    pub(super) fn end_sending(&mut self, now: Time) {
        let mut last = std::mem::take(&mut self.sending.last);
        let flows = self.sending.flows.iter_mut();
        last.extend(flows.map(|(number, flow)| (*number, flow.statistics(now))));
        self.sending.flows.values_mut().for_each(SendFlow::end);
        self.trace_fates(now);
        self.sending = Sending { last, ..Sending::default() };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(index: u64) -> StreamId {
        StreamId::new(noq_proto::Side::Client, Dir::Uni, index)
    }

    #[test]
    fn a_unit_shares_no_stream_of_a_lower_priority() {
        let config = Configuration::default();
        let peer = config.limits;
        let of_flow = FlowConfig { reliability: Reliability::Deadline, ..FlowConfig::default() };
        let mut flow = SendFlow::new(0, of_flow, peer.units, peer.bytes);
        let push = |flow: &mut SendFlow, priority, continues| {
            let unit = Outgoing {
                data: vec![7; 200].into(),
                priority,
                continues,
                deadline: Some(Time::NEVER),
                ..Outgoing::default()
            };
            flow.push(Time::ZERO, unit, &peer, &config).expect("room")
        };
        let disposable = push(&mut flow, 3, None);
        let (units, _) = batch(&mut flow, (stream(0), 3), config.batch);
        assert_eq!(units, [disposable]);
        // The rest of what has begun goes first, and what depends on none of it goes on its own.
        let rest = push(&mut flow, 3, Some(disposable));
        let picture = push(&mut flow, 4, None);
        let less = push(&mut flow, 3, None);
        assert_eq!(batch(&mut flow, (stream(1), 3), config.batch).0, [rest]);
        assert_eq!(batch(&mut flow, (stream(2), 4), config.batch).0, [picture, less]);
    }

    proptest! {
        /// Priority first; then the one opened first, and those without deadlines last.
        #[test]
        fn streams_go_by_priority_and_then_in_the_order_of_opening(
            priority in 0u8.., other in 0u8.., first in 0u64..(1 << 40), later in 1..RANKED / 2
        ) {
            let (first, later) = (stream(first), stream(first + later));
            let is_wrapped = first.index() / RANKED != later.index() / RANKED;
            prop_assert!(rank(priority, Some(first)) > rank(priority, Some(later)) || is_wrapped);
            prop_assert!(rank(priority, None) <= rank(priority, Some(later)));
            for a in [None, Some(first)] {
                for b in [None, Some(later)] {
                    prop_assert_eq!(priority > other, priority != other && rank(priority, a) > rank(other, b));
                }
            }
        }
    }
}
