//! Measures a path: throughput and loss at one spacing after the other.

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::arrivals::Totals;
use super::sender::{Failure, Pace, Sender, SenderOptions};
use super::wire::DATA_HEADER;
use ontempo_udp::{Datagram, Next, Protocol};

/// How often the spacing is noted.
const SAMPLE: Duration = Duration::from_millis(100);

/// Notes of a stretch at most: 1,000 s of them.
const MAX_SAMPLES: usize = 10_000;

/// Packets of one spacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// How they are spaced.
    pub pace: Pace,
    /// For how long they are sent.
    pub duration: Duration,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// One after the other.
    pub stretches: Vec<Stretch>,
    /// Bytes of each packet with its IP and UDP headers; those of ours are counted in.
    pub packet: Bytes,
    /// The receiver and what it wants.
    pub sender: SenderOptions,
}

/// What came of one stretch.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Which stretch of the plan, from 0.
    pub place: usize,
    /// Packets sent.
    pub sent: u64,
    /// From the first packet to the last, as sent.
    pub span: Duration,
    /// What the receiver counted.
    pub totals: Totals,
    /// Bytes of each packet with its IP and UDP headers.
    pub packet: Bytes,
    /// Round trip: least of the set-up, and by the last report.
    pub rtt: (Duration, Option<Duration>),
    /// Spacing over time, from the start of the stretch, each 100 ms, where it adapts.
    pub spacings: Vec<(Duration, Duration)>,
    /// Reports that told of a loss, where it adapts.
    pub losses: u64,
    /// It was cut short: the receiver's last count is missing.
    pub is_partial: bool,
}

impl Measured {
    /// Share of packets lost, 0 to 1; of a partial one those on their way count as lost.
    pub fn loss(&self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => sent.saturating_sub(self.totals.received) as f64 / sent as f64,
        }
    }

    /// Mean distance as sent; `None` of fewer than two packets.
    pub fn sent_gap(&self) -> Option<Duration> {
        (self.sent > 1).then(|| self.span / (self.sent - 1))
    }

    /// Rate at which packets left, headers included.
    pub fn sent_rate(&self) -> Rate {
        self.rate(self.sent, self.span)
    }

    /// Rate at which they came: over the longer of both ends' spans, so that a queue that empties
    /// later does not flatter.
    pub fn received_rate(&self) -> Rate {
        self.rate(self.totals.received, self.totals.span().max(self.span))
    }

    fn rate(&self, packets: u64, span: Duration) -> Rate {
        // n packets have n - 1 distances.
        Rate::of(Bytes::new(packets.saturating_sub(1) * self.packet.get()), span)
    }
}

/// Sends one stretch after the other, and hands on what came of each.
pub struct Probe {
    options: ProbeOptions,
    sender: Sender,
    /// The stretch under way, and when it ends.
    current: Option<(usize, Time)>,
    started: Time,
    spacings: Vec<(Duration, Duration)>,
    next_sample: Time,
    is_over: bool,
    tell: Box<dyn FnMut(Result<Measured, Failure>) + Send>,
}

impl Probe {
    /// A probe in a session of this number; `tell` gets each stretch as it is finished, and a
    /// failure last; it must not block.
    pub fn new(
        options: ProbeOptions,
        session: u64,
        tell: impl FnMut(Result<Measured, Failure>) + Send + 'static,
    ) -> Self {
        Self {
            sender: Sender::new(options.sender, session),
            options,
            current: None,
            started: Time::ZERO,
            spacings: Vec::new(),
            next_sample: Time::NEVER,
            is_over: false,
            tell: Box::new(tell),
        }
    }

    /// Bytes of IP and UDP headers.
    fn headers(&self) -> u64 {
        let ip =
            if self.options.sender.destination.ip().to_canonical().is_ipv4() { 20 } else { 40 };
        ip + 8
    }

    fn measured(&self, place: usize, is_partial: bool) -> Measured {
        let sender = &self.sender;
        Measured {
            place,
            sent: sender.sent(),
            span: sender.span(),
            totals: sender.totals(),
            packet: self.options.packet.max(Bytes::new(self.headers() + DATA_HEADER as u64)),
            rtt: (sender.base_rtt().unwrap_or_default(), sender.latest_rtt()),
            spacings: self.spacings.clone(),
            losses: sender.losses(),
            is_partial,
        }
    }

    /// Moves on to the next stretch where it is time.
    fn advance(&mut self, now: Time) {
        if self.is_over {
            return;
        }
        if let Some(failure) = self.sender.failure() {
            self.end_partially();
            return (self.tell)(Err(failure));
        }
        if !self.sender.is_open() {
            return;
        }
        match self.current {
            None => self.start(0, now),
            Some((place, _)) if self.sender.is_settled() => {
                let measured = self.measured(place, false);
                (self.tell)(Ok(measured));
                self.start(place + 1, now);
            }
            Some((_, end)) if end <= now && !self.sender.is_stopped() => {
                self.sender.stop(now);
                self.next_sample = Time::NEVER;
            }
            Some(_) => {}
        }
    }

    fn start(&mut self, place: usize, now: Time) {
        let Some(&Stretch { pace, duration }) = self.options.stretches.get(place) else {
            self.is_over = true;
            return self.sender.close();
        };
        let headers = self.headers() + DATA_HEADER as u64;
        let filler = self.options.packet.get().saturating_sub(headers);
        self.sender.begin(pace, Some(usize::try_from(filler).unwrap_or(0)));
        self.current = Some((place, now + duration));
        self.started = now;
        self.spacings.clear();
        self.next_sample = if let Pace::Adaptive(_) = pace { now + SAMPLE } else { Time::NEVER };
    }

    /// Ends here; what the stretch under way has measured is told.
    fn end_partially(&mut self) {
        self.is_over = true;
        if let Some((place, _)) = self.current
            && self.sender.sent() > 0
        {
            let measured = self.measured(place, true);
            (self.tell)(Ok(measured));
        }
        self.sender.close();
    }

    fn sample(&mut self, now: Time) {
        if self.next_sample <= now && self.spacings.len() < MAX_SAMPLES {
            self.spacings.push((now.since(self.started), self.sender.spacing()));
            self.next_sample = now + SAMPLE;
        }
    }
}

impl Protocol for Probe {
    /// To end here.
    type Command = ();

    fn handle(&mut self, now: Time, datagram: Datagram<'_>) {
        self.sender.handle(now, datagram);
        self.advance(now);
    }

    fn handle_command(&mut self, _: Time, (): ()) {
        if !self.is_over {
            self.end_partially();
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.sender.handle_timeout(now);
        self.sample(now);
        self.advance(now);
    }

    fn next_timeout(&self) -> Time {
        if self.is_over {
            return Time::NEVER;
        }
        let end = self.current.map_or(Time::NEVER, |(_, end)| end);
        let end = if self.sender.is_stopped() { Time::NEVER } else { end };
        let sample = if self.spacings.len() < MAX_SAMPLES { self.next_sample } else { Time::NEVER };
        end.min(sample).min(self.sender.next_timeout())
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Next {
        self.sender.poll_transmit(now, buffer)
    }

    fn is_finished(&self) -> bool {
        self.is_over
    }
}
