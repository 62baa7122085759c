"""Exceptions of QoS connections."""

from ontempo.live.errors import EndpointError, NotConnectedError

__all__ = ["DisagreementError", "SpecificationError"]


class SpecificationError(EndpointError, ValueError):
    """A specification contradicts itself, or a file does not hold one."""


class DisagreementError(NotConnectedError):
    """The two ends do not agree on a specification; the message names the parameters and why."""
