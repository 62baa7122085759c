//! BBR's parameters.

use ontempo_foundation::Duration;

use super::super::{Field, Parameter, ParameterError, Parameters, Variant};

/// Which BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// That of Linux 6 (`net/ipv4/tcp_bbr.c`).
    First,
    /// draft-ietf-ccwg-bbr-06.
    Third,
}

/// BBR's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BbrParameters {
    pub(super) version: Version,
    /// Pacing gain of Startup.
    pub startup_gain: f64,
    /// The window, in bandwidth-delay products.
    pub cwnd_gain: f64,
    /// The share of losses in a round trip above which too much is in flight.
    pub loss_threshold: f64,
    /// The factor by which a loss reduces the bounds, at most.
    pub beta: f64,
    /// The share of the long-term bound that is left to others while cruising.
    pub headroom: f64,
    /// Losses without a queue are the path's own, not congestion.
    pub inherent_loss: bool,
    /// Round trips that show no queue put ProbeRTT off.
    pub skip_probe_rtt: bool,
    /// For how long the least round trip may not be seen before it is probed for.
    pub probe_rtt_interval: Duration,
    /// For how long little is in flight then.
    pub probe_rtt_duration: Duration,
}

impl BbrParameters {
    /// The name of the variant that the Linux kernel has.
    pub const V1: &'static str = "v1";

    /// Version 3 (draft-ietf-ccwg-bbr-06, section 2).
    pub const fn v3() -> Self {
        Self {
            version: Version::Third,
            startup_gain: 2.77,
            cwnd_gain: 2.0,
            loss_threshold: 0.02,
            beta: 0.7,
            headroom: 0.15,
            inherent_loss: false,
            skip_probe_rtt: false,
            probe_rtt_interval: Duration::from_secs(5),
            probe_rtt_duration: Duration::from_millis(200),
        }
    }

    /// Version 3 for media: it keeps its rate where losses have another cause than a queue, and where the
    /// least round trip is known anyway.
    pub const fn media() -> Self {
        Self { inherent_loss: true, skip_probe_rtt: true, ..Self::v3() }
    }

    /// Version 1 as Linux 6 has it (`bbr_high_gain`, `bbr_cwnd_gain`, `bbr_min_rtt_win_sec`,
    /// `bbr_probe_rtt_mode_ms`).
    pub const fn v1() -> Self {
        Self {
            version: Version::First,
            // 2885 / 1000 in 256ths, and one more.
            startup_gain: 739.0 / 256.0,
            probe_rtt_interval: Duration::from_secs(10),
            ..Self::v3()
        }
    }
}

impl Default for BbrParameters {
    fn default() -> Self {
        Self::v3()
    }
}

impl Parameters for BbrParameters {
    const ALL: &'static [Parameter<Self>] = &[
        Parameter {
            name: "startup-gain",
            doc: "How much faster than the estimated bandwidth Startup sends.",
            field: Field::Number {
                of: |all| &mut all.startup_gain,
                unit: "factor",
                min: 1.25,
                max: 4.0,
            },
        },
        Parameter {
            name: "cwnd-gain",
            doc: "The window, in estimated bandwidth-delay products.",
            field: Field::Number {
                of: |all| &mut all.cwnd_gain,
                unit: "factor",
                min: 1.0,
                max: 10.0,
            },
        },
        Parameter {
            name: "loss-threshold",
            doc: "More losses than this in a round trip of probing say that too much is in flight; \
                  version 3 only.",
            field: Field::Number {
                of: |all| &mut all.loss_threshold,
                unit: "share",
                min: 0.0,
                max: 1.0,
            },
        },
        Parameter {
            name: "beta",
            doc: "Losses reduce the bounds of rate and volume by no more than this factor at a time; \
                  version 3 only.",
            field: Field::Number { of: |all| &mut all.beta, unit: "factor", min: 0.1, max: 1.0 },
        },
        Parameter {
            name: "headroom",
            doc: "The share of the safe volume in flight that is left to others; version 3 only.",
            field: Field::Number { of: |all| &mut all.headroom, unit: "share", min: 0.0, max: 0.9 },
        },
        Parameter {
            name: "inherent-loss",
            doc: "The share of losses while the path has no queue is its own: only what exceeds it by \
                  `loss-threshold` and chance is congestion; version 3 only.",
            field: Field::Flag { of: |all| &mut all.inherent_loss },
        },
        Parameter {
            name: "skip-probe-rtt",
            doc: "A round trip of less than 1.25 times the least and 2 ms counts as the least seen \
                  again, so that it is not looked for; version 3 only.",
            field: Field::Flag { of: |all| &mut all.skip_probe_rtt },
        },
        Parameter {
            name: "probe-rtt-interval",
            doc: "After this time without a lower round trip, little is kept in flight to find it.",
            field: Field::Duration {
                of: |all| &mut all.probe_rtt_interval,
                min: Duration::from_secs(1),
                max: Duration::from_secs(3_600),
            },
        },
        Parameter {
            name: "probe-rtt-duration",
            doc: "For how long little is kept in flight then.",
            field: Field::Duration {
                of: |all| &mut all.probe_rtt_duration,
                min: Duration::from_millis(1),
                max: Duration::from_secs(10),
            },
        },
    ];

    const VARIANTS: &'static [Variant<Self>] = &[
        Variant { name: "v3", doc: "Version 3 (draft-ietf-ccwg-bbr-06).", make: Self::v3 },
        Variant {
            name: "media",
            doc: "Version 3 with `inherent-loss` and `skip-probe-rtt`, which are not of the draft.",
            make: Self::media,
        },
        Variant { name: Self::V1, doc: "Version 1, as in Linux 6.", make: Self::v1 },
    ];

    fn check(&self) -> Result<(), ParameterError> {
        if self.version == Version::Third {
            return Ok(());
        }
        let third = Self::v3();
        let of_third = [
            ("loss-threshold", self.loss_threshold != third.loss_threshold),
            ("beta", self.beta != third.beta),
            ("headroom", self.headroom != third.headroom),
            ("inherent-loss", self.inherent_loss != third.inherent_loss),
            ("skip-probe-rtt", self.skip_probe_rtt != third.skip_probe_rtt),
        ];
        match of_third.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => {
                let what = "version 1 has no such rule; leave it out, or write variant v3";
                Err(ParameterError::new(name, what))
            }
            None => Ok(()),
        }
    }
}
