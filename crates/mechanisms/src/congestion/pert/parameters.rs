//! PERT's parameters by name. Sources and defaults: [`PertParameters`].

use ontempo_foundation::Duration;

use super::super::{AckCounting, Field, Parameter, ParameterError, Parameters, Variant};
use super::{PertParameters, PertSamples};

/// Maximum delay, and maximum increase per round trip in packets: the limits of the fixed point of
/// the BPF program (crates/kernel/bpf/pert_math.h).
const MAX_DELAY: Duration = Duration::from_secs(134);
const MAX_ALPHA: f64 = 128.0;

/// The unit of alpha's increments.
const INCREASE: &str = "packets per round trip";

type One = Parameter<PertParameters>;

const fn delay(
    name: &'static str,
    of: fn(&mut PertParameters) -> &mut Duration,
    min: Duration,
    doc: &'static str,
) -> One {
    Parameter { name, doc, field: Field::Duration { of, min, max: MAX_DELAY } }
}

const fn number(
    name: &'static str,
    of: fn(&mut PertParameters) -> &mut f64,
    (unit, min, max): (&'static str, f64, f64),
    doc: &'static str,
) -> One {
    Parameter { name, doc, field: Field::Number { of, unit, min, max } }
}

impl Parameters for PertParameters {
    const ALL: &'static [One] = &[
        number(
            "srtt-weight",
            |all| &mut all.srtt_weight,
            ("share", 0.0, 1.0),
            "Weight of the old value in PERT's own smoothed round-trip time.",
        ),
        delay(
            "maxq-floor",
            |all| &mut all.maxq_floor,
            Duration::from_micros(1),
            "The least that the maximum queueing delay is taken to be.",
        ),
        delay(
            "t-min",
            |all| &mut all.t_min,
            Duration::ZERO,
            "Queueing delay below which PERT never responds.",
        ),
        delay(
            "t-max",
            |all| &mut all.t_max,
            Duration::ZERO,
            "Queueing delay at which it responds with probability `p-max`; more than `t-min`.",
        ),
        number(
            "p-max",
            |all| &mut all.p_max,
            ("share", 0.0, 1.0),
            "Probability of a response at `t-max`.",
        ),
        number(
            "t3-share",
            |all| &mut all.t3_share,
            ("share", 0.0, 1.0),
            "Where it responds for certain, as a share of the maximum queueing delay.",
        ),
        number(
            "alpha-initial",
            |all| &mut all.alpha_initial,
            (INCREASE, 0.001, MAX_ALPHA),
            "The first additive increase, between `alpha-min` and `alpha-max`.",
        ),
        number(
            "alpha-min",
            |all| &mut all.alpha_minimum,
            (INCREASE, 0.001, MAX_ALPHA),
            "The least additive increase.",
        ),
        number(
            "alpha-max",
            |all| &mut all.alpha_maximum,
            (INCREASE, 0.001, MAX_ALPHA),
            "The greatest additive increase, not less than `alpha-min`.",
        ),
        number(
            "high-speed-step",
            |all| &mut all.high_speed_step,
            (INCREASE, 0.0, MAX_ALPHA),
            "What one update adds to the increase in high-speed mode.",
        ),
        number(
            "safe-factor",
            |all| &mut all.safe_factor,
            ("share", 0.0, 1.0),
            "What one update multiplies the increase by in safe mode.",
        ),
        number(
            "compete-step",
            |all| &mut all.compete_step,
            (INCREASE, 0.0, MAX_ALPHA),
            "What one update adds to the increase at most in compete mode.",
        ),
        number(
            "compete-from",
            |all| &mut all.compete_from,
            ("share", 0.0, 1.0),
            "Where compete mode begins, as a share of the maximum queueing delay.",
        ),
        number(
            "compete-full",
            |all| &mut all.compete_full,
            ("share", 0.0, 1.0),
            "Where the increase reaches its target in compete mode, as a share of the \
             maximum queueing delay; not less than `compete-from`.",
        ),
        number(
            "ramp-pole",
            |all| &mut all.ramp_pole,
            ("share", 0.000001, 1.0),
            "How far before `compete-from` the pole of the ramp's hyperbola lies.",
        ),
        number(
            "alpha-period",
            |all| &mut all.alpha_period,
            ("round trips", 0.0, 64.0),
            "Smoothed round trips between updates of the increase.",
        ),
        Parameter {
            name: "alpha",
            doc: "How the increase moves in safe and compete mode.",
            field: Field::Choice {
                words: &[
                    ("steps", "By steps, after a whole window in one mode (the ns-3 port)."),
                    ("immediate", "At once to its value (the thesis)."),
                ],
                get: |all| usize::from(all.immediate),
                set: |all, place| all.immediate = place == 1,
            },
        },
        Parameter {
            name: "compete",
            doc: "What a flow does where loss-based flows fill the queue.",
            field: Field::Choice {
                words: &[
                    (
                        "alpha",
                        "A larger increase compensates for its early responses (the thesis).",
                    ),
                    (
                        "as-reno",
                        "It is Reno while its early responses do not shorten the queue (ours).",
                    ),
                ],
                get: |all| usize::from(all.as_reno),
                set: |all, place| all.as_reno = place == 1,
            },
        },
        number(
            "window-floor",
            |all| &mut all.window_floor,
            ("packets", 1.0, 1000.0),
            "The least window after a response or a loss.",
        ),
        Parameter {
            name: "counting",
            doc: "How often an ACK of several packets counts: in slow start, in PERT's own \
                  smoothed round-trip time and in the draws for an early response. In the \
                  kernel, where one ACK often covers many, `packets` by default.",
            field: Field::Choice {
                words: AckCounting::WORDS,
                get: |all| all.counting.place(),
                set: |all, place| all.counting = AckCounting::at(place),
            },
        },
        Parameter {
            name: "loss-decrease",
            doc: "What a loss takes of the window; not in the kernel, whose PERT has `beta`.",
            field: Field::Choice {
                words: &[
                    ("beta", "As an early response: `curq / (curq + maxq)`."),
                    ("half", "One half, whatever the queueing delay (the thesis' W/2)."),
                ],
                get: |all| usize::from(all.half_at_a_loss),
                set: |all, place| all.half_at_a_loss = place == 1,
            },
        },
        Parameter {
            name: "samples",
            doc: "Which round trips count. In the kernel, and with the profile `linux`, `confirmed` by \
                  default. `every-ack` and `cumulative` are for simulated TCP alone.",
            field: Field::Choice {
                words: &[
                    (PertSamples::All.name(), "Each of a packet acknowledged anew (the thesis)."),
                    (
                        PertSamples::Confirmed.name(),
                        "None while losses are repaired; one that is larger than all before only if the \
                         next is, too; a lone packet's in a window of less than 8, which may have waited \
                         for a receiver's timer, as at most the largest (ours).",
                    ),
                    (
                        PertSamples::EveryAck.name(),
                        "That of every ACK, duplicates included, against the time stamp that it echoes: \
                         the last packet's in order.",
                    ),
                    (
                        PertSamples::Cumulative.name(),
                        "That of every ACK that advances, against the last sending of the highest \
                         packet that it covers.",
                    ),
                ],
                get: |all| all.samples.place(),
                set: |all, place| all.samples = PertSamples::at(place),
            },
        },
    ];
    const VARIANTS: &'static [Variant<Self>] = &[
        Variant {
            name: "reference",
            doc: "The public ns-3 port: a ramp from 0.5, alpha in steps.",
            make: Self::reference,
        },
        Variant {
            name: "thesis",
            doc: "The thesis: compete from 0.65 of the largest queueing delay, alpha at once.",
            make: Self::thesis,
        },
    ];

    fn check(&self) -> Result<(), ParameterError> {
        let wrong = |parameter, what: String| Err(ParameterError::new(parameter, what));
        let (alpha_min, alpha_max) = (self.alpha_minimum, self.alpha_maximum);
        if self.t_max <= self.t_min {
            return wrong(
                "t-max",
                format!("{} is not more than `t-min`, {}", self.t_max, self.t_min),
            );
        }
        if alpha_min > alpha_max {
            return wrong(
                "alpha-max",
                format!("{alpha_max} is less than `alpha-min`, {alpha_min}"),
            );
        }
        if !(alpha_min..=alpha_max).contains(&self.alpha_initial) {
            let what = format!("{} is not from {alpha_min} to {alpha_max}", self.alpha_initial);
            return wrong(
                "alpha-initial",
                format!("{what}, as `alpha-min` and `alpha-max` have it"),
            );
        }
        if self.compete_full < self.compete_from {
            let (full, from) = (self.compete_full, self.compete_from);
            return wrong("compete-full", format!("{full} is less than `compete-from`, {from}"));
        }
        Ok(())
    }
}
