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

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Contradiction, Parameter, Specification, Term};
use serde::Deserialize;

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
}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.problem {
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
        }
    }
}

impl std::error::Error for SpecificationError {}

/// Reads a specification and checks it for contradictions.
///
/// # Errors
/// If the file cannot be read, a field is unknown or lacks its unit, or two fields contradict each
/// other; with the file and, for errors in the text, the line.
pub fn read(path: &Path) -> Result<Specification, SpecificationError> {
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
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Coerced {
    All(bool),
    These(Vec<String>),
}

impl Default for Coerced {
    fn default() -> Self {
        Self::All(false)
    }
}

fn parse(text: &str) -> Result<Specification, Problem> {
    let written: Written = toml::from_str(text).map_err(Problem::Toml)?;
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
        let specification = parse(
            "min_rate = '60 messages/s'\nsize = '1280 bytes'\nmax_delay = '100 ms'\n\
             loss = '5 %'\npermutable = false\ncoerced = ['loss']",
        )
        .unwrap();
        assert_eq!(specification.min_rate, Term::firm(MessageRate::per_second(60)));
        assert_eq!(specification.max_delay, Term::firm(Duration::from_millis(100)));
        assert_eq!(specification.loss, Term::coerced(Percent::new(5)));
        assert_eq!(specification.permutable, Term::firm(false));
        assert_eq!(specification.jitter, Term::default());
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
    }
}
