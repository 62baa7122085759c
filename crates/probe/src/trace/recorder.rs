//! The sending end of a recording.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ontempo_foundation::{Bytes, Duration, Rate, Time};
use ontempo_udp::{Datagram, Next, Protocol};

use super::control::{Action, Arrived, Control};
use crate::load::{self, MAX_TIME, SCOUT};
use crate::sender::{Failure, Sender, SenderOptions};
use crate::wire::{self, Arrivals, Load, Message};

/// Packets of a recording at most.
const MAX_PACKETS: u64 = 2_000_000;

/// The same with scouts.
const MAX_PACKETS_WITH_SCOUTS: u64 = MAX_PACKETS + MAX_PACKETS / 4;

/// How long to wait for the last arrivals.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The same once a command ends the recording: who waits for it may be a user, and the peer dead.
const LAST_WAIT_OF_COMMAND: Duration = Duration::from_millis(500);

/// Interval of scouts meanwhile.
const LAST_GAP: Duration = Duration::from_millis(20);

/// Interval of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// Options of a recorder.
#[derive(Clone, Copy, Debug)]
pub struct RecorderOptions {
    /// How long to record.
    pub duration: Duration,
    /// The rate is not exceeded, and a faster path is recorded with this rate.
    pub max_rate: Rate,
    /// Bytes of each packet with its IP and UDP headers.
    pub packet: Bytes,
    /// The receiver, and how to reach it.
    pub sender: SenderOptions,
    /// An outage of this length ends the recording.
    pub silence: Duration,
}

impl RecorderOptions {
    /// The longest recording with this rate and packet.
    pub fn longest(&self) -> Duration {
        let packet = self.max_rate.time_to_send(self.packet);
        Duration::from_secs_f64(packet.as_secs_f64() * MAX_PACKETS as f64)
    }
}

/// A packet of a recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// Since recording began, ns.
    pub(super) sent: i64,
    /// By the receiver's clock since the first arrival, ns.
    pub(super) at: i64,
    /// How many arrived before it; [`MISSING`] if it is not known to have arrived.
    pub(super) index: u32,
    pub(super) is_scout: bool,
}

/// Index of a packet that is not known to have arrived.
pub(super) const MISSING: u32 = u32::MAX;

/// All that was sent and arrived.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// By number.
    pub(super) packets: Vec<Noted>,
    /// Bits of a full packet and of a scout, with IP and UDP headers.
    pub(super) bits: (f64, f64),
    /// Of a scout: its number, its round trip, ns. The smallest.
    pub(super) round_trip: Option<(u32, i64)>,
    /// How long packets were sent.
    pub(super) duration: Duration,
    /// Limit of the sending rate.
    pub(super) max_rate: Rate,
    /// Why it ended too early, if the path or the receiver ended it.
    pub failure: Option<Failure>,
}

/// State of a recording, once a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Since the first packet.
    pub time: Duration,
    /// The rate of the bottleneck as last seen.
    pub rate: Option<Rate>,
}

/// Records one path.
pub struct Recorder {
    options: RecorderOptions,
    session: u64,
    sender: Sender,
    control: Option<Control>,
    /// Shared, so that it survives an error of the socket.
    recording: Arc<Mutex<Recording>>,
    /// Number of the next packet.
    next: u32,
    /// Bits sent; and of these those up to the last packet that arrived.
    sent_bits: f64,
    passed_bits: f64,
    /// One more than the highest number that arrived.
    passed: u32,
    /// Arrivals known, including those of which no report came.
    known: u64,
    started: Time,
    /// The receiver's time of the first arrival, ns.
    origin: Option<u64>,
    heard: Time,
    next_progress: Time,
    /// Set once no more is to be sent: when to give up the last arrivals.
    ending: Option<Time>,
    /// Number of the first packet after the end of recording.
    end: u32,
    last_scout: Time,
    is_over: bool,
    on_progress: Box<dyn FnMut(Progress) + Send>,
}

impl Recorder {
    /// A recorder with this session number, which must be unpredictable. `on_progress` is called
    /// once a second and must not block.
    pub fn new(
        options: RecorderOptions,
        session: u64,
        on_progress: impl FnMut(Progress) + Send + 'static,
    ) -> Self {
        let scout = (SCOUT + options.sender.headers()) as u64;
        let load = options.packet.get().max(scout);
        let recording = Recording {
            bits: (load as f64 * 8.0, scout as f64 * 8.0),
            max_rate: options.max_rate,
            ..Recording::default()
        };
        Self {
            sender: Sender::new(options.sender, session),
            options,
            session,
            control: None,
            recording: Arc::new(Mutex::new(recording)),
            next: 0,
            sent_bits: 0.0,
            passed_bits: 0.0,
            passed: 0,
            known: 0,
            started: Time::ZERO,
            origin: None,
            heard: Time::ZERO,
            next_progress: Time::NEVER,
            ending: None,
            end: 0,
            last_scout: Time::ZERO,
            is_over: false,
            on_progress: Box::new(on_progress),
        }
    }

    /// What is recorded; complete when the recorder has ended.
    pub fn recording(&self) -> Arc<Mutex<Recording>> {
        Arc::clone(&self.recording)
    }

    fn noted(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&mut self, now: Time) {
        let bits = self.noted().bits;
        let (load, scout) = (bits.0 as u64 / 8, bits.1 as u64 / 8);
        self.control = Some(Control::new(now, load, scout, self.options.max_rate));
        (self.started, self.heard) = (now, now);
        self.next_progress = now + PROGRESS;
    }

    /// Sends no more and waits for the last arrivals.
    fn finish(&mut self, now: Time) {
        if self.control.is_none() {
            return self.close(None);
        }
        if self.ending.is_none() {
            self.ending = Some(now + LAST_WAIT);
            self.end = self.next;
            self.noted().duration = now.since(self.started);
        }
    }

    fn close(&mut self, failure: Option<Failure>) {
        self.is_over = true;
        self.noted().failure = failure;
        self.sender.close();
    }

    fn on_arrivals(&mut self, now: Time, received: Time, arrivals: &Arrivals<'_>) {
        let Some(mut control) = self.control.take() else { return };
        let recording = Arc::clone(&self.recording);
        let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, (number, at)) in (arrivals.first..=u64::from(MISSING)).zip(arrivals.records()) {
            let held = arrivals.clock.wrapping_sub(at);
            if let Some(arrived) = self.note(&mut recording, index, number, at) {
                self.heard = now;
                let round_trip = load::round_trip(self.started, arrived.sent, received, held);
                if let Some(round_trip) = round_trip {
                    let round_trip = round_trip as i64;
                    control.on_round_trip(round_trip, arrived.at - arrived.sent);
                    let least = recording.round_trip.map_or(i64::MAX, |(_, least)| least);
                    if arrived.is_scout && round_trip < least {
                        recording.round_trip = Some((number, round_trip));
                    }
                }
                control.on_arrival(now, arrived, self.next);
            }
        }
        self.control = Some(control);
        drop(recording);
        if self.ending.is_some() && self.passed >= self.end {
            self.close(None);
        }
    }

    /// Notes that a packet arrived; `None` if that is known, or cannot be.
    fn note(
        &mut self,
        recording: &mut Recording,
        index: u64,
        number: u32,
        at: u64,
    ) -> Option<Arrived> {
        let bits = recording.bits;
        let size = |is_scout: bool| if is_scout { bits.1 } else { bits.0 };
        let packet = recording.packets.get_mut(number as usize)?;
        let origin = *self.origin.get_or_insert(at);
        let at = at.wrapping_sub(origin) as i64;
        let is_known = index < self.known || packet.index != MISSING;
        if is_known || index >= u64::from(self.next) || at.unsigned_abs() > MAX_TIME {
            return None;
        }
        (packet.at, packet.index) = (at, u32::try_from(index).ok()?);
        self.known = index + 1;
        let Noted { sent, is_scout, .. } = *packet;
        while self.passed <= number {
            self.passed_bits += size(recording.packets[self.passed as usize].is_scout);
            self.passed += 1;
        }
        Some(Arrived { number, sent, at, bits: size(is_scout), is_scout })
    }

    fn silent_at(&self) -> Time {
        match self.control {
            Some(_) if self.ending.is_none() => self.heard + self.options.silence,
            _ => Time::NEVER,
        }
    }

    /// When recording ends.
    fn end_at(&self) -> Time {
        match (self.ending, &self.control) {
            (Some(give_up), _) => give_up,
            (None, Some(_)) => self.started + self.options.duration,
            (None, None) => Time::NEVER,
        }
    }

    fn write(&mut self, now: Time, action: Action, buffer: &mut Vec<u8>) -> Next {
        let is_urgent = matches!(action, Action::Scout { is_urgent: true });
        let is_scout = action != Action::Load;
        let mut noted = self.noted();
        let bits = if is_scout { noted.bits.1 } else { noted.bits.0 };
        let sent = now.since(self.started).as_nanos() as i64;
        noted.packets.push(Noted { sent, at: 0, index: MISSING, is_scout });
        drop(noted);
        let load = Load { is_urgent, number: self.next, stamp: now.as_nanos(), payload: &[] };
        self.next += 1;
        self.sent_bits += bits;
        load::write(&self.options.sender, self.session, load, bits, buffer)
    }

    fn progress(&mut self, now: Time) {
        if self.next_progress <= now && self.ending.is_none() {
            self.next_progress += PROGRESS;
            let rate = self.control.as_ref().and_then(Control::rate);
            let rate = rate.map(|rate| Rate::from_bits_per_sec(rate as u64));
            (self.on_progress)(Progress { time: now.since(self.started), rate });
        }
    }
}

impl Protocol for Recorder {
    /// Ends the recording.
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
            self.close(Some(failure));
        } else if self.sender.is_open() {
            self.begin(now);
        }
    }

    fn handle_command(&mut self, now: Time, (): ()) {
        self.finish(now);
        let give_up = now + LAST_WAIT_OF_COMMAND;
        self.ending = self.ending.map(|ending| ending.min(give_up));
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_over {
            return;
        }
        self.sender.handle_timeout(now);
        self.progress(now);
        if let Some(failure) = self.sender.failure() {
            return self.close(Some(failure));
        }
        if self.silent_at() <= now {
            self.finish(now);
            return self.close(Some(Failure::Silent));
        }
        if self.end_at() <= now {
            if self.ending.is_some() {
                return self.close(None);
            }
            self.finish(now);
        }
    }

    fn next_timeout(&self) -> Time {
        if self.is_over {
            return Time::NEVER;
        }
        let progress = if self.ending.is_none() { self.next_progress } else { Time::NEVER };
        self.sender.next_timeout().min(self.silent_at()).min(self.end_at()).min(progress)
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        let Some(control) = self.control.as_mut().filter(|_| !self.is_over) else {
            return self.sender.poll_transmit(now, buffer);
        };
        if u64::from(self.next) >= MAX_PACKETS_WITH_SCOUTS {
            return Next::Idle;
        }
        if self.ending.is_some() {
            if now < self.last_scout + LAST_GAP {
                return Next::WaitUntil(self.last_scout + LAST_GAP);
            }
            self.last_scout = now;
            return self.write(now, Action::Scout { is_urgent: true }, buffer);
        }
        let in_flight = self.sent_bits - self.passed_bits;
        match control.next(now, in_flight, self.next) {
            Action::Wait(until) => Next::WaitUntil(until),
            action => self.write(now, action, buffer),
        }
    }

    fn is_finished(&self) -> bool {
        self.is_over
    }
}
