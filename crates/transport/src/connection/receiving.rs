//! All receiving flows, and the streams and datagrams that carry their units.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Buf, Bytes};
use noq_proto::{Dir, ReadError, StreamId, VarInt};
use ontempo_foundation::{Duration, Time};

use super::clocks::Clocks;
use super::incoming::{Incoming, Streams};
use super::receive_flow::{Fragments, Partial, ReceiveFlow};
use super::statistics::ReceiveStatistics;
use super::{Connection, ConnectionEvent, Flows, Violation};
use crate::flow::{Delivery, DeliveryOrder, FlowConfig, FlowId, Reliability};
use crate::wire::{
    DatagramHeader, DroppedUnit, FlowOpened, Limits, MAX_UNIT_HEADER, Message, UnitHeader,
    WireError,
};

/// All receiving flows.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    flows: Flows<ReceiveFlow>,
    /// Flows that have ended, and with which the application is not done.
    ended: BTreeSet<u64>,
    next: u64,
    /// Flows with which the application is done, and that have ended.
    closed: u64,
    /// `closed` as the peer knows it.
    credited: u64,
    pub(super) streams: Streams,
    /// The longest lifetime of a unit.
    pub(super) lifetime: Option<Duration>,
    /// Repairs taken.
    pub(super) repaired: u64,
    /// The part of the receive window that data in `streams` uses, as the QUIC stack knows it.
    window_used: u64,
    /// Streams of flows that are not open yet: they may arrive before the control stream.
    parked: BTreeMap<u64, BTreeSet<StreamId>>,
    fragments: Fragments,
    /// Whether the stack has new streams.
    pub(super) accept: bool,
    /// Readable streams.
    pub(super) readable: BTreeSet<StreamId>,
    /// Whether datagrams have arrived.
    pub(super) datagrams: bool,
    /// Flows that had nothing ready when the application last called.
    emptied: BTreeSet<u64>,
}

/// A datagram with a fragment of a unit.
struct Fragment {
    /// Of the unit's first fragment.
    header: Option<UnitHeader>,
    /// Flow, number and length of the unit, and offset.
    numbers: [u64; 4],
    data: Bytes,
}

impl Fragment {
    /// Where it belongs: flow, number of the unit, and offset.
    fn place(&self) -> [u64; 3] {
        let [flow, id, _, offset] = self.numbers;
        [flow, id, offset]
    }
}

impl Receiving {
    /// Flows with a number below this may be opened.
    pub(super) fn flow_credit(&self, limits: &Limits) -> u64 {
        limits.flows.saturating_add(self.credited)
    }

    pub(super) fn open(
        &mut self,
        now: Time,
        opened: FlowOpened,
        limits: Limits,
    ) -> Result<FlowConfig, Violation> {
        if opened.flow != self.next {
            return Err(Violation::Absurd);
        }
        if opened.flow >= self.flow_credit(&limits) {
            return Err(Violation::Credit);
        }
        self.next += 1;
        let FlowOpened { flow, order, reliability, label } = opened;
        let config = FlowConfig { order, reliability, label };
        self.flows.insert(flow, ReceiveFlow::new(now, config.clone(), limits));
        self.emptied.insert(flow);
        Ok(config)
    }

    /// The application is done with a flow.
    pub(super) fn release(&mut self, flow: u64) {
        if self.ended.remove(&flow) {
            self.closed += 1;
        } else if let Some(open) = self.flows.get_mut(&flow) {
            open.discard();
            self.fragments.forget_before(flow, u64::MAX);
        }
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let flows: u64 = self.flows.values().map(ReceiveFlow::memory).sum();
        flows + self.streams.memory + self.fragments.memory()
    }

    /// Streams of flow `number` can be read now.
    pub(super) fn unpark(&mut self, number: u64) {
        if let Some(mut streams) = self.parked.remove(&number) {
            self.readable.append(&mut streams);
        }
    }

    pub(super) fn flow(&mut self, flow: u64) -> Result<&mut ReceiveFlow, Violation> {
        self.flows.get_mut(&flow).ok_or(Violation::OutOfPlace)
    }

    fn on_fragment(
        &mut self,
        now: Time,
        Fragment { header, numbers: [number, id, length, offset], data }: Fragment,
        limits: Limits,
        clocks: &Clocks,
    ) -> Result<(), Violation> {
        if length > limits.unit_bytes {
            return Err(Violation::Absurd);
        }
        // Without an open flow the datagram is discarded: nothing was promised.
        let Some(flow) = self.flows.get_mut(&number) else { return Ok(()) };
        if flow.config.reliability != Reliability::None {
            return Err(Violation::OutOfPlace);
        }
        if !flow.wants(id) {
            flow.on_unwanted(id, offset);
            return Ok(());
        }
        let fragments = &mut self.fragments;
        if let Some(partial) = fragments.on_fragment((number, id), header, (length, offset), data) {
            flow.complete_unrepaired(now, partial, clocks);
            if flow.config.order == DeliveryOrder::InOrder {
                fragments
                    .forget_before(number, id)
                    .into_iter()
                    .for_each(|id| flow.note_dropped(id));
            }
        }
        while let Some((number, id)) = self.fragments.discard_beyond(limits.bytes) {
            if let Some(flow) = self.flows.get_mut(&number) {
                flow.note_dropped(id);
            }
        }
        Ok(())
    }

    pub(super) fn on_dropped(
        &mut self,
        now: Time,
        flow: u64,
        units: &[DroppedUnit],
    ) -> Result<Vec<u64>, Violation> {
        if flow < self.next && !self.flows.contains_key(&flow) {
            // All of it arrived before its sender reset it.
            return Ok(units.iter().map(|unit| unit.id).collect());
        }
        let receiving = self.flow(flow)?;
        if receiving.config.reliability != Reliability::Deadline {
            return Err(Violation::OutOfPlace);
        }
        receiving.on_dropped(now, units)
    }

    pub(super) fn take(&mut self, flow: u64) -> Option<Delivery> {
        let receiving = self.flows.get_mut(&flow)?;
        let delivery = receiving.take();
        if delivery.is_none() {
            self.emptied.insert(flow);
        }
        delivery
    }

    pub(super) fn statistics(&mut self, now: Time, flow: u64) -> Option<ReceiveStatistics> {
        self.flows.get_mut(&flow).map(|flow| flow.statistics(now))
    }

    pub(super) fn next_end(&self) -> Time {
        self.flows.values().filter_map(ReceiveFlow::end).min().unwrap_or(Time::NEVER)
    }

    /// True if the stream's flow is not open yet: it waits.
    fn park(&mut self, flow: u64, stream: StreamId, limits: &Limits) -> Result<bool, Violation> {
        if flow >= self.flow_credit(limits) {
            return Err(Violation::Credit);
        }
        let early = flow >= self.next;
        if early {
            self.parked.entry(flow).or_default().insert(stream);
        }
        Ok(early)
    }
}

/// What a read of the QUIC stack returns.
enum Chunk {
    /// Data at an offset.
    Data(u64, Bytes),
    /// The stream was read to its end.
    End,
    Reset,
}

impl Connection {
    /// Takes what flows have and the application has not received, of a connection that is closed.
    pub(crate) fn take_rest(&mut self) -> Vec<(FlowId, VecDeque<Delivery>)> {
        let flows: Vec<_> = self.receiving.flows.keys().copied().collect();
        let rest = flows.into_iter().map(|number| {
            let flow = FlowId { number, outgoing: false };
            (flow, std::iter::from_fn(|| self.receive(flow)).collect::<VecDeque<_>>())
        });
        rest.filter(|(_, deliveries)| !deliveries.is_empty()).collect()
    }

    /// Reads all available data of units.
    pub(super) fn read_units(&mut self, now: Time) -> Result<(), Violation> {
        if std::mem::take(&mut self.receiving.accept) {
            while let Some(stream) = self.stack.streams().accept(Dir::Uni) {
                self.receiving.readable.insert(stream);
            }
        }
        while let Some(stream) = self.receiving.readable.pop_first() {
            self.read_stream(now, stream)?;
        }
        self.set_receive_window();
        if std::mem::take(&mut self.receiving.datagrams) {
            let mut fragments = Vec::new();
            let read = self.read_datagrams(now, &mut fragments);
            // A packet that was overtaken by one that has come with it is no loss.
            fragments.sort_unstable_by_key(Fragment::place);
            let limits = self.config.limits;
            for fragment in fragments {
                self.receiving.on_fragment(now, fragment, limits, &self.clocks)?;
            }
            read?;
        }
        Ok(())
    }

    /// Reads all datagrams up to the first that violates the protocol; adds what they have of units.
    fn read_datagrams(&mut self, now: Time, to: &mut Vec<Fragment>) -> Result<(), Violation> {
        while let Some(datagram) = self.stack.datagrams().recv() {
            to.extend(self.read_datagram(now, datagram)?);
        }
        Ok(())
    }

    /// Reads a datagram; what it has of a unit is returned.
    fn read_datagram(&mut self, now: Time, datagram: Bytes) -> Result<Option<Fragment>, Violation> {
        let (header, taken) = DatagramHeader::read(&datagram)?;
        let data = datagram.slice(taken..);
        let (header, numbers) = match header {
            DatagramHeader::First(header) => {
                let numbers = [header.flow, header.id, header.length, 0];
                (Some(header), numbers)
            }
            DatagramHeader::Later { flow, id, length, offset } => {
                (None, [flow, id, length, offset])
            }
            DatagramHeader::Request(missing) => {
                self.repair(now, &missing);
                return Ok(None);
            }
            // Of use before the Welcome, which they may come behind.
            DatagramHeader::Limits(_) => return Ok(None),
            DatagramHeader::Repair { stream, offset } => {
                return self.on_repair(now, stream, offset, data).map(|()| None);
            }
        };
        Ok(Some(Fragment { header, numbers, data }))
    }

    fn is_parked(&self, stream: StreamId) -> bool {
        self.receiving.parked.values().any(|streams| streams.contains(&stream))
    }

    fn read_stream(&mut self, now: Time, stream: StreamId) -> Result<(), Violation> {
        let mut incoming = self.receiving.streams.take(stream).unwrap_or_default();
        if !incoming.header.is_empty() && !self.is_parked(stream) {
            let kept = incoming.header.split().freeze();
            self.feed(now, stream, &mut incoming, kept)?;
        }
        while !incoming.is_finished
            && let Some(chunk) = self.next_chunk(stream)
        {
            match chunk {
                Chunk::Data(offset, data) => {
                    incoming.on_data(now);
                    self.take_data(now, stream, &mut incoming, (offset, data))?;
                }
                Chunk::End => incoming.is_finished = true,
                Chunk::Reset => {
                    self.receiving.parked.values_mut().for_each(|streams| {
                        streams.remove(&stream);
                    });
                    if let Some((flow, partial)) = incoming.unit
                        && let Some(flow) = self.receiving.flows.get_mut(&flow)
                    {
                        flow.abandon(&partial);
                    }
                    return Ok(());
                }
            }
        }
        if !incoming.is_finished || self.is_parked(stream) {
            self.receiving.streams.insert(now, stream, incoming);
            return Ok(());
        }
        if incoming.unit.is_some() || !incoming.header.is_empty() {
            return Err(WireError::Short.into());
        }
        Ok(())
    }

    /// Data of a stream, at an offset.
    pub(super) fn take_data(
        &mut self,
        now: Time,
        stream: StreamId,
        incoming: &mut Incoming,
        (offset, data): (u64, Bytes),
    ) -> Result<(), Violation> {
        let mut next = incoming.assembly.insert(offset, data)?;
        while let Some(data) = next {
            if self.is_parked(stream) {
                incoming.header.extend_from_slice(&data);
            } else {
                self.feed(now, stream, incoming, data)?;
            }
            next = incoming.assembly.next();
        }
        Ok(())
    }

    /// The next data of a stream, in any order; `None` if there is none now.
    fn next_chunk(&mut self, stream: StreamId) -> Option<Chunk> {
        let mut receive = self.stack.recv_stream(stream);
        let Ok(mut chunks) = receive.read(false) else { return Some(Chunk::End) };
        let next = match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => Some(Chunk::Data(chunk.offset, chunk.bytes)),
            Ok(None) => Some(Chunk::End),
            Err(ReadError::Blocked) => None,
            Err(ReadError::Reset(_)) => Some(Chunk::Reset),
        };
        let _ = chunks.finalize();
        next
    }

    /// Data that waits for other data uses the receive window, as if it were still in the stack.
    fn set_receive_window(&mut self) {
        let whole = self.config.receive_window();
        let waiting = self.receiving.streams.waiting.min(whole);
        if waiting.abs_diff(self.receiving.window_used) >= (whole / 8).max(1)
            || (waiting == 0 && self.receiving.window_used > 0)
        {
            self.receiving.window_used = waiting;
            let left = VarInt::from_u64((whole - waiting).max(1)).unwrap_or(VarInt::MAX);
            self.stack.set_receive_window(left);
        }
    }

    /// Parses bytes of a stream: headers and data of units.
    fn feed(
        &mut self,
        now: Time,
        stream: StreamId,
        incoming: &mut Incoming,
        mut bytes: Bytes,
    ) -> Result<(), Violation> {
        loop {
            if let Some((number, partial)) = &mut incoming.unit {
                let count = partial.missing().min(bytes.len() as u64) as usize;
                if count > 0 {
                    partial.push(&bytes[..count]);
                    bytes.advance(count);
                }
                if partial.missing() > 0 {
                    return Ok(());
                }
                let number = *number;
                if let Some((_, partial)) = incoming.unit.take() {
                    self.complete(now, number, partial)?;
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if !incoming.header.is_empty() {
                incoming.header.extend_from_slice(&bytes);
                bytes = incoming.header.split().freeze();
            }
            let header = match UnitHeader::read(&bytes) {
                Err(WireError::Short) if bytes.len() < MAX_UNIT_HEADER => {
                    incoming.header.extend_from_slice(&bytes);
                    return Ok(());
                }
                header => header,
            };
            let (header, taken) = header?;
            if self.receiving.park(header.flow, stream, &self.config.limits)? {
                incoming.header.extend_from_slice(&bytes);
                return Ok(());
            }
            bytes.advance(taken);
            let flow = header.flow;
            // The rest of a flow that has ended was dropped.
            let partial = match self.receiving.flows.get_mut(&flow) {
                Some(flow) => {
                    self.receiving.lifetime = self.receiving.lifetime.max(header.lifetime);
                    flow.begin(header)?
                }
                None => Partial::discarded(header),
            };
            incoming.unit = Some((flow, partial));
        }
    }

    fn complete(&mut self, now: Time, number: u64, partial: Partial) -> Result<(), Violation> {
        match self.receiving.flows.get_mut(&number) {
            Some(flow) => flow.complete(now, partial, &self.clocks),
            None => Ok(()),
        }
    }

    /// Sends events to the application and reports to the peer.
    pub(super) fn report_receiving(&mut self, now: Time) {
        let receiving = &mut self.receiving;
        let asking = now >= self.control.next_question(self.config.clock_interval);
        for (number, flow) in &mut receiving.flows {
            let id = FlowId::incoming(*number);
            if flow.is_ready() && receiving.emptied.remove(number) {
                self.events.push_back(ConnectionEvent::Readable(id));
            }
            if let Some((units, bytes)) = flow.more_credit() {
                self.control.send(&Message::Credit { flow: *number, units, bytes });
            }
            // As often as the clocks are compared.
            if asking && let Some(report) = flow.report() {
                self.control.send(&Message::ReceiverReport { flow: *number, report });
            }
            if !flow.end_reported && flow.is_over(now) {
                flow.end_reported = true;
                let incomplete = receiving.fragments.forget_before(*number, u64::MAX);
                incomplete.into_iter().for_each(|id| flow.note_dropped(id));
                if let Some(report) = flow.report() {
                    self.control.send(&Message::ReceiverReport { flow: *number, report });
                }
                self.events.push_back(ConnectionEvent::FlowEnded(id, flow.statistics(now)));
                if flow.is_released() {
                    receiving.closed += 1;
                } else {
                    receiving.ended.insert(*number);
                }
            }
        }
        receiving.flows.retain(|_, flow| !flow.end_reported);
        if receiving.credited < receiving.closed {
            receiving.credited = receiving.closed;
            let flows = receiving.flow_credit(&self.config.limits);
            self.control.send(&Message::FlowCredit { flows });
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::Duration;

    use super::*;
    use crate::wire::Sent;

    const LIMITS: Limits = Limits { flows: 1, units: 64, bytes: 10_000, unit_bytes: 1_000 };

    fn opened(order: DeliveryOrder) -> Receiving {
        let mut receiving = Receiving::default();
        let (reliability, label) = (Reliability::None, String::new());
        let opened = FlowOpened { flow: 0, order, reliability, label };
        receiving.open(Time::ZERO, opened, LIMITS).expect("the first flow");
        receiving
    }

    /// One half of a unit of 20 bytes arrives, or both.
    fn arrive(receiving: &mut Receiving, id: u64, halves: &[u64]) {
        for half in halves {
            let header = (*half == 0).then(|| UnitHeader {
                flow: 0,
                id,
                length: 20,
                sent: Sent::At(Time::ZERO),
                lifetime: None,
                priority: 0,
                continues: None,
                depends_on: Vec::new(),
            });
            let data = Bytes::from_static(&[7; 10]);
            let fragment = Fragment { header, numbers: [0, id, 20, 10 * half], data };
            let clocks = Clocks::default();
            let arrived = receiving.on_fragment(Time::ZERO, fragment, LIMITS, &clocks);
            arrived.expect("well-formed");
        }
    }

    /// Units, dropped ones, unwanted ones.
    fn counts(receiving: &mut Receiving) -> (u64, u64, u64) {
        let all = receiving.statistics(Time::ZERO + Duration::from_secs(1), 0).expect("open");
        (all.units, all.dropped, all.unwanted)
    }

    #[test]
    fn units_that_come_too_late_or_in_part_count_as_dropped_once() {
        let mut receiving = opened(DeliveryOrder::InOrder);
        arrive(&mut receiving, 1, &[0, 1]);
        arrive(&mut receiving, 0, &[0, 1]);
        assert_eq!(counts(&mut receiving), (1, 1, 0), "overtaken");
        arrive(&mut receiving, 2, &[0]);
        arrive(&mut receiving, 3, &[0, 1]);
        assert_eq!(counts(&mut receiving), (2, 2, 0), "incomplete");
        arrive(&mut receiving, 2, &[1]);
        assert_eq!(counts(&mut receiving), (2, 2, 0), "its rest is late, too");
    }

    #[test]
    fn a_unit_that_comes_twice_is_unwanted() {
        let mut receiving = opened(DeliveryOrder::OutOfOrder);
        arrive(&mut receiving, 1, &[0, 1, 0, 1]);
        arrive(&mut receiving, 0, &[0, 1]);
        assert_eq!(counts(&mut receiving), (2, 0, 1));
    }

    #[test]
    fn incomplete_units_for_which_there_is_no_room_count_as_dropped() {
        let mut receiving = opened(DeliveryOrder::OutOfOrder);
        let most = LIMITS.bytes / (super::super::receive_flow::FRAGMENT_COST + 10);
        for id in 0..most + 3 {
            arrive(&mut receiving, id, &[0]);
        }
        assert_eq!(counts(&mut receiving), (0, 3, 0));
    }
}
