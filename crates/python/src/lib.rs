//! The compiled core of the Python package: it converts and forwards, nothing else.
//!
//! What a Python user reads (signatures, docstrings) is `python/ontempo/_native.pyi`.

mod controllers;
mod live;
mod media;
mod qos;
mod result;
mod run;
mod scenario;
mod table;

use pyo3::pymodule;

#[pymodule]
mod _native {
    use ontempo_foundation::Duration;
    use ontempo_mechanisms::congestion::{PertParameters, Queueing};
    use pyo3::prelude::*;
    use pyo3::pyfunction;

    #[pymodule_export]
    use crate::controllers::ControllerError;
    #[pymodule_export]
    use crate::live::{
        Identity, LiveConnecting, LiveConnection, LiveListener, LiveReceiveFlow, LiveSendFlow,
        PendingResult, Trust, Waker, begin, bind, check_options, default_options,
    };
    #[pymodule_export]
    use crate::media::{MediaUnit, TransportStream, read_transport_stream};
    #[pymodule_export]
    use crate::qos::{
        QosAcceptor, QosChannel, QosEvents, qos_bind, qos_check, qos_connect, qos_read,
    };
    #[pymodule_export]
    use crate::result::RunResult;
    #[pymodule_export]
    use crate::run::{CancelToken, Cancelled, run};
    #[pymodule_export]
    use crate::scenario::{Scenario, ScenarioError, load, parse};
    #[pymodule_export]
    use crate::table::Table;

    #[pymodule_init]
    fn document(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::result::document(module.py())
    }

    /// A hash of the simulator's sources: results of equal fingerprints are comparable.
    #[pyfunction]
    fn engine_fingerprint() -> &'static str {
        env!("ONTEMPO_ENGINE_FINGERPRINT")
    }

    /// The same without the sources that only films use: of results without a film, those of equal
    /// fingerprints are comparable.
    #[pyfunction]
    fn claims_fingerprint() -> &'static str {
        env!("ONTEMPO_CLAIMS_FINGERPRINT")
    }

    /// PERT's probability of an early response to a smoothed queueing delay.
    #[pyfunction]
    fn pert_response_probability(queueing_delay_s: f64, largest_queueing_delay_s: f64) -> f64 {
        PertParameters::thesis().response_probability(Queueing {
            current: Duration::from_secs_f64(queueing_delay_s),
            maximum: Duration::from_secs_f64(largest_queueing_delay_s),
        })
    }
}
