//! What the command line asks of QoS sockets.

use std::path::Path;

use ontempo_mechanisms::qos::Specification;
use ontempo_qos::{self as qos, Direction, QosOptions, Reserve, SetupError};

use crate::arguments::{Quality, Service};
use crate::failure::Failure;

/// The specification in a file.
pub(crate) fn read(path: &Path) -> Result<Specification, Failure> {
    qos::read(path).map_err(|error| Failure::Input(error.to_string()))
}

/// What is asked for in these directions; `otherwise` where no file is named.
pub(crate) fn options(
    name: &str,
    quality: &Quality,
    otherwise: Specification,
    directions: &[Direction],
) -> Result<QosOptions, Failure> {
    let asked = quality.spec.as_deref().map_or(Ok(otherwise), read)?;
    let of =
        |direction| if directions.contains(&direction) { asked } else { Specification::default() };
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
        ..QosOptions::default()
    })
}

/// Why there is no connection, or nowhere to listen.
pub(crate) fn failed(what: &str) -> impl Fn(SetupError) -> Failure + '_ {
    move |error| match error {
        SetupError::Contradiction(_) | SetupError::Disagreement(_) => {
            Failure::Input(format!("{what}: {error}"))
        }
        _ => Failure::Environment(format!("{what}: {error}")),
    }
}
