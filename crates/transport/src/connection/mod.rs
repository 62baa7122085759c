//! A connection: QUIC below, flows of units above.

mod assembly;
mod bearing;
mod clocks;
mod closing;
mod control;
mod early;
mod errors;
mod frames;
#[cfg(test)]
mod fuzz_tests;
mod gate;
#[cfg(test)]
mod hostile_tests;
mod incoming;
mod memory;
mod migration;
mod receive_flow;
mod receiving;
mod repairs;
mod send_flow;
mod sending;
#[cfg(test)]
mod share_tests;
mod silence;
mod statistics;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use noq_proto::{Event as StackEvent, PathId, StreamEvent};
use ontempo_foundation::{Bytes, Duration, Rate, Time};

use crate::close::{CloseReason, Closed};
use crate::config::Configuration;
use crate::flow::{Delivery, FlowConfig, FlowId, Outgoing};
use crate::identity::Token;
use crate::qlog::Trace;
use crate::quic::{Epoch, SharedAccount, Watched, watched};
use crate::wire::{ALPN, other_version};
use clocks::Clocks;
use closing::{LastWord, closed};
use control::Control;
use gate::{AckGate, Gate};
use migration::{Moved, Proofs};
use ontempo_udp::Dscp;
use receiving::Receiving;
use sending::Sending;
use silence::Carried;

pub use errors::FlowError;
pub(crate) use errors::Violation;
pub(crate) use receive_flow::cost;
pub use send_flow::SendError;
pub use statistics::{ConnectionStatistics, DelayStatistics, ReceiveStatistics, SendStatistics};

/// Probes that the stack sends on a probe timeout (RFC 9002, section 6.2.4).
const MAX_PROBES: u8 = 2;

/// Round trips for which a loss is being repaired: the request and its answer, once again if the first is lost, too.
const REPAIR_ROUND_TRIPS: u64 = 2;

/// At most for so long.
const MAX_HURRY: Duration = Duration::from_secs(2);

/// An event for the application.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConnectionEvent {
    Early,
    Open,
    FlowOpened(FlowId, FlowConfig),
    Readable(FlowId),
    Writable(FlowId),
    Dropped(FlowId, Vec<u64>),
    FlowEnded(FlowId, ReceiveStatistics),
    FlowSettled(FlowId, SendStatistics),
    FlowAllowed,
    Closed(Closed),
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// QUIC's handshake, then our own.
    Handshake,
    /// A client knows the server's limits, not yet its answer to the token.
    Early,
    Open,
    /// Closed by either side; the peer is being notified.
    Closed,
}

/// Result of polling a connection for a packet.
pub(crate) enum Step {
    /// One or more, in the buffer.
    Transmit(noq_proto::Transmit),
    /// Nothing before this time.
    Wait(Time),
    /// Nothing before an event.
    Nothing,
}

/// A connection to a peer.
pub struct Connection {
    stack: noq_proto::Connection,
    config: Arc<Configuration>,
    token: Token,
    /// A second token that admits a client, and whether this one has presented it.
    other_token: Option<Token>,
    has_other_token: bool,
    epoch: Epoch,
    account: SharedAccount,
    trace: Trace,
    watched: Watched,
    /// Numbers of received packets; reused buffer.
    opened: Vec<u64>,
    stage: Stage,
    /// Deadline of the handshake.
    handshake_ends: Time,
    gate: Gate,
    acks: AckGate,
    clocks: Clocks,
    control: Control,
    sending: Sending,
    receiving: Receiving,
    events: VecDeque<ConnectionEvent>,
    /// True if the stack may have something to send that must not be delayed.
    urgent: bool,
    /// True if the stack's last transmission was all that it had, and nothing has happened since.
    is_dry: bool,
    /// How long before now the time is that [`progress`](Self::progress) is given: what it processes lay unread.
    pub(crate) lain: Duration,
    /// When either side last asked for repairs.
    repairs_asked_at: Option<Time>,
    /// Probes that the stack may send before anything else.
    probes: u8,
    /// True if anything happened since the last progress.
    pub(crate) touched: bool,
    /// The peer's stack address at the last check.
    stack_remote: Option<std::net::SocketAddr>,
    moved: Option<Moved>,
    /// Smoothed round trip to the last address that was validated.
    round_trip: Duration,
    proofs: Proofs,
    /// Time of the last arrival, and of the last reaction to silence.
    heard: Time,
    /// Time of the last stream data or datagram from the peer.
    pub(super) answered: Time,
    tried: Time,
    /// Time of the last probe of a side of which nothing was acknowledged, and whether it is still to be sent.
    probed: Time,
    owes_probe: bool,
    /// After a restart, until the stack's timer has expired.
    owes_stack_probe: bool,
    carried: Carried,
    /// When units were first sent after the last arrival, or before it.
    asked: Option<Time>,
    last_word: LastWord,
    dscp: Option<Dscp>,
    /// Memory of what the application has received and not processed, in bytes.
    unprocessed: Arc<AtomicU64>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn new(
        now: Time,
        stack: noq_proto::Connection,
        config: Arc<Configuration>,
        token: Token,
        epoch: Epoch,
        (account, trace): (SharedAccount, Trace),
    ) -> Self {
        let watched = watched(&stack);
        Self {
            watched,
            opened: Vec::new(),
            stage: Stage::Handshake,
            handshake_ends: now + config.handshake_timeout,
            gate: Gate::new(config.pacing),
            acks: AckGate::default(),
            clocks: Clocks::default(),
            control: Control::new(now),
            sending: Sending::default(),
            receiving: Receiving::default(),
            events: VecDeque::new(),
            urgent: true,
            is_dry: false,
            lain: Duration::ZERO,
            repairs_asked_at: None,
            probes: 0,
            touched: true,
            stack_remote: None,
            moved: None,
            round_trip: migration::UNKNOWN_ROUND_TRIP,
            proofs: Proofs::default(),
            heard: now,
            answered: now,
            tried: now,
            probed: now,
            owes_probe: false,
            owes_stack_probe: false,
            carried: Carried::starting(now),
            asked: None,
            last_word: LastWord::default(),
            dscp: None,
            unprocessed: Arc::default(),
            stack,
            config,
            token,
            other_token: None,
            has_other_token: false,
            epoch,
            account,
            trace,
        }
    }

    /// Admits a client that presents this token, too.
    pub(crate) fn admit(&mut self, other: Option<Token>) {
        self.other_token = other;
    }

    /// True if the client has presented the token of [`Endpoint::admit`](crate::Endpoint::admit).
    pub fn has_other_token(&self) -> bool {
        self.has_other_token
    }

    /// Opens a flow to the peer.
    ///
    /// # Errors
    /// If the connection is not open, the peer allows no more flows or has not yet taken those that
    /// are finished, or the label is too long.
    pub fn open_flow(&mut self, config: FlowConfig) -> Result<FlowId, FlowError> {
        if !self.may_send() {
            return Err(FlowError::NotOpen);
        }
        self.touched = true;
        let number = self.sending.open(config, &mut self.control)?;
        Ok(FlowId::outgoing(number))
    }

    /// Queues a unit and returns its number. When it is sent is decided by the
    /// congestion control.
    ///
    /// # Errors
    /// If the flow is full or does not exist, or the unit is invalid; it is then not queued.
    pub fn send(&mut self, now: Time, flow: FlowId, unit: Outgoing) -> Result<u64, SendError> {
        if !self.may_send() {
            return Err(SendError::NotOpen);
        }
        self.touched = true;
        if !flow.outgoing {
            return Err(SendError::NoFlow);
        }
        let length = unit.data.len() as u64;
        let id = self.sending.send(now, flow.number, unit, &self.config)?;
        self.trace.unit(now, "queued", flow, id, &[("length", length)]);
        Ok(id)
    }

    pub(crate) fn configuration(&self) -> &Configuration {
        &self.config
    }

    /// Maximum size of a unit accepted by the peer and this side, in bytes.
    pub fn longest_unit(&self) -> u64 {
        self.sending.longest_unit(&self.config)
    }

    /// Finishes a flow: nothing more will be sent on it; queued units still arrive.
    pub fn finish_flow(&mut self, flow: FlowId) {
        if flow.outgoing {
            self.touched = true;
            self.sending.finish(flow.number);
        }
    }

    /// The next unit of a flow to deliver; `None` if there is none now. Units that are
    /// not taken keep the peer from sending more (backpressure).
    pub fn receive(&mut self, flow: FlowId) -> Option<Delivery> {
        if flow.outgoing {
            return None;
        }
        let delivery = self.receiving.take(flow.number)?;
        self.touched = true;
        if let Delivery::Unit(unit) = &delivery {
            let length = unit.data.len() as u64;
            self.trace.unit(self.heard, "delivered", flow, unit.id, &[("length", length)]);
        }
        Some(delivery)
    }

    /// Closes the connection with [`CloseReason::Done`] and a sentence of at most 200 bytes. What
    /// has not arrived yet may be lost.
    pub fn close(&mut self, now: Time, sentence: &str) {
        self.close_with(now, CloseReason::Done, sentence);
    }

    /// True if all queued units have arrived or been dropped, and the events were polled.
    pub fn is_idle(&self) -> bool {
        self.sending.is_idle() && self.control.is_idle()
    }

    /// True if the peer has proved to receive at its address: QUIC's handshake is complete.
    pub(crate) fn is_validated(&self) -> bool {
        !self.stack.is_handshaking()
    }

    /// True while units can be sent and received; sent also while [`is_early`](Self::is_early).
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Sets the DSCP of the packets to the peer, also after a migration.
    pub fn mark(&mut self, dscp: Dscp) {
        self.dscp = Some(dscp);
    }

    pub(crate) fn dscp(&self) -> Option<Dscp> {
        self.dscp
    }

    /// Updates the packet protection keys.
    pub fn update_keys(&mut self) {
        self.touched = true;
        self.urgent = true;
        self.stack.force_key_update();
    }

    /// Statistics of a sending flow.
    pub fn send_statistics(&mut self, now: Time, flow: FlowId) -> Option<SendStatistics> {
        if flow.outgoing { self.sending.statistics(now, flow.number) } else { None }
    }

    /// Statistics of a receiving flow.
    pub fn receive_statistics(&mut self, now: Time, flow: FlowId) -> Option<ReceiveStatistics> {
        if flow.outgoing { None } else { self.receiving.statistics(now, flow.number) }
    }

    /// The bit rate that the path bears, for the encoder; `None` before it is known. It falls at once
    /// and rises by 5 % a second.
    pub fn target_bitrate(&self) -> Option<Rate> {
        self.sending.target()
    }

    /// The smoothed round trip of [`statistics`](Self::statistics), which costs more.
    pub fn round_trip(&self) -> Option<Duration> {
        self.account.read().srtt
    }

    /// The peer's address as the stack knows it.
    pub(crate) fn stack_remote(&self) -> Option<std::net::SocketAddr> {
        Some(self.stack.network_path(PathId::ZERO).ok()?.remote())
    }

    fn fail(&mut self, now: Time, violation: Violation) {
        let sentence = format!("the peer broke the protocol: {violation}");
        self.end(now, CloseReason::ProtocolViolation, sentence, &violation.to_string());
    }

    pub(crate) fn stack(&mut self) -> &mut noq_proto::Connection {
        &mut self.stack
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.stack.is_drained()
    }

    pub(crate) fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// A datagram was passed to the stack. True if it had a packet of application data.
    pub(crate) fn after_datagram(&mut self, now: Time) -> bool {
        self.watched.take(&mut self.opened);
        let is_opened = !self.opened.is_empty();
        if is_opened {
            self.heard = now;
        }
        self.trace.received(now, &self.opened);
        for number in self.opened.drain(..) {
            self.acks.on_packet(now, number);
        }
        is_opened
    }

    /// Until when each packet is to be processed as soon as it arrives: something was lost, and is repaired.
    pub(crate) fn hurries_until(&self, now: Time) -> Time {
        let lost = self.acks.gap_at().max(self.account.lost_at());
        let Some(since) = lost.max(self.repairs_asked_at) else { return Time::ZERO };
        if now.since(since) > MAX_HURRY {
            return Time::ZERO;
        }
        let round_trip = self.round_trip().unwrap_or(self.config.assumed_round_trip);
        since + (round_trip * REPAIR_ROUND_TRIPS).min(MAX_HURRY)
    }

    /// Handles timeouts.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let due = self.stack.poll_timeout().is_some_and(|at| self.epoch.time(at) <= now);
        if due {
            self.stack.handle_timeout(self.epoch.instant(now));
            self.owes_stack_probe = false;
            self.urgent = true;
            self.probes = MAX_PROBES;
        }
        self.try_harder(now);
    }

    /// Processes everything possible except sending.
    pub(crate) fn progress(&mut self, now: Time) {
        self.touched = false;
        self.is_dry = false;
        while let Some(event) = self.stack.poll() {
            self.on_stack_event(now, event);
        }
        if self.is_greeting() && now >= self.handshake_ends {
            let limit = self.config.handshake_timeout;
            let sentence = format!("no answer came within {limit}");
            self.end(
                now,
                CloseReason::NoAnswer,
                sentence,
                "the handshake did not complete in time",
            );
        }
        if self.stage == Stage::Open && now >= self.answerless_at() {
            let sentence = "the peer no longer answers".to_owned();
            self.end(now, CloseReason::NoAnswer, sentence, "no answer");
        }
        if let Err(violation) = self.work(now) {
            self.fail(now, violation);
        }
        self.touched |= std::mem::take(&mut self.lain) > Duration::ZERO;
    }

    fn work(&mut self, now: Time) -> Result<(), Violation> {
        if self.stage == Stage::Closed || self.stack.is_handshaking() {
            return Ok(());
        }
        self.read_control(now)?;
        if self.is_greeting() {
            self.read_early(now)?;
        }
        if self.stage == Stage::Open {
            self.read_units(now)?;
            self.request_repairs(now);
            self.report_receiving(now);
        }
        // What has to leave is decided by the present, when all has been processed that lay unread.
        if self.may_send() && self.lain == Duration::ZERO {
            self.control.ask_time(now, self.config.clock_interval);
            // A flow's opening precedes its units: written after them it could wait for flow
            // control credit that they use and, unopened, never release.
            self.urgent |= self.control.write(&mut self.stack)?;
            self.write_units(now);
        }
        self.urgent |= self.control.write(&mut self.stack)?;
        Ok(())
    }

    fn on_stack_event(&mut self, now: Time, event: StackEvent) {
        if matches!(event, StackEvent::Stream(_) | StackEvent::DatagramReceived) {
            self.answered = now;
        }
        match event {
            StackEvent::Connected => {
                self.trace.connected();
                let protocol = watched(&self.stack);
                match protocol.protocol() {
                    Some(other) if other != ALPN => {
                        let sentence = other_version(other);
                        self.end(now, CloseReason::Unsupported, sentence.clone(), &sentence);
                    }
                    _ => self.greet(),
                }
            }
            StackEvent::ConnectionLost { reason } => {
                if self.stage != Stage::Closed {
                    self.look_once_more(now);
                    self.events.push_back(ConnectionEvent::Closed(closed(&reason)));
                }
                self.stage = Stage::Closed;
                self.end_sending(now);
            }
            StackEvent::Stream(StreamEvent::Opened { .. }) => self.receiving.accept = true,
            StackEvent::Stream(StreamEvent::Readable { id }) => {
                if self.control.stream == Some(id) {
                    self.control.readable = true;
                } else {
                    self.receiving.readable.insert(id);
                }
            }
            StackEvent::Stream(StreamEvent::Finished { id }) => {
                self.sending.on_finished(id);
            }
            StackEvent::Stream(StreamEvent::Stopped { .. }) => {
                self.fail(now, Violation::OutOfPlace);
            }
            StackEvent::HandshakeDataReady => self.send_limits(),
            StackEvent::DatagramReceived => self.receiving.datagrams = true,
            _ => {}
        }
    }

    /// Data in datagrams received together with the end still counts; units ready by then can still
    /// be taken.
    fn look_once_more(&mut self, now: Time) {
        // A peer that violated the protocol is gone, too.
        if self.read_control(now).is_ok() && self.read_units(now).is_ok() {
            self.report_receiving(now);
        }
        self.trace_fates(now);
        self.sending.end_flows(now, &mut self.control, &mut self.events);
    }

    /// Writes the next packets to send at `now` to `out`, after all [progress](Self::progress).
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Step {
        if self.last_word.is_unwanted() {
            return Step::Nothing;
        }
        let carrying = self.may_send();
        if carrying && self.is_dry {
            return Step::Nothing;
        }
        if carrying
            && !self.urgent
            && self.sending.is_idle()
            && let Some(until) = self.acks.holds(now)
        {
            return Step::Wait(until);
        }
        let most = match self.gate.allowed(now, self.max_batch(carrying)) {
            Ok(most) => most,
            Err(_) if !carrying || self.is_to_prove() => 1,
            Err(_) if self.config.asks_once && self.sending.is_idle() => 1,
            Err(until) => return Step::Wait(until),
        };
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        let polled = self.stack.poll_transmit(self.epoch.instant(now), most, out);
        let sent = polled.or_else(|| self.prove(now, out)).or_else(|| self.probe(now, out));
        let Some(transmit) = sent else {
            self.urgent = false;
            self.acks.release();
            return self.close_again(now, out).map_or(Step::Nothing, Step::Transmit);
        };
        self.owes_probe = false;
        self.last_word.keep(&transmit, out);
        self.probes = self.probes.saturating_sub(1);
        let account = self.account.read();
        if let Some(since) = self.account.waits_since() {
            self.carried.note(since, account.delivered);
        }
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        for start in (0..transmit.size).step_by(segment) {
            let size = segment.min(transmit.size - start);
            if carrying {
                self.gate.on_sent(now, Bytes::new(size as u64), &account);
            }
        }
        if carrying && !self.sending.is_idle() {
            self.note_asked(now);
        }
        self.is_dry = self.config.asks_once
            && carrying
            && self.probes == 0
            && transmit.size < most.get() * segment
            && !self.sending.waits();
        if self.is_dry {
            self.urgent = false;
            self.acks.release();
        } else {
            // There may be space for more units now.
            self.touched |= !self.sending.is_idle();
        }
        Step::Transmit(transmit)
    }

    /// How many packets one transmission may have. All packets of a transmission have the size of
    /// its first; behind a short one, a probe, an acknowledgement or one of the handshake, the stack was observed to fill
    /// cwnd with packets too short for any frame, and then to wait for ever, and to panic where a frame did not
    /// fit. Anything that may begin with such a packet is therefore polled one by one.
    fn max_batch(&self, carrying: bool) -> usize {
        let short = self.probes > 0 || self.is_early() || (carrying && self.sending.is_idle());
        if short { 1 } else { self.config.segments }
    }

    /// The next timeout.
    pub(crate) fn wake_at(&mut self) -> Time {
        let mut wake = self.stack.poll_timeout().map_or(Time::NEVER, |at| self.epoch.time(at));
        match self.stage {
            Stage::Handshake => wake = wake.min(self.handshake_ends),
            Stage::Early => {
                wake = wake.min(self.handshake_ends).min(self.sending.next_deadline());
                wake = wake.min(self.control.next_question(self.config.clock_interval));
            }
            Stage::Open => {
                wake = wake.min(self.sending.next_deadline());
                wake = wake.min(self.receiving.next_end());
                wake = wake.min(self.receiving.streams.next_look());
                wake = wake.min(self.silent_at()).min(self.unacknowledged_at());
                wake = wake.min(self.answerless_at());
                wake = wake.min(self.control.next_question(self.config.clock_interval));
            }
            Stage::Closed => wake = wake.min(self.last_word.next()),
        }
        wake
    }
}

/// Flows by their number.
type Flows<T> = BTreeMap<u64, T>;
