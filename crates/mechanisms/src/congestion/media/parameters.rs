//! The parameters of the controller for media.

use ontempo_foundation::Duration;

use super::super::{Field, Parameter, Parameters};

/// Its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MediaParameters {
    /// What it keeps in the path's queue where the path limits it, in packets.
    pub queue: f64,
    /// A queue that stands is longer than `queue` by this.
    pub margin: Duration,
    /// How much faster than the path's rate packets leave.
    pub pacing_gain: f64,
    /// The share of losses beyond the path's own that is congestion.
    pub loss_threshold: f64,
    /// The share of losses from which on there is no floor.
    pub breaker: f64,
}

impl Default for MediaParameters {
    fn default() -> Self {
        Self {
            queue: 20.0,
            margin: Duration::from_millis(25),
            pacing_gain: 2.0,
            loss_threshold: 0.02,
            breaker: 0.2,
        }
    }
}

impl Parameters for MediaParameters {
    const ALL: &'static [Parameter<Self>] = &[
        Parameter {
            name: "queue",
            doc: "Where the path limits it, so much stands in its queue.",
            field: Field::Number {
                of: |all| &mut all.queue,
                unit: "packets",
                min: 2.0,
                max: 1_000.0,
            },
        },
        Parameter {
            name: "margin",
            doc: "A queue that stands is one longer than `queue` by this: varying delays are none.",
            field: Field::Duration {
                of: |all| &mut all.margin,
                min: Duration::from_millis(1),
                max: Duration::from_secs(1),
            },
        },
        Parameter {
            name: "pacing-gain",
            doc: "How much faster than the path's estimated rate packets leave.",
            field: Field::Number {
                of: |all| &mut all.pacing_gain,
                unit: "factor",
                min: 1.0,
                max: 10.0,
            },
        },
        Parameter {
            name: "loss-threshold",
            doc: "Losses beyond the path's own are congestion above this share.",
            field: Field::Number {
                of: |all| &mut all.loss_threshold,
                unit: "share",
                min: 0.0,
                max: 1.0,
            },
        },
        Parameter {
            name: "breaker",
            doc: "From this share of losses on, what the application needs is no floor of the window.",
            field: Field::Number { of: |all| &mut all.breaker, unit: "share", min: 0.1, max: 0.5 },
        },
    ];
}
