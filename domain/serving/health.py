"""The health of a serving pool: what probes and routers say of its endpoint, and whom that keeps away.

A probe is our own look, so it counts for everybody. A router's report counts at once, but for the tenant
that reported alone: a pool that is shared is not taken from others by anybody's word. What the report does
for all is to ask for a probe, and to let its first failure count as the last one needed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from domain.model import Frozen

MAX_PROBLEM = 300


class Health(StrEnum):
    """What is known of an endpoint. `unknown` has answered too seldom, and failed too seldom, to say."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    DEGRADED = "degraded"


class HealthSource(StrEnum):
    """What degraded or healed a pool: probes alone, or a probe that confirmed a router's report."""

    PROBE = "probe"
    ROUTER = "router"


class HealthTerms(Frozen):
    """How endpoints are probed.

    So many failures in a row degrade a pool, and so many successes in a row heal it. A router's report
    keeps its tenant's placements away for `report_hold_seconds`, time for several probes; within
    `report_every_seconds` a second report of the same tenant about the same pool adds nothing.
    """

    degrade_after_failures: Annotated[int, Field(ge=1, le=100)] = 2
    heal_after_successes: Annotated[int, Field(ge=1, le=100)] = 2
    probe_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5
    probes_at_once: Annotated[int, Field(ge=1, le=1000)] = 100
    report_hold_seconds: Annotated[float, Field(ge=0, le=3600)] = 60
    report_every_seconds: Annotated[float, Field(ge=0, le=3600)] = 5


class EndpointHealth(NamedTuple):
    """What is known of one pool's endpoint. `probed_at` is when the last probe that counts began."""

    health: Health = Health.UNKNOWN
    problem: str | None = None
    source: HealthSource | None = None
    failures: int = 0
    successes: int = 0
    probed_at: datetime | None = None
    changed_at: datetime | None = None


class Probe(NamedTuple):
    """One look at an endpoint: when it began, and what was wrong; None is an answer in time."""

    began_at: datetime
    problem: str | None = None


def probed(
    known: EndpointHealth, probe: Probe, *, reported_at: datetime | None, terms: HealthTerms
) -> EndpointHealth:
    """What is known after one more probe. One that began before the last that counts changes nothing.

    `reported_at` is when a router last reported the endpoint down, if any did.
    """
    if known.probed_at is not None and probe.began_at <= known.probed_at:
        return known
    if probe.problem is None:
        return _answered(known, probe, terms)
    return _failed(known, probe, confirms=is_confirmed_by(known, probe, reported_at, terms), terms=terms)


def is_confirmed_by(
    known: EndpointHealth, probe: Probe, reported_at: datetime | None, terms: HealthTerms
) -> bool:
    """Whether a failed probe bears out a report: one that is held, and that no answer came after."""
    if reported_at is None or not is_held_off(reported_at, probe.began_at, terms):
        return False
    return known.successes == 0 or known.probed_at is None or reported_at > known.probed_at


def is_held_off(reported_at: datetime, now: datetime, terms: HealthTerms) -> bool:
    """Whether a report still keeps placements of the tenant that made it away from the pool."""
    return now - reported_at < timedelta(seconds=terms.report_hold_seconds)


def _answered(known: EndpointHealth, probe: Probe, terms: HealthTerms) -> EndpointHealth:
    after = known._replace(failures=0, successes=known.successes + 1, probed_at=probe.began_at)
    if known.health is Health.HEALTHY or after.successes < terms.heal_after_successes:
        return after
    return after._replace(
        health=Health.HEALTHY, problem=None, source=HealthSource.PROBE, changed_at=probe.began_at
    )


def _failed(known: EndpointHealth, probe: Probe, *, confirms: bool, terms: HealthTerms) -> EndpointHealth:
    failures = known.failures + 1
    after = known._replace(failures=failures, successes=0, probed_at=probe.began_at)
    enough = failures >= terms.degrade_after_failures
    if not (enough or confirms or known.health is Health.DEGRADED):
        return after
    after = after._replace(health=Health.DEGRADED, problem=(probe.problem or "")[:MAX_PROBLEM])
    if known.health is Health.DEGRADED:
        return after
    source = HealthSource.PROBE if enough else HealthSource.ROUTER
    return after._replace(source=source, changed_at=probe.began_at)
