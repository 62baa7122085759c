//! The control stream: handshake, credit, dropped units, clocks.

use noq_proto::{Dir, StreamId, WriteError};
use ontempo_foundation::{Duration, Time};

use super::assembly::Assembly;
use super::{Connection, ConnectionEvent, Stage, Violation};
use crate::close::CloseReason;
use crate::flow::FlowId;
use crate::wire::{AckRequest, Limits, MAX_MESSAGE, Message};

/// Maximum bytes waiting to be written: a peer that requests without reading is closed there.
const MAX_WAITING: usize = 256 << 10;

/// Maximum bytes waiting to be parsed: a message and a part of the next.
const MAX_READ: usize = 4 * MAX_MESSAGE;

/// Maximum memory of data that arrived before data that precedes it, bytes: as much as may wait to
/// be written at the other side, and the overhead of its pieces.
const MAX_AHEAD: u64 = 512 << 10;

/// Both directions of the control stream.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) stream: Option<StreamId>,
    pub(super) readable: bool,
    /// What the peer writes is not processed.
    #[cfg(test)]
    pub(super) is_deaf: bool,
    /// What it would write is lost.
    #[cfg(test)]
    pub(super) is_mute: bool,
    out: Vec<u8>,
    assembly: Assembly,
    input: Vec<u8>,
    /// Time of the last clock request.
    asked: Option<Time>,
    /// Number of clock requests.
    questions: u32,
    began: Time,
}

/// Number of clock requests in quick succession at the start, and their interval.
const FIRST_QUESTIONS: u32 = 4;
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

impl Control {
    pub(super) fn new(began: Time) -> Self {
        Self {
            stream: None,
            readable: false,
            #[cfg(test)]
            is_deaf: false,
            #[cfg(test)]
            is_mute: false,
            out: Vec::new(),
            assembly: Assembly::default(),
            input: Vec::new(),
            asked: None,
            questions: 0,
            began,
        }
    }

    pub(super) fn send(&mut self, message: &Message) {
        message.write(&mut self.out);
    }

    #[cfg(test)]
    pub(super) fn out_len(&self) -> usize {
        self.out.len()
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        (self.out.capacity() + self.input.capacity()) as u64 + self.assembly.memory()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// When the next clock request is due.
    pub(super) fn next_question(&self, interval: Duration) -> Time {
        let interval = if self.questions < FIRST_QUESTIONS { FIRST_INTERVAL } else { interval };
        self.asked.map_or(self.began, |asked| asked + interval.max(FIRST_INTERVAL))
    }

    pub(super) fn ask_time(&mut self, now: Time, interval: Duration) {
        if now >= self.next_question(interval) {
            self.asked = Some(now);
            self.questions = self.questions.saturating_add(1);
            self.send(&Message::Clock { asked: now });
        }
    }

    /// Writes pending messages; true if anything was written.
    pub(super) fn write(&mut self, stack: &mut noq_proto::Connection) -> Result<bool, Violation> {
        #[cfg(test)]
        if self.is_mute {
            self.out.clear();
            return Ok(false);
        }
        let Some(stream) = self.stream else { return Ok(false) };
        let mut written = 0;
        while written < self.out.len() {
            match stack.send_stream(stream).write(&self.out[written..]) {
                Ok(count) => written += count,
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    return Err(Violation::OutOfPlace);
                }
            }
        }
        self.out.drain(..written);
        if self.out.len() > MAX_WAITING { Err(Violation::Deaf) } else { Ok(written > 0) }
    }

    /// Reads available messages; false if the peer has ended the stream.
    fn read(&mut self, stack: &mut noq_proto::Connection) -> Result<bool, Violation> {
        let Some(stream) = self.stream else { return Ok(true) };
        let mut receive = stack.recv_stream(stream);
        let Ok(mut chunks) = receive.read(false) else { return Ok(false) };
        let mut open = true;
        while self.input.len() < MAX_READ {
            match chunks.next(MAX_READ) {
                Ok(Some(chunk)) => {
                    let mut next = self.assembly.insert(chunk.offset, chunk.bytes)?;
                    while let Some(data) = next {
                        self.input.extend_from_slice(&data);
                        next = self.assembly.next();
                    }
                    if self.assembly.memory() > MAX_AHEAD {
                        return Err(Violation::Absurd);
                    }
                }
                Ok(None) => {
                    open = false;
                    break;
                }
                Err(noq_proto::ReadError::Blocked) => {
                    self.readable = false;
                    break;
                }
                Err(noq_proto::ReadError::Reset(_)) => {
                    let _ = chunks.finalize();
                    return Err(Violation::OutOfPlace);
                }
            }
        }
        let _ = chunks.finalize();
        Ok(open)
    }
}

impl Connection {
    /// The client opens the control stream and sends its hello.
    pub(super) fn greet(&mut self) {
        if !self.stack.side().is_client() {
            return;
        }
        self.control.stream = self.stack.streams().open(Dir::Bi);
        if let Some(stream) = self.control.stream {
            // Reports of dropped or taken units must not wait behind units.
            let _ = self.stack.send_stream(stream).set_priority(i32::MAX);
        }
        let limits = self.config.limits;
        let acknowledge = self.config.acknowledge;
        let token = self.token.as_bytes().to_vec();
        self.control.send(&Message::Hello { token, limits, acknowledge });
    }

    pub(super) fn read_control(&mut self, now: Time) -> Result<(), Violation> {
        if self.control.stream.is_none() {
            self.control.stream = self.stack.streams().accept(Dir::Bi);
            self.control.readable = self.control.stream.is_some();
            if let Some(stream) = self.control.stream {
                let _ = self.stack.send_stream(stream).set_priority(i32::MAX);
            }
        }
        while self.control.readable && self.stage != Stage::Closed {
            if !self.control.read(&mut self.stack)? {
                return Err(Violation::OutOfPlace);
            }
            #[cfg(test)]
            if self.control.is_deaf {
                self.control.input.clear();
            }
            let mut read = 0;
            while let Some((message, taken)) = Message::read(&self.control.input[read..])? {
                read += taken;
                self.answered = now;
                self.on_message(now, message)?;
                if self.stage == Stage::Closed {
                    return Ok(());
                }
            }
            self.control.input.drain(..read);
        }
        Ok(())
    }

    fn on_message(&mut self, now: Time, message: Message) -> Result<(), Violation> {
        if self.is_greeting() {
            return self.on_handshake(now, message);
        }
        match message {
            Message::Hello { .. } | Message::Welcome { .. } => return Err(Violation::OutOfPlace),
            Message::FlowOpened(opened) => {
                let id = FlowId::incoming(opened.flow);
                let config = self.receiving.open(now, opened, self.config.limits)?;
                self.events.push_back(ConnectionEvent::FlowOpened(id, config));
                self.receiving.unpark(id.number);
                self.read_units(now)?;
            }
            Message::FlowFinished { flow, units } => {
                self.receiving.flow(flow)?.on_finished(now, units)?;
            }
            Message::Dropped { flow, units } => {
                let arrived = self.receiving.on_dropped(now, flow, &units)?;
                self.control.send(&Message::Settled { flow, arrived });
            }
            Message::Settled { flow, arrived } => {
                let dropped = self.sending.on_settled(flow, &arrived)?;
                if !dropped.is_empty() {
                    self.events
                        .push_back(ConnectionEvent::Dropped(FlowId::outgoing(flow), dropped));
                }
            }
            Message::Credit { flow, units, bytes } => self.sending.on_credit(flow, units, bytes)?,
            Message::Clock { asked } => {
                self.control.send(&Message::ClockAnswer {
                    asked,
                    came: now,
                    left: now + self.lain,
                });
            }
            Message::ClockAnswer { asked, came, left } => {
                if asked > now || came > left {
                    return Err(Violation::Absurd);
                }
                self.clocks.on_answer(asked, came, left, now);
            }
            Message::FlowCredit { flows } => {
                if self.sending.on_flow_credit(flows) {
                    self.events.push_back(ConnectionEvent::FlowAllowed);
                }
            }
            Message::ReceiverReport { flow, report } => self.sending.on_report(flow, report)?,
        }
        Ok(())
    }

    fn on_handshake(&mut self, now: Time, message: Message) -> Result<(), Violation> {
        match message {
            Message::Hello { token, limits, acknowledge } if self.stack.side().is_server() => {
                let other = self.other_token.as_ref().is_some_and(|other| other.admits(&token));
                let is_first = self.token.admits(&token);
                self.has_other_token = other && !is_first;
                if !is_first && !other {
                    let sentence = "a client had the wrong token".to_owned();
                    self.end(now, CloseReason::WrongToken, sentence, "wrong token");
                    return Ok(());
                }
                let ours = self.config.limits;
                let request = self.config.acknowledge;
                self.control.send(&Message::Welcome { limits: ours, acknowledge: request });
                self.open(limits, acknowledge);
            }
            Message::Welcome { limits, acknowledge } if self.stack.side().is_client() => {
                if self.is_early() && self.sending.peer != limits {
                    return Err(Violation::Absurd);
                }
                self.open(limits, acknowledge);
            }
            _ => return Err(Violation::OutOfPlace),
        }
        Ok(())
    }

    fn open(&mut self, limits: Limits, acknowledge: AckRequest) {
        self.stage = Stage::Open;
        self.trace.open();
        self.sending.set_limits(limits);
        self.acks.set(acknowledge);
        self.events.push_back(ConnectionEvent::Open);
    }
}
