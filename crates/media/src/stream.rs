//! Streams of bytes, from files and pipes, as datagrams at their time.

use ontempo_foundation::Duration;

use super::ts::{self, PACKET, SYNC};

/// Packets of a transport stream in a datagram: what an Ethernet frame holds, and what encoders do.
const PACKETS: usize = 7;

/// A clock that jumps further than this has been set anew: the standard wants a reference each
/// 100 ms (section 2.7.2).
const MAX_STEP: Duration = Duration::from_secs(2);

/// Cuts a stream of bytes into datagrams: a transport stream by seven packets, anything else by
/// size.
#[derive(Debug)]
pub struct Chopper {
    size: usize,
    bytes: Vec<u8>,
    /// Bytes that have been handed out.
    used: usize,
    finished: bool,
}

impl Chopper {
    /// One that cuts what is no transport stream every `size` bytes, 1 to 65,535.
    pub fn new(size: u16) -> Self {
        Self { size: usize::from(size.max(1)), bytes: Vec::new(), used: 0, finished: false }
    }

    /// More bytes have come. Then [`poll`](Self::poll) until nothing is left: what it leaves is
    /// less than a datagram and two packets.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// No more is to come: the rest is handed out as it is.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The next datagram.
    pub fn poll(&mut self) -> Option<&[u8]> {
        let length = self.next_length()?;
        let start = self.used;
        self.used += length;
        self.bytes.get(start..self.used)
    }

    /// Its length; `None` until there are enough bytes to tell.
    fn next_length(&self) -> Option<usize> {
        let rest = self.bytes.get(self.used..)?;
        if rest.is_empty() {
            return None;
        }
        // A packet is one whose next is one, too.
        let is_packet = |at: usize| {
            rest.get(at) == Some(&SYNC) && rest.get(at + PACKET).is_none_or(|&byte| byte == SYNC)
        };
        let packets = (0..PACKETS)
            .take_while(|&count| is_packet(count * PACKET) && rest.len() >= (count + 1) * PACKET);
        let packets = packets.count();
        let enough = self.finished || rest.len() > PACKETS * PACKET;
        if packets > 0 && enough {
            return Some(packets * PACKET);
        }
        if rest.len() <= PACKET && !self.finished || packets > 0 {
            return None;
        }
        // Up to where packets begin (again).
        let most = rest.len().min(self.size);
        let until = (1..most).find(|&at| is_packet(at) && rest.len() > at + PACKET);
        match until {
            Some(at) => Some(at),
            None if rest.len() >= self.size || self.finished => Some(most),
            None => None,
        }
    }
}

/// When each datagram of a transport stream is due, by the stream's own clock: for sending a file
/// at its pace.
#[derive(Debug, Default)]
pub struct PcrClock {
    /// The stream whose clock it is: the first that has one.
    pid: Option<u16>,
    multiplex: ts::Multiplex,
    /// The last clock reference, and the time that has passed until then.
    last: Option<(Duration, Duration)>,
    /// Bytes since the last reference.
    bytes: u64,
    /// Time for a byte, by the last two references, s.
    per_byte: f64,
    /// What was answered last: a reference that comes earlier than its rate foretold takes nothing
    /// back.
    due: Duration,
}

impl PcrClock {
    /// How long after the first clock reference this datagram is due; zero before that. Between
    /// two references the rate of the last two is taken to hold. A clock that jumps goes on from
    /// where it was.
    pub fn due(&mut self, datagram: &[u8]) -> Duration {
        self.due = self.due.max(self.passed());
        if ts::packet_size(datagram) == Some(PACKET) {
            for packet in datagram.chunks_exact(PACKET) {
                self.bytes += PACKET as u64;
                self.learn(packet);
            }
        } else {
            self.bytes += datagram.len() as u64;
        }
        self.due
    }

    fn passed(&self) -> Duration {
        let since = Duration::from_secs_f64(self.bytes as f64 * self.per_byte);
        self.last.map_or(Duration::ZERO, |(_, passed)| passed.saturating_add(since.min(MAX_STEP)))
    }

    fn learn(&mut self, packet: &[u8]) {
        let Some(header) = ts::header(packet).filter(|header| header.pcr.is_some()) else { return };
        if *self.pid.get_or_insert(header.pid) != header.pid {
            return;
        }
        self.multiplex.learn(packet, &header);
        let Some(clock) = self.multiplex.clock() else { return };
        let passed = match self.last {
            None => Duration::ZERO,
            Some((last, passed)) if clock >= last && clock - last <= MAX_STEP => {
                let step = clock - last;
                self.per_byte = step.as_secs_f64() / self.bytes.max(1) as f64;
                passed.saturating_add(step)
            }
            Some(_) => self.passed(),
        };
        self.last = Some((clock, passed));
        self.bytes = 0;
    }
}
