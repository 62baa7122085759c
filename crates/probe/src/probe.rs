//! Measures a path: throughput and loss at several spacings, one after the other.

use ontempo_foundation::{Bytes, Duration, Rate, Time};

use super::arrivals::Totals;
use super::sender::{Failure, Pace, Sender, SenderOptions};
use super::wire::DATA_HEADER;
use ontempo_udp::{Datagram, Next, Protocol};

/// Sampling interval of the spacing.
const SAMPLE: Duration = Duration::from_millis(100);

/// Maximum samples of a step: 1,000 s.
const MAX_SAMPLES: usize = 10_000;

/// A step of a probe: packets with one spacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Their spacing.
    pub pace: Pace,
    /// Duration of sending.
    pub duration: Duration,
}

/// Options of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Bytes of each packet with its IP and UDP headers; those of ours are counted in.
    pub packet: Bytes,
    /// The receiver, and how to reach it.
    pub sender: SenderOptions,
}

/// Result of one step.
#[derive(Clone, Debug, Default)]
pub struct StepResult {
    /// Index of the step.
    pub place: usize,
    /// Packets sent.
    pub sent: u64,
    /// From the first packet to the last, as sent.
    pub span: Duration,
    /// Counters of the receiver.
    pub totals: Totals,
    /// Bytes of each packet with its IP and UDP headers.
    pub packet: Bytes,
    /// Round trip: the smallest of the handshake, and that of the last report.
    pub rtt: (Duration, Option<Duration>),
    /// Spacing over time since the start of the step, every 100 ms, if it is adaptive.
    pub spacings: Vec<(Duration, Duration)>,
    /// Reports with a loss, if it is adaptive.
    pub losses: u64,
    /// The path was not seen to bear this spacing, and less was sent.
    pub is_bounded: bool,
    /// It was interrupted: the receiver's last report is missing.
    pub is_partial: bool,
}

impl StepResult {
    /// Share of packets lost, 0 to 1; in a partial result packets in flight count as lost.
    pub fn loss(&self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => sent.saturating_sub(self.totals.received) as f64 / sent as f64,
        }
    }

    /// Mean time between packets as sent; `None` for fewer than two.
    pub fn sent_gap(&self) -> Option<Duration> {
        (self.sent > 1).then(|| self.span / (self.sent - 1))
    }

    /// Sending rate, headers included.
    pub fn sent_rate(&self) -> Rate {
        self.rate(self.sent, self.span)
    }

    /// Receiving rate over the longer of both ends' spans, so that a queue that drains after the
    /// step does not count as throughput.
    pub fn received_rate(&self) -> Rate {
        self.rate(self.totals.received, self.totals.span().max(self.span))
    }

    fn rate(&self, packets: u64, span: Duration) -> Rate {
        // n packets have n - 1 gaps.
        Rate::of(Bytes::new(packets.saturating_sub(1) * self.packet.get()), span)
    }
}

/// Sends the steps in order and returns the result of each.
pub struct Probe {
    options: ProbeOptions,
    sender: Sender,
    /// The current step, and its end.
    current: Option<(usize, Time)>,
    started: Time,
    spacings: Vec<(Duration, Duration)>,
    next_sample: Time,
    is_over: bool,
    on_result: Box<dyn FnMut(Result<StepResult, Failure>) + Send>,
}

impl Probe {
    /// A probe with this session number; `on_result` is called after each step, and last with a
    /// failure if there is one; it must not block.
    pub fn new(
        options: ProbeOptions,
        session: u64,
        on_result: impl FnMut(Result<StepResult, Failure>) + Send + 'static,
    ) -> Self {
        Self {
            sender: Sender::new(options.sender, session),
            options,
            current: None,
            started: Time::ZERO,
            spacings: Vec::new(),
            next_sample: Time::NEVER,
            is_over: false,
            on_result: Box::new(on_result),
        }
    }

    /// Bytes of all headers of a packet.
    fn headers(&self) -> u64 {
        (self.options.sender.headers() + DATA_HEADER) as u64
    }

    fn measured(&self, place: usize, is_partial: bool) -> StepResult {
        let sender = &self.sender;
        StepResult {
            place,
            sent: sender.sent(),
            span: sender.span(),
            totals: sender.totals(),
            packet: self.options.packet.max(Bytes::new(self.headers())),
            rtt: (sender.base_rtt().unwrap_or_default(), sender.latest_rtt()),
            spacings: self.spacings.clone(),
            losses: sender.losses(),
            is_bounded: sender.is_bounded(),
            is_partial,
        }
    }

    /// Goes to the next step when due.
    fn advance(&mut self, now: Time) {
        if self.is_over {
            return;
        }
        if let Some(failure) = self.sender.failure() {
            self.end_partially();
            return (self.on_result)(Err(failure));
        }
        if !self.sender.is_open() {
            return;
        }
        match self.current {
            None => self.start(0, now),
            Some((place, _)) if self.sender.is_settled() => {
                let measured = self.measured(place, false);
                (self.on_result)(Ok(measured));
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
        let Some(&Step { pace, duration }) = self.options.steps.get(place) else {
            self.is_over = true;
            return self.sender.close();
        };
        let filler = self.options.packet.get().saturating_sub(self.headers());
        self.sender.begin(pace, Some(usize::try_from(filler).unwrap_or(0)));
        self.current = Some((place, now + duration));
        self.started = now;
        self.spacings.clear();
        self.next_sample = if let Pace::Adaptive(_) = pace { now + SAMPLE } else { Time::NEVER };
    }

    /// Ends the probe with a partial result of the current step.
    fn end_partially(&mut self) {
        self.is_over = true;
        if let Some((place, _)) = self.current
            && self.sender.sent() > 0
        {
            let measured = self.measured(place, true);
            (self.on_result)(Ok(measured));
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
    /// Ends the probe.
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
