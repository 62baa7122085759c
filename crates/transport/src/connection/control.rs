//! The control stream: greeting, credit, what was dropped, the clocks.

use noq_proto::{Dir, StreamId, WriteError};
use ontempo_foundation::{Duration, Time};

use super::{Connection, Stage, Told, Violation};
use crate::close::CloseReason;
use crate::flow::FlowId;
use crate::wire::{AckRequest, Limits, MAX_MESSAGE, Message};

/// What may wait to be written: a peer that asks and does not read ends there.
const MAX_WAITING: usize = 256 << 10;

/// What may wait to be read: a message and a piece of the next.
const MAX_READ: usize = 4 * MAX_MESSAGE;

/// The control stream's two ends.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) stream: Option<StreamId>,
    pub(super) readable: bool,
    out: Vec<u8>,
    input: Vec<u8>,
    /// When the clock was last asked for.
    asked: Option<Time>,
    /// How often it was asked.
    questions: u32,
    began: Time,
}

/// Questions that are asked in quick succession at the start, and how quick.
const FIRST_QUESTIONS: u32 = 4;
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

impl Control {
    pub(super) fn new(began: Time) -> Self {
        Self {
            stream: None,
            readable: false,
            out: Vec::new(),
            input: Vec::new(),
            asked: None,
            questions: 0,
            began,
        }
    }

    pub(super) fn say(&mut self, message: &Message) {
        message.write(&mut self.out);
    }

    #[cfg(test)]
    pub(super) fn out_len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// When the peer is next asked for its clock.
    pub(super) fn next_question(&self, interval: Duration) -> Time {
        let interval = if self.questions < FIRST_QUESTIONS { FIRST_INTERVAL } else { interval };
        self.asked.map_or(self.began, |asked| asked + interval.max(FIRST_INTERVAL))
    }

    pub(super) fn ask_time(&mut self, now: Time, interval: Duration) {
        if now >= self.next_question(interval) {
            self.asked = Some(now);
            self.questions = self.questions.saturating_add(1);
            self.say(&Message::Clock { asked: now });
        }
    }

    /// Writes what can be written; true where something was.
    pub(super) fn write(&mut self, stack: &mut noq_proto::Connection) -> Result<bool, Violation> {
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

    /// Reads what has come; false where the peer has ended the stream.
    fn read(&mut self, stack: &mut noq_proto::Connection) -> Result<bool, Violation> {
        let Some(stream) = self.stream else { return Ok(true) };
        let mut receive = stack.recv_stream(stream);
        let Ok(mut chunks) = receive.read(true) else { return Ok(false) };
        let mut open = true;
        while self.input.len() < MAX_READ {
            match chunks.next(MAX_READ) {
                Ok(Some(chunk)) => self.input.extend_from_slice(&chunk.bytes),
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
    /// The client opens the control stream and says who it is.
    pub(super) fn greet(&mut self) {
        if !self.stack.side().is_client() {
            return;
        }
        self.control.stream = self.stack.streams().open(Dir::Bi);
        if let Some(stream) = self.control.stream {
            // What was dropped or taken must not wait behind units.
            let _ = self.stack.send_stream(stream).set_priority(i32::MAX);
        }
        let limits = self.config.limits;
        let acknowledge = self.config.acknowledge;
        let token = self.token.as_bytes().to_vec();
        self.control.say(&Message::Hello { token, limits, acknowledge });
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
        if self.stage == Stage::Greeting {
            return self.on_greeting(now, message);
        }
        match message {
            Message::Hello { .. } | Message::Welcome { .. } => return Err(Violation::OutOfPlace),
            Message::FlowOpened(opened) => {
                let id = FlowId::incoming(opened.flow);
                let config = self.receiving.open(now, opened, self.config.limits)?;
                self.told.push_back(Told::FlowOpened(id, config));
                self.receiving.unpark(id.number);
                self.read_units(now)?;
            }
            Message::FlowFinished { flow, units } => {
                self.receiving.flow(flow)?.on_finished(now, units)?;
            }
            Message::Dropped { flow, units } => {
                let arrived = self.receiving.on_dropped(now, flow, &units)?;
                self.control.say(&Message::Settled { flow, arrived });
            }
            Message::Settled { flow, arrived } => {
                let dropped = self.sending.on_settled(flow, &arrived)?;
                for unit in &dropped {
                    self.trace.unit(now, "dropped", FlowId::outgoing(flow), *unit, &[]);
                }
                if !dropped.is_empty() {
                    self.told.push_back(Told::Dropped(FlowId::outgoing(flow), dropped));
                }
            }
            Message::Credit { flow, units, bytes } => self.sending.on_credit(flow, units, bytes)?,
            Message::Clock { asked } => {
                self.control.say(&Message::ClockAnswer { asked, came: now, left: now });
            }
            Message::ClockAnswer { asked, came, left } => {
                if asked > now || came > left {
                    return Err(Violation::Absurd);
                }
                self.clocks.on_answer(asked, came, left, now);
            }
            Message::Feedback { flow, told } => self.sending.on_feedback(flow, told)?,
        }
        Ok(())
    }

    fn on_greeting(&mut self, now: Time, message: Message) -> Result<(), Violation> {
        match message {
            Message::Hello { token, limits, acknowledge } if self.stack.side().is_server() => {
                if !self.token.admits(&token) {
                    let sentence = "a client had the wrong token".to_owned();
                    self.end(now, CloseReason::WrongToken, sentence, "wrong token");
                    return Ok(());
                }
                let ours = self.config.limits;
                let request = self.config.acknowledge;
                self.control.say(&Message::Welcome { limits: ours, acknowledge: request });
                self.open(limits, acknowledge);
            }
            Message::Welcome { limits, acknowledge } if self.stack.side().is_client() => {
                self.open(limits, acknowledge);
            }
            _ => return Err(Violation::OutOfPlace),
        }
        Ok(())
    }

    fn open(&mut self, limits: Limits, acknowledge: AckRequest) {
        self.stage = Stage::Open;
        self.sending.peer = limits;
        self.acks.set(acknowledge);
        self.told.push_back(Told::Open);
    }
}
