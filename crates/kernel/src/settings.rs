//! PERT's settings at load: parsed from text and converted for the BPF program.

use std::fmt;

use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::{
    AckCounting, Field, Parameter, ParameterError, Parameters, PertParameters, PertSamples,
    parameters_from, refuse_simulated_samples,
};

/// The settings with which PERT is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// PERT's parameters. In the kernel one ACK often covers many packets, so `counting` is by packets: an ACK
    /// of n packets moves the smoothed round-trip time n times and draws n times for an early
    /// response, as n ACKs would.
    pub pert: PertParameters,
    /// Pacing rate in windows per SRTT, 0 to 16, twice that in slow start;
    /// 0 switches pacing off. 1 is the thesis' spacing of `srtt / cwnd` (pert, ch. IV).
    pub pacing_gain: f64,
}

impl Default for Settings {
    /// The variant `reference`, counted by packets, with confirmed samples, Reno beside loss-based flows,
    /// paced at one window per round trip.
    fn default() -> Self {
        let pert = PertParameters {
            counting: AckCounting::Packets,
            samples: PertSamples::Confirmed,
            as_reno: true,
            ..PertParameters::reference()
        };
        Self { pert, pacing_gain: 1.0 }
    }
}

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError(String);

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SettingError {}

/// Fractional bits of a share, a number of packets and a delay in microseconds: those of
/// `bpf/pert_math.h`.
const SHARE: f64 = (1_u64 << 24) as f64;
const PACKET: f64 = (1_u64 << 20) as f64;
const DELAY_PER_NANOSECOND: f64 = (1_u64 << 12) as f64 / 1e3;

/// The fixed-point format of a number.
#[derive(Clone, Copy)]
enum Scale {
    /// A share, of 24 bits.
    Share,
    /// Packets, round trips, or a gain, of 20 bits.
    Packet,
    /// A delay, or the index of a keyword.
    Own,
}

/// PERT's parameters in the order of `struct pert_parameters` (`bpf/pert_math.h`), whose last
/// member is `pacing_gain`.
const ORDER: [(&str, Scale); Settings::COUNT - 1] = [
    ("srtt-weight", Scale::Share),
    ("maxq-floor", Scale::Own),
    ("t-min", Scale::Own),
    ("t-max", Scale::Own),
    ("p-max", Scale::Share),
    ("t3-share", Scale::Share),
    ("alpha-initial", Scale::Packet),
    ("alpha-min", Scale::Packet),
    ("alpha-max", Scale::Packet),
    ("high-speed-step", Scale::Packet),
    ("safe-factor", Scale::Share),
    ("compete-step", Scale::Packet),
    ("compete-from", Scale::Share),
    ("compete-full", Scale::Share),
    ("ramp-pole", Scale::Share),
    ("alpha-period", Scale::Packet),
    ("alpha", Scale::Own),
    ("compete", Scale::Own),
    ("window-floor", Scale::Packet),
    ("counting", Scale::Own),
    ("samples", Scale::Own),
];

/// The only setting that PERT elsewhere does not have, and its maximum.
const PACING_GAIN: &str = "pacing-gain";
const MAX_PACING_GAIN: f64 = 16.0;

/// PERT's parameter that the program does not have.
const LOSS_DECREASE: &str = "loss-decrease";

/// `pert`, if the program can have it.
fn in_kernel(pert: PertParameters) -> Result<PertParameters, ParameterError> {
    refuse_simulated_samples(pert.samples, "the kernel")?;
    if pert.half_at_a_loss {
        let what = "the kernel's PERT reduces by `beta` at a loss, too; leave it out";
        return Err(ParameterError::new(LOSS_DECREASE, what));
    }
    Ok(pert)
}

/// The parameters in that order.
fn in_order() -> impl Iterator<Item = (&'static Parameter<PertParameters>, Scale)> {
    let named = |name| PertParameters::ALL.iter().find(move |parameter| parameter.name == name);
    ORDER.iter().filter_map(move |(name, scale)| Some((named(*name)?, *scale)))
}

impl Settings {
    /// Number of values that the BPF program reads.
    pub(crate) const COUNT: usize = 22;

    /// The defaults, changed by assignments `name=value`: PERT's parameters
    /// ([`PertParameters`]), and `pacing-gain`. `variant=thesis` is applied first, at any position.
    ///
    /// # Errors
    ///
    /// Names the parameter that is unknown or out of its range.
    pub fn parse<'a>(assignments: impl IntoIterator<Item = &'a str>) -> Result<Self, SettingError> {
        let mut pacing_gain = Self::default().pacing_gain;
        // In every variant: one ACK often covers many packets here, receivers delay ACKs, and most other
        // flows respond to losses only.
        let mut law =
            vec![("counting", "packets"), ("samples", "confirmed"), ("compete", "as-reno")];
        for assignment in assignments {
            let (name, value) = assignment.split_once('=').ok_or_else(|| {
                SettingError(format!("`{assignment}` is no setting: write t-max=\"20 ms\""))
            })?;
            match (name.trim(), value.trim().trim_matches('"')) {
                (PACING_GAIN, value) => pacing_gain = gain(value)?,
                other => law.push(other),
            }
        }
        let found = parameters_from(law).and_then(|(_, pert)| in_kernel(pert));
        let pert = found.map_err(|error| {
            let also = if error.what.starts_with("no such") { ", pacing-gain" } else { "" };
            SettingError(format!("{error}{also}"))
        })?;
        Ok(Self { pert, pacing_gain })
    }

    /// The values for the BPF program, rounded to its fixed point.
    pub fn fixed_point(mut self) -> [u64; Self::COUNT] {
        let mut numbers = [0; Self::COUNT];
        let of_law = in_order().map(|(parameter, scale)| match &parameter.field {
            Field::Duration { of, .. } => {
                rounded(of(&mut self.pert).as_nanos() as f64 * DELAY_PER_NANOSECOND)
            }
            Field::Number { of, .. } => match scale {
                Scale::Share => rounded(*of(&mut self.pert) * SHARE),
                Scale::Packet | Scale::Own => rounded(*of(&mut self.pert) * PACKET),
            },
            Field::Flag { of } => u64::from(*of(&mut self.pert)),
            Field::Choice { get, .. } => get(&self.pert) as u64,
        });
        let all = of_law.chain([rounded(self.pacing_gain * PACKET)]);
        numbers.iter_mut().zip(all).for_each(|(place, number)| *place = number);
        numbers
    }

    /// The settings of a program that was loaded with `numbers`.
    pub(crate) fn from_fixed_point(numbers: &[u64; Self::COUNT]) -> Self {
        let mut settings = Self::default();
        let pert = &mut settings.pert;
        for ((parameter, scale), &number) in in_order().zip(numbers) {
            match &parameter.field {
                Field::Duration { of, .. } => *of(pert) = delay_of(number),
                Field::Number { of, .. } => match scale {
                    Scale::Share => *of(pert) = share_of(number),
                    Scale::Packet | Scale::Own => *of(pert) = packets_of(number),
                },
                Field::Flag { of } => *of(pert) = number != 0,
                Field::Choice { set, .. } => set(pert, number as usize),
            }
        }
        settings.pacing_gain = packets_of(numbers[Self::COUNT - 1]);
        settings
    }

    /// Each setting's name and value, as [`parse`](Self::parse) reads them.
    pub fn described(self) -> Vec<(&'static str, String)> {
        let of_law = in_order()
            .map(|(parameter, _)| (parameter.name, parameter.get(&self.pert).to_string()));
        of_law.chain([(PACING_GAIN, self.pacing_gain.to_string())]).collect()
    }
}

fn gain(text: &str) -> Result<f64, SettingError> {
    let right = format!("write a number from 0 (no pacing) to {MAX_PACING_GAIN}, such as 1");
    let wrong = |what: &str| SettingError(format!("{PACING_GAIN}: {what}; {right}"));
    let value: f64 = text.parse().map_err(|_| wrong(&format!("`{text}` is not a number")))?;
    if (0.0..=MAX_PACING_GAIN).contains(&value) {
        Ok(value)
    } else {
        Err(wrong(&format!("{text} is out of range")))
    }
}

fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// A delay in fixed point, to the nanosecond.
pub(crate) fn delay_of(number: u64) -> Duration {
    Duration::from_nanos((number as f64 / DELAY_PER_NANOSECOND).round() as u64)
}

/// A share in fixed point, to the precision of its 24 bits.
fn share_of(number: u64) -> f64 {
    (number as f64 / SHARE * 1e6).round() / 1e6
}

/// Packets in fixed point, to the precision of their 20 bits.
pub(crate) fn packets_of(number: u64) -> f64 {
    (number as f64 / PACKET * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_pert_has_its_place_in_the_program() {
        let placed: Vec<_> = in_order().map(|(parameter, _)| parameter.name).collect();
        let mut all: Vec<_> = PertParameters::ALL.iter().map(|parameter| parameter.name).collect();
        all.retain(|name| *name != LOSS_DECREASE);
        assert_eq!(placed, ORDER.map(|(name, _)| name));
        all.sort_by_key(|name| ORDER.iter().position(|(placed, _)| placed == name));
        assert_eq!(placed, all);
    }

    #[test]
    fn settings_survive_fixed_point() {
        for settings in [
            Settings::default(),
            Settings::parse(["variant=thesis", "t-max=20 ms", "p-max=0.1", "counting=acks"])
                .expect("right"),
        ] {
            assert_eq!(Settings::from_fixed_point(&settings.fixed_point()), settings);
        }
    }

    #[test]
    fn described_settings_parse_back() {
        let settings = Settings::parse(["t-max=\"12.5 ms\"", "pacing-gain=0"]).expect("right");
        let described: Vec<String> =
            settings.described().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(described.len(), Settings::COUNT);
        let again = Settings::parse(described.iter().map(String::as_str));
        assert_eq!(again.expect("right"), settings);
    }

    #[test]
    fn the_variant_is_applied_first() {
        let settings = Settings::parse(["compete-from=0.6", "variant=thesis"]).expect("right");
        assert_eq!(settings.pert.compete_from, 0.6);
        assert!(settings.pert.immediate);
    }

    #[test]
    fn an_invalid_setting_is_named_with_the_valid_values() {
        for (setting, words) in [
            ("t-max", "t-max=\"20 ms\""),
            ("t_max=20 ms", "t_max: no such parameter; there are alpha, alpha-initial"),
            ("t_max=20 ms", "pacing-gain"),
            (
                "t-max=20",
                "t-max: `20` is not a duration with its unit; write a duration from 0 ns to",
            ),
            ("t-max=4 ms", "t-max: 4 ms is not more than `t-min`, 5 ms"),
            ("t-max=200 s", "t-max: 200 s is out of range; write a duration from 0 ns to 134 s"),
            ("p-max=1.5", "p-max: 1.5 is out of range; write a number (share) from 0 to 1"),
            ("alpha-max=many", "alpha-max: `many` is not a number; write a number (packets per"),
            ("alpha-max=0.5", "alpha-max: 0.5 is less than `alpha-min`, 1"),
            ("variant=best", "variant: `best` is none of reference, thesis"),
            ("counting=bytes", "counting: `bytes` is none of acks, packets"),
            ("srtt-weight=NaN", "srtt-weight: NaN is out of range"),
            (
                "samples=every-ack",
                "samples: `every-ack` is for simulated TCP, not for the kernel; write",
            ),
            ("samples=cumulative", "samples: `cumulative` is for simulated TCP"),
            ("loss-decrease=half", "loss-decrease: the kernel's PERT reduces by `beta`"),
            ("pacing-gain=17", "pacing-gain: 17 is out of range; write a number from 0"),
        ] {
            let error = Settings::parse([setting]).expect_err(setting).to_string();
            assert!(error.contains(words), "{setting}: {error}");
        }
    }
}
