//! Specifications and options, from Python and from files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration as Wall;

use ontempo_foundation::{Bytes, Duration, MessageRate, Percent};
use ontempo_mechanisms::qos::{Hysteresis, Parameter, Specification, Term};
use ontempo_qos::{LadderOptions, QosOptions, Reserve, read};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::SpecificationError;
use crate::live::{choice, congestion};

/// The fields of `ontempo.qos.Specification`; Python has checked that none is negative.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct SpecificationFields {
    min_rate: Option<f64>,
    max_rate: Option<f64>,
    peak_rate: Option<f64>,
    size: Option<u64>,
    min_delay_s: Option<f64>,
    max_delay_s: Option<f64>,
    int_delay_s: Option<f64>,
    jitter_s: Option<f64>,
    loss_percent: Option<f64>,
    rec_time_s: Option<f64>,
    permutable: Option<bool>,
    coerced: Vec<String>,
}

fn rate(per_second: f64) -> MessageRate {
    MessageRate::from_thousandths((per_second * 1_000.0).round() as u64)
}

fn share(percent: f64) -> Percent {
    Percent::from_thousandths((percent * 1_000.0).round() as u32)
}

impl SpecificationFields {
    pub(super) fn specification(&self) -> PyResult<Specification> {
        let known = Parameter::ALL.map(Parameter::name);
        if let Some(name) = self.coerced.iter().find(|name| !known.contains(&name.as_str())) {
            let names = known.join(", ");
            let sentence = format!("coerced: `{name}` is no parameter; there are {names}");
            return Err(SpecificationError::new_err(sentence));
        }
        let coerced = |parameter: Parameter| self.coerced.iter().any(|x| x == parameter.name());
        let rates =
            |value: Option<f64>, one| Term { value: value.map(rate), coerced: coerced(one) };
        let times = |value: Option<f64>, one| Term {
            value: value.map(Duration::from_secs_f64),
            coerced: coerced(one),
        };
        let specification = Specification {
            min_rate: rates(self.min_rate, Parameter::MinRate),
            max_rate: rates(self.max_rate, Parameter::MaxRate),
            peak_rate: rates(self.peak_rate, Parameter::PeakRate),
            size: Term { value: self.size.map(Bytes::new), coerced: coerced(Parameter::Size) },
            min_delay: times(self.min_delay_s, Parameter::MinDelay),
            max_delay: times(self.max_delay_s, Parameter::MaxDelay),
            int_delay: times(self.int_delay_s, Parameter::IntDelay),
            jitter: times(self.jitter_s, Parameter::Jitter),
            loss: Term { value: self.loss_percent.map(share), coerced: coerced(Parameter::Loss) },
            rec_time: times(self.rec_time_s, Parameter::RecTime),
            permutable: Term { value: self.permutable, coerced: coerced(Parameter::Permutable) },
        };
        let missing = Parameter::ALL
            .into_iter()
            .find(|one| coerced(*one) && specification.value(*one).is_none());
        if let Some(parameter) = missing {
            return Err(SpecificationError::new_err(format!(
                "coerced: {parameter} is not asked for, so that nothing can give way"
            )));
        }
        specification.check().map_err(|error| SpecificationError::new_err(error.to_string()))?;
        Ok(specification)
    }

    pub(super) fn of(all: &Specification) -> Self {
        let times = |term: Term<Duration>| term.value.map(Duration::as_secs_f64);
        let flags = [
            all.min_rate.coerced,
            all.max_rate.coerced,
            all.peak_rate.coerced,
            all.size.coerced,
            all.min_delay.coerced,
            all.max_delay.coerced,
            all.int_delay.coerced,
            all.jitter.coerced,
            all.loss.coerced,
            all.rec_time.coerced,
            all.permutable.coerced,
        ];
        let coerced = Parameter::ALL.into_iter().zip(flags);
        // A parameter without a value cannot be coerced, whatever its flag.
        let coerced = coerced.filter(|&(one, is_coerced)| is_coerced && all.value(one).is_some());
        Self {
            min_rate: all.min_rate.value.map(MessageRate::as_f64),
            max_rate: all.max_rate.value.map(MessageRate::as_f64),
            peak_rate: all.peak_rate.value.map(MessageRate::as_f64),
            size: all.size.value.map(Bytes::get),
            min_delay_s: times(all.min_delay),
            max_delay_s: times(all.max_delay),
            int_delay_s: times(all.int_delay),
            jitter_s: times(all.jitter),
            loss_percent: all.loss.value.map(Percent::as_f64),
            rec_time_s: times(all.rec_time),
            permutable: all.permutable.value,
            coerced: coerced.map(|(one, _)| one.name().to_owned()).collect(),
        }
    }
}

/// Raises `SpecificationError` if a specification contradicts itself.
#[pyfunction]
pub(crate) fn qos_check(specification: SpecificationFields) -> PyResult<()> {
    specification.specification().map(|_| ())
}

/// The fields of the specification in a TOML file.
#[pyfunction]
pub(crate) fn qos_read(py: Python<'_>, path: PathBuf) -> PyResult<SpecificationFields> {
    let specification = py.detach(|| read(&path));
    let specification =
        specification.map_err(|error| SpecificationError::new_err(error.to_string()))?;
    Ok(SpecificationFields::of(&specification))
}

/// The fields of `ontempo.qos.Ladder`.
#[derive(FromPyObject)]
struct LadderFields {
    below: Vec<SpecificationFields>,
    step_down_after_s: f64,
    step_up_after_s: f64,
}

/// The fields of `ontempo.qos.QosOptions`.
#[derive(FromPyObject)]
pub(crate) struct QosOptionsFields {
    name: String,
    send: SpecificationFields,
    receive: SpecificationFields,
    dscp: Option<String>,
    congestion: Option<String>,
    congestion_parameters: BTreeMap<String, String>,
    reserve: String,
    must_reserve: bool,
    begins_after: u32,
    ends_after: u32,
    ladder: Option<LadderFields>,
    setup_timeout_s: f64,
}

const RESERVE: [(&str, Reserve); 3] = [
    ("none", Reserve::None),
    ("controlled-load", Reserve::ControlledLoad),
    ("guaranteed", Reserve::Guaranteed),
];

impl QosOptionsFields {
    pub(super) fn options(&self) -> PyResult<QosOptions> {
        let dscp = self.dscp.as_deref().map(str::parse).transpose();
        let dscp = dscp.map_err(|error| PyValueError::new_err(format!("dscp: {error}")))?;
        let name = self.congestion.as_deref();
        let seconds = Duration::from_secs_f64;
        let ladder = |given: &LadderFields| -> PyResult<LadderOptions> {
            let below: PyResult<Vec<_>> =
                given.below.iter().map(SpecificationFields::specification).collect();
            let (step_down_after, step_up_after) =
                (seconds(given.step_down_after_s), seconds(given.step_up_after_s));
            Ok(LadderOptions { below: below?, step_down_after, step_up_after })
        };
        Ok(QosOptions {
            name: self.name.clone(),
            send: self.send.specification()?,
            receive: self.receive.specification()?,
            dscp,
            congestion: name
                .map(|name| congestion(name, &self.congestion_parameters))
                .transpose()?,
            reserve: choice("reserve", &self.reserve, &RESERVE)?,
            must_reserve: self.must_reserve,
            hysteresis: Hysteresis { begins_after: self.begins_after, ends_after: self.ends_after },
            ladder: self.ladder.as_ref().map(ladder).transpose()?,
            setup_timeout: Wall::from_secs_f64(self.setup_timeout_s),
            ..QosOptions::default()
        })
    }
}
