//! A connection over a byte stream, whatever carries it.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration as Wall, Instant};

use super::Message;
use super::channel::{Channel, Waiting};
use super::core::{Control, Core, lock, try_lock};
use super::events::Event;
use super::recovery::{ACKNOWLEDGED_EACH, Phase, Recovery, Taken};
use super::tcp::{Counts, Reader, Writer, damaged, too_long};
use super::wire::{Counted, Header, Kind};
use ontempo_transport::quic::span;
use ontempo_udp::Deadline;

#[derive(Debug)]
pub(super) struct Connection<C> {
    pub(super) core: Core,
    pub(super) channel: C,
    pub(super) writer: Mutex<Writer>,
    pub(super) reader: Mutex<Reader>,
    /// Timeout of receiving, ns; 0: none.
    read_timeout: AtomicU64,
    /// The same of sending.
    write_timeout: AtomicU64,
    /// What is kept so that it can be made anew if it breaks; `None` if it cannot.
    pub(super) recovery: Option<Recovery>,
    /// Messages received, to be acknowledged.
    to_acknowledge: AtomicU64,
}

/// How long a sender that waits for room listens for acknowledgements at a time.
const LISTENING: Wall = Wall::from_millis(50);

/// How long it waits in place of that where waiting for the channel returns at once.
const GLANCE: Wall = Wall::from_millis(5);

/// Pieces of 1 KiB that are dropped at once of what a peer sends after it has taken leave.
const MAX_AFTER_BYE: usize = 64;

/// Bytes of control messages that are handled at once of a peer whose application does not read: the
/// thread has other connections, too.
const MAX_HEARD: usize = 64 << 10;

/// Whether an error is that of a channel, which a new one cures.
pub(super) fn is_break(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, InvalidData, InvalidInput, WouldBlock};
    !matches!(error.kind(), WouldBlock | Interrupted | InvalidData | InvalidInput)
}

fn time(timeout: &AtomicU64) -> Option<Wall> {
    let nanos = timeout.load(Relaxed);
    (nanos > 0).then(|| Wall::from_nanos(nanos))
}

impl<C: Channel> Connection<C> {
    /// A connection after its handshake.
    pub(super) fn new(core: Core, channel: C, recovery: Option<Recovery>) -> Self {
        let mut reader = Reader::new();
        reader.counts = recovery.as_ref().map(|_| Counts::default());
        Self {
            core,
            channel,
            writer: Mutex::new(Writer::default()),
            reader: Mutex::new(reader),
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            recovery,
            to_acknowledge: AtomicU64::new(0),
        }
    }

    /// Timeout of a whole call that receives; the channel must have it, too.
    pub(super) fn set_read_timeout(&self, timeout: Option<Wall>) {
        self.read_timeout.store(timeout.map_or(0, |timeout| span(timeout).as_nanos()), Relaxed);
    }

    /// The same of one that sends.
    pub(super) fn set_write_timeout(&self, timeout: Option<Wall>) {
        self.write_timeout.store(timeout.map_or(0, |timeout| span(timeout).as_nanos()), Relaxed);
    }

    /// Of receiving and of sending.
    pub(super) fn timeouts(&self) -> [Option<Wall>; 2] {
        [time(&self.read_timeout), time(&self.write_timeout)]
    }

    /// When a call that begins now ends.
    #[inline]
    fn deadline(&self) -> Option<Deadline> {
        time(&self.read_timeout).map(|timeout| Deadline::after(span(timeout)))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If it exceeds the agreed size, or the system's error.
    #[inline]
    pub(super) fn send_message(&self, data: &[u8]) -> io::Result<()> {
        if data.len() > self.core.max_send_size {
            return Err(too_long(data.len(), self.core.max_send_size, "what was agreed"));
        }
        let sent = match &self.recovery {
            None => lock(&self.writer).send(&self.channel, &self.core, data),
            Some(recovery) => self.send_kept(recovery, data),
        };
        self.core.unless_failed(sent.is_err(), sent)
    }

    /// Sends a message and keeps it until the peer has it; while the connection is broken it is only kept.
    fn send_kept(&self, recovery: &Recovery, data: &[u8]) -> io::Result<()> {
        let until = time(&self.write_timeout).map(|timeout| Instant::now() + timeout);
        loop {
            let mut writer = lock(&self.writer);
            let whole = || {
                let number = self.core.counter.next();
                // Under the writer's lock.
                self.core.counter.count_alone(data.len());
                [&self.core.header(number, data.len()).to_tcp()[..], data].concat().into()
            };
            match recovery.take(whole)? {
                Taken::Later => return Ok(()),
                Taken::Now(epoch, whole) => match writer.send_whole(&self.channel, &whole) {
                    Ok(()) => {
                        self.acknowledge(&mut writer);
                        return Ok(());
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        recovery.give_back();
                        self.core.counter.take_back(data.len());
                        return Err(error);
                    }
                    Err(error) => {
                        drop(writer);
                        self.lose(recovery, epoch, &error.to_string());
                        return Ok(());
                    }
                },
                Taken::Full => {
                    drop(writer);
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(ErrorKind::WouldBlock.into());
                    }
                    self.await_room(recovery);
                }
            }
        }
    }

    /// Waits for an acknowledgement, for a moment: reads it, unless another thread reads, or a message
    /// waits for the application.
    fn await_room(&self, recovery: &Recovery) {
        let reads = recovery.phase() == Phase::Up;
        let can_read = |one: &MutexGuard<'_, Reader>| !one.has_opened() || recovery.is_read_shut();
        if let Some(mut reader) = try_lock(&self.reader).filter(|one| reads && can_read(one)) {
            let epoch = recovery.epoch();
            let is_shut = reader.is_shut;
            let waiting = match is_shut {
                true => Waiting::Never,
                false => Waiting::Until(Instant::now() + LISTENING),
            };
            reader.allow(MAX_HEARD);
            let opened = self.open_wanted(&mut reader, waiting, |header, body| {
                self.on_control(header, body)?;
                // There may be room now: what else comes is not waited for.
                if header.kind == Kind::Ack { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if let Ok(false) = opened {
                return self.on_end(reader);
            }
            drop(reader);
            if let Err(error) = opened {
                self.lose_if_broken(epoch, &error);
            }
            if is_shut {
                recovery.pause(GLANCE);
            }
            return;
        }
        recovery.pause(LISTENING);
    }

    /// The channel of an epoch is broken: what holds a thread in a call of it ends, and it is brought back.
    pub(super) fn lose(&self, recovery: &Recovery, epoch: u64, why: &str) {
        self.lose_since(recovery, epoch, why, Instant::now());
    }

    /// The same if that is what an error of a call means; of a connection that can be made anew.
    pub(super) fn lose_if_broken(&self, epoch: u64, error: &io::Error) {
        if let Some(recovery) = self.recovery.as_ref().filter(|_| is_break(error)) {
            self.lose(recovery, epoch, &error.to_string());
        }
    }

    /// The same where it carries nothing since `since`.
    pub(super) fn lose_since(&self, recovery: &Recovery, epoch: u64, why: &str, since: Instant) {
        // One that has ended itself, because nothing is reserved, does not come back.
        if let Some(why) = self.core.failure() {
            recovery.end(&why);
        }
        if !recovery.break_off(epoch, since) {
            return;
        }
        self.channel.hang_up();
        // Of one that both ends have left, only the peer may not know so yet.
        if !recovery.has_left() {
            self.core.publish(&Event::Lost { reason: why.to_owned() });
        }
        recovery.bring_back();
    }

    /// Acknowledges what is to be acknowledged.
    pub(super) fn acknowledge(&self, writer: &mut Writer) {
        let messages = self.to_acknowledge.load(Relaxed);
        if messages > writer.acknowledged {
            let body = Counted { messages }.to_bytes();
            let ack = Control { kind: Kind::Ack, body };
            if writer.send_control(&self.channel, &self.core, &ack) {
                writer.acknowledged = messages;
            }
        }
    }

    /// Says, once on each channel, that each end has all of the other's, as soon as this end knows it and has
    /// acknowledged all.
    pub(super) fn take_leave(&self, writer: &mut Writer) {
        let Some(recovery) = &self.recovery else { return };
        if !writer.has_left && recovery.may_leave(writer.acknowledged) {
            let bye = Control { kind: Kind::Bye, body: Vec::new() };
            writer.has_left = writer.send_control(&self.channel, &self.core, &bye);
        }
    }

    /// Acknowledges, and takes leave, if no other thread writes; otherwise what is written next does.
    fn answer(&self) {
        if let Some(mut writer) = try_lock(&self.writer) {
            self.acknowledge(&mut writer);
            self.take_leave(&mut writer);
        }
    }

    /// Acknowledges after so many bytes, and at the end; a thread that writes does it.
    #[inline]
    pub(super) fn on_taken(&self, reader: &mut Reader) {
        let Some(counts) = &mut reader.counts else { return };
        if counts.unacknowledged >= ACKNOWLEDGED_EACH || counts.has_ended {
            counts.unacknowledged = 0;
            self.to_acknowledge.store(counts.received(), Relaxed);
            if let Some(mut writer) = try_lock(&self.writer) {
                self.acknowledge(&mut writer);
            }
        }
    }

    /// Waits until a broken channel is made anew; `error` is that of the call which `reader` was in.
    ///
    /// # Errors
    /// `error`, if it is not that of a channel, or this connection cannot be made anew; otherwise why it
    /// is not, or [`WouldBlock`](ErrorKind::WouldBlock) at the deadline.
    fn await_channel<'a>(
        &'a self,
        reader: MutexGuard<'a, Reader>,
        error: io::Error,
        deadline: Option<Deadline>,
    ) -> io::Result<MutexGuard<'a, Reader>> {
        let Some(recovery) = self.recovery.as_ref().filter(|_| is_break(&error)) else {
            return Err(error);
        };
        // It does not change while the reader is locked.
        let epoch = recovery.epoch();
        drop(reader);
        self.lose(recovery, epoch, &error.to_string());
        recovery.wait(deadline.map(Deadline::instant))?;
        Ok(lock(&self.reader))
    }

    /// What `take` makes of the application's next message, over a new channel if one breaks; `None` at the end.
    ///
    /// # Errors
    /// If the peer violates the protocol, or the system's error.
    #[inline]
    fn take<'a, T>(
        &'a self,
        mut reader: MutexGuard<'a, Reader>,
        deadline: Option<Deadline>,
        mut take: impl FnMut(&mut Reader) -> io::Result<T>,
    ) -> io::Result<(MutexGuard<'a, Reader>, Option<T>)> {
        loop {
            if self.is_read_shut() {
                return Ok((reader, None));
            }
            let taken = self
                .opened(&mut reader)
                .and_then(|is_open| is_open.then(|| take(&mut reader)).transpose());
            match taken {
                Ok(taken) => {
                    let is_end = taken.is_none();
                    return self.core.unless_failed(is_end, Ok((reader, taken)));
                }
                // What is broken does not matter to who reads no more, nor does a timeout.
                Err(error)
                    if self.is_read_shut()
                        && (is_break(&error) || error.kind() == ErrorKind::WouldBlock) =>
                {
                    return Ok((reader, None));
                }
                Err(error) => {
                    let waited = self.await_channel(reader, error, deadline);
                    reader = self.core.unless_failed(waited.is_err(), waited)?;
                }
            }
        }
    }

    /// The next message; `None` if the peer has finished sending.
    ///
    /// # Errors
    /// If it is longer than the buffer (it is lost), the peer violates the protocol, or the
    /// system's error.
    #[inline]
    pub(super) fn receive_message(&self, buffer: &mut [u8]) -> io::Result<Option<Message>> {
        let deadline = self.deadline();
        let mut reader = lock(&self.reader);
        reader.begin(deadline);
        loop {
            let taken =
                self.take(reader, deadline, |reader| reader.message(&self.channel, buffer))?;
            let Some((header, length)) = taken.1 else { return Ok(None) };
            reader = taken.0;
            self.on_taken(&mut reader);
            // A stream delivers no duplicates and in order, unless the peer violates the protocol.
            if let Some(arrival) = self.core.on_data(&header, length) {
                let (sequence, delay) = (arrival.sequence, arrival.timing.delay);
                return Ok(Some(Message { length, sequence, delay }));
            }
        }
    }

    /// Bytes of messages, as of a stream; 0 at its end.
    ///
    /// # Errors
    /// If the peer violates the protocol, or the system's error.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = self.deadline();
        let mut reader = lock(&self.reader);
        reader.begin(deadline);
        while !buffer.is_empty() {
            let taken =
                self.take(reader, deadline, |reader| reader.bytes(&self.channel, buffer))?;
            let Some((got, whole)) = taken.1 else { return Ok(0) };
            reader = taken.0;
            if let Some(header) = whole {
                self.on_taken(&mut reader);
                // The application gets the bytes, whatever is counted.
                let _ = self.core.on_data(&header, header.length);
            }
            if got > 0 {
                return Ok(got);
            }
        }
        Ok(0)
    }

    /// Handles the peer's control messages while the application does not read; true if more may
    /// come.
    pub(super) fn hear(&self) -> bool {
        let Some(mut reader) = try_lock(&self.reader) else { return false };
        if reader.has_opened() && !self.is_read_shut() {
            return false;
        }
        reader.allow(MAX_HEARD);
        let control = |header: &Header, body: &[u8]| self.on_control(header, body);
        let opened = self.open_wanted(&mut reader, Waiting::Never, control);
        self.note_taken(&reader);
        let error = match opened {
            Ok(true) => return false,
            Ok(false) => {
                self.on_end(reader);
                return false;
            }
            Err(error) => error,
        };
        // It does not change while the reader is locked.
        let epoch = self.recovery.as_ref().map_or(0, Recovery::epoch);
        let can_wait = !reader.is_shut;
        drop(reader);
        self.lose_if_broken(epoch, &error);
        can_wait && error.kind() == ErrorKind::WouldBlock
    }

    /// What was taken is acknowledged with the next control message.
    pub(super) fn note_taken(&self, reader: &Reader) {
        if let Some(counts) = &reader.counts {
            self.to_acknowledge.store(counts.received(), Relaxed);
        }
    }

    /// Nothing follows on a channel, after the peer has said that it sends no more: the channel is broken,
    /// unless the peer has taken leave. `reader` is given back.
    pub(super) fn on_end(&self, reader: MutexGuard<'_, Reader>) {
        let Some(recovery) = &self.recovery else { return };
        let epoch = recovery.epoch();
        let parted = if recovery.has_left() { self.part(recovery) } else { Ok(false) };
        drop(reader);
        match parted {
            Ok(true) => {}
            Ok(false) => self.lose(recovery, epoch, "it ended before both ends had all"),
            Err(error) => self.lose_if_broken(epoch, &error),
        }
    }

    /// The peer has taken leave, and so does this end: the connection is closed when the peer's stream
    /// ends. Before that it may break on the way of this end's leave, for which the peer comes back; it does not matter to
    /// this end. The caller holds the reader's lock.
    ///
    /// # Errors
    /// The channel is broken.
    fn part(&self, recovery: &Recovery) -> io::Result<bool> {
        let Some(mut writer) = try_lock(&self.writer) else { return Ok(true) };
        self.acknowledge(&mut writer);
        self.take_leave(&mut writer);
        writer.push(&self.channel, &[])?;
        if writer.has_left {
            self.channel.finish();
        }
        let mut room = [0; 1_024];
        // Who comes back says so once more; who goes on sending is not listened to.
        for _ in 0..MAX_AFTER_BYE {
            if self.channel.receive(&mut room, Waiting::Never)? == 0 {
                break;
            }
        }
        recovery.end("closed");
        Ok(true)
    }

    /// Whether each end has all of the other's, and both have said so; false while another thread writes.
    pub(super) fn is_parted(&self) -> bool {
        let Some(recovery) = &self.recovery else { return true };
        if recovery.phase() == Phase::Closed {
            return true;
        }
        let Some(mut writer) = try_lock(&self.writer) else { return false };
        self.acknowledge(&mut writer);
        self.take_leave(&mut writer);
        // Whether it is broken shows elsewhere.
        let is_flushed = writer.push(&self.channel, &[]).is_ok();
        recovery.has_left() && writer.has_left && is_flushed
    }

    /// The application reads no more: what comes is dropped, and acknowledged.
    fn is_read_shut(&self) -> bool {
        self.recovery.as_ref().is_some_and(Recovery::is_read_shut)
    }

    /// Sends a control message, or skips it.
    pub(super) fn send_control(&self, control: &Control) {
        // Another thread writes a message, or waits to: the report is skipped.
        let Some(mut writer) = try_lock(&self.writer) else { return };
        if writer.has_left {
            // Nothing follows, but it may not be written whole.
            let _ = writer.push(&self.channel, &[]);
            return;
        }
        writer.send_control(&self.channel, &self.core, control);
        self.acknowledge(&mut writer);
        self.take_leave(&mut writer);
    }

    /// Waits for the application's next message; false at the end.
    #[inline]
    fn opened(&self, reader: &mut Reader) -> io::Result<bool> {
        let opened = self.open(reader, Waiting::AsSet);
        // What the system says of a connection that this end has ended is not why.
        self.core.unless_failed(opened.is_err(), opened)
    }

    /// Advances to the application's next message; a protocol violation ends the connection.
    #[inline]
    pub(super) fn open(&self, reader: &mut Reader, waiting: Waiting) -> io::Result<bool> {
        self.open_with(reader, waiting, |header, body| self.on_control(header, body))
    }

    /// The same to a message that the application waits for: those for one that reads no more are dropped.
    fn open_wanted(
        &self,
        reader: &mut Reader,
        waiting: Waiting,
        mut control: impl FnMut(&Header, &[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        loop {
            let is_open = self.open_with(reader, waiting, &mut control)?;
            if !is_open || !self.is_read_shut() {
                return Ok(is_open);
            }
            reader.pass_over(&self.channel, waiting)?;
            self.on_taken(reader);
        }
    }

    /// The same with what is done about control messages.
    #[inline]
    fn open_with(
        &self,
        reader: &mut Reader,
        waiting: Waiting,
        control: impl FnMut(&Header, &[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let opened = reader.open(&self.channel, &self.core, waiting, control);
        if let Err(error) = &opened
            && error.kind() == ErrorKind::InvalidData
        {
            if let Some(recovery) = &self.recovery {
                recovery.end(&error.to_string());
            }
            self.channel.hang_up();
        }
        opened
    }

    fn on_control(&self, header: &Header, body: &[u8]) -> io::Result<()> {
        if let Some(recovery) = &self.recovery {
            match header.kind {
                Kind::Ack => {
                    let Counted { messages } = Counted::read(body).map_err(damaged)?;
                    recovery.on_ack(messages).map_err(damaged)?;
                    // It may have been the last one.
                    if recovery.is_settled() {
                        self.answer();
                    }
                    return Ok(());
                }
                // The reader has taken its number: all that was sent has been received.
                Kind::End => {
                    let Counted { messages } = Counted::read(body).map_err(damaged)?;
                    self.to_acknowledge.store(messages + 1, Relaxed);
                    recovery.on_end(messages + 1);
                    self.answer();
                    return Ok(());
                }
                Kind::Bye if recovery.on_bye() => {
                    self.answer();
                    return Ok(());
                }
                Kind::Bye => {
                    recovery.end("the other end has broken it off");
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                _ => {}
            }
        }
        if let Some(answer) = self.core.on_control(header, body).map_err(damaged)? {
            self.send_control(&answer);
        }
        Ok(())
    }
}
