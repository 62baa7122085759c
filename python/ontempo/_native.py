"""Temporary."""


class ScenarioError(ValueError): ...


class Cancelled(Exception): ...


class Scenario: ...


class Result: ...


class CancelToken:
    def cancel(self): ...


def load(path, overrides=()):
    raise NotImplementedError


def parse(*a):
    raise NotImplementedError


def run(*a):
    raise NotImplementedError


def engine_fingerprint():
    return "stub"


def pert_response_probability(q, m):
    q *= 1e3
    m *= 1e3
    t = max(20, 0.65 * m)
    return (
        0.0
        if q < 5
        else 0.05 * (q - 5) / 5
        if q < 10
        else 0.05 + 0.95 * (q - 10) / (t - 10)
        if q < t
        else 1.0
    )
