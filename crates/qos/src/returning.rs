//! A broken TCP connection is made anew: the end that connected connects again, the other one waits for
//! it at its gate. What neither has acknowledged is sent again.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration as Wall, Instant};

use ontempo_foundation::first_of_largest_host;
use ontempo_transport::quic::span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::{Channel, Waiting};
use super::connection::Connection;
use super::core::{deadline, lock, lock_until, try_lock};
use super::facade;
use super::gate::Gate;
use super::maintenance::Maintained;
use super::recovery::{FIRST_PAUSE, Phase, Recovery, Step};
use super::setup::{Returning, SetupError};
use super::stream::read_setup;
use super::sys;
use super::tcp::{Counts, Reader, Writer};
use super::wire::{Counted, Header, Kind, Reason, Setup, WireError};

/// A QoS connection over TCP.
pub(super) type Inner = Connection<TcpStream>;

/// How long an attempt to connect, and its answer, may take: a lost SYN is repeated after a second.
const ATTEMPT: Wall = Wall::from_millis(1_500);

/// The longest pause after a failed attempt.
const MAX_PAUSE: Wall = Wall::from_millis(500);

/// How long a thread waits at once, until it looks whether the connection is still wanted.
const STEP: Wall = Wall::from_millis(50);

/// How long a thread that closes waits at once for the last bytes to be taken.
const FLUSHING: Wall = Wall::from_millis(5);

/// A path over which nothing was acknowledged for this part of `rec_time` is broken: the rest is for
/// another one.
const SILENT_SHARE: u32 = 2;

/// But at least for so long: TCP repeats a lost packet twice meanwhile.
const MIN_SILENCE: Wall = Wall::from_secs(1);

/// Broken connections of a process that wait for their peers; beyond, the oldest of the host that has the
/// largest number ends.
const MAX_AWAITED: usize = 128;

/// How an end brings its connection back.
#[derive(Debug)]
pub(super) enum Way {
    /// It connects again.
    Connect,
    /// It waits for its peer here.
    Await(Arc<Gate>),
}

/// The broken connections that wait for their peers, oldest first.
static AWAITED: Mutex<Vec<(IpAddr, Weak<Inner>)>> = Mutex::new(Vec::new());

/// Waits for a peer, in place of another one if too many are waited for.
fn await_peer(inner: &Arc<Inner>) {
    let mut awaited = lock(&AWAITED);
    let is_other = |one: Arc<Inner>| one.is_broken() && !Arc::ptr_eq(&one, inner);
    awaited.retain(|(_, one)| one.upgrade().is_some_and(is_other));
    awaited.push((inner.core.remote().ip(), Arc::downgrade(inner)));
    if awaited.len() <= MAX_AWAITED {
        return;
    }
    let place = first_of_largest_host(awaited.iter().map(|(host, _)| *host));
    let ended = place.and_then(|place| awaited.remove(place).1.upgrade());
    drop(awaited);
    if let Some(ended) = ended {
        ended.give_up("too many broken connections are waited for", false);
    }
}

/// Connects a new connection with the way to bring it back.
pub(super) fn prepare(inner: &Arc<Inner>, way: Way) {
    let Some(recovery) = &inner.recovery else { return };
    if let Way::Await(gate) = &way {
        gate.know(inner.core.session, recovery.token, inner);
    }
    let (weak, way) = (Arc::downgrade(inner), Arc::new(way));
    recovery.on_lost(move || {
        let (weak, way) = (Weak::clone(&weak), Arc::clone(&way));
        let named = thread::Builder::new().name("ontempo-qos-again".to_owned());
        let spawned = named.spawn({
            let weak = Weak::clone(&weak);
            move || bring_back(&weak, &way)
        });
        if let (Err(error), Some(inner)) = (spawned, weak.upgrade()) {
            inner.give_up(&format!("no thread to bring it back: {error}"), false);
        }
    });
}

/// Brings a broken connection back, or gives it up when its time is over.
fn bring_back(weak: &Weak<Inner>, way: &Way) {
    if let (Way::Await(_), Some(inner)) = (way, weak.upgrade()) {
        await_peer(&inner);
    }
    let (mut pause, mut latest) = (FIRST_PAUSE, None);
    if let Way::Connect = way {
        // It is not kept alive meanwhile.
        let pause = weak.upgrade().and_then(|inner| Some(inner.recovery.as_ref()?.first_pause()));
        thread::sleep(pause.unwrap_or_default());
    }
    loop {
        let Some(inner) = weak.upgrade() else { break };
        let Some(recovery) = &inner.recovery else { break };
        let Phase::Broken(since) = recovery.phase() else { break };
        let left = recovery.rec_time.saturating_sub(since.elapsed());
        if left.is_zero() {
            let most = span(recovery.rec_time);
            let latest = latest.map_or_else(String::new, |error| format!(": {error}"));
            inner.give_up(&format!("not made anew within {most}{latest}"), true);
            break;
        }
        match way {
            Way::Await(gate) => gate.serve(left.min(STEP)),
            Way::Connect => {
                match inner.connect_again(left.min(ATTEMPT)) {
                    Ok(()) => break,
                    Err(Failed::Finally(why)) => {
                        inner.give_up(&why, true);
                        break;
                    }
                    Err(Failed::Now(error)) => latest = Some(error),
                }
                drop(inner);
                thread::sleep(left.min(pause));
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
    if let Way::Await(gate) = way {
        gate.leave();
    }
}

/// Why an attempt has failed.
#[derive(Debug)]
enum Failed {
    /// Another one may succeed.
    Now(io::Error),
    /// None will.
    Finally(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Now(error)
    }
}

impl Inner {
    pub(super) fn is_broken(&self) -> bool {
        let phase = self.recovery.as_ref().map(Recovery::phase);
        matches!(phase, Some(Phase::Broken(_)))
    }

    /// The connection does not come back; where that is a violation of `rec_time`, both directions say so.
    pub(super) fn give_up(&self, why: &str, is_violation: bool) {
        let Some(recovery) = &self.recovery else { return };
        let lost = match recovery.phase() {
            Phase::Broken(since) => since.elapsed().max(recovery.rec_time),
            _ => recovery.rec_time,
        };
        if recovery.end(&format!("the connection was lost and does not come back: {why}")) {
            if is_violation && recovery.phase() != Phase::Closed {
                self.core.on_not_recovered(span(lost));
            }
            self.core.close();
            self.channel.hang_up();
        }
    }

    /// Nothing more is read of the broken channel; returns how many messages were.
    pub(super) fn freeze(&self) -> u64 {
        // A thread in a call of the broken channel returns soon.
        let mut reader = lock(&self.reader);
        let Some(counts) = &mut reader.counts else { return 0 };
        counts.is_frozen = true;
        counts.received()
    }

    /// Connects again, and goes on.
    fn connect_again(self: &Arc<Self>, most: Wall) -> Result<(), Failed> {
        let Some(recovery) = &self.recovery else { return Ok(()) };
        let (until, session) = (deadline(most), self.core.session);
        let mut stream = TcpStream::connect_timeout(&self.core.remote(), most)?;
        facade::mark((&stream).into(), self.core.remote().is_ipv4(), self.core.dscp())?;
        stream.set_write_timeout(Some(most))?;
        let (attempt, received) = (recovery.next_attempt(), self.freeze());
        let hello = Setup::Return { session, token: recovery.token, attempt, received };
        io::Write::write_all(&mut stream, &hello.to_bytes())?;
        // What is no answer may be another's, as of a network that asks for a login.
        let failed = |error: SetupError| Failed::Now(error.into());
        match read_setup(&stream, until).map_err(failed)? {
            Setup::Returned { session: of, received } if of == session => {
                self.go_on(stream, received)
            }
            Setup::Refuse { reason: Reason::Unknown, .. } => {
                let why = "the other end does not know it any more";
                Err(Failed::Finally(why.to_owned()))
            }
            _ => Err(failed(WireError::Malformed.into())),
        }
    }

    /// The peer has come back, over this stream.
    ///
    /// # Errors
    /// The connection is over, or what the peer says cannot be, which ends it; then it is refused.
    pub(super) fn take_back(
        self: &Arc<Self>,
        stream: TcpStream,
        returning: &Returning,
    ) -> Result<(), TcpStream> {
        let Some(recovery) = &self.recovery else { return Err(stream) };
        match recovery.admit(returning.attempt, returning.received) {
            Ok(true) => {}
            Ok(false) => return Err(stream),
            Err(error) => {
                self.give_up(&error.to_string(), true);
                return Err(stream);
            }
        }
        // This end may not have noticed that it is broken.
        let is_new = recovery.break_off(recovery.epoch(), Instant::now());
        // Of one that both ends have left, only the peer did not know so yet.
        if is_new && !recovery.has_left() {
            let reason = "the other end has noticed it and come back".to_owned();
            self.core.publish(&super::Event::Lost { reason });
        }
        self.channel.hang_up();
        let received = self.freeze();
        let answer = Setup::Returned { session: returning.session, received };
        let written = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(Wall::from_secs(1))))
            .and_then(|()| io::Write::write_all(&mut (&stream), &answer.to_bytes()));
        // Otherwise it may come again.
        let gone_on =
            written.map_err(Failed::from).and_then(|()| self.go_on(stream, returning.received));
        // Otherwise a thread waits already.
        if gone_on.is_err() && is_new {
            recovery.bring_back();
        }
        Ok(())
    }

    /// Puts a new channel in the place of the broken one.
    fn go_on(self: &Arc<Self>, stream: TcpStream, received: u64) -> Result<(), Failed> {
        let Some(recovery) = &self.recovery else { return Ok(()) };
        stream.set_nodelay(true)?;
        let addresses = (stream.local_addr()?, stream.peer_addr()?);
        let [reading, writing] = self.timeouts();
        stream.set_read_timeout(reading)?;
        stream.set_write_timeout(writing)?;
        let mut reader = lock(&self.reader);
        let mut writer = lock(&self.writer);
        sys::replace(&self.channel, stream)?;
        self.core.mark_again(|dscp| Maintained::mark(&**self, dscp))?;
        reader.restart();
        writer.restart(reader.counts.as_ref().map_or(0, Counts::received));
        let (since, is_pumped) =
            recovery.go_on(received).map_err(|error| Failed::Finally(error.to_string()))?;
        let epoch = recovery.epoch();
        self.take_leave(&mut writer);
        drop((reader, writer));
        if since.is_none() {
            // It has been given up meanwhile.
            self.channel.hang_up();
        }
        if let Some(since) = since.filter(|_| !recovery.has_left()) {
            self.core.on_recovered(addresses, span(since.elapsed()));
        }
        // The clocks are compared first.
        self.send_control(&self.core.status(self.core.clock.now()));
        if is_pumped {
            self.pump_behind(epoch);
        }
        Ok(())
    }

    /// Writes what is kept, and the end, in a thread: the peer may take long, and writes, too.
    pub(super) fn pump_behind(self: &Arc<Self>, epoch: u64) {
        let weak = Arc::downgrade(self);
        let named = thread::Builder::new().name("ontempo-qos-rest".to_owned());
        let spawned = named.spawn(move || {
            while let Some(inner) = weak.upgrade() {
                if !inner.pump(epoch) {
                    return;
                }
                inner.await_writable();
            }
        });
        if let (Err(error), Some(recovery)) = (spawned, &self.recovery) {
            self.lose(recovery, epoch, &format!("no thread to send what is kept: {error}"));
        }
    }

    /// Writes as much as is taken now; false if there is nothing left, or the channel is another one.
    fn pump(&self, epoch: u64) -> bool {
        let Some(recovery) = &self.recovery else { return false };
        loop {
            let mut writer = lock(&self.writer);
            if recovery.epoch() != epoch || recovery.phase() != Phase::Up {
                return false;
            }
            let pushed = writer.push(&self.channel, &[]).and_then(|()| {
                let more = match recovery.step(epoch) {
                    Step::Done => return Ok(false),
                    Step::Write(whole) => writer.push(&self.channel, &whole),
                };
                self.acknowledge(&mut writer);
                more.map(|()| true)
            });
            match pushed {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => {
                    drop(writer);
                    self.lose(recovery, epoch, &error.to_string());
                    return false;
                }
            }
        }
    }

    fn await_writable(&self) {
        let step = Timespec { tv_sec: 0, tv_nsec: STEP.as_nanos() as _ };
        let socket = self.channel.as_fd();
        // Without it, it is only tried again.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], Some(&step));
    }

    /// This end sends no more: the peer is told behind all that is kept.
    pub(super) fn finish(self: &Arc<Self>) {
        self.finish_with(lock(&self.writer));
    }

    fn finish_with(self: &Arc<Self>, writer: MutexGuard<'_, Writer>) {
        let Some(recovery) = &self.recovery else { return };
        let begins = recovery.finish(|| {
            let body = Counted { messages: self.core.counter.next() }.to_bytes();
            let sent = self.core.clock.now().as_nanos();
            let head = Header { kind: Kind::End, length: body.len(), sequence: 0, sent };
            [&head.to_tcp()[..], &body].concat().into()
        });
        let epoch = recovery.epoch();
        drop(writer);
        if begins && self.pump(epoch) {
            self.pump_behind(epoch);
        }
    }

    /// Takes what has come and drops it, for an application that has closed; false at the end. Where it does
    /// not wait, the reader must allow it.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock) if no more has come, or why the channel is broken.
    fn discard(
        self: &Arc<Self>,
        mut reader: MutexGuard<'_, Reader>,
        waiting: Waiting,
    ) -> io::Result<bool> {
        let epoch = self.recovery.as_ref().map_or(0, Recovery::epoch);
        let mut taken = Ok(true);
        while let Ok(true) = taken {
            taken = self.open(&mut reader, waiting);
            if let Ok(true) = taken {
                taken = reader.pass_over(&self.channel, waiting).map(|()| true);
                self.on_taken(&mut reader);
            }
        }
        self.note_taken(&reader);
        if let Ok(false) = taken {
            self.on_end(reader);
            return taken;
        }
        drop(reader);
        if let Err(error) = &taken {
            self.lose_if_broken(epoch, error);
        }
        taken
    }

    /// Of a connection that the application has closed: drops what has come, about `most` bytes of it; false once
    /// the peer has all and knows that this end has.
    pub(super) fn linger(self: &Arc<Self>, most: usize) -> bool {
        let Some(recovery) = &self.recovery else { return false };
        match recovery.phase() {
            Phase::Over(_) | Phase::Closed => return false,
            // The peer may not know yet that this end has all.
            Phase::Broken(_) => return true,
            Phase::Up => {}
        }
        let mut reader = lock(&self.reader);
        reader.allow(most);
        match self.discard(reader, Waiting::Never) {
            Ok(_) => recovery.phase() != Phase::Closed,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_parted();
                true
            }
            // It may be back already; the next turn sees whether it is over.
            Err(error) => super::connection::is_break(&error),
        }
    }

    /// Waits until each end has all of the other's and both know it, at most until `until`; drops what the peer sends.
    ///
    /// # Errors
    /// The peer has not ended, or does not have all: it did not come back in time, or `until` has passed.
    pub(super) fn close_until(self: &Arc<Self>, until: Instant) -> io::Result<()> {
        let Some(recovery) = &self.recovery else { return Ok(()) };
        // A clone may be in a call that waits for the peer.
        let timed_out = || Err(ErrorKind::TimedOut.into());
        let Some(writer) = lock_until(&self.writer, until) else { return timed_out() };
        self.finish_with(writer);
        while !self.is_parted() {
            let waited = recovery.wait(Some(until));
            if let Err(error) = waited
                && error.kind() != ErrorKind::WouldBlock
            {
                return Err(error);
            }
            if Instant::now() >= until {
                // What this end does not know by then is only whether the peer knows it.
                return if recovery.is_settled() { Ok(()) } else { timed_out() };
            }
            // What breaks is made anew; why it is not, the next turn says.
            let step = until.min(Instant::now() + STEP);
            let Some(reader) = try_lock(&self.reader) else {
                // A clone that reads takes what comes, to the end.
                recovery.pause(step.saturating_duration_since(Instant::now()));
                continue;
            };
            let (waiting, is_shut) = (Waiting::Until(step), reader.is_shut);
            let discarded = self.discard(reader, waiting);
            if is_shut || matches!(discarded, Ok(false)) {
                // This end's leave may not be written yet.
                recovery.pause(FLUSHING);
            }
        }
        Ok(())
    }

    /// Ends both directions at once; the peer is told that it need not come back.
    pub(super) fn break_off(&self) {
        if let Some(recovery) = &self.recovery {
            let writer = try_lock(&self.writer);
            let is_new = recovery.end("this end has broken it off");
            if let Some(mut writer) = writer.filter(|writer| is_new && !writer.has_left) {
                self.acknowledge(&mut writer);
                let head = Header { kind: Kind::Bye, length: 0, sequence: 0, sent: 0 };
                writer.has_left = true;
                // It may be broken.
                let _ = writer.push(&self.channel, &head.to_tcp());
            }
        }
        self.channel.hang_up();
    }

    /// Whether the path still carries anything, where no thread waits for it.
    pub(super) fn look_at_path(&self) {
        let Some(recovery) = &self.recovery else { return };
        let epoch = recovery.epoch();
        if recovery.phase() != Phase::Up {
            return;
        }
        let Some(known) = sys::known(&self.channel) else { return };
        // A thread that reads notices the end itself, behind what has come before it.
        if known.has_ended
            && let Some(reader) = try_lock(&self.reader)
            && reader.counts.as_ref().is_some_and(|counts| !counts.has_ended)
        {
            drop(reader);
            self.lose(recovery, epoch, "it was reset");
            return;
        }
        let most = (recovery.rec_time / SILENT_SHARE).max(MIN_SILENCE);
        if let Some(silent) = known.unacknowledged.filter(|silent| *silent > most) {
            let why = format!("nothing was acknowledged for {} s", silent.as_millis() as f64 / 1e3);
            // The rest is for another path, however long it took to notice.
            let gone = silent.min(recovery.rec_time / SILENT_SHARE);
            let since = Instant::now().checked_sub(gone).unwrap_or_else(Instant::now);
            self.lose_since(recovery, epoch, &why, since);
        }
    }
}
