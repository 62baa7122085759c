//! TCP: a kernel connection between a writing and a reading application.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use ontempo_foundation::{Duration, Time};
use ontempo_kernel::SocketStatus;
use ontempo_media::Film;
use ontempo_runtime::{FlowTotals, Showing, ShownStream, Source};
use socket2::{SockAddr, Socket};

use super::sending::{Due, Sending};
use super::{Connection, Prompt, Receiver, Side};
use crate::sys::{self, TcpInfo};

/// How often an application that waits for an acknowledgement checks for it.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Maximum bytes to read or write before other flows have their turn.
const MAX_BATCH: usize = 256 << 10;

/// Buffers for writing and reading.
const BUFFER: usize = 64 << 10;

/// `ssthresh` if the kernel has set none (`TCP_INFINITE_SSTHRESH`).
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// The kernel's congestion states, in which it has reduced its window (`enum tcp_ca_state`).
const REDUCED: u8 = 2;
const LOSS: u8 = 4;

/// The sockets of a flow before it starts.
pub(crate) struct TcpSockets {
    pub(crate) listener: Socket,
    pub(crate) source: Socket,
    /// The peer that the source connects to.
    pub(crate) to: SockAddr,
    /// The connection's identification in the kernel.
    pub(crate) connection: Connection,
    /// The receive window in bytes, if it is limited.
    pub(crate) window: Option<i32>,
}

/// A reaction of the kernel's congestion control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaction {
    pub(crate) at: Time,
    pub(crate) event: &'static str,
    pub(crate) window: u32,
}

/// The bytes of a film, and what has arrived of them.
pub(crate) struct FilmStream {
    film: Arc<Film>,
    /// The next datagram of it.
    next: u64,
    /// Bytes before that, of which so many are written.
    bytes: Vec<u8>,
    written: usize,
    shown: ShownStream,
}

impl FilmStream {
    pub(crate) fn new(film: Arc<Film>, start: Time) -> Self {
        let shown = ShownStream::new(Showing::new(Arc::clone(&film), start));
        Self { film, next: 0, bytes: Vec::new(), written: 0, shown }
    }

    /// The next `length` bytes to be written.
    fn next(&mut self, length: usize) -> &[u8] {
        if self.written >= BUFFER {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        while self.bytes.len() < self.written + length
            && let Some(datagram) = self.film.datagram(self.next)
        {
            self.film.write(&datagram, &mut self.bytes);
            self.next += 1;
        }
        let end = self.bytes.len().min(self.written + length);
        &self.bytes[self.written..end]
    }

    /// What has arrived.
    pub(crate) fn showing(&self) -> &Showing {
        self.shown.showing()
    }
}

/// Both ends of a TCP flow.
pub(crate) struct Tcp {
    pub(crate) sockets: TcpSockets,
    /// The receiver's socket, once the connection is accepted.
    pub(crate) sink: Option<Socket>,
    /// Name of the kernel's congestion control.
    congestion: String,
    packet: u64,
    payload: u64,
    /// Bytes of a unit that the source offers.
    unit: u64,
    source: Source,
    /// What is written, if it is a film; zeros otherwise.
    pub(crate) film: Option<FilmStream>,
    start: Time,
    stop: Time,
    is_started: bool,
    written: u64,
    received: u64,
    delivered: u64,
    pub(crate) receiver: Receiver,
    info: TcpInfo,
    timeouts: u64,
    /// Last state read from the kernel's PERT; `None` if not readable.
    pub(crate) pert: Option<SocketStatus>,
    /// Whether the last write would have blocked.
    is_full: bool,
    due: Due,
    is_finished: bool,
    transfers: u64,
    reductions: u64,
    pub(crate) reactions: Vec<Reaction>,
    /// Why the connection failed.
    pub(crate) failed: Option<io::Error>,
}

impl Tcp {
    pub(crate) fn new(
        sockets: TcpSockets,
        congestion: String,
        (packet, payload): (u64, u64),
        source: Source,
        (start, stop): (Time, Time),
        receiver: Receiver,
    ) -> Self {
        Self {
            sockets,
            sink: None,
            congestion,
            packet,
            payload,
            unit: payload,
            source,
            film: None,
            start,
            stop,
            is_started: false,
            written: 0,
            received: 0,
            delivered: 0,
            receiver,
            info: TcpInfo::default(),
            timeouts: 0,
            pert: None,
            is_full: true,
            due: Due::default(),
            is_finished: false,
            transfers: 0,
            reductions: 0,
            reactions: Vec::new(),
            failed: None,
        }
    }

    /// Writes a film, of which the source offers the bytes.
    pub(crate) fn with_film(mut self, film: FilmStream) -> Self {
        self.unit = 1;
        self.film = Some(film);
        self
    }

    pub(super) fn on_time(&mut self, now: Time, sending: &mut Sending) -> Time {
        if !self.is_started {
            if now < self.start {
                return self.start;
            }
            self.is_started = true;
            match self.sockets.source.connect(&self.sockets.to) {
                Err(error) if !is_under_way(&error) => self.failed = Some(error),
                _ => {}
            }
        }
        self.send(now, sending)
    }

    pub(super) fn on_prompt(&mut self, now: Time, due: Time, sending: &mut Sending) -> Time {
        self.due.prompt(&mut self.source, self.payload, now.min(self.stop), due);
        self.send(now, sending)
    }

    pub(super) fn on_ready(
        &mut self,
        now: Time,
        side: Side,
        prompts: &mut Vec<Prompt>,
        sending: &mut Sending,
    ) -> Time {
        match side {
            Side::Listener => {
                if let Ok((socket, _)) = self.sockets.listener.accept()
                    && socket.set_nonblocking(true).is_ok()
                {
                    self.sink = Some(socket);
                }
            }
            Side::Source => {
                if let Ok(Some(error)) = self.sockets.source.take_error() {
                    self.failed = Some(error);
                }
                self.is_full = false;
            }
            Side::Sink => self.receive(now, prompts),
        }
        if self.is_started { self.send(now, sending) } else { self.start }
    }

    /// Writes what is offered by `now`, as far as the kernel accepts it; returns when to call
    /// again.
    fn send(&mut self, now: Time, sending: &mut Sending) -> Time {
        let may_send = now < self.stop && self.failed.is_none();
        let offered = self.due.offered(&mut self.source, self.unit, now.min(self.stop));
        let target = offered.saturating_mul(self.unit);
        let mut left = MAX_BATCH;
        static ZEROS: [u8; BUFFER] = [0; BUFFER];
        while may_send && !self.is_full && self.written < target && left > 0 {
            let most = (target - self.written).min(BUFFER as u64) as usize;
            let called = sending.now();
            let bytes = self.film.as_mut().map_or(&ZEROS[..most], |film| film.next(most));
            match (&self.sockets.source).write(bytes) {
                Ok(length) => {
                    if let Some(film) = &mut self.film {
                        film.written += length;
                    }
                    self.written += length as u64;
                    left = left.saturating_sub(length);
                    self.due.written(sending, called, self.written);
                }
                Err(error) if is_under_way(&error) => self.is_full = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        if !may_send {
            return Time::NEVER;
        }
        if self.is_full {
            self.due.prevent();
        } else if self.written == target {
            self.due.is_idle();
        }
        if left == 0 && self.written < target {
            return now;
        }
        let waits_for_acks = self.waits_for_acknowledgement(target) && self.acknowledge(now);
        let ask = if waits_for_acks { now + ASK_EVERY } else { Time::NEVER };
        self.source.next_offer(now).min(ask)
    }

    /// Whether the application continues only when all written data has arrived.
    fn waits_for_acknowledgement(&self, target: u64) -> bool {
        let waits = match self.source {
            Source::File { .. } => !self.is_finished,
            Source::Http(_) => target > 0,
            Source::Paced(_) => true,
            _ => false,
        };
        waits && self.written == target
    }

    /// Reports acknowledged packets to the application; true if it still waits for more.
    fn acknowledge(&mut self, now: Time) -> bool {
        self.ask();
        let acknowledged = self.acknowledged();
        if self.source.on_acknowledged(now, acknowledged / self.payload) {
            self.transfers += 1;
            self.is_finished = matches!(self.source, Source::File { .. });
        }
        let offered = self.source.offered(now);
        !self.is_finished && acknowledged < offered.saturating_mul(self.payload)
    }

    /// Bytes of data acknowledged. The kernel counts the SYN as one byte.
    fn acknowledged(&self) -> u64 {
        self.info.bytes_acknowledged.saturating_sub(1).min(self.written)
    }

    fn receive(&mut self, now: Time, prompts: &mut Vec<Prompt>) {
        let Some(mut socket) = self.sink.as_ref() else { return };
        if let Some(window) = self.sockets.window {
            // The kernel sets it anew, by its buffer, when it learns what packets take of that. An open
            // socket takes it.
            let _ = sys::limit_window(socket.as_fd(), window);
        }
        let mut buffer = [0; BUFFER];
        let mut left = MAX_BATCH;
        while left > 0
            && let Ok(length @ 1..) = socket.read(&mut buffer)
        {
            left = left.saturating_sub(length);
            self.received += length as u64;
        }
        if let Some(film) = &mut self.film {
            film.shown.arrived_up_to(now, self.received);
        }
        while (self.delivered + 1) * self.payload <= self.received {
            let unit = self.delivered;
            self.delivered += 1;
            self.receiver.deliver_in_order(now, unit, &mut self.source, prompts);
        }
    }

    /// Reads the connection's state from the kernel, and records the reactions of its congestion
    /// control since the last call.
    pub(crate) fn look(&mut self, now: Time) {
        let (before, timeouts) = (self.info, self.timeouts);
        self.ask();
        let entered =
            |state: u8| self.info.congestion_state >= state && before.congestion_state < state;
        let event = if self.timeouts > timeouts || entered(LOSS) {
            "timeout"
        } else if entered(REDUCED) {
            "loss"
        } else {
            return;
        };
        self.reductions += 1;
        self.reactions.push(Reaction { at: now, event, window: self.info.window });
    }

    fn ask(&mut self) {
        // An open socket always answers.
        if self.is_started
            && let Ok((info, told)) = sys::tcp_info(self.sockets.source.as_fd())
        {
            self.timeouts = match told {
                Some(timeouts) => timeouts.into(),
                None => self.timeouts + timeouts_between(&self.info, &info),
            };
            self.info = info;
        }
    }

    /// The run has ended.
    pub(crate) fn end(&mut self, now: Time) {
        let mut prompts = Vec::new();
        self.receive(now, &mut prompts);
        self.look(now);
        let offered = match self.source {
            Source::Ftp => self.delivered,
            // What is offered when the flow stops is not sent any more.
            _ => self.source.offered(now.min(self.stop - Duration::from_nanos(1))),
        };
        self.receiver.end_in_order(now, &self.source, self.delivered, offered);
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        let info = &self.info;
        FlowTotals {
            sent: u64::from(info.data_segments_out),
            retransmitted: Some(u64::from(info.total_retransmitted)),
            timeouts: self.timeouts,
            reductions: self.reductions,
            early_responses: self.pert.as_ref().map_or(0, |pert| pert.early_responses),
            acks: u64::from(info.segments_in.saturating_sub(info.data_segments_in)),
            delivered: self.delivered,
            dropped: 0,
            transfers: self.transfers,
        }
    }

    pub(crate) fn congestion(&self) -> &str {
        &self.congestion
    }

    pub(crate) fn packet_size(&self) -> u64 {
        self.packet
    }

    /// Names of its sampled quantities, and the last values read.
    pub(crate) fn quantities(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let info = self.info;
        let in_network = info.unacknowledged + info.retransmitting;
        let in_flight = in_network.saturating_sub(info.sacked + info.lost);
        let pert = |of: fn(&SocketStatus) -> f64| self.pert.as_ref().map(of);
        let ssthresh = (info.ssthresh < NO_SSTHRESH).then_some(f64::from(info.ssthresh));
        [
            ("cwnd_packets", Some(f64::from(info.window))),
            ("in_flight_packets", Some(f64::from(in_flight))),
            ("ssthresh_packets", ssthresh),
            ("srtt_s", self.smoothed_rtt().map(Duration::as_secs_f64)),
            ("alpha", pert(|pert| pert.alpha)),
            ("queueing_delay_s", pert(|pert| pert.curq.as_secs_f64())),
            ("largest_queueing_delay_s", pert(|pert| pert.maxq.as_secs_f64())),
            ("controller_srtt_s", pert(|pert| pert.srtt.as_secs_f64())),
        ]
        .into_iter()
        .filter_map(|(quantity, value)| Some((quantity, value?)))
    }

    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        let micros = self.info.smoothed_rtt_us;
        (micros > 0).then(|| Duration::from_micros(u64::from(micros)))
    }

    pub(crate) fn minimum_rtt(&self) -> Option<Duration> {
        let micros = self.info.minimum_rtt_us;
        // The kernel's value before the first sample.
        (micros > 0 && micros < u32::MAX).then(|| Duration::from_micros(u64::from(micros)))
    }

    /// Whether the connection is open and all that was written has been acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.sink.is_some() && self.failed.is_none() && self.acknowledged() == self.written
    }

    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }
}

/// Timeouts between two looks at a connection, as far as its state shows them: for kernels that do not count
/// them. An acknowledgement between two timeouts and two looks hides the first.
fn timeouts_between(before: &TcpInfo, now: &TcpInfo) -> u64 {
    let in_a_row = now.timeouts_in_a_row.saturating_sub(before.timeouts_in_a_row);
    // Something new was acknowledged since, but what was lost has not all arrived.
    let entered = now.congestion_state >= LOSS && before.congestion_state < LOSS;
    u64::from(in_a_row).max(u64::from(entered))
}

/// Whether a call on a non-blocking socket has to be repeated later.
fn is_under_way(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
        || error.kind() == ErrorKind::NotConnected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_show_in_the_state_of_a_connection() {
        let states =
            [(0, 0), (LOSS, 1), (LOSS, 1), (LOSS, 3), (LOSS, 0), (0, 0), (LOSS, 0), (0, 0)];
        let states = states.map(|(congestion_state, timeouts_in_a_row)| {
            let mut info = TcpInfo::default();
            (info.congestion_state, info.timeouts_in_a_row) = (congestion_state, timeouts_in_a_row);
            info
        });
        let between = states.windows(2).map(|pair| timeouts_between(&pair[0], &pair[1]));
        assert_eq!(between.collect::<Vec<_>>(), [1, 0, 2, 0, 0, 1, 0]);
    }
}
