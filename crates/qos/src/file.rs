//! A QoS specification as a TOML file.
//!
//! ```toml
//! min_rate = "60 messages/s"
//! max_rate = "80 messages/s"
//! size = "1280 bytes"
//! max_delay = "100 ms"
//! loss = "5 %"
//! coerced = ["max_rate", "loss"]    # or true, for all that is asked for
//! ```
//!
//! A ladder has its lower steps below, each a whole specification, the best first:
//!
//! ```toml
//! max_rate = "80 messages/s"
//! step_down_after = "5 s"           # so long is a violation borne: the default
//! step_up_after = "30 s"            # so long must there be none
//!
//! [[below]]
//! max_rate = "40 messages/s"
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Contradiction, Parameter, Specification, Term};
use serde::Deserialize;

use super::outgoing::LadderOptions;

/// How long a violation is borne, and how long there must be none before a step up, where a file says nothing.
const STEP_DOWN_AFTER: Duration = Duration::from_secs(5);
const STEP_UP_AFTER: Duration = Duration::from_secs(30);

/// Lower steps of a ladder.
const MAX_BELOW: usize = 32;

/// Why a file is not a specification.
#[derive(Debug)]
pub struct SpecificationError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Io(io::Error),
    Toml(toml::de::Error),
    UnknownParameter(String),
    CoercedButNotAsked(Parameter),
    Contradiction(Contradiction),
    /// In the lower step of this number.
    Below(usize, Box<Problem>),
    /// A lower step has steps itself, or the times of some.
    StepsInStep,
    TooManySteps(usize),
    /// There are times of steps, and no steps.
    NoSteps,
    /// Only a specification is wanted.
    OnlySpecification,
}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Io(error) => error.fmt(f),
            Problem::Toml(error) => f.write_str(error.to_string().trim_end()),
            Problem::UnknownParameter(name) => {
                let names = Parameter::ALL.map(Parameter::name).join(", ");
                write!(f, "coerced: `{name}` is no parameter; there are {names}")
            }
            Problem::CoercedButNotAsked(parameter) => {
                write!(f, "coerced: {parameter} is not asked for, so that nothing can give way")
            }
            Problem::Contradiction(contradiction) => contradiction.fmt(f),
            Problem::Below(number, problem) => write!(f, "below, step {number}: {problem}"),
            Problem::StepsInStep => {
                f.write_str("below, step_down_after and step_up_after are of the whole file")
            }
            Problem::TooManySteps(count) => {
                write!(f, "below: {count} steps, more than the {MAX_BELOW} that a ladder may have")
            }
            Problem::NoSteps => f.write_str("step_down_after, step_up_after: no step is below"),
            Problem::OnlySpecification => {
                f.write_str("below: one specification is taken here, without lower steps")
            }
        }
    }
}

impl std::error::Error for SpecificationError {}

/// Reads a specification and checks it for contradictions.
///
/// # Errors
/// If the file cannot be read, a field is unknown or lacks its unit, two fields contradict each
/// other, or it has a ladder; with the file and, for errors in the text, the line.
pub fn read(path: &Path) -> Result<Specification, SpecificationError> {
    let failed = |problem| SpecificationError { path: path.to_owned(), problem };
    match read_ladder(path)? {
        (specification, None) => Ok(specification),
        (_, Some(_)) => Err(failed(Problem::OnlySpecification)),
    }
}

/// Reads a specification, and the ladder if the file has one, for [`QosOptions`](super::QosOptions) of a sender.
///
/// # Errors
/// As [`read`], but for the ladder; also if a step of it is wrong, or there are more than 32.
pub fn read_ladder(
    path: &Path,
) -> Result<(Specification, Option<LadderOptions>), SpecificationError> {
    let failed = |problem| SpecificationError { path: path.to_owned(), problem };
    let text = fs::read_to_string(path).map_err(|error| failed(Problem::Io(error)))?;
    parse(&text).map_err(failed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    min_rate: Option<MessageRate>,
    max_rate: Option<MessageRate>,
    peak_rate: Option<MessageRate>,
    size: Option<Bytes>,
    min_delay: Option<Duration>,
    max_delay: Option<Duration>,
    int_delay: Option<Duration>,
    jitter: Option<Duration>,
    loss: Option<Percent>,
    rec_time: Option<Duration>,
    permutable: Option<bool>,
    #[serde(default)]
    coerced: Coerced,
    step_down_after: Option<Duration>,
    step_up_after: Option<Duration>,
    #[serde(default)]
    below: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "true, false or a list of parameters is needed")]
enum Coerced {
    All(bool),
    These(Vec<String>),
}

impl Default for Coerced {
    fn default() -> Self {
        Self::All(false)
    }
}

fn parse(text: &str) -> Result<(Specification, Option<LadderOptions>), Problem> {
    let mut written: Written = toml::from_str(text).map_err(Problem::Toml)?;
    let below = std::mem::take(&mut written.below);
    let times = (written.step_down_after.take(), written.step_up_after.take());
    let specification = specification(&written)?;
    if below.is_empty() {
        return if times == (None, None) {
            Ok((specification, None))
        } else {
            Err(Problem::NoSteps)
        };
    }
    if below.len() > MAX_BELOW {
        return Err(Problem::TooManySteps(below.len()));
    }
    let step = |(number, step): (usize, &Written)| {
        self::specification(step).map_err(|problem| Problem::Below(number, Box::new(problem)))
    };
    let below = (1..).zip(&below).map(step).collect::<Result<_, _>>()?;
    let step_down_after = times.0.unwrap_or(STEP_DOWN_AFTER);
    let step_up_after = times.1.unwrap_or(STEP_UP_AFTER);
    Ok((specification, Some(LadderOptions { below, step_down_after, step_up_after })))
}

/// The specification of a step.
fn specification(written: &Written) -> Result<Specification, Problem> {
    if !written.below.is_empty()
        || written.step_down_after.is_some()
        || written.step_up_after.is_some()
    {
        return Err(Problem::StepsInStep);
    }
    let named = match &written.coerced {
        Coerced::All(_) => Vec::new(),
        Coerced::These(names) => names
            .iter()
            .map(|name| {
                let found = Parameter::ALL.into_iter().find(|one| one.name() == name);
                found.ok_or_else(|| Problem::UnknownParameter(name.clone()))
            })
            .collect::<Result<Vec<_>, _>>()?,
    };
    let coerced = |parameter| match written.coerced {
        Coerced::All(all) => all,
        Coerced::These(_) => named.contains(&parameter),
    };
    let specification = Specification {
        min_rate: Term { value: written.min_rate, coerced: coerced(Parameter::MinRate) },
        max_rate: Term { value: written.max_rate, coerced: coerced(Parameter::MaxRate) },
        peak_rate: Term { value: written.peak_rate, coerced: coerced(Parameter::PeakRate) },
        size: Term { value: written.size, coerced: coerced(Parameter::Size) },
        min_delay: Term { value: written.min_delay, coerced: coerced(Parameter::MinDelay) },
        max_delay: Term { value: written.max_delay, coerced: coerced(Parameter::MaxDelay) },
        int_delay: Term { value: written.int_delay, coerced: coerced(Parameter::IntDelay) },
        jitter: Term { value: written.jitter, coerced: coerced(Parameter::Jitter) },
        loss: Term { value: written.loss, coerced: coerced(Parameter::Loss) },
        rec_time: Term { value: written.rec_time, coerced: coerced(Parameter::RecTime) },
        permutable: Term { value: written.permutable, coerced: coerced(Parameter::Permutable) },
    };
    if let Some(parameter) = named.into_iter().find(|one| specification.value(*one).is_none()) {
        return Err(Problem::CoercedButNotAsked(parameter));
    }
    specification.check().map_err(Problem::Contradiction)?;
    Ok(specification)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let problem = parse(text).unwrap_err();
        SpecificationError { path: PathBuf::from("video.toml"), problem }.to_string()
    }

    #[test]
    fn every_parameter_is_read_with_its_unit() {
        let (specification, ladder) = parse(
            "min_rate = '60 messages/s'\nsize = '1280 bytes'\nmax_delay = '100 ms'\n\
             loss = '5 %'\npermutable = false\ncoerced = ['loss']",
        )
        .unwrap();
        assert_eq!(specification.min_rate, Term::firm(MessageRate::per_second(60)));
        assert_eq!(specification.max_delay, Term::firm(Duration::from_millis(100)));
        assert_eq!(specification.loss, Term::coerced(Percent::new(5)));
        assert_eq!(specification.permutable, Term::firm(false));
        assert_eq!(specification.jitter, Term::default());
        assert_eq!(ladder, None);
    }

    #[test]
    fn the_steps_of_a_ladder_are_read_in_their_order_with_their_times() {
        let text = "max_rate = '80 messages/s'\nstep_down_after = '2 s'\n\
                    [[below]]\nmax_rate = '40 messages/s'\ncoerced = true\n\
                    [[below]]\nmax_rate = '10 messages/s'\n";
        let (first, ladder) = parse(text).unwrap();
        let ladder = ladder.unwrap();
        assert_eq!(first.max_rate, Term::firm(MessageRate::per_second(80)));
        let rates: Vec<_> = ladder.below.iter().map(|step| step.max_rate).collect();
        let expected =
            [Term::coerced(MessageRate::per_second(40)), Term::firm(MessageRate::per_second(10))];
        assert_eq!(rates, expected);
        let times = (ladder.step_down_after, ladder.step_up_after);
        assert_eq!(times, (Duration::from_secs(2), STEP_UP_AFTER));
    }

    #[test]
    fn what_is_wrong_in_a_ladder_is_named_with_its_step() {
        let contradiction = error(
            "[[below]]\nmax_rate = '9 messages/s'\n\
             [[below]]\nmin_rate = '8 messages/s'\nmax_rate = '6 messages/s'",
        );
        let expected = "below, step 2: min_rate (8 messages/s) is above max_rate (6 messages/s)";
        assert_eq!(contradiction, format!("video.toml: {expected}"));
        assert!(error("[[below]]\nstep_up_after = '1 s'").contains("are of the whole file"));
        assert!(error("[[below]]\n[[below.below]]").contains("are of the whole file"));
        assert!(error("step_up_after = '1 s'").contains("no step is below"));
        assert!(error(&"[[below]]\n".repeat(33)).contains("33 steps, more than the 32"));
        assert!(error("[[below]]\nmax_dely = '1 ms'").contains("unknown field `max_dely`"));
    }

    #[test]
    fn errors_name_the_file_and_what_would_be_right() {
        let unknown = error("max_dely = '1 ms'");
        assert!(unknown.starts_with("video.toml: TOML parse error at line 1"), "{unknown}");
        assert!(unknown.contains("unknown field `max_dely`, expected one of"), "{unknown}");
        let bare = error("max_delay = 100");
        assert!(bare.contains("missing unit: write \"100 ms\", not 100"), "{bare}");
        let contradiction = error("min_rate = '80 messages/s'\nmax_rate = '60 messages/s'");
        assert_eq!(
            contradiction,
            "video.toml: min_rate (80 messages/s) is above max_rate (60 messages/s)"
        );
        assert!(
            error("coerced = ['speed']").contains("`speed` is no parameter; there are min_rate")
        );
        assert!(error("coerced = ['loss']").contains("loss is not asked for"));
        assert!(error("coerced = 'all'").contains("true, false or a list of parameters"));
    }
}
