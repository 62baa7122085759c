//! A connection that a gateway relays, both of whose ends a test plays.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ontempo_monitor::{Carrier, MAX_VIOLATIONS};
use ontempo_testing::hostile::Dice;

use super::memory::{End, Memory};
use super::*;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::core::{Core, lock};
use crate::relay::{Backward, Forward};
use crate::setup::Established;
use crate::wire::{Change, Header, Kind, MAX_MESSAGE_LEN, Pong, Refused, Status, TCP_HEADER};

/// Bytes that both ends of an honest stream exchange; each place has another value.
fn pattern(from: usize, count: usize) -> impl Iterator<Item = u8> {
    (from..from + count).map(|place| (place % 251) as u8)
}

/// The length of what is sent at once: rarely more than a piece of a relay.
fn long(dice: &mut Dice) -> usize {
    let bound = if dice.once_in(10) { 150_000 } else { 5_000 };
    dice.below(bound) as usize
}

/// A connection that the gateway relays, with the ends that the test plays.
pub(super) struct Link {
    pub(super) number: u64,
    far: Connection<Memory>,
    /// The plain TCP stream.
    near: Memory,
    forward: Option<Forward>,
    backward: Option<Backward>,
    events: Events,
    /// Its peers keep to the protocol.
    pub(super) is_honest: bool,
    /// Payload in valid messages of the far end; complete while `is_sound`.
    payload: usize,
    is_sound: bool,
    /// Bytes that the near end has got.
    delivered: usize,
    /// Bytes that the near end has sent.
    near_sent: usize,
    /// Bytes of the handshake, before the messages to the far end.
    setup: usize,
}

/// The connection as a stream of bytes.
struct Reading<'a>(&'a Connection<Memory>);

impl Read for Reading<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }
}

/// True if a step is to be repeated; the pump is removed at its end.
fn is_going_on<P>(pump: &mut Option<P>, step: io::Result<bool>) -> bool {
    match step {
        Ok(true) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Ok(false) | Err(_) => {
            *pump = None;
            false
        }
    }
}

impl Link {
    pub(super) fn new(
        number: u64,
        (wire, setup): (Memory, usize),
        options: &QosOptions,
        established: &Established,
        clock: &Arc<AtomicU64>,
    ) -> Self {
        let at = SocketAddr::from(([127, 0, 0, 1], 9));
        let clock = Clock::Virtual(Arc::clone(clock));
        let core = Core::new(Carrier::Tcp, (at, at), options, established, clock);
        let far = Connection::new(core, wire, None);
        // As the maintenance thread does with a new connection.
        far.send_control(&far.core.status(far.core.clock.now()));
        let near = Memory::default();
        near.with(|state| state.room = 1 << 20);
        Self {
            number,
            near,
            forward: Some(Forward::new(far.core.max_send_size)),
            backward: Some(Backward::default()),
            events: far.core.events(),
            is_honest: false,
            payload: 0,
            is_sound: true,
            delivered: 0,
            near_sent: 0,
            setup,
            far,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.forward.is_none() && self.backward.is_none()
    }

    /// Relays what can be; each step must use up something.
    pub(super) fn pump(&mut self, seed: u64) {
        let waiting = |memory: &Memory| memory.with(|state| state.incoming.len());
        let bound = 2 * (waiting(&self.far.channel) + waiting(&self.near)) + 200_000;
        let mut steps = 0;
        while let Some(pump) = &mut self.forward {
            let send = |message: &[u8]| self.far.send_message(message);
            let step = pump.step(&self.near, || Ok(false), send);
            if !is_going_on(&mut self.forward, step) {
                break;
            }
            steps += 1;
            assert!(steps < bound, "seed {seed}: forwarding spins");
        }
        while let Some(pump) = &mut self.backward {
            let step = pump.step(Reading(&self.far), &self.near);
            if !is_going_on(&mut self.backward, step) {
                break;
            }
            steps += 1;
            assert!(steps < bound, "seed {seed}: the way back spins");
        }
        self.check(seed);
    }

    fn check(&mut self, seed: u64) {
        // A message, and a control message behind it.
        let unsent = lock(&self.far.writer).unsent();
        assert!(unsent <= 134_000, "seed {seed}: {unsent} bytes wait for the far end");
        let stashed = lock(&self.far.reader).stashed();
        assert_eq!(stashed, 0, "seed {seed}: a relay reads pieces");
        for direction in [Direction::Sending, Direction::Receiving] {
            assert!(self.far.core.kept(direction).latest.len() <= MAX_VIOLATIONS, "seed {seed}");
        }
        let got = self.near.with(|state| std::mem::take(&mut state.outgoing));
        let same = got.len().min(self.payload.saturating_sub(self.delivered));
        let is_same = pattern(self.delivered, same).eq(got[..same].iter().copied());
        assert!(is_same, "seed {seed}: the near end got other bytes");
        self.delivered += got.len();
        let is_more = self.delivered > self.payload;
        assert!(!(self.is_sound && is_more), "seed {seed}: more than was sent");
    }

    /// What the far end was sent is messages, whose payload is what the near end has sent.
    pub(super) fn check_far(&self, seed: u64) -> usize {
        self.far.channel.with(|state| {
            let mut rest = &state.outgoing[self.setup..];
            let mut payload = 0;
            while let Some((head, more)) = rest.split_first_chunk::<TCP_HEADER>() {
                let header = Header::of_tcp(head, MAX_MESSAGE_LEN);
                let header = header.unwrap_or_else(|_| panic!("seed {seed}: no message"));
                let body = &more[..header.length.min(more.len())];
                if header.kind == Kind::Data {
                    assert!(header.length <= self.far.core.max_send_size, "seed {seed}");
                    let is_same = pattern(payload, body.len()).eq(body.iter().copied());
                    assert!(is_same, "seed {seed}: the far end got other bytes");
                    payload += body.len();
                }
                rest = &more[body.len()..];
            }
            assert!(payload <= self.near_sent, "seed {seed}");
            payload
        })
    }

    /// The far end sends a message of the application.
    fn send_data(&mut self, dice: &mut Dice, length: usize) {
        let sequence = if self.is_honest { 0 } else { dice.number(self.payload as u64) as u32 };
        let now = self.far.core.clock.now().as_nanos();
        let sent = if self.is_honest { now } else { dice.number(now) };
        let header = Header { kind: Kind::Data, length, sequence, sent };
        self.push(&header.to_tcp());
        let body: Vec<u8> = pattern(self.payload, length).collect();
        self.push(&body);
        if self.is_sound {
            self.payload += length;
        }
    }

    fn push(&self, bytes: &[u8]) {
        self.far.channel.with(|state| {
            if state.ended.is_none() {
                state.incoming.extend(bytes);
            }
        });
    }

    /// A control message, often of the right length.
    fn send_control(&mut self, dice: &mut Dice) {
        let now = self.far.core.clock.now().as_nanos();
        let body = match dice.below(6) {
            0 => Status { sent_messages: dice.number(now), ..Status::default() }.to_bytes(),
            1 => Pong { echo: dice.number(now), arrived: dice.number(now) }.to_bytes(),
            2 => Change { number: dice.number(1) as u32, send: video() }.to_bytes(),
            3 => Refused { reason: "\u{1b}[2J".repeat(dice.below(60) as usize) }.to_bytes(),
            4 => {
                let length = dice.below(300) as usize;
                dice.bytes(length, now)
            }
            _ => Vec::new(),
        };
        let kind = [Kind::Status, Kind::Pong, Kind::Change, Kind::Refused, Kind::Bye];
        let fitting = kind.into_iter().find(|kind| is_of(*kind, body.len()));
        let kind = match dice.below(3) {
            0 => kind[dice.below(5) as usize],
            _ => fitting.unwrap_or(Kind::Bye),
        };
        let header = Header { kind, length: body.len(), sequence: 0, sent: dice.number(now) };
        // It may be refused, and everything after it.
        self.is_sound = false;
        self.push(&[header.to_tcp().to_vec(), body].concat());
    }

    /// The far end does anything.
    pub(super) fn act_far(&mut self, dice: &mut Dice) {
        let max = self.far.core.max_receive_size;
        match dice.below(if self.is_honest { 5 } else { 14 }) {
            0..=2 => {
                let length = dice.below(2_000) as usize;
                self.send_data(dice, length.min(max));
            }
            3 => {
                let length = long(dice);
                self.send_data(dice, length.min(max));
            }
            4 => {
                let more = 1 + dice.below(50_000) as usize;
                self.far.channel.with(|state| state.room = state.room.saturating_add(more));
            }
            5..=7 => self.send_control(dice),
            8 => {
                self.is_sound = false;
                let length = max.saturating_add(dice.below(3) as usize);
                let header = Header { kind: Kind::Data, length, sequence: 0, sent: 0 };
                self.push(&header.to_tcp());
            }
            9 => {
                self.is_sound = false;
                let length = dice.below(400) as usize;
                let garbage = dice.bytes(length, self.payload as u64);
                self.push(&garbage);
            }
            10 => {
                self.is_sound = false;
                let header =
                    Header { kind: Kind::Data, length: max.min(700), sequence: 0, sent: 0 };
                let mut torn = [header.to_tcp().to_vec(), vec![9; max.min(700)]].concat();
                torn.truncate(dice.below(torn.len() as u64) as usize);
                self.push(&torn);
            }
            11 => self.far.channel.with(|state| state.room = 0),
            12 if dice.once_in(8) => self.far.channel.with(|state| {
                state.ended = state.ended.or(Some(End::Finished));
            }),
            13 if dice.once_in(8) => {
                self.is_sound = false;
                self.far.channel.with(|state| state.ended = Some(End::Reset));
            }
            _ => {}
        }
    }

    /// The near end does anything that a TCP stream can.
    pub(super) fn act_near(&mut self, dice: &mut Dice) {
        match dice.below(if self.is_honest { 2 } else { 8 }) {
            0 | 1 => {
                let length = long(dice);
                let (from, near) = (self.near_sent, self.near.clone());
                near.with(|state| {
                    if state.ended.is_none() {
                        state.incoming.extend(pattern(from, length));
                        self.near_sent += length;
                    }
                });
            }
            2 => self.near.with(|state| state.room = dice.below(3_000) as usize),
            3 if dice.once_in(8) => self.near.with(|state| {
                state.ended = state.ended.or(Some(End::Finished));
            }),
            4 if dice.once_in(8) => self.near.with(|state| state.ended = Some(End::Reset)),
            _ => self.near.with(|state| state.room = 1 << 20),
        }
    }

    /// Half a second is over.
    pub(super) fn tick(&self) {
        for control in self.far.core.on_tick() {
            self.far.send_control(&control);
        }
        self.far.hear();
    }

    /// Both ends read all and close.
    pub(super) fn finish(&mut self, seed: u64) {
        for memory in [&self.far.channel, &self.near] {
            memory.with(|state| {
                state.room = usize::MAX / 2;
                state.ended = state.ended.or(Some(End::Finished));
            });
        }
        self.pump(seed);
        // Sockets that block leave nothing of a message unsent.
        self.tick();
        assert!(self.has_ended(), "seed {seed}: a relay goes on after both ends have closed");
        let to_far = self.check_far(seed);
        if self.is_honest {
            assert_eq!(self.delivered, self.payload, "seed {seed}: not all arrived");
            assert_eq!(to_far, self.near_sent, "seed {seed}: not all arrived");
        }
        self.far.core.close();
        let events = self.events.waiting().count();
        assert!(events <= 1_024, "seed {seed}: {events} events waited");
    }
}

fn is_of(kind: Kind, length: usize) -> bool {
    let header = Header { kind, length, sequence: 0, sent: 0 };
    Header::of_tcp(&header.to_tcp(), 0).is_ok()
}
