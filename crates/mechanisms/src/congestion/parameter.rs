//! Parameters by name: meaning, range, and text form.
//!
//! A struct of parameters lists its fields once ([`Parameters::ALL`]). The scenario file, command
//! options, Python and the kernel's loader read that list, so that names, units and ranges are
//! the same in all of them.

use std::fmt;

use ontempo_foundation::Duration;

/// One parameter of `P`.
#[derive(Debug)]
pub struct Parameter<P: 'static> {
    /// Its name, in kebab-case.
    pub name: &'static str,
    /// Its meaning, for the reference.
    pub doc: &'static str,
    /// How to access it, and its range.
    pub field: Field<P>,
}

/// How a parameter is accessed, and its allowed values.
#[derive(Debug)]
pub enum Field<P: 'static> {
    /// A duration.
    Duration {
        /// Access to the field.
        of: fn(&mut P) -> &mut Duration,
        /// Minimum.
        min: Duration,
        /// Maximum.
        max: Duration,
    },
    /// A number.
    Number {
        /// Access to the field.
        of: fn(&mut P) -> &mut f64,
        /// Its unit: packets, a share, …
        unit: &'static str,
        /// Minimum.
        min: f64,
        /// Maximum.
        max: f64,
    },
    /// True or false.
    Flag {
        /// Access to the field.
        of: fn(&mut P) -> &mut bool,
    },
    /// One of several keywords.
    Choice {
        /// The keywords, each with its meaning.
        words: &'static [(&'static str, &'static str)],
        /// Returns the index of the current keyword.
        get: fn(&P) -> usize,
        /// Selects the keyword at this index.
        set: fn(&mut P, usize),
    },
}

/// A named set of values, which single parameters can then override.
#[derive(Debug)]
pub struct Variant<P: 'static> {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, for the reference.
    pub doc: &'static str,
    /// Its values.
    pub make: fn() -> P,
}

/// Parameters that can be set by name.
pub trait Parameters: Copy + PartialEq + Default + 'static {
    /// All of them.
    const ALL: &'static [Parameter<Self>];
    /// The variants, the default first; empty if there is only one set of values.
    const VARIANTS: &'static [Variant<Self>] = &[];

    /// Checks conditions between several parameters.
    ///
    /// # Errors
    /// Names the parameter that conflicts with others.
    fn check(&self) -> Result<(), ParameterError> {
        Ok(())
    }
}

/// The parameters of a controller that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoParameters;

impl Parameters for NoParameters {
    const ALL: &'static [Parameter<Self>] = &[];
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A duration.
    Duration(Duration),
    /// A number.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// A keyword.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Flag(value) => value.fmt(f),
            Self::Word(value) => f.write_str(value),
        }
    }
}

/// The allowed values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterKind {
    /// A duration between a minimum and a maximum.
    Duration(Duration, Duration),
    /// A number of this unit between a minimum and a maximum.
    Number(&'static str, f64, f64),
    /// True or false.
    Flag,
    /// One of these keywords, each with its meaning.
    Choice(&'static [(&'static str, &'static str)]),
}

/// A parameter in a reference.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterInfo {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub doc: &'static str,
    /// Its allowed values.
    pub kind: ParameterKind,
    /// Its default: in the first variant, then in each of the others.
    pub defaults: Vec<Value>,
}

/// A variant in a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantInfo {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub doc: &'static str,
}

/// Why a parameter is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// The parameter's name, as given.
    pub parameter: String,
    /// What is wrong with it, and what would be valid.
    pub what: String,
}

impl ParameterError {
    /// The parameter with this name.
    pub fn new(parameter: &str, what: impl Into<String>) -> Self {
        Self { parameter: parameter.to_owned(), what: what.into() }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.parameter, self.what)
    }
}

impl std::error::Error for ParameterError {}

/// The name that selects a variant.
pub(super) const VARIANT: &str = "variant";

impl<P: Parameters> Parameter<P> {
    /// Its value.
    pub fn get(&self, parameters: &P) -> Value {
        let mut parameters = *parameters;
        match &self.field {
            Field::Duration { of, .. } => Value::Duration(*of(&mut parameters)),
            Field::Number { of, .. } => Value::Number(*of(&mut parameters)),
            Field::Flag { of } => Value::Flag(*of(&mut parameters)),
            Field::Choice { words, get, .. } => {
                Value::Word(words.get(get(&parameters)).map_or("", |(word, _)| word))
            }
        }
    }

    fn set(&self, parameters: &mut P, text: &str) -> Result<(), String> {
        let example = self.get(&P::default());
        match &self.field {
            Field::Duration { of, min, max } => {
                let right = || format!("write a duration from {min} to {max}, such as {example}");
                let value: Duration = text.parse().map_err(|_| {
                    format!("`{text}` is not a duration with its unit; {}", right())
                })?;
                if !(*min..=*max).contains(&value) {
                    return Err(format!("{text} is out of range; {}", right()));
                }
                *of(parameters) = value;
            }
            Field::Number { of, unit, min, max } => {
                let of_what = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
                let right =
                    || format!("write a number{of_what} from {min} to {max}, such as {example}");
                let value: f64 =
                    text.parse().map_err(|_| format!("`{text}` is not a number; {}", right()))?;
                if !(*min..=*max).contains(&value) {
                    return Err(format!("{text} is out of range; {}", right()));
                }
                *of(parameters) = value;
            }
            Field::Flag { of } => {
                *of(parameters) =
                    text.parse().map_err(|_| format!("`{text}` is neither true nor false"))?;
            }
            Field::Choice { words, set, .. } => {
                let place = words.iter().position(|(word, _)| *word == text);
                let place = place.ok_or_else(|| none_of(text, words.iter().map(|one| one.0)))?;
                set(parameters, place);
            }
        }
        Ok(())
    }

    fn kind(&self) -> ParameterKind {
        match self.field {
            Field::Duration { min, max, .. } => ParameterKind::Duration(min, max),
            Field::Number { unit, min, max, .. } => ParameterKind::Number(unit, min, max),
            Field::Flag { .. } => ParameterKind::Flag,
            Field::Choice { words, .. } => ParameterKind::Choice(words),
        }
    }
}

fn none_of<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> String {
    format!("`{text}` is none of {}", words.collect::<Vec<_>>().join(", "))
}

/// The default parameters, changed by assignments of a text to a name; `variant` is applied first,
/// at any position. Also returns the variant's index.
///
/// # Errors
/// Names the parameter that is unknown or out of its range, and what would be valid.
pub fn parameters_from<'a, P: Parameters>(
    assignments: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(usize, P), ParameterError> {
    let (mut variant, mut parameters, mut others) = (0, P::default(), Vec::new());
    for (name, text) in assignments {
        if name != VARIANT || P::VARIANTS.is_empty() {
            others.push((name, text));
            continue;
        }
        let names = P::VARIANTS.iter().map(|one| one.name);
        let place = names.clone().position(|known| known == text);
        variant = place.ok_or_else(|| ParameterError::new(name, none_of(text, names)))?;
        parameters = (P::VARIANTS[variant].make)();
    }
    for (name, text) in others {
        let known = P::ALL.iter().find(|parameter| parameter.name == name);
        let set = known.ok_or_else(unknown::<P>).and_then(|one| one.set(&mut parameters, text));
        set.map_err(|what| ParameterError::new(name, what))?;
    }
    parameters.check()?;
    Ok((variant, parameters))
}

fn unknown<P: Parameters>() -> String {
    let variant = (!P::VARIANTS.is_empty()).then_some(VARIANT);
    let mut names: Vec<&str> = P::ALL.iter().map(|one| one.name).chain(variant).collect();
    if names.is_empty() {
        return "no such parameter; there is none to set".to_owned();
    }
    names.sort_unstable();
    format!("no such parameter; there are {}", names.join(", "))
}

/// Differences from the defaults: the variant, and the differences from the variant's values.
pub(super) fn changed<P: Parameters>(variant: usize, now: &P) -> Vec<(&'static str, Value)> {
    let chosen = P::VARIANTS.get(variant);
    let before = chosen.map_or_else(P::default, |variant| (variant.make)());
    let variant = chosen.filter(|_| variant > 0).map(|one| (VARIANT, Value::Word(one.name)));
    let differs = P::ALL.iter().filter(|one| one.get(now) != one.get(&before));
    variant.into_iter().chain(differs.map(|one| (one.name, one.get(now)))).collect()
}

/// All parameters, for a reference.
pub(super) fn described<P: Parameters>() -> Vec<ParameterInfo> {
    let sets: Vec<P> = if P::VARIANTS.is_empty() {
        vec![P::default()]
    } else {
        P::VARIANTS.iter().map(|variant| (variant.make)()).collect()
    };
    let info = |one: &Parameter<P>| ParameterInfo {
        name: one.name,
        doc: one.doc,
        kind: one.kind(),
        defaults: sets.iter().map(|set| one.get(set)).collect(),
    };
    P::ALL.iter().map(info).collect()
}

/// All variants, for a reference.
pub(super) fn variants<P: Parameters>() -> Vec<VariantInfo> {
    P::VARIANTS.iter().map(|one| VariantInfo { name: one.name, doc: one.doc }).collect()
}
