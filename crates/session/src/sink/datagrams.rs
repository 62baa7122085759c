//! What the thread runs that sends datagrams when they are due.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ontempo_foundation::{Duration, Time};
use ontempo_media::{Depacketizer, DepacketizerOptions, RestoredDatagram, Unit};
use ontempo_udp::{Datagram, Next, Protocol, Transmit};

use super::{Counts, DescriptionTaker, StreamDepacketizer, is_usable};
use crate::description::{is_description, of_packet};
use crate::intake::Intake;
use crate::message::Content;
use crate::rtcp::{MAX_PACKET, is_rtcp};

/// How much earlier than it is due a whole datagram may leave, together with one that is due: one wake-up and one call for all of
/// them. Two datagrams of 4 Mbit/s.
const TOGETHER: Duration = Duration::from_millis(3);

/// Most bytes of the datagrams that leave together.
const MAX_TOGETHER: usize = 32 << 10;

/// Maximum bytes of memory of the units queued for the thread that sends datagrams, as they count
/// in its depacketizer; beyond it the receiver waits, and then its sender.
const MAX_QUEUED: usize = 8 << 20;

/// Commands to the thread that sends datagrams.
pub(crate) enum SinkCommand {
    /// A unit, and when it arrived.
    Unit(Time, Box<Unit>),
    Abandon(Vec<u64>),
    Finish,
}

/// Least time between two descriptions that are taken.
const DESCRIBED_EACH: Duration = Duration::from_secs(1);

/// What the thread that sends datagrams holds, bytes of memory.
#[derive(Default)]
pub(crate) struct Load {
    /// In the queue of its commands.
    pub(super) queued: AtomicUsize,
    /// In its depacketizer.
    pub(super) held: AtomicUsize,
}

impl Load {
    /// No room for another unit. Units that arrive without a pause would otherwise keep the thread
    /// from sending.
    pub(super) fn is_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= MAX_QUEUED
            || self.held.load(Ordering::Relaxed) > DepacketizerOptions::default().max_bytes
    }
}

impl SinkCommand {
    /// Memory that it takes, in the queue or in the depacketizer, bytes.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Unit(_, unit) => Depacketizer::cost(unit),
            Self::Abandon(all) => Depacketizer::cost_of_abandoned(all.len()),
            Self::Finish => 0,
        }
    }
}

/// Sends restored datagrams when they are due.
pub(crate) struct Datagrams {
    depacketizer: StreamDepacketizer,
    to: SocketAddr,
    control: Option<SocketAddr>,
    described: Option<DescriptionTaker>,
    /// The latest description's packet, and when it was taken.
    description: Vec<u8>,
    described_at: Option<Time>,
    pub(super) counts: Arc<Mutex<Counts>>,
    pub(super) load: Arc<Load>,
    pub(super) intake: Arc<Intake>,
    /// Something was due: what has arrived over the connection is read behind it.
    is_to_visit: bool,
    /// One that leaves now and could not leave together with those before it.
    next: Option<RestoredDatagram>,
    /// Datagrams are released at times, also after the end of the stream.
    is_timed: bool,
    has_ended: bool,
}

impl Datagrams {
    /// For a player at `to`, with RTCP at `control`; `described` takes descriptions.
    pub(super) fn new(
        depacketizer: StreamDepacketizer,
        to: SocketAddr,
        (control, described): (Option<SocketAddr>, Option<DescriptionTaker>),
        counts: Counts,
        is_timed: bool,
    ) -> Self {
        Self {
            depacketizer,
            to,
            control,
            described,
            description: Vec::new(),
            described_at: None,
            counts: Arc::new(Mutex::new(counts)),
            load: Arc::default(),
            intake: Arc::default(),
            is_to_visit: false,
            next: None,
            is_timed,
            has_ended: false,
        }
    }

    /// Takes a packet with a description, which is for no player. It is written to a file: at most one a second, another
    /// comes again.
    fn describe(&mut self, now: Time, packet: &[u8]) {
        let is_soon = self.described_at.is_some_and(|at| now.since(at) < DESCRIBED_EACH);
        let is_taken = !is_soon && self.description != packet && packet.len() <= MAX_PACKET;
        if let Some(described) = self.described.as_mut().filter(|_| is_taken) {
            (self.description, self.described_at) = (packet.to_vec(), Some(now));
            described(of_packet(packet));
        }
    }

    /// Takes what has come over the connection that is followed, up to the limit of memory.
    fn take_in(&mut self) {
        let (depacketizer, counts) = (&mut self.depacketizer, &self.counts);
        let most = DepacketizerOptions::default().max_bytes;
        // A unit may be thousands of datagrams, and one call sends a few.
        if depacketizer.depacketizer.waiting() > most {
            return;
        }
        self.intake.take(|came, content| {
            let counts = || counts.lock().unwrap_or_else(PoisonError::into_inner);
            match content {
                Content::Unit(unit) => depacketizer.push(came, &unit),
                Content::Gap(all) => {
                    counts().has_gaps = true;
                    all.into_iter().for_each(|one| depacketizer.depacketizer.abandon(one));
                }
                Content::End { datagrams, .. } => counts().end = Some(datagrams),
            }
            let is_full = depacketizer.depacketizer.waiting() > most;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// The next datagram to be sent of those that `poll` has.
    fn next(
        &mut self,
        poll: impl Fn(&mut Depacketizer) -> Option<RestoredDatagram>,
        now: Time,
    ) -> Option<RestoredDatagram> {
        if let Some(kept) = self.next.take() {
            return Some(kept);
        }
        loop {
            let restored = poll(&mut self.depacketizer.depacketizer)?;
            self.counts.lock().unwrap_or_else(PoisonError::into_inner).count(&restored);
            if is_description(&restored.data) {
                if restored.is_whole {
                    self.describe(now, &restored.data);
                }
            } else if is_usable(&restored) {
                return Some(restored);
            }
        }
    }

    fn destination(&self, datagram: &[u8]) -> SocketAddr {
        self.control.filter(|_| is_rtcp(datagram)).unwrap_or(self.to)
    }

    fn note_load(&self) {
        let held = self.depacketizer.depacketizer.waiting();
        self.load.held.store(held, Ordering::Relaxed);
    }
}

impl Protocol for Datagrams {
    type Command = SinkCommand;

    fn handle(&mut self, _: Time, _: Datagram<'_>) {}

    fn handle_command(&mut self, _: Time, command: SinkCommand) {
        self.load.queued.fetch_sub(command.cost(), Ordering::Relaxed);
        match command {
            SinkCommand::Unit(arrived, unit) => self.depacketizer.push(arrived, &unit),
            SinkCommand::Abandon(all) => {
                all.into_iter().for_each(|one| self.depacketizer.depacketizer.abandon(one))
            }
            SinkCommand::Finish => {
                self.has_ended = true;
                // Timed datagrams are released when they are due.
                if !self.is_timed {
                    self.depacketizer.depacketizer.finish();
                }
            }
        }
        self.note_load();
    }

    fn handle_timeout(&mut self, _: Time) {
        self.is_to_visit = true;
    }

    fn next_timeout(&self) -> Time {
        if self.next.is_some() || self.intake.has_more() {
            return Time::ZERO;
        }
        self.depacketizer.depacketizer.next_timeout()
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.take_in();
        let Some(RestoredDatagram { data, .. }) = self.next(|all| all.poll(now), now) else {
            if std::mem::take(&mut self.is_to_visit) {
                self.intake.visit();
                self.take_in();
            }
            self.note_load();
            return Next::Idle;
        };
        buffer.extend_from_slice(&data);
        let mut transmit = Transmit::to(self.destination(&data));
        let segment = u16::try_from(data.len()).ok().filter(|size| *size > 0 && self.is_timed);
        while segment.is_some() && buffer.len() + data.len() <= MAX_TOGETHER {
            let Some(next) = self.next(|all| all.poll_whole(now + TOGETHER), now) else { break };
            if next.data.len() != data.len() || self.destination(&next.data) != transmit.destination
            {
                self.next = Some(next);
                break;
            }
            buffer.extend_from_slice(&next.data);
            transmit.segment = segment;
        }
        self.note_load();
        Next::Transmit(transmit)
    }

    fn is_finished(&self) -> bool {
        self.has_ended && self.next_timeout() == Time::NEVER
    }
}

#[cfg(test)]
mod tests {
    use ontempo_media::Release;
    use ontempo_transport::live::{Listener, Options, connect};
    use ontempo_transport::{FlowConfig, Identity, Token, Trust};

    use super::super::tests::{many, unit_of};
    use super::*;
    use crate::message;

    const DELAY: Duration = Duration::from_millis(100);

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    fn datagrams() -> Datagrams {
        let release = Release::AsArrived { delay: DELAY, grace: Duration::from_millis(50) };
        let options = DepacketizerOptions { release, ..DepacketizerOptions::default() };
        let depacketizer = StreamDepacketizer {
            depacketizer: Depacketizer::new(options),
            begins_with_first: false,
            patience: Duration::ZERO,
        };
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        Datagrams::new(depacketizer, to, (None, None), Counts::default(), true)
    }

    /// All of a datagram of eight bytes, or the first half, as it came to the sender and to the receiver.
    fn come(to: &mut Datagrams, datagram: u64, arrived: Time, is_whole: bool) {
        let length = if is_whole { 8 } else { 4 };
        to.depacketizer.push(arrived, &unit_of(datagram, arrived, length));
    }

    /// The numbers of the datagrams of the next call.
    fn call(from: &mut Datagrams, now: Time) -> Vec<u64> {
        let mut buffer = Vec::new();
        let Next::Transmit(_) = from.poll_transmit(now, &mut buffer) else { return Vec::new() };
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes);
        buffer.chunks(8).map(|bytes| number(bytes).expect("eight bytes")).collect()
    }

    #[test]
    fn a_datagram_leaves_on_time_and_takes_those_of_the_next_moment_with_it() {
        let mut all = datagrams();
        for (datagram, millis) in [(0, 0), (1, 2), (2, 4)] {
            come(&mut all, datagram, at(millis * 1_000), true);
        }
        assert_eq!(all.next_timeout(), at(100_000), "no later than it is due");
        assert!(call(&mut all, at(99_999)).is_empty(), "nothing leaves early alone");
        assert_eq!(call(&mut all, at(100_000)), [0, 1]);
        assert!(call(&mut all, at(100_000)).is_empty());
        assert_eq!(all.next_timeout(), at(104_000));
        assert_eq!(call(&mut all, at(104_000)), [2]);
    }

    #[test]
    fn a_datagram_with_missing_parts_is_not_given_up_early() {
        let mut all = datagrams();
        come(&mut all, 0, at(0), true);
        come(&mut all, 1, at(1_000), false);
        assert_eq!(call(&mut all, at(100_000)), [0]);
        assert_eq!(all.next_timeout(), at(151_000));
        let before_its_end = at(150_000);
        assert!(call(&mut all, before_its_end).is_empty());
    }

    #[test]
    fn no_more_units_are_taken_while_there_is_no_room_for_their_datagrams() {
        let options = Options::default();
        let identity = Identity::self_signed(&["localhost"]).expect("made");
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let token = Token::new(b"open").expect("short");
        let listener = Listener::bind(local, &identity, token.clone(), &options).expect("bound");
        let trust = Trust::Fingerprint(identity.fingerprint());
        let near = connect(listener.local(), "localhost", &trust, token, &options);
        let near = near.expect("connected");
        let far = listener.accept();
        let flow = near.open_flow(FlowConfig::default()).expect("opened");
        const UNITS: usize = 8;
        for unit in 0..UNITS {
            flow.send(message::media(&many(unit))).expect("sent");
        }
        while flow.statistics().is_none_or(|all| all.settled < UNITS as u64) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut all = datagrams();
        all.intake.follow(far.accept_flow().expect("a flow"));
        let most = DepacketizerOptions::default().max_bytes + Depacketizer::cost(&many(0));
        for _ in 0..2 * UNITS {
            call_any(&mut all);
            assert!(all.depacketizer.depacketizer.waiting() <= most);
        }
        assert!(all.intake.has_more(), "the rest waits");
    }

    #[test]
    fn a_list_of_abandoned_datagrams_counts_as_what_it_makes_of_itself() {
        let options =
            DepacketizerOptions { release: Release::InOrder, ..DepacketizerOptions::default() };
        let mut depacketizer = Depacketizer::new(options);
        let all: Vec<u64> = (1..=1_000).collect();
        all.iter().for_each(|one| depacketizer.abandon(*one));
        assert!(depacketizer.waiting() > 0);
        assert!(SinkCommand::Abandon(all).cost() >= depacketizer.waiting());
    }

    fn call_any(from: &mut Datagrams) {
        from.poll_transmit(Time::ZERO, &mut Vec::new());
    }
}
