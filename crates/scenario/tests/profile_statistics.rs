//! What the profiles generate, held against the statistics of their sources: the bounds are in the
//! profiles' files.

use std::sync::Arc;

use ontempo_foundation::{Bytes, Duration, Rate, Time};
use ontempo_network::{DelayLaw, Extras, Fate, Link, LinkParameters, LossModel, Queue, Schedule};
use ontempo_scenario::model::{
    AccessDirection, Delay, LinkProfile, LinkSpec, LossSpec, QueueLimit, QueueSpec,
};
use ontempo_scenario::profiles::{Profile, Statistic};
use ontempo_scenario::{LaidLink, parse};

/// As many runs as give the rarest episode of a profile more than a hundred times.
const SEEDS: u64 = 20;
const MORE_SEEDS: u64 = 80;
const SECONDS: u64 = 300;
/// Time between packets.
const SPACING: Duration = Duration::from_millis(20);
/// Packets in a second.
const PER_SECOND: usize = 50;
/// Longer outages are no handovers of LTE.
const SHORT: f64 = 0.1;

/// One direction of the runs with all seeds.
#[derive(Default)]
struct Measured {
    /// Mean rates of seconds in Mbit/s, by seed.
    rates: Vec<Vec<f64>>,
    mean_rates: Vec<f64>,
    /// In seconds.
    outages: Vec<f64>,
    below_nominal: f64,
    /// Delays of packets in ms, by seed; none of a lost one.
    delays: Vec<Vec<Option<f64>>>,
}

fn end() -> Time {
    Time::ZERO + Duration::from_secs(SECONDS)
}

/// The bottleneck of a dumbbell and its way back, as laid out.
fn links(profile: LinkProfile, seed: u64) -> [LaidLink; 2] {
    let text = format!(
        "duration = \"{SECONDS} s\"\n[topology]\nkind = \"dumbbell\"\n\
         access = {{ rate = \"unlimited\", delay = \"0 s\" }}\n\
         [topology.bottleneck]\nprofile = \"{}\"\n\
         [flows.one]\napplication = {{ kind = \"ftp\" }}\ntransport = {{ kind = \"tcp\" }}\n",
        profile.name()
    );
    let scenario = parse(&text, "s.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut links = scenario.layout(seed).expect("a layout").links.into_iter();
    [0, 1].map(|_| links.next().expect("two directions"))
}

fn loss_model(spec: Option<&LossSpec>) -> LossModel {
    match spec {
        None => Ok(LossModel::None),
        Some(LossSpec::Bernoulli { rate }) => LossModel::bernoulli(*rate),
        Some(LossSpec::Gilbert { p, q }) => LossModel::gilbert(*p, *q),
        Some(LossSpec::Trace { lost }) => LossModel::trace(lost.iter().copied(), None),
    }
    .expect("a valid profile")
}

impl Measured {
    fn add(&mut self, laid: &LaidLink, seed: u64) {
        let schedule = laid.schedule.as_ref().expect("it varies");
        self.rate(laid, schedule);
        let Delay::Fixed(delay) = laid.delay else { panic!("a profile has a fixed delay") };
        // Packets are few and small: the queue is never near its limit.
        let parameters = LinkParameters {
            rate: laid.rate,
            delay: DelayLaw::Constant(delay),
            mtu: None,
            queue: Queue::unlimited(),
            loss: loss_model(laid.loss.as_ref()),
            reordering: laid.reordering,
            extras: Extras { schedule: Some(Arc::clone(schedule)), ..Extras::default() },
        };
        let mut link = Link::new(parameters, seed, &laid.name);
        let mut delays = Vec::new();
        let mut now = Time::ZERO;
        while now < end() {
            let arrives = match link.offer(now, Bytes::new(100), false) {
                Fate::Arrives { at, .. } => Some(at),
                Fate::Dropped(_) => None,
            };
            delays.push(arrives.map(|time| 1e3 * time.since(now).as_secs_f64()));
            now += SPACING;
        }
        self.delays.push(delays);
    }

    fn rate(&mut self, laid: &LaidLink, schedule: &Schedule) {
        let megabits = |rate: Rate| rate.as_bits_per_sec() as f64 / 1e6;
        let second = |place| Time::ZERO + Duration::from_secs(place);
        let rates = (0..SECONDS)
            .map(|place| megabits(schedule.capacity.mean_rate(second(place), second(place + 1))));
        self.rates.push(rates.collect());
        self.mean_rates.push(megabits(schedule.capacity.mean_rate(Time::ZERO, end())));
        let mut time = Time::ZERO;
        while time < end() {
            // An outage lasts although a rate changes that is multiplied by 0.
            let rate = schedule.capacity.rate_at(time);
            let next = schedule.capacity.next_change(time).min(end());
            let lasts = next.since(time).as_secs_f64();
            if rate == Rate::from_bits_per_sec(0) {
                self.outages.push(lasts);
            }
            if rate < laid.rate {
                self.below_nominal += lasts;
            }
            time = next;
        }
    }

    fn seconds(&self) -> f64 {
        (self.rates.len() as u64 * SECONDS) as f64
    }

    fn all_rates(&self) -> Vec<f64> {
        self.rates.concat()
    }

    /// The lag in seconds at which the correlation has fallen to 1/e.
    fn correlation_time(&self) -> f64 {
        let rates = self.all_rates();
        let (mean, variance) = (mean(&rates), variance(&rates));
        let at = |lag: usize| {
            let products = self
                .rates
                .iter()
                .flat_map(|run| run.iter().zip(&run[lag..]).map(|(a, b)| (a - mean) * (b - mean)));
            let products: Vec<f64> = products.collect();
            self::mean(&products) / variance
        };
        let reached = (1..SECONDS as usize / 2).find(|lag| at(*lag) < (-1.0f64).exp());
        reached.unwrap_or(SECONDS as usize) as f64
    }

    fn loss(&self) -> f64 {
        let all = self.delays.concat();
        all.iter().filter(|delay| delay.is_none()).count() as f64 / all.len() as f64
    }

    fn loss_run(&self) -> f64 {
        let lost = self.delays.concat().iter().filter(|delay| delay.is_none()).count();
        let begins = |run: &Vec<Option<f64>>| {
            let pairs = run.windows(2).filter(|pair| pair[0].is_some() && pair[1].is_none());
            pairs.count() + usize::from(run[0].is_none())
        };
        lost as f64 / self.delays.iter().map(begins).sum::<usize>() as f64
    }

    fn outages(&self, are_short: bool) -> Vec<f64> {
        let of_kind = self.outages.iter().filter(|one| (**one <= SHORT) == are_short);
        of_kind.copied().collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Round trips by seed: a packet each way that leave at the same time.
fn round_trips(measured: &[Measured; 2]) -> Vec<Vec<Option<f64>>> {
    let [there, back] = measured;
    let both = there.delays.iter().zip(&back.delays);
    both.map(|(a, b)| a.iter().zip(b).map(|(a, b)| Some((*a)? + (*b)?)).collect()).collect()
}

fn jitter(round_trips: &[Vec<Option<f64>>]) -> f64 {
    let differences = round_trips.iter().flat_map(|run| {
        let pairs = run.iter().zip(&run[PER_SECOND..]);
        pairs.filter_map(|(a, b)| Some(((*a)? - (*b)?).abs()))
    });
    mean(&differences.collect::<Vec<f64>>())
}

fn queue_drain(link: &LinkSpec) -> f64 {
    let QueueSpec::DropTail { limit: Some(QueueLimit::Bytes(limit)) } = &link.queue else {
        panic!("the queue has no limit in bytes")
    };
    8e3 * limit.get() as f64 / link.rate.as_bits_per_sec() as f64
}

fn statistic(statistic: Statistic, link: &LinkSpec, one: &Measured, both: &[Measured; 2]) -> f64 {
    let round_trips = round_trips(both);
    let quantile_of_round_trips = |share| {
        let all: Vec<f64> = round_trips.iter().flatten().filter_map(|one| *one).collect();
        quantile(&all, share)
    };
    let steps = || {
        let steps = one.rates.iter().flat_map(|run| run.windows(2).map(|pair| pair[1] - pair[0]));
        steps.map(|step| step * step).collect::<Vec<f64>>()
    };
    match statistic {
        Statistic::RateMedian => quantile(&one.all_rates(), 0.5),
        Statistic::RateMean => mean(&one.mean_rates),
        Statistic::RateP5 => quantile(&one.all_rates(), 0.05),
        Statistic::RateP95 => quantile(&one.all_rates(), 0.95),
        Statistic::RateVariation => variance(&one.all_rates()).sqrt() / mean(&one.all_rates()),
        Statistic::RateStep => mean(&steps()).sqrt(),
        Statistic::RateCorrelationTime => one.correlation_time(),
        Statistic::ShareBelowNominal => one.below_nominal / one.seconds(),
        Statistic::OutageShare => one.outages.iter().sum::<f64>() / one.seconds(),
        Statistic::LongOutage => mean(&one.outages(false)),
        Statistic::ShortOutage => 1e3 * mean(&one.outages(true)),
        Statistic::ShortOutageInterval => one.seconds() / one.outages(true).len() as f64,
        Statistic::OutageInterval => one.seconds() / one.outages.len() as f64,
        Statistic::RttMin => quantile_of_round_trips(0.0),
        Statistic::RttP25 => quantile_of_round_trips(0.25),
        Statistic::RttMedian => quantile_of_round_trips(0.5),
        Statistic::RttP75 => quantile_of_round_trips(0.75),
        Statistic::RttP90 => quantile_of_round_trips(0.9),
        Statistic::RttP99 => quantile_of_round_trips(0.99),
        Statistic::RttJitter => jitter(&round_trips),
        Statistic::Loss => one.loss(),
        Statistic::LossRun => one.loss_run(),
        Statistic::QueueDrain => queue_drain(link),
    }
}

/// Holds a profile against its targets and returns what misses them.
fn misses(profile: LinkProfile, seeds: u64) -> Vec<String> {
    let mut measured = [Measured::default(), Measured::default()];
    for seed in 0..seeds {
        for (laid, measured) in links(profile, seed).iter().zip(&mut measured) {
            measured.add(laid, seed);
        }
    }
    let values = Profile::of(profile);
    let mut misses = Vec::new();
    for target in &values.targets {
        let direction = target.direction.unwrap_or(AccessDirection::Downlink);
        let one = &measured[usize::from(direction == AccessDirection::Uplink)];
        let value = statistic(target.statistic, values.link(direction), one, &measured);
        let line = format!(
            "{}, {}: {} = {value:.5}, bounds {} to {}",
            profile.name(),
            direction.name(),
            target.statistic.words(),
            target.low,
            target.high
        );
        println!("{line}");
        // Not a number is no hit.
        if !(target.low..=target.high).contains(&value) {
            misses.push(line);
        }
    }
    misses
}

macro_rules! profiles {
    ($($name:ident: $profile:ident, $seeds:ident;)*) => {
        $(
            #[test]
            fn $name() {
                assert_eq!(misses(LinkProfile::$profile, $seeds), Vec::<String>::new());
            }
        )*

        #[test]
        fn every_profile_is_held_against_its_targets() {
            assert_eq!(LinkProfile::ALL.to_vec(), vec![$(LinkProfile::$profile),*]);
        }
    };
}

profiles! {
    dsl_has_the_statistics_of_its_sources: Dsl, SEEDS;
    cable_has_the_statistics_of_its_sources: Cable, SEEDS;
    lte_still_has_the_statistics_of_its_sources: LteStill, SEEDS;
    lte_driving_has_the_statistics_of_its_sources: LteDriving, MORE_SEEDS;
    fifth_generation_has_the_statistics_of_its_sources: FiveG, MORE_SEEDS;
    a_low_satellite_has_the_statistics_of_its_sources: SatelliteLeo, SEEDS;
    a_geostationary_satellite_has_the_statistics_of_its_sources: SatelliteGeo, SEEDS;
    wifi_has_the_statistics_of_its_sources: Wifi, SEEDS;
    lossy_wifi_has_the_statistics_of_its_sources: WifiLossy, SEEDS;
    a_transcontinental_path_has_the_statistics_of_its_sources: Transcontinental, SEEDS;
    an_office_has_the_statistics_of_its_sources: Office, SEEDS;
}
