//! Samples of the rate at which packets are delivered (draft-ietf-ccwg-bbr-06, section 4.1;
//! draft-cheng-iccrg-delivery-rate-estimation-02).
//!
//! A sample is the number of packets delivered between the sending of a packet and its
//! acknowledgement, divided by the longer of the time in which they were sent and the time in which
//! they were acknowledged. Volumes are in full packets: a smaller one counts as a part of one (the draft: bytes).

use std::collections::VecDeque;

use ontempo_foundation::{Duration, Time};

use super::Watch;

/// The state of the flow when a packet was last sent.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    /// P.send_time.
    at: Time,
    /// P.first_send_time.
    first_sent: Time,
    /// P.delivered_time.
    delivered_at: Time,
    /// P.size.
    size: f64,
    /// P.delivered.
    delivered: f64,
    /// P.lost.
    lost: f64,
    /// P.tx_in_flight.
    in_flight: f64,
    /// P.is_app_limited.
    is_application_limited: bool,
    /// Not acknowledged yet (the draft: P.delivered_time is not 0).
    is_outstanding: bool,
}

/// The delivered packet that was sent last, of one acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Newest {
    packet: u64,
    sent: Transmission,
}

/// What one acknowledgement says of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSample {
    /// Packets a second; `None` where the interval is shorter than the least round trip, so that the
    /// acknowledgement may be that of an earlier copy.
    pub rate: Option<f64>,
    /// Packets delivered in the interval (RS.delivered).
    pub delivered: f64,
    /// Packets that had been delivered before it (RS.prior_delivered).
    pub prior_delivered: f64,
    /// Packets in flight after the acknowledged one was sent, itself included (RS.tx_in_flight).
    pub in_flight: f64,
    /// Packets found lost since it was sent (RS.lost).
    pub lost: f64,
    /// Whether the application did not send enough to fill the path then.
    pub is_application_limited: bool,
}

/// A packet was found lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// Its size in full packets.
    pub size: f64,
    /// Packets in flight after it was sent, itself included.
    pub in_flight: f64,
    /// Packets found lost since it was sent, itself included.
    pub lost: f64,
    /// Whether the application did not send enough to fill the path then.
    pub is_application_limited: bool,
}

/// Whether losses are being repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// No.
    #[default]
    None,
    /// In a loss episode (Linux: `TCP_CA_Recovery`).
    Episode,
    /// What a timeout took for lost is sent again (Linux: `TCP_CA_Loss`).
    AfterTimeout,
}

/// The state of the sampler. 80 bytes for each outstanding packet; work is constant per packet.
///
/// In the order of calls: [`on_sent`](Self::on_sent) for each packet; for each acknowledgement
/// [`begin`](Self::begin), then as [`Watch`] what becomes of packets,
/// [`advance`](Self::advance), and [`sample`](Self::sample).
#[derive(Clone, Debug, Default)]
pub struct DeliveryRates {
    /// The number of the packet at the front of `sent`.
    first: u64,
    sent: VecDeque<Transmission>,
    /// Packets delivered since the start (C.delivered).
    delivered: f64,
    /// When that last changed (C.delivered_time).
    delivered_at: Time,
    /// When the packet that was last delivered was sent; after idleness, when the first one was
    /// (C.first_send_time).
    first_sent: Time,
    /// Packets found lost since the start (C.lost).
    lost: f64,
    /// Samples are limited by the application until more than this is delivered (C.app_limited).
    application_limited_to: Option<f64>,
    /// The window has limited the sender within the round trip that ends when more than this is
    /// delivered (C.is_cwnd_limited).
    window_limited_to: Option<f64>,
    /// The least round trip (C.min_rtt).
    minimum_rtt: Option<Duration>,
    repair: Repair,
    // Of the acknowledgement being processed.
    now: Time,
    newest: Option<Newest>,
    /// What was delivered, lost and in flight before it.
    before: (f64, f64, f64),
    /// Packets found lost that the controller has not yet taken.
    losses: Option<VecDeque<Lost>>,
}

impl DeliveryRates {
    /// Nothing sent yet. `keeps_losses`: each packet found lost is kept for
    /// [`next_loss`](Self::next_loss).
    pub fn new(keeps_losses: bool) -> Self {
        Self { losses: keeps_losses.then(VecDeque::new), ..Self::default() }
    }

    /// `packet` was sent, or sent again, of a `size` in full packets; `in_flight` includes it.
    pub fn on_sent(&mut self, now: Time, packet: u64, size: f64, in_flight: f64) {
        if in_flight <= size {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let transmission = Transmission {
            at: now,
            first_sent: self.first_sent,
            delivered_at: self.delivered_at,
            size,
            delivered: self.delivered,
            lost: self.lost,
            in_flight,
            is_application_limited: self.is_application_limited(),
            is_outstanding: true,
        };
        match self.sent.get_mut(packet.wrapping_sub(self.first) as usize) {
            Some(before) => *before = transmission,
            None => self.sent.push_back(transmission),
        }
    }

    /// An acknowledgement arrived, or a timer found losses; `in_flight` is as before it.
    pub fn begin(&mut self, now: Time, in_flight: f64) {
        self.now = now;
        self.newest = None;
        self.before = (self.delivered, self.lost, in_flight);
    }

    /// All below `first` is acknowledged; `repair` is as it is after the acknowledgement.
    pub fn advance(&mut self, first: u64, repair: Repair) {
        let gone = first.saturating_sub(self.first).min(self.sent.len() as u64);
        self.sent.drain(..gone as usize);
        self.first = self.first.max(first);
        self.repair = repair;
    }

    /// A round trip was measured: of the packet delivered that was sent last, or of the handshake.
    pub fn on_rtt(&mut self, rtt: Duration) {
        self.minimum_rtt = Some(self.minimum_rtt.map_or(rtt, |minimum| minimum.min(rtt)));
    }

    /// The sample of the acknowledgement; `None` where it delivered nothing (GenerateRateSample).
    pub fn sample(&mut self) -> Option<RateSample> {
        if self.application_limited_to.is_some_and(|end| self.delivered > end) {
            self.application_limited_to = None;
        }
        let sent = self.newest?.sent;
        let interval = sent.at.since(sent.first_sent).max(self.now.since(sent.delivered_at));
        let delivered = self.delivered - sent.delivered;
        let is_reliable =
            interval > Duration::ZERO && self.minimum_rtt.is_none_or(|minimum| interval >= minimum);
        Some(RateSample {
            rate: is_reliable.then(|| delivered / interval.as_secs_f64()),
            delivered,
            prior_delivered: sent.delivered,
            in_flight: sent.in_flight,
            lost: self.lost - sent.lost,
            is_application_limited: sent.is_application_limited,
        })
    }

    /// The next packet found lost that was not taken yet.
    pub fn next_loss(&mut self) -> Option<Lost> {
        self.losses.as_mut()?.pop_front()
    }

    /// The sender has sent all that the application offers, and the window lets more be sent: samples
    /// of what is in flight, and of what is sent meanwhile, do not show what the path carries.
    pub fn limit_by_application(&mut self, in_flight: f64) {
        self.application_limited_to = Some((self.delivered + in_flight).max(1.0));
    }

    /// The window limits the sender.
    pub fn limit_by_window(&mut self, in_flight: f64) {
        self.window_limited_to = Some(self.delivered + in_flight);
    }

    /// Whether what is sent now gives samples that are limited by the application.
    pub fn is_application_limited(&self) -> bool {
        self.application_limited_to.is_some()
    }

    /// Whether the window limited the sender at any time of the last round trip.
    pub fn is_window_limited(&self) -> bool {
        self.window_limited_to.is_some_and(|end| self.delivered <= end)
    }

    /// Packets delivered since the start.
    pub fn total_delivered(&self) -> f64 {
        self.delivered
    }

    /// When a packet was last delivered.
    pub fn delivered_at(&self) -> Time {
        self.delivered_at
    }

    /// Packets found lost by this acknowledgement.
    pub fn newly_lost(&self) -> f64 {
        self.lost - self.before.1
    }

    /// Packets in flight before this acknowledgement.
    pub fn prior_in_flight(&self) -> f64 {
        self.before.2
    }

    /// Packets newly acknowledged by this acknowledgement.
    pub fn newly_delivered(&self) -> f64 {
        self.delivered - self.before.0
    }

    /// Whether losses are being repaired.
    pub fn repair(&self) -> Repair {
        self.repair
    }

    fn transmission(&mut self, packet: u64) -> Option<&mut Transmission> {
        let place = packet.checked_sub(self.first)? as usize;
        self.sent.get_mut(place).filter(|sent| sent.is_outstanding)
    }
}

impl Watch for DeliveryRates {
    /// UpdateRateSample.
    fn delivered(&mut self, packet: u64) {
        let Some(sent) = self.transmission(packet) else { return };
        sent.is_outstanding = false;
        let sent = *sent;
        self.delivered += sent.size;
        self.delivered_at = self.now;
        let is_newest = self.newest.is_none_or(|newest| {
            sent.at > self.first_sent || (sent.at == self.first_sent && packet > newest.packet)
        });
        if is_newest {
            self.newest = Some(Newest { packet, sent });
            self.first_sent = sent.at;
        }
    }

    fn lost(&mut self, packet: u64) {
        let Some(sent) = self.transmission(packet).map(|sent| *sent) else { return };
        self.lost += sent.size;
        let lost = self.lost - sent.lost;
        if let Some(losses) = &mut self.losses {
            let Transmission { size, in_flight, is_application_limited, .. } = sent;
            losses.push_back(Lost { size, in_flight, lost, is_application_limited });
        }
    }
}

#[cfg(test)]
mod tests {
    use ontempo_foundation::RandomStream;

    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    /// A path that takes `rtt` and then delivers a packet each `gap` (both in us), with `window`
    /// packets in flight: the samples from the second round trip on.
    fn samples(gap: u64, rtt: u64, window: u64, count: u64) -> Vec<RateSample> {
        let mut rates = DeliveryRates::new(false);
        let mut arrivals = VecDeque::new();
        let mut link_free = 0;
        let mut sent = 0;
        let mut send = |rates: &mut DeliveryRates, arrivals: &mut VecDeque<u64>, now: u64| {
            link_free = link_free.max(now) + gap;
            arrivals.push_back(link_free + rtt);
            rates.on_sent(at(now), sent, 1.0, arrivals.len() as f64);
            sent += 1;
        };
        (0..window).for_each(|_| send(&mut rates, &mut arrivals, 0));
        let mut found = Vec::new();
        for packet in 0..count {
            let now = arrivals.pop_front().expect("it is in flight");
            rates.begin(at(now), window as f64);
            rates.delivered(packet);
            rates.advance(packet + 1, Repair::None);
            found.extend(rates.sample().filter(|_| packet >= 2 * window));
            send(&mut rates, &mut arrivals, now);
        }
        found
    }

    #[test]
    fn samples_are_the_rate_of_the_bottleneck_where_the_window_fills_it_and_never_more() {
        // 1 ms a packet and 20 ms: 20 packets are on the way, the 21st waits.
        for sample in samples(1_000, 20_000, 30, 500) {
            let rate = sample.rate.expect("it is reliable");
            assert!((rate - 1_000.0).abs() < 1e-6, "{sample:?}");
        }
        for window in [5, 10, 20] {
            // 21 ms a round trip.
            for sample in samples(1_000, 20_000, window, 500) {
                let rate = sample.rate.expect("it is reliable");
                assert!(rate <= 1_000.0 + 1e-6 && rate > window as f64 / 0.0211, "{sample:?}");
            }
        }
    }

    #[test]
    fn packets_of_any_size_show_the_rate_of_the_bottleneck() {
        // Full packets need 1 ms each; those of a quarter and a half of their size less.
        let mut rates = DeliveryRates::new(false);
        let sizes: Vec<f64> = (0..200).map(|packet| [0.25, 1.0, 0.5][packet / 7 % 3]).collect();
        let volume: f64 = sizes.iter().sum();
        let mut in_flight = 0.0;
        for (packet, size) in sizes.iter().enumerate() {
            in_flight += size;
            rates.on_sent(at(0), packet as u64, *size, in_flight);
        }
        let mut now = 20_000;
        for (packet, size) in sizes.iter().enumerate() {
            now += (size * 1e3) as u64;
            rates.begin(at(now), in_flight);
            in_flight -= size;
            rates.delivered(packet as u64);
            rates.advance(packet as u64 + 1, Repair::None);
            assert_eq!(rates.newly_delivered(), *size);
        }
        let sample = rates.sample().expect("packets were delivered");
        assert_eq!((sample.delivered, sample.in_flight), (volume, volume));
        let rate = volume / ((now as f64) / 1e6);
        assert!(sample.rate.is_some_and(|sample| (sample - rate).abs() < 1e-6), "{sample:?}");
    }

    #[test]
    fn acknowledgements_that_arrive_at_once_do_not_raise_the_sample_above_the_rate_of_sending() {
        // Sent each 10 ms, acknowledged by one ACK.
        let mut rates = DeliveryRates::new(false);
        for packet in 0..10 {
            rates.on_sent(at(packet * 10_000), packet, 1.0, (packet + 1) as f64);
        }
        rates.begin(at(100_000), 10.0);
        (0..10).for_each(|packet| rates.delivered(packet));
        rates.advance(10, Repair::None);
        let sample = rates.sample().expect("packets were delivered");
        assert_eq!((sample.delivered, sample.prior_delivered), (10.0, 0.0));
        assert!(sample.rate.is_some_and(|rate| rate <= 100.0 + 1e-9), "{sample:?}");
    }

    #[test]
    fn an_interval_below_the_least_round_trip_gives_no_rate() {
        let mut rates = DeliveryRates::new(false);
        rates.on_rtt(Duration::from_millis(20));
        rates.on_sent(at(0), 0, 1.0, 1.0);
        rates.on_sent(at(50_000), 0, 1.0, 2.0);
        rates.begin(at(51_000), 2.0);
        rates.delivered(0);
        rates.advance(1, Repair::None);
        // Sent again at 50 ms, with the time of the first copy as the beginning: reliable.
        assert!(rates.sample().is_some_and(|sample| sample.rate.is_some()));
        rates.on_sent(at(60_000), 1, 1.0, 1.0);
        rates.begin(at(61_000), 1.0);
        rates.delivered(1);
        rates.advance(2, Repair::None);
        assert!(rates.sample().is_some_and(|sample| sample.rate.is_none()));
    }

    #[test]
    fn samples_are_limited_by_the_application_until_what_was_in_flight_then_is_delivered() {
        let mut rates = DeliveryRates::new(false);
        for packet in 0..4 {
            rates.on_sent(at(packet), packet, 1.0, (packet + 1) as f64);
        }
        rates.limit_by_application(4.0);
        rates.on_sent(at(10), 4, 1.0, 5.0);
        // What is sent until the bubble is gone is limited, too.
        for packet in 0..12 {
            rates.begin(at(20_000 + packet), 5.0);
            rates.delivered(packet);
            rates.advance(packet + 1, Repair::None);
            let sample = rates.sample().expect("a packet was delivered");
            assert_eq!(sample.is_application_limited, (4..9).contains(&packet), "{packet}");
            assert_eq!(rates.is_application_limited(), packet < 4, "{packet}");
            rates.on_sent(at(20_000 + packet), packet + 5, 1.0, 5.0);
        }
    }

    #[test]
    fn a_loss_is_told_with_what_was_in_flight_and_lost_since_its_sending() {
        let mut rates = DeliveryRates::new(true);
        for packet in 0..5 {
            rates.on_sent(at(packet), packet, 1.0, (packet + 1) as f64);
        }
        rates.begin(at(20_000), 5.0);
        rates.delivered(4);
        rates.lost(0);
        rates.lost(1);
        let told: Vec<_> = std::iter::from_fn(|| rates.next_loss()).collect();
        assert_eq!(
            told.iter().map(|one| (one.in_flight, one.lost)).collect::<Vec<_>>(),
            [(1.0, 1.0), (2.0, 2.0)]
        );
        assert_eq!((rates.newly_lost(), rates.newly_delivered()), (2.0, 1.0));
        assert_eq!(rates.sample().map(|sample| sample.lost), Some(2.0));
    }

    #[test]
    fn whatever_happens_counts_agree_and_nothing_is_kept_of_what_is_acknowledged() {
        for seed in 0..200 {
            let mut random = RandomStream::new(seed, "rates");
            let mut rates = DeliveryRates::new(true);
            let (mut first, mut next, mut now, mut copies) = (0, 0, 0, 0);
            for _ in 0..300 {
                now += random.next_u64() % 5_000;
                match random.next_u64() % 4 {
                    0 => {
                        rates.on_sent(at(now), next, 1.0, (next - first + 1) as f64);
                        next += 1;
                        copies += 1;
                    }
                    1 if next > first => {
                        let again = first + random.next_u64() % (next - first);
                        rates.on_sent(at(now), again, 1.0, (next - first) as f64);
                        copies += 1;
                    }
                    _ => {
                        rates.begin(at(now), (next - first) as f64);
                        for packet in first..next {
                            match random.next_u64() % 8 {
                                0 => rates.delivered(packet),
                                1 => rates.lost(packet),
                                _ => {}
                            }
                        }
                        let upto = first + random.next_u64() % (next - first + 1);
                        (first..upto).for_each(|packet| rates.delivered(packet));
                        rates.advance(upto, Repair::None);
                        first = upto;
                        if let Some(sample) = rates.sample() {
                            assert!(
                                sample.delivered > 0.0
                                    && sample.delivered <= rates.total_delivered()
                            );
                            assert!(sample.rate.is_none_or(|rate| rate.is_finite() && rate > 0.0));
                        }
                        while rates.next_loss().is_some() {}
                    }
                }
                assert!(
                    rates.total_delivered() >= first as f64
                        && rates.total_delivered() <= copies as f64
                );
                assert_eq!(rates.sent.len() as u64, next - first);
            }
        }
    }
}
