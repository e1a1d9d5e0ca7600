"""The circuit of a provider's region: after failures in a row nobody calls it, until one call tries again.

An answer is an answer: a refusal (4xx) shows that the region works, and counts as success here. A
throttled answer (413, 429) is one too, and asks for a pause. Only what the region failed to do counts.

Calls overlap. A call that passed before the circuit opened may end long after, so what it tells is
taken for the state in which it passed: only the probe of a half open circuit decides over it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from domain.model import Frozen

_MOST_DOUBLINGS = 32


class CircuitState(StrEnum):
    """Closed lets every call pass, open none, half open one at a time to see whether it is well again."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Outcome(StrEnum):
    """How one call to the provider ended; the last three were never sent."""

    OK = "ok"
    REFUSED = "refused"
    THROTTLED = "throttled"
    FAILED = "failed"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    NO_BUDGET = "no_budget"
    PAUSED = "paused"
    CIRCUIT_OPEN = "circuit_open"


FAILURE_TEXT: dict[Outcome, str] = {
    Outcome.FAILED: "the region answered with a server error (5xx)",
    Outcome.TIMEOUT: "the region did not answer in time",
    Outcome.UNREACHABLE: "the region could not be reached",
}


class CircuitTerms(Frozen):
    """When a circuit opens and for how long, and how long a throttled answer pauses everybody.

    `probe_seconds` is how long the one call of a half open circuit may take before another may try:
    longer than a call's own time limits, so that only a probe whose process died is given up.
    """

    open_after_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    open_seconds: Annotated[float, Field(gt=0, le=3600)] = 15
    most_open_seconds: Annotated[float, Field(gt=0, le=3600)] = 300
    probe_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    pause_seconds: Annotated[float, Field(gt=0, le=3600)] = 1
    most_pause_seconds: Annotated[float, Field(gt=0, le=86_400)] = 3600

    @model_validator(mode="after")
    def _bounds_are_bounds(self) -> CircuitTerms:
        if self.most_open_seconds < self.open_seconds:
            raise ValueError(f"most_open_seconds must be at least open_seconds, {self.open_seconds:g}")
        if self.most_pause_seconds < self.pause_seconds:
            raise ValueError(f"most_pause_seconds must be at least pause_seconds, {self.pause_seconds:g}")
        return self


@dataclass(frozen=True, slots=True)
class Circuit:
    """The circuit of one region.

    `failures` is how many came in a row, `trips` how often the circuit opened since its last success,
    `since` when it last left or returned to closed. `until` is when an open circuit lets a call try,
    or when the call that tries is given up; its value also tells one such call from the next.
    """

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    trips: int = 0
    problem: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_well(self) -> bool:
        """Whether a success has nothing to reset."""
        return self.state is CircuitState.CLOSED and self.failures == 0


WELL = Circuit()


def let_pass(circuit: Circuit, now: datetime, terms: CircuitTerms) -> Circuit | None:
    """The circuit once a call is on its way, which the caller keeps for its report; None: it may not go."""
    if circuit.state is CircuitState.CLOSED:
        return circuit
    if circuit.until is not None and now < circuit.until:
        return None
    return replace(circuit, state=CircuitState.HALF_OPEN, until=now + timedelta(seconds=terms.probe_seconds))


def after_failure(
    circuit: Circuit, passed: Circuit, problem: str, now: datetime, terms: CircuitTerms
) -> Circuit:
    """The circuit after a call failed that had been let pass as `passed`."""
    failed = replace(circuit, failures=circuit.failures + 1, problem=problem)
    if circuit.state is CircuitState.CLOSED:
        if failed.failures < terms.open_after_failures:
            return failed
        return _opened(replace(failed, since=now), now, terms)
    return _opened(failed, now, terms) if _is_probe(circuit, passed) else circuit


def after_answer(circuit: Circuit, passed: Circuit, now: datetime) -> Circuit:
    """The circuit after the region answered a call that had been let pass as `passed`."""
    if circuit.state is CircuitState.CLOSED:
        return replace(circuit, failures=0, problem=None)
    return Circuit(since=now) if _is_probe(circuit, passed) else circuit


def open_seconds(trips: int, terms: CircuitTerms) -> float:
    """How long the circuit stays open at its n-th trip in a row, from 1."""
    return _doubled(terms.open_seconds, trips - 1, terms.most_open_seconds)


def pause_seconds(asked_seconds: float | None, unasked_before: int, terms: CircuitTerms) -> float:
    """How long everybody waits after a throttled answer.

    What the provider asks for, within bounds. Where it does not say, or says at once, the shortest pause
    doubled for each such answer before it in a row.
    """
    if asked_seconds:
        return min(asked_seconds, terms.most_pause_seconds)
    return _doubled(terms.pause_seconds, unasked_before, terms.most_pause_seconds)


def _opened(circuit: Circuit, now: datetime, terms: CircuitTerms) -> Circuit:
    trips = circuit.trips + 1
    until = now + timedelta(seconds=open_seconds(trips, terms))
    return replace(circuit, state=CircuitState.OPEN, trips=trips, until=until)


def _is_probe(circuit: Circuit, passed: Circuit) -> bool:
    both = (circuit.state, passed.state)
    return both == (CircuitState.HALF_OPEN, CircuitState.HALF_OPEN) and circuit.until == passed.until


def _doubled(seconds: float, times: int, most_seconds: float) -> float:
    return float(min(most_seconds, seconds * 2 ** min(times, _MOST_DOUBLINGS)))
