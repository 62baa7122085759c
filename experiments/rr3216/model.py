"""The analytic model of section 4.1: losses are isolated, and there is no window.

Times are in milliseconds throughout. `rtt_ms` is the round trip, `interval_ms` is R, `burst` is n,
the ADUs from one loss to the next, and `processing_ms` is Ta. Fractions give exact results, which
matter on the borders of the areas: there a rounding error decides between a gain of 0 and of 1.
"""

from fractions import Fraction

Number = float | Fraction


def blocking_ordered_ms(
    processing_ms: Number, burst: Number, rtt_ms: Number, interval_ms: Number
) -> Number:
    """How long the last ADU of a burst waits for the application where order is kept (B_ord)."""
    return max(0, rtt_ms + burst * (processing_ms - interval_ms))


def blocking_out_of_sequence_ms(
    processing_ms: Number, burst: Number, interval_ms: Number
) -> Number:
    """The same out of sequence (B_out): only a backlog is waited for."""
    return max(0, burst * (processing_ms - interval_ms))


def blocking_gain(
    processing_ms: Number, burst: Number, rtt_ms: Number, interval_ms: Number
) -> Number:
    """The share of the blocking time that is saved out of sequence (Gb), 0 to 1.

    It is 0 where even in order nothing is waited for.
    """
    ordered = blocking_ordered_ms(processing_ms, burst, rtt_ms, interval_ms)
    if ordered == 0:
        return 0
    return 1 - blocking_out_of_sequence_ms(processing_ms, burst, interval_ms) / ordered
