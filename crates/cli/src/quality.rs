//! Options of QoS sockets from the command line.

use std::path::Path;

use ontempo_mechanisms::qos::Specification;
use ontempo_qos::{self as qos, Direction, QosOptions, Reserve, SetupError};

use crate::arguments::{Quality, Service};
use crate::failure::Failure;

/// The specification in a file.
pub(crate) fn read(path: &Path) -> Result<Specification, Failure> {
    qos::read(path).map_err(|error| Failure::Input(error.to_string()))
}

/// Requests the specification in these directions: the file's, or `default` without a file. Where this end sends, it
/// steps down the ladder of the file, if that has one.
pub(crate) fn options(
    name: &str,
    quality: &Quality,
    default: Specification,
    directions: &[Direction],
) -> Result<QosOptions, Failure> {
    if quality.must_reserve && quality.reserve == Service::None {
        return Err(Failure::Input(
            "--must-reserve: say what to reserve, with --reserve controlled-load or guaranteed"
                .to_owned(),
        ));
    }
    let (specification, ladder) = match quality.spec.as_deref().map(qos::read_ladder) {
        Some(read) => read.map_err(|error| Failure::Input(error.to_string()))?,
        None => (default, None),
    };
    let of = |direction| {
        if directions.contains(&direction) { specification } else { Specification::default() }
    };
    Ok(QosOptions {
        name: name.to_owned(),
        send: of(Direction::Sending),
        receive: of(Direction::Receiving),
        reserve: match quality.reserve {
            Service::None => Reserve::None,
            Service::ControlledLoad => Reserve::ControlledLoad,
            Service::Guaranteed => Reserve::Guaranteed,
        },
        must_reserve: quality.must_reserve,
        dscp: quality.dscp,
        ladder: ladder.filter(|_| directions.contains(&Direction::Sending)),
        ..QosOptions::default()
    })
}

/// Converts an error of connecting or listening to a failure.
pub(crate) fn failed(what: &str) -> impl Fn(SetupError) -> Failure + '_ {
    move |error| match error {
        SetupError::Contradiction(_)
        | SetupError::CongestionNotChoosable(_)
        | SetupError::NotReliable
        | SetupError::Disagreement(_) => Failure::Input(format!("{what}: {error}")),
        _ => Failure::Environment(format!("{what}: {error}")),
    }
}
