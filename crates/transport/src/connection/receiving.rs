//! All receiving flows, and the streams and datagrams that carry their units.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes, BytesMut};
use noq_proto::{Dir, ReadError, StreamId};
use ontempo_foundation::Time;

use super::receive_flow::{Fragments, Partial, ReceiveFlow};
use super::statistics::ReceiveStatistics;
use super::{Connection, ConnectionEvent, Flows, Violation};
use crate::flow::{Delivery, FlowConfig, FlowId, Reliability};
use crate::wire::{
    DroppedUnit, FlowOpened, FragmentHeader, Limits, MAX_UNIT_HEADER, Message, UnitHeader,
    WireError,
};

/// A stream with units.
#[derive(Debug, Default)]
struct Incoming {
    /// The beginning of a header; on a parked stream, also the data received with it.
    header: BytesMut,
    unit: Option<(u64, Partial)>,
}

/// All receiving flows.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    flows: Flows<ReceiveFlow>,
    next: u64,
    streams: BTreeMap<StreamId, Incoming>,
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

impl Receiving {
    pub(super) fn open(
        &mut self,
        now: Time,
        opened: FlowOpened,
        limits: Limits,
    ) -> Result<FlowConfig, Violation> {
        if opened.flow != self.next || self.flows.len() as u64 >= limits.flows {
            return Err(Violation::Absurd);
        }
        self.next += 1;
        let FlowOpened { flow, order, reliability, label } = opened;
        let config = FlowConfig { order, reliability, label };
        self.flows.insert(flow, ReceiveFlow::new(now, config.clone(), limits));
        self.emptied.insert(flow);
        Ok(config)
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

    /// Bytes of partial and complete units.
    #[cfg(test)]
    pub(super) fn held(&mut self, now: Time) -> u64 {
        let flows: u64 = self.flows.values_mut().map(|flow| flow.statistics(now).held_bytes).sum();
        let beginnings: usize = self.streams.values().map(|stream| stream.header.len()).sum();
        flows + beginnings as u64 + self.fragments.bytes()
    }

    pub(super) fn next_end(&self) -> Time {
        self.flows.values().filter_map(ReceiveFlow::end).min().unwrap_or(Time::NEVER)
    }

    /// True if the stream's flow is not open yet: it waits.
    fn park(&mut self, flow: u64, stream: StreamId, limits: &Limits) -> Result<bool, Violation> {
        if flow >= self.next.saturating_add(limits.flows) {
            return Err(Violation::Absurd);
        }
        let early = flow >= self.next;
        if early {
            self.parked.entry(flow).or_default().insert(stream);
        }
        Ok(early)
    }
}

/// Result of reading a stream.
#[derive(PartialEq, Eq)]
enum Read {
    Taken,
    Parked,
}

impl Connection {
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
        if std::mem::take(&mut self.receiving.datagrams) {
            while let Some(datagram) = self.stack.datagrams().recv() {
                self.read_datagram(now, datagram)?;
            }
        }
        Ok(())
    }

    fn read_stream(&mut self, now: Time, stream: StreamId) -> Result<(), Violation> {
        if self.receiving.parked.values().any(|streams| streams.contains(&stream)) {
            return Ok(());
        }
        let mut incoming = self.receiving.streams.remove(&stream).unwrap_or_default();
        let kept = incoming.header.split().freeze();
        if !kept.is_empty() && self.feed(now, stream, &mut incoming, kept)? == Read::Parked {
            self.receiving.streams.insert(stream, incoming);
            return Ok(());
        }
        loop {
            match self.next_chunk(stream) {
                Ok(Some(chunk)) => {
                    if self.feed(now, stream, &mut incoming, chunk)? == Read::Parked {
                        self.receiving.streams.insert(stream, incoming);
                        return Ok(());
                    }
                }
                Ok(None) if incoming.unit.is_some() || !incoming.header.is_empty() => {
                    return Err(WireError::Short.into());
                }
                Ok(None) => return Ok(()),
                Err(ReadError::Blocked) => {
                    self.receiving.streams.insert(stream, incoming);
                    return Ok(());
                }
                Err(ReadError::Reset(_)) => {
                    if let Some((flow, partial)) = incoming.unit
                        && let Some(flow) = self.receiving.flows.get_mut(&flow)
                    {
                        flow.abandon(&partial);
                    }
                    return Ok(());
                }
            }
        }
    }

    fn next_chunk(&mut self, stream: StreamId) -> Result<Option<Bytes>, ReadError> {
        let mut receive = self.stack.recv_stream(stream);
        let Ok(mut chunks) = receive.read(true) else { return Ok(None) };
        let next = chunks.next(usize::MAX).map(|chunk| chunk.map(|chunk| chunk.bytes));
        let _ = chunks.finalize();
        next
    }

    /// Parses bytes of a stream: headers and data of units.
    fn feed(
        &mut self,
        now: Time,
        stream: StreamId,
        incoming: &mut Incoming,
        mut bytes: Bytes,
    ) -> Result<Read, Violation> {
        loop {
            if let Some((number, partial)) = &mut incoming.unit {
                let count = partial.missing().min(bytes.len() as u64) as usize;
                if count > 0 {
                    partial.push(&bytes[..count]);
                    bytes.advance(count);
                }
                if partial.missing() > 0 {
                    return Ok(Read::Taken);
                }
                let number = *number;
                if let Some((_, partial)) = incoming.unit.take() {
                    self.complete(now, number, partial)?;
                }
            }
            if bytes.is_empty() {
                return Ok(Read::Taken);
            }
            if !incoming.header.is_empty() {
                incoming.header.extend_from_slice(&bytes);
                bytes = incoming.header.split().freeze();
            }
            let header = match UnitHeader::read(&bytes) {
                Err(WireError::Short) if bytes.len() < MAX_UNIT_HEADER => {
                    incoming.header.extend_from_slice(&bytes);
                    return Ok(Read::Taken);
                }
                header => header,
            };
            let (header, taken) = header?;
            if self.receiving.park(header.flow, stream, &self.config.limits)? {
                incoming.header.extend_from_slice(&bytes);
                return Ok(Read::Parked);
            }
            bytes.advance(taken);
            let flow = header.flow;
            // The rest of a flow that has ended was dropped.
            let partial = match self.receiving.flows.get_mut(&flow) {
                Some(flow) => flow.begin(header)?,
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

    fn read_datagram(&mut self, now: Time, datagram: Bytes) -> Result<(), Violation> {
        let (header, taken) = FragmentHeader::read(&datagram)?;
        let data = datagram.slice(taken..);
        let limits = self.config.limits;
        let (number, id, length, offset) = match &header {
            FragmentHeader::First(header) => (header.flow, header.id, header.length, 0),
            FragmentHeader::Later { flow, id, length, offset } => (*flow, *id, *length, *offset),
        };
        if length > limits.unit_bytes {
            return Err(Violation::Absurd);
        }
        // Without an open flow the datagram is discarded: nothing was promised.
        let Some(flow) = self.receiving.flows.get_mut(&number) else { return Ok(()) };
        if flow.config.reliability != Reliability::None {
            return Err(Violation::OutOfPlace);
        }
        if !flow.wants(id) {
            return Ok(());
        }
        let header = match header {
            FragmentHeader::First(header) => Some(header),
            FragmentHeader::Later { .. } => None,
        };
        let whole = self.receiving.fragments.on_fragment(
            (number, id),
            header,
            (length, offset),
            data,
            limits.bytes,
        );
        if let Some(partial) = whole {
            flow.complete_unrepaired(now, partial, &self.clocks);
            if flow.config.order == crate::flow::DeliveryOrder::InOrder {
                self.receiving.fragments.forget_before(number, id);
            }
        }
        Ok(())
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
                if let Some(report) = flow.report() {
                    self.control.send(&Message::ReceiverReport { flow: *number, report });
                }
                self.events.push_back(ConnectionEvent::FlowEnded(id, flow.statistics(now)));
            }
        }
        receiving.flows.retain(|_, flow| !flow.end_reported);
    }
}
