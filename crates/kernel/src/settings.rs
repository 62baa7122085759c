//! What of PERT may be set at load, as people write it and as the BPF program reads it.

use std::fmt;

use ontempo_foundation::Duration;
use ontempo_mechanisms::congestion::{AckCounting, PertParameters};

/// How PERT is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Its parameters. `slow_start` tells what everything is counted by in the kernel, where one
    /// ACK often covers many packets: by packets, an ACK of n packets moves the smoothed round-trip
    /// time n times and draws n times for an early response, as n ACKs would; by ACKs, once.
    pub pert: PertParameters,
    /// The pacing rate in windows per smoothed round trip, above 0 to 16, twice that in slow start;
    /// 0 switches pacing off. 1 is the thesis' spacing of `srtt / cwnd` (pert, ch. IV).
    pub pacing_gain: f64,
}

impl Default for Settings {
    /// The reading `reference`, counted by packets, paced at one window per round trip.
    fn default() -> Self {
        let pert =
            PertParameters { slow_start: AckCounting::Packets, ..PertParameters::reference() };
        Self { pert, pacing_gain: 1.0 }
    }
}

/// Why a setting cannot be taken.
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

/// One setting: what it measures, and where it is kept.
enum Slot<'a> {
    Delay(&'a mut Duration),
    /// From the bound on to 1.
    Share(&'a mut f64, f64),
    /// Packets, round trips, or a gain: within these bounds.
    Number(&'a mut f64, f64, f64),
    /// True for the second of the two words.
    Choice(bool, [&'static str; 2], &'a mut dyn FnMut(bool)),
}

impl Settings {
    /// How many numbers the BPF program reads.
    pub(crate) const COUNT: usize = 20;

    /// The longest delay: what `bpf/pert_math.h` holds.
    const MAX_DELAY: Duration = Duration::from_secs(134);
    /// Alpha's upper bound, for the same reason.
    const MAX_ALPHA: f64 = 128.0;

    /// The defaults, changed by assignments `key=value`. `variant=thesis` is taken first, wherever
    /// it stands.
    ///
    /// # Errors
    ///
    /// A sentence that names the key, for an unknown one or a value out of its range.
    pub fn parse<'a>(assignments: impl IntoIterator<Item = &'a str>) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        let mut others = Vec::new();
        for assignment in assignments {
            let (key, value) = assignment.split_once('=').ok_or_else(|| {
                SettingError(format!("`{assignment}` is no setting: write t-max=\"20 ms\""))
            })?;
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            match (key, value) {
                ("variant", "reference") => {}
                ("variant", "thesis") => {
                    settings.pert = PertParameters {
                        slow_start: AckCounting::Packets,
                        ..PertParameters::thesis()
                    };
                }
                ("variant", _) => {
                    let what = format!("variant: `{value}` is neither reference nor thesis");
                    return Err(SettingError(what));
                }
                _ => others.push((key, value)),
            }
        }
        for (key, value) in others {
            settings.set(key, value).map_err(|what| SettingError(format!("{key}: {what}")))?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let mut keys = Vec::new();
        let mut done = None;
        self.visit(&mut |name, slot| {
            keys.push(name);
            if name == key {
                done = Some(slot.set(value));
            }
        });
        keys.sort_unstable();
        done.unwrap_or_else(|| Err(format!("no such setting; there are {}", keys.join(", "))))
    }

    /// What no single value shows.
    fn check(&self) -> Result<(), SettingError> {
        let wrong = |what: &str| Err(SettingError(what.to_owned()));
        let pert = &self.pert;
        if pert.t_max <= pert.t_min {
            return wrong("t-max: must be longer than t-min");
        }
        if pert.alpha_minimum > pert.alpha_maximum {
            return wrong("alpha-max: must not be less than alpha-min");
        }
        if !(pert.alpha_minimum..=pert.alpha_maximum).contains(&pert.alpha_initial) {
            return wrong("alpha-initial: must lie between alpha-min and alpha-max");
        }
        if pert.compete_full < pert.compete_from {
            return wrong("compete-full: must not be less than compete-from");
        }
        Ok(())
    }

    /// All settings, in the order of `struct pert_parameters` (`bpf/pert_math.h`).
    fn visit(&mut self, each: &mut dyn FnMut(&'static str, Slot<'_>)) {
        use Slot::{Choice, Delay, Number, Share};
        const MIN_SHARE: f64 = 1.0 / SHARE;
        const STEP: f64 = 1.0 / PACKET;
        let pert = &mut self.pert;
        each("srtt-weight", Share(&mut pert.srtt_weight, 0.0));
        each("maxq-floor", Delay(&mut pert.maxq_floor));
        each("t-min", Delay(&mut pert.t_min));
        each("t-max", Delay(&mut pert.t_max));
        each("p-max", Share(&mut pert.p_max, 0.0));
        each("t3-share", Share(&mut pert.t3_share, 0.0));
        each("alpha-initial", Number(&mut pert.alpha_initial, STEP, Self::MAX_ALPHA));
        each("alpha-min", Number(&mut pert.alpha_minimum, STEP, Self::MAX_ALPHA));
        each("alpha-max", Number(&mut pert.alpha_maximum, STEP, Self::MAX_ALPHA));
        each("high-speed-step", Number(&mut pert.high_speed_step, 0.0, Self::MAX_ALPHA));
        each("safe-factor", Share(&mut pert.safe_factor, 0.0));
        each("compete-step", Number(&mut pert.compete_step, 0.0, Self::MAX_ALPHA));
        each("compete-from", Share(&mut pert.compete_from, 0.0));
        each("compete-full", Share(&mut pert.compete_full, 0.0));
        each("ramp-pole", Share(&mut pert.ramp_pole, MIN_SHARE));
        each("alpha-period", Number(&mut pert.alpha_period, 0.0, 64.0));
        let immediate = &mut pert.immediate;
        let now = *immediate;
        each("alpha", Choice(now, ["steps", "immediate"], &mut |is| *immediate = is));
        each("window-floor", Number(&mut pert.window_floor, 1.0, 1000.0));
        let counting = &mut pert.slow_start;
        let now = *counting == AckCounting::Packets;
        let mut count_by =
            |packets| *counting = if packets { AckCounting::Packets } else { AckCounting::Acks };
        each("counting", Choice(now, ["acks", "packets"], &mut count_by));
        each("pacing-gain", Number(&mut self.pacing_gain, 0.0, 16.0));
    }

    /// The numbers that the BPF program reads, rounded to its fixed point.
    pub fn fixed_point(mut self) -> [u64; Self::COUNT] {
        let mut numbers = [0; Self::COUNT];
        let mut place = numbers.iter_mut();
        self.visit(&mut |_, slot| {
            if let Some(number) = place.next() {
                *number = slot.fixed_point();
            }
        });
        numbers
    }

    /// The settings of a program that was loaded with `numbers`.
    pub(crate) fn from_fixed_point(numbers: &[u64; Self::COUNT]) -> Self {
        let mut settings = Self::default();
        let mut numbers = numbers.iter();
        settings.visit(&mut |_, slot| {
            if let Some(&number) = numbers.next() {
                slot.take(number);
            }
        });
        settings
    }

    /// Each setting's key and value, as [`parse`](Self::parse) reads them.
    pub fn described(mut self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        self.visit(&mut |key, slot| all.push((key, slot.text())));
        all
    }
}

impl Slot<'_> {
    fn set(self, text: &str) -> Result<(), String> {
        let number = |low: f64, high: f64| -> Result<f64, String> {
            let value = text.parse::<f64>().map_err(|_| format!("`{text}` is not a number"))?;
            if (low..=high).contains(&value) {
                Ok(value)
            } else {
                Err(format!("{text} is not between {low} and {high}"))
            }
        };
        match self {
            Self::Delay(value) => {
                let delay: Duration = text.parse().map_err(|error| format!("{error}"))?;
                if delay > Settings::MAX_DELAY {
                    return Err(format!("{text} is more than {}", Settings::MAX_DELAY));
                }
                *value = delay;
            }
            Self::Share(value, low) => *value = number(low, 1.0)?,
            Self::Number(value, low, high) => *value = number(low, high)?,
            Self::Choice(_, [no, yes], choose) => {
                if text != no && text != yes {
                    return Err(format!("`{text}` is neither {no} nor {yes}"));
                }
                choose(text == yes);
            }
        }
        Ok(())
    }

    fn fixed_point(self) -> u64 {
        let rounded = |value: f64| value.round() as u64;
        match self {
            Self::Delay(value) => rounded(value.as_nanos() as f64 * DELAY_PER_NANOSECOND),
            Self::Share(value, _) => rounded(*value * SHARE),
            Self::Number(value, ..) => rounded(*value * PACKET),
            Self::Choice(now, ..) => u64::from(now),
        }
    }

    fn take(self, number: u64) {
        match self {
            Self::Delay(value) => *value = delay_of(number),
            Self::Share(value, _) => *value = share_of(number),
            Self::Number(value, ..) => *value = packets_of(number),
            Self::Choice(.., choose) => choose(number != 0),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Delay(value) => value.to_string(),
            Self::Share(value, _) | Self::Number(value, ..) => value.to_string(),
            Self::Choice(now, words, _) => words[usize::from(now)].to_owned(),
        }
    }
}

/// A delay in fixed point, to the nanosecond.
pub(crate) fn delay_of(number: u64) -> Duration {
    Duration::from_nanos((number as f64 / DELAY_PER_NANOSECOND).round() as u64)
}

/// A share in fixed point, to the digits that its 24 bits hold.
fn share_of(number: u64) -> f64 {
    (number as f64 / SHARE * 1e6).round() / 1e6
}

/// Packets in fixed point, to the digits that their 20 bits hold.
pub(crate) fn packets_of(number: u64) -> f64 {
    (number as f64 / PACKET * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_described_is_what_is_read() {
        let settings = Settings::parse(["t-max=\"12.5 ms\"", "pacing-gain=0"]).expect("right");
        let described: Vec<String> =
            settings.described().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(described.len(), Settings::COUNT);
        let again = Settings::parse(described.iter().map(String::as_str));
        assert_eq!(again.expect("right"), settings);
    }

    #[test]
    fn the_variant_is_taken_first() {
        let settings = Settings::parse(["compete-from=0.6", "variant=thesis"]).expect("right");
        assert_eq!(settings.pert.compete_from, 0.6);
        assert!(settings.pert.immediate);
    }

    #[test]
    fn a_wrong_setting_is_named_with_what_would_be_right() {
        for (setting, words) in [
            ("t-max", "t-max=\"20 ms\""),
            ("t_max=20 ms", "there are alpha, alpha-initial"),
            ("t-max=20", "t-max: "),
            ("t-max=4 ms", "t-max: must be longer than t-min"),
            ("t-max=200 s", "t-max: 200 s is more than 134 s"),
            ("p-max=1.5", "p-max: 1.5 is not between 0 and 1"),
            ("alpha-max=many", "alpha-max: `many` is not a number"),
            ("alpha-max=0.5", "alpha-max: must not be less than alpha-min"),
            ("variant=best", "variant: `best` is neither reference nor thesis"),
            ("counting=bytes", "counting: `bytes` is neither acks nor packets"),
            ("srtt-weight=NaN", "srtt-weight: NaN is not between 0 and 1"),
        ] {
            let error = Settings::parse([setting]).expect_err(setting).to_string();
            assert!(error.contains(words), "{setting}: {error}");
        }
    }
}
