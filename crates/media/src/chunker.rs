//! Streams of bytes, from files and pipes, to datagrams and their sending times.

use ontempo_foundation::Duration;

use super::ts::{self, PACKET, PACKET_WITH_PARITY, SYNC};

/// Packets of a transport stream in a datagram: as many as an Ethernet frame holds, as encoders do.
const PACKETS: usize = 7;

/// A PCR that jumps further than this is a discontinuity: the standard requires a reference every
/// 100 ms (section 2.7.2).
const MAX_STEP: Duration = Duration::from_secs(2);

/// Splits a stream of bytes into datagrams: a transport stream of packets of 188 or 204 bytes by seven packets, anything
/// else by size.
#[derive(Debug)]
pub struct Chunker {
    size: usize,
    bytes: Vec<u8>,
    /// Bytes already emitted.
    used: usize,
    finished: bool,
}

impl Chunker {
    /// A chunker that splits anything but a transport stream every `size` bytes, 1 to 65,535.
    pub fn new(size: u16) -> Self {
        Self { size: usize::from(size.max(1)), bytes: Vec::new(), used: 0, finished: false }
    }

    /// Takes more bytes. Call [`poll`](Self::poll) afterwards until it returns `None`; less than a
    /// datagram and two packets stay buffered.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// End of input: the rest is emitted as it is.
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

    /// Length of the next datagram; `None` until enough bytes are buffered to decide.
    fn next_length(&self) -> Option<usize> {
        let rest = self.bytes.get(self.used..)?;
        if rest.is_empty() {
            return None;
        }
        // A packet is recognised by the sync bytes of itself and of the next.
        let is_packet = |at: usize, size: usize| {
            rest.get(at) == Some(&SYNC) && rest.get(at + size).is_none_or(|&byte| byte == SYNC)
        };
        let packets = |size: usize| {
            (0..PACKETS)
                .take_while(|&count| {
                    is_packet(count * size, size) && rest.len() >= (count + 1) * size
                })
                .count()
        };
        let plain = (packets(PACKET), PACKET);
        let with_parity = (packets(PACKET_WITH_PARITY), PACKET_WITH_PARITY);
        let (packets, size) = if with_parity.0 > plain.0 { with_parity } else { plain };
        let enough = self.finished || rest.len() > PACKETS * size;
        if packets > 0 && enough {
            return Some(packets * size);
        }
        if rest.len() <= PACKET && !self.finished || packets > 0 {
            return None;
        }
        // Up to the next packet.
        let most = rest.len().min(self.size);
        let begins = |at: usize, size: usize| is_packet(at, size) && rest.len() > at + size;
        let until = (1..most).find(|&at| begins(at, PACKET) || begins(at, PACKET_WITH_PARITY));
        match until {
            Some(at) => Some(at),
            None if rest.len() >= self.size || self.finished => Some(most),
            None => None,
        }
    }
}

/// Sending times of the datagrams of a transport stream by its PCR: for sending a file in real
/// time.
#[derive(Debug, Default)]
pub struct PcrClock {
    /// The PID whose PCR is used: the first that has one, and after it the next one.
    pid: Option<u16>,
    multiplex: ts::Multiplex,
    /// The last PCR, and the time elapsed until then.
    last: Option<(Duration, Duration)>,
    /// Bytes since the last reference.
    bytes: u64,
    /// Seconds a byte, by the last two references.
    per_byte: f64,
    /// The time returned last; times never go back, even if a reference is earlier than predicted.
    due: Duration,
}

impl PcrClock {
    /// Sending time of this datagram, since the first PCR; zero before it. Between two references
    /// the rate of the last two is assumed. After a discontinuity time continues from where it was, also where a
    /// stream follows that has its PCR on another PID.
    pub fn due(&mut self, datagram: &[u8]) -> Duration {
        self.due = self.due.max(self.passed());
        if let Some(size) = ts::packet_size(datagram) {
            for packet in datagram.chunks_exact(size) {
                self.bytes += size as u64;
                self.learn(&packet[..PACKET]);
            }
        } else {
            self.bytes += datagram.len() as u64;
        }
        self.due
    }

    fn passed(&self) -> Duration {
        let since = self.since_last().min(MAX_STEP);
        self.last.map_or(Duration::ZERO, |(_, passed)| passed.saturating_add(since))
    }

    /// Since the last reference, by the bytes.
    fn since_last(&self) -> Duration {
        Duration::from_secs_f64(self.bytes as f64 * self.per_byte)
    }

    fn learn(&mut self, packet: &[u8]) {
        let Some(header) = ts::header(packet).filter(|header| header.pcr.is_some()) else { return };
        let is_another = *self.pid.get_or_insert(header.pid) != header.pid;
        if is_another && self.since_last() <= MAX_STEP {
            return;
        }
        // Another stream has followed, whose clock says nothing of that of the one before.
        self.pid = Some(header.pid);
        self.multiplex.learn(packet, &header);
        let Some(clock) = self.multiplex.clock() else { return };
        let passed = match self.last {
            None => Duration::ZERO,
            Some((last, passed)) if !is_another && clock >= last && clock - last <= MAX_STEP => {
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
