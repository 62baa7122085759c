//! What the command line asks of QoS sockets.

use ontempo_endpoint::qos::{Direction, QosOptions, Reserve, SetupError};
use ontempo_mechanisms::qos::Specification;

use crate::arguments::{Quality, Service};
use crate::failure::Failure;

/// What is asked for in a direction; `otherwise` where no file is named.
pub(crate) fn options(
    name: &str,
    quality: &Quality,
    otherwise: Specification,
    directions: &[Direction],
) -> Result<QosOptions, Failure> {
    let asked = match &quality.spec {
        Some(path) => {
            ontempo_endpoint::qos::read(path).map_err(|error| Failure::Input(error.to_string()))?
        }
        None => otherwise,
    };
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
