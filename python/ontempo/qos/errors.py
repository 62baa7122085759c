"""Why there is no QoS connection."""

from ontempo.live.errors import EndpointError, NotConnectedError

__all__ = ["DisagreementError", "SpecificationError"]


class SpecificationError(EndpointError, ValueError):
    """A specification that contradicts itself, or a file that is none."""


class DisagreementError(NotConnectedError):
    """Both ends do not agree on what is asked for; each knows the parameters and why."""
