//! Receives a stream over several paths: connections of one sender, which alone knows the stream's secret.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::Duration;
use ontempo_transport::live::{Connection, ReceiveFlow, SendFlow};
use ontempo_transport::{CloseReason, Delivery, DeliveryOrder, FlowConfig};

use super::{Joined, PathLabel};
use crate::contest::Verdict;
use crate::error::Error;
use crate::flowing::Flowing;
use crate::message::Report;
use crate::receiver::{Ended, PROGRESS, Receiver, ReceiverEvent, ReceiverHandler};
use crate::reporting::{send, with_counts};
use crate::takeover::{Contender, Entrance, MAX_AT_ONCE, holder};

/// Deliveries of one path before the next one is looked at, and bytes: a unit of 100 kB may be 32,768 datagrams.
const TURN: usize = 64;
const TURN_BYTES: usize = 256 << 10;

/// How often connections are looked for that join: the sender uses a path as soon as it has one.
const JOIN_STEP: Wall = Wall::from_millis(10);

/// How long deliveries are waited for after the stream's end.
const REST: Wall = Wall::from_millis(20);

/// What has come over a path.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPath {
    /// Its number at the sender.
    pub path: usize,
    /// From where.
    pub remote: SocketAddr,
    /// UDP payload of its connection.
    pub bytes_received: u64,
    /// Median of its clock comparisons.
    pub round_trip: Option<Duration>,
}

/// Wakes the receiver when a path has something.
#[derive(Clone, Default)]
struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    fn ring(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_one();
    }

    fn wait(&self, limit: Wall) {
        let rung = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(rung, limit, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// A path's connection.
struct Member {
    path: usize,
    connection: Connection,
    flow: ReceiveFlow,
    reports: SendFlow,
}

impl<H: ReceiverHandler> Receiver<H> {
    /// Receives over the first connection of a stream, and over those that join it.
    pub(crate) fn receive_paths(
        &mut self,
        connection: Connection,
        flow: ReceiveFlow,
        label: PathLabel,
    ) -> Result<Ended, Error> {
        let PathLabel { label, path } = label;
        let is_known =
            self.stream.as_ref().is_some_and(|stream| stream.label.session == label.session);
        if self.is_of_another(label, None, is_known) {
            self.refuse(&connection, "the stream of another sender has not ended")?;
            return Ok(Ended::Refused);
        }
        // A path that has come after the end.
        if !is_known && self.ended_session == Some(label.session) {
            connection.close_with(CloseReason::Done, "the stream has ended");
            return Ok(Ended::Refused);
        }
        if !is_known && !self.takes(&connection, label)? {
            return Ok(Ended::Refused);
        }
        if !is_known {
            // Each path has its own order; datagrams are put in order when they are restored.
            let config = FlowConfig { order: DeliveryOrder::InOrder, ..flow.config().clone() };
            self.begin_stream(label, &config)?;
            self.joined = Joined::new();
        }
        if let Some(stream) = &mut self.stream {
            stream.lost_at = None;
        }
        let (mut members, bell, mut contender) = (Vec::new(), Bell::default(), None);
        self.join(&mut members, &bell, (connection, flow, path))?;
        if !is_known {
            self.emit_latency(label.latency)?;
        }
        let ended = self.receive_members(&mut members, &bell, &mut contender);
        if matches!(ended, Ok(Ended::Complete)) {
            self.contender = contender;
        }
        if let Err(error) = &ended {
            let sentence = match error {
                Error::Incomplete(sentence) => sentence.as_str(),
                _ => "it cannot write what it receives",
            };
            for member in &members {
                member.connection.close_with(CloseReason::Failed, sentence);
            }
        }
        ended
    }

    /// A connection of the stream is one of its paths from now on, in place of an earlier one.
    fn join(
        &mut self,
        members: &mut Vec<Member>,
        bell: &Bell,
        (connection, flow, path): (Connection, ReceiveFlow, usize),
    ) -> Result<(), Error> {
        let remote = connection.remote();
        let Ok(reports) = self.flow_of_reports(&connection) else {
            // It is lost already; what it has brought is acknowledged.
            return self.take_rest(&flow, Wall::ZERO);
        };
        let rings = bell.clone();
        flow.on_change(move || rings.ring());
        bell.ring();
        if let Some(place) = members.iter().position(|member| member.path == path) {
            let old = members.swap_remove(place);
            self.take_rest(&old.flow, Wall::ZERO)?;
        }
        members.push(Member { path, connection, flow, reports });
        members.sort_by_key(|member| member.path);
        self.emit(ReceiverEvent::ReceivingPath { path, remote })
    }

    fn receive_members(
        &mut self,
        members: &mut Vec<Member>,
        bell: &Bell,
        contender: &mut Option<Contender>,
    ) -> Result<Ended, Error> {
        loop {
            if self.is_stopped() {
                if let Some(stream) = &mut self.stream {
                    stream.before = self.joined.report();
                }
                let over: Vec<_> =
                    members.iter().map(|member| (&member.connection, &member.reports)).collect();
                self.stopped(&over)?;
                return Ok(Ended::Stopped);
            }
            if let Some((connection, flow)) = self.poll_paths(members, bell, contender)? {
                return Ok(Ended::Replaced(connection, flow));
            }
            let (mut idle, mut has_ended, mut place) = (true, false, 0);
            while let Some(member) = members.get(place) {
                match self.turn(member)? {
                    Turn::Idle => place += 1,
                    Turn::More => (idle, place) = (false, place + 1),
                    Turn::Ended => (has_ended, place) = (true, place + 1),
                    Turn::Lost(reason) => {
                        let lost = members.remove(place).connection.remote();
                        self.emit(ReceiverEvent::LostPath(lost, reason))?;
                    }
                }
            }
            if has_ended {
                // What came over a path that has not joined yet is acknowledged, and so the sender has ended.
                self.accept_paths(members, bell, contender)?;
                self.end_paths(members)?;
                return Ok(Ended::Complete);
            }
            if members.is_empty() {
                self.accept_paths(members, bell, contender)?;
            }
            if members.is_empty() {
                if let Some(stream) = &mut self.stream {
                    stream.lost_at = Some(Instant::now());
                }
                return Ok(match contender.take() {
                    Some(contender) => {
                        let (connection, flow) = self.follow(contender);
                        Ended::Replaced(connection, flow)
                    }
                    None => Ended::Refused,
                });
            }
            let Some(stream) = &mut self.stream else { return Ok(Ended::Complete) };
            let wait = stream.sink.work(idle)?;
            if idle {
                bell.wait(wait.min(JOIN_STEP));
            }
            if Instant::now() >= self.progress_due {
                self.progress_due = Instant::now() + PROGRESS;
                self.report_paths(members)?;
            }
        }
    }

    /// Takes what a path has.
    fn turn(&mut self, member: &Member) -> Result<Turn, Error> {
        let mut bytes = 0;
        for count in 0..TURN {
            if bytes >= TURN_BYTES || self.is_stopped() {
                break;
            }
            match member.flow.receive_within(Wall::ZERO) {
                Some(Ok(Some(delivery))) => {
                    if let Delivery::Unit(unit) = &delivery {
                        bytes += unit.data.len();
                    }
                    self.take_of_path(delivery)?;
                }
                Some(Ok(None)) => return Ok(Turn::Ended),
                Some(Err(error)) => return Ok(Turn::Lost(error.to_string())),
                None if count == 0 => return Ok(Turn::Idle),
                None => return Ok(Turn::More),
            }
        }
        Ok(Turn::More)
    }

    /// Takes what a flow has, until nothing comes for so long.
    fn take_rest(&mut self, flow: &ReceiveFlow, limit: Wall) -> Result<(), Error> {
        while let Some(Ok(Some(delivery))) = flow.receive_within(limit) {
            self.take_of_path(delivery)?;
        }
        Ok(())
    }

    fn take_of_path(&mut self, delivery: Delivery) -> Result<(), Error> {
        let Delivery::Unit(unit) = delivery else { return Ok(()) };
        match self.joined.take(&unit) {
            Some(content) => {
                self.delays.count(&unit);
                self.take_message(content)
            }
            None => Ok(()),
        }
    }

    /// The sender ends its flows when all has arrived over one path or another, or is too late.
    fn end_paths(&mut self, members: &mut Vec<Member>) -> Result<(), Error> {
        for member in members.iter() {
            self.take_rest(&member.flow, REST)?;
        }
        if let Some(stream) = &mut self.stream {
            stream.before = self.joined.report();
            self.ended_session = Some(stream.label.session);
        }
        let (ends, others): (Vec<_>, Vec<_>) = members
            .drain(..)
            .partition(|member| matches!(member.flow.receive_within(Wall::ZERO), Some(Ok(None))));
        let reports: Vec<_> = ends.iter().chain(&others).map(|one| &one.reports).collect();
        let connection = ends.first().or(others.first()).map(|member| &member.connection);
        match connection {
            Some(connection) => self.end(connection, &reports),
            None => Ok(()),
        }
    }

    /// Polls the listener: paths join, other senders are refused, unless all paths are silent.
    fn poll_paths(
        &mut self,
        members: &mut Vec<Member>,
        bell: &Bell,
        contender: &mut Option<Contender>,
    ) -> Result<Option<(Connection, ReceiveFlow)>, Error> {
        if self.polled_at.elapsed() < JOIN_STEP {
            return Ok(None);
        }
        self.polled_at = Instant::now();
        self.accept_paths(members, bell, contender)?;
        contender.take_if(|contender| contender.is_gone());
        let Some(waiting) = contender else { return Ok(None) };
        let connections = members.iter().map(|member| &member.connection);
        // Without any that is open the flows end, and the contender is the next.
        let Some(holder) = holder(self.held_at, connections) else { return Ok(None) };
        let verdict = waiting.judge(holder);
        if let (Verdict::Open { ask: true }, Some(stream)) = (verdict, &self.stream) {
            members.iter().for_each(|member| send(&member.reports, &stream.last_report));
        }
        if matches!(verdict, Verdict::Open { .. }) {
            return Ok(None);
        }
        let Some(contender) = contender.take() else { return Ok(None) };
        if verdict == Verdict::Stays {
            self.refuse_contender(contender)?;
            return Ok(None);
        }
        for member in members.iter() {
            member.connection.close_with(CloseReason::Busy, "another sender has taken its place");
        }
        Ok(Some(self.follow(contender)))
    }

    /// Takes the connections that wait: paths join, others may follow or are refused.
    fn accept_paths(
        &mut self,
        members: &mut Vec<Member>,
        bell: &Bell,
        contender: &mut Option<Contender>,
    ) -> Result<(), Error> {
        if matches!(self.entrance, Entrance::Calling(_)) {
            return Ok(());
        }
        for _ in 0..MAX_AT_ONCE {
            let Some((connection, flow)) = self.next_flow(Wall::ZERO)? else { break };
            let session = self.stream.as_ref().map(|stream| stream.label.session);
            match flow.config().label.parse() {
                Ok(PathLabel { label, path }) if Some(label.session) == session => {
                    self.join(members, bell, (connection, flow, path))?;
                }
                // It is gone again.
                _ if connection.is_closed().is_some() => {}
                _ => {
                    let next = (connection, flow);
                    contender.take_if(|contender| contender.is_gone());
                    let other = match contender {
                        Some(contender) => contender.keep(next),
                        None if !self.options.once => {
                            *contender = Some(Contender::new(next));
                            None
                        }
                        None => Some(next),
                    };
                    if let Some((connection, _)) = other {
                        self.refuse(&connection, "another is sending")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reports to the sender over all paths, and to the handler.
    fn report_paths(&mut self, members: &[Member]) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let counts = stream.sink.counts();
        let report: Report = with_counts(self.joined.report(), counts);
        let (latency, written_bytes) = (stream.latency(), counts.bytes);
        for sentence in stream.missed(report) {
            self.emit(ReceiverEvent::Missed(sentence))?;
        }
        members.iter().for_each(|member| send(&member.reports, &report));
        let all =
            members.iter().filter_map(|member| Some((member, member.connection.statistics()?)));
        let paths: Vec<_> = all
            .clone()
            .map(|(member, over)| ReceivedPath {
                path: member.path,
                remote: member.connection.remote(),
                bytes_received: over.bytes_received,
                round_trip: over.clock_round_trip,
            })
            .collect();
        let bytes_received = paths.iter().map(|path| path.bytes_received).sum();
        let first = all.map(|(_, over)| over).next();
        let connection =
            first.map(|over| ontempo_transport::ConnectionStatistics { bytes_received, ..over });
        let flows = members.iter().filter_map(|member| member.flow.statistics());
        let busiest = flows.max_by_key(|flow| flow.throughput.as_bits_per_sec());
        self.emit(ReceiverEvent::Paths(&paths))?;
        let delays = self.delays;
        self.emit(ReceiverEvent::Flowing(&Flowing { latency, written_bytes, connection, delays }))?;
        match busiest {
            Some(flow) => self.emit(ReceiverEvent::Progress(&report, &flow)),
            None => Ok(()),
        }
    }
}

/// What came of a look at a path.
enum Turn {
    Idle,
    More,
    Ended,
    Lost(String),
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::receiver::{ReceiverOptions, STEP};
    use crate::takeover::tests::{Nobody, listener};

    #[test]
    fn the_rest_of_a_path_s_turn_is_not_taken_once_the_receiver_is_to_end() {
        let (listener, come) = listener();
        let near = come();
        let connection = listener.accept();
        let sent = near.open_flow(FlowConfig::default()).expect("opened");
        for number in 0..3u32 {
            sent.send(Bytes::from(number.to_be_bytes().to_vec())).expect("sent");
        }
        while sent.statistics().is_none_or(|all| all.settled < 3) {
            std::thread::sleep(STEP);
        }
        let flow = connection.accept_flow().expect("a flow");
        let reports = connection.open_flow(FlowConfig::default()).expect("opened");
        let member = Member { path: 0, connection, flow, reports };
        let stop = Arc::<AtomicBool>::default();
        let options = ReceiverOptions { stop: Arc::clone(&stop), ..ReceiverOptions::default() };
        let mut receiver = Receiver::new(listener, options, Nobody);
        stop.store(true, Ordering::Relaxed);
        receiver.turn(&member).expect("nothing fails");
        assert_eq!(receiver.joined.report().units, 0);
        stop.store(false, Ordering::Relaxed);
        receiver.turn(&member).expect("nothing fails");
        assert_eq!(receiver.joined.report().units, 3);
    }
}
