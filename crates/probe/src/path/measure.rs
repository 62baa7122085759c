//! The sending end of a measurement.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ontempo_foundation::{Bytes, Duration, RandomStream, Rate, Time};
use ontempo_udp::{Datagram, Next, Protocol};

use super::control::{Action, Arrived, Control, Phase};
use super::estimate::{Answer, MISSING, Noted, Noting};
use crate::load::{self, MAX_TIME, SCOUT};
use crate::sender::{Failure, Sender, SenderOptions};
use crate::wire::{self, Arrivals, Load, Message};

/// Packets at most, and left-out numbers: 900 Mbit/s for 8 s in packets of 1,400 bytes. 32 MB.
const MAX_PACKETS: usize = 1_000_000;

/// A number is left out before one packet in so many.
const LEFT_OUT: f64 = 1.0 / 32.0;

/// Beside a round trip, how long to wait for the last arrivals.
const LAST_WAIT: Duration = Duration::from_millis(150);

/// Interval of progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// Options of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct PathOptions {
    /// Bytes of each packet with its IP and UDP headers.
    pub packet: Bytes,
    /// The rate is not exceeded.
    pub max_rate: Rate,
    /// The receiver, and how to reach it.
    pub sender: SenderOptions,
    /// Chooses the numbers that are left out: unpredictable, and unknown to the receiver.
    pub secret: u64,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathProgress {
    /// Since the first greeting.
    pub time: Duration,
    /// What arrives.
    pub rate: Option<Rate>,
}

/// What is known so far; complete when the measurement has ended.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(super) noting: Noting,
    /// Since the first greeting.
    pub(super) time: Duration,
    pub(super) is_complete: bool,
    /// Why it ended too early, if the path or the receiver ended it.
    pub failure: Option<Failure>,
}

impl State {
    /// The answer so far; `None` before anything has arrived.
    pub fn answer(&self) -> Option<Answer> {
        let answer = self.noting.answer()?;
        Some(Answer { time: self.time, is_partial: !self.is_complete, ..answer })
    }
}

/// Measures one path.
pub struct Measure {
    options: PathOptions,
    session: u64,
    sender: Sender,
    left_out: RandomStream,
    control: Option<Control>,
    /// Shared, so that it survives an error of the socket.
    state: Arc<Mutex<State>>,
    greeted: Option<Time>,
    started: Time,
    /// Packets really sent.
    places: u32,
    /// Arrivals known, including those of which no report came.
    known: u64,
    origin: Option<u64>,
    heard: Time,
    next_progress: Time,
    /// Once no more is to be sent: when to give up the last arrivals.
    ending: Option<Time>,
    is_over: bool,
    on_progress: Box<dyn FnMut(PathProgress) + Send>,
}

impl Measure {
    /// A measurement with this session number, which must be unpredictable. `on_progress` is called
    /// five times a second and must not block.
    pub fn new(
        options: PathOptions,
        session: u64,
        on_progress: impl FnMut(PathProgress) + Send + 'static,
    ) -> Self {
        let scout = (SCOUT + options.sender.headers()) as f64 * 8.0;
        let load = (options.packet.get() as f64 * 8.0).max(scout);
        let noting = Noting { bits: (load, scout), ..Noting::default() };
        Self {
            sender: Sender::new(options.sender, session),
            left_out: RandomStream::new(options.secret, "numbers left out"),
            options,
            session,
            control: None,
            state: Arc::new(Mutex::new(State { noting, ..State::default() })),
            greeted: None,
            started: Time::ZERO,
            places: 0,
            known: 0,
            origin: None,
            heard: Time::ZERO,
            next_progress: Time::NEVER,
            ending: None,
            is_over: false,
            on_progress: Box::new(on_progress),
        }
    }

    /// What is known; complete when the measurement has ended.
    pub fn state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    fn noted(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&mut self, now: Time) {
        let greeted = *self.greeted.get_or_insert(now);
        let round_trip = self.sender.base_rtt().unwrap_or_default();
        let sizes = self.noted().noting.bits;
        let control = Control::new((greeted, now), round_trip, sizes, self.options.max_rate);
        self.control = Some(control);
        (self.started, self.heard, self.next_progress) = (now, now, now);
    }

    /// Sends no more and waits for the last arrivals.
    fn finish(&mut self, now: Time) {
        if self.control.is_none() {
            return self.close(now, None, false);
        }
        if self.ending.is_none() {
            let round_trip = Duration::from_nanos(self.noted().noting.round_trip.unwrap_or(0));
            self.ending = Some(now + LAST_WAIT + round_trip.min(Duration::from_secs(1)));
        }
    }

    fn close(&mut self, now: Time, failure: Option<Failure>, is_complete: bool) {
        self.is_over = true;
        let time = self.greeted.map_or(Duration::ZERO, |greeted| now.since(greeted));
        let mut state = self.noted();
        (state.failure, state.is_complete, state.time) = (failure, is_complete, time);
        drop(state);
        self.sender.close();
    }

    fn on_arrivals(&mut self, now: Time, received: Time, arrivals: &Arrivals<'_>) {
        let Some(mut control) = self.control.take() else { return };
        let state = Arc::clone(&self.state);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let noting = &mut state.noting;
        let next = noting.packets.len() as u32;
        let mut is_false = false;
        for (index, (number, at)) in (arrivals.first..=u64::from(MISSING)).zip(arrivals.records()) {
            is_false |= noting.packets.get(number as usize).is_some_and(|noted| noted.is_left_out);
            let Some(arrived) = self.note(noting, index, number, at) else { continue };
            self.heard = now;
            let held = arrivals.clock.wrapping_sub(at);
            if let Some(round_trip) = load::round_trip(self.started, arrived.sent, received, held) {
                let least = noting.round_trip.map_or(round_trip, |least| least.min(round_trip));
                noting.round_trip = Some(least);
                control.on_round_trip(Duration::from_nanos(least));
            }
            control.on_arrival(now, arrived, next);
        }
        (noting.limit, noting.is_full) = (control.limit, control.is_full);
        let is_all = self.ending.is_some() && noting.packets.last().is_some_and(Noted::is_known);
        drop(state);
        self.control = Some(control);
        if is_false {
            self.close(now, Some(Failure::False), false);
        } else if is_all {
            let is_complete = self.is_complete();
            self.close(now, None, is_complete);
        }
    }

    fn is_complete(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.phase == Phase::Low)
    }

    /// Notes that a packet arrived; `None` if that is known, or cannot be.
    fn note(&mut self, noting: &mut Noting, index: u64, number: u32, at: u64) -> Option<Arrived> {
        let bits = noting.bits;
        let packet = noting.packets.get_mut(number as usize)?;
        let is_known = index < self.known || packet.is_known() || packet.is_left_out;
        let origin = *self.origin.get_or_insert(at);
        let at = at.wrapping_sub(origin) as i64;
        if is_known || index >= u64::from(self.places) || at.unsigned_abs() > MAX_TIME {
            return None;
        }
        (packet.at, packet.index) = (at, u32::try_from(index).ok()?);
        self.known = index + 1;
        let Noted { sent, is_scout, place, index, .. } = *packet;
        let bits = if is_scout { bits.1 } else { bits.0 };
        Some(Arrived { number, place, index, sent, at, bits, is_scout })
    }

    fn silent_at(&self) -> Time {
        match self.control {
            Some(_) if self.ending.is_none() => self.heard + self.options.sender.timeout,
            _ => Time::NEVER,
        }
    }

    fn write(&mut self, now: Time, action: Action, buffer: &mut Vec<u8>) -> Next {
        let is_scout = action == Action::Scout;
        let phase = self.control.as_ref().map_or(Phase::Quiet, |control| control.phase);
        let sent = now.since(self.started).as_nanos() as i64;
        let is_left_out = self.left_out.uniform() < LEFT_OUT;
        let place = self.places;
        let mut state = self.noted();
        let noted = Noted { sent, at: 0, index: MISSING, place, phase, is_scout, is_left_out };
        state.noting.packets.push(noted);
        if is_left_out {
            state.noting.packets.push(Noted { is_left_out: false, ..noted });
        }
        let number = state.noting.packets.len() as u32 - 1;
        let bits = if is_scout { state.noting.bits.1 } else { state.noting.bits.0 };
        drop(state);
        self.places += 1;
        let load = Load { is_urgent: is_scout, number, stamp: now.as_nanos(), payload: &[] };
        load::write(&self.options.sender, self.session, load, bits, buffer)
    }

    fn progress(&mut self, now: Time) {
        if self.next_progress <= now {
            self.next_progress = now + PROGRESS;
            let rate = self.control.as_ref().and_then(Control::rate);
            let rate = rate.map(|rate| Rate::from_bits_per_sec(rate as u64));
            let time = self.greeted.map_or(Duration::ZERO, |greeted| now.since(greeted));
            self.noted().time = time;
            (self.on_progress)(PathProgress { time, rate });
        }
    }
}

impl Protocol for Measure {
    /// Ends the measurement.
    type Command = ();

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        if self.is_over || datagram.source != self.options.sender.destination {
            return;
        }
        if self.control.is_some() {
            if let Ok((session, Message::Arrivals(arrivals))) = wire::read(datagram.data)
                && session == self.session
            {
                self.on_arrivals(now, datagram.received, &arrivals);
            }
            return;
        }
        self.sender.handle(now, datagram);
        if let Some(failure) = self.sender.failure() {
            self.close(now, Some(failure), false);
        } else if self.sender.is_open() {
            self.begin(now);
        }
    }

    fn handle_command(&mut self, now: Time, (): ()) {
        if !self.is_over {
            let is_complete = self.ending.is_some() && self.is_complete();
            self.close(now, None, is_complete);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_over {
            return;
        }
        self.sender.handle_timeout(now);
        self.progress(now);
        if let Some(failure) = self.sender.failure() {
            return self.close(now, Some(failure), false);
        }
        if self.silent_at() <= now {
            return self.close(now, Some(Failure::Silent), false);
        }
        if self.ending.is_some_and(|ending| ending <= now) {
            let is_complete = self.is_complete();
            self.close(now, None, is_complete);
        }
    }

    fn next_timeout(&self) -> Time {
        if self.is_over {
            return Time::NEVER;
        }
        let ending = self.ending.unwrap_or(Time::NEVER);
        self.sender.next_timeout().min(self.silent_at()).min(ending).min(self.next_progress)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.greeted.get_or_insert(now);
        if self.is_over || self.control.is_none() {
            return self.sender.poll_transmit(now, buffer);
        }
        if self.ending.is_some() {
            return Next::Idle;
        }
        let is_long = self.noted().noting.packets.len() + 2 > MAX_PACKETS;
        let action = match &mut self.control {
            Some(control) if !is_long => control.next(now),
            _ => Action::End,
        };
        match action {
            Action::Wait(until) => Next::WaitUntil(until),
            Action::End => {
                self.finish(now);
                Next::Idle
            }
            action => self.write(now, action, buffer),
        }
    }

    fn is_finished(&self) -> bool {
        self.is_over
    }
}
