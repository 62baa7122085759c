"""The analytic model of section 4.1: losses are isolated, and there is no window.

Times are in milliseconds throughout. `rtt_ms` is the round trip, `interval_ms` is R, `burst` is n,
the ADUs from one loss to the next, and `processing_ms` is Ta.
"""


def blocking_ordered_ms(
    processing_ms: float, burst: float, rtt_ms: float, interval_ms: float
) -> float:
    """How long the last ADU of a burst waits for the application where order is kept (B_ord)."""
    return max(0.0, rtt_ms + burst * (processing_ms - interval_ms))


def blocking_out_of_sequence_ms(processing_ms: float, burst: float, interval_ms: float) -> float:
    """The same out of sequence (B_out): only a backlog is waited for."""
    return max(0.0, burst * (processing_ms - interval_ms))


def blocking_gain(processing_ms: float, burst: float, rtt_ms: float, interval_ms: float) -> float:
    """The share of the blocking time that is saved out of sequence (Gb), 0 to 1.

    It is 0 where even in order nothing is waited for.
    """
    ordered = blocking_ordered_ms(processing_ms, burst, rtt_ms, interval_ms)
    if ordered == 0:
        return 0.0
    return 1 - blocking_out_of_sequence_ms(processing_ms, burst, interval_ms) / ordered
