"""What blocks a pool now: the weightiest reason is told, and what is free is told with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from domain.placement.draft import Live
from domain.placement.liveness import PoolPulse, backed_off, live_of
from domain.reasons import Reason

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STALENESS = timedelta(seconds=120)
OPEN = PoolPulse(free=7, state="active", standing="eligible", degraded=False, reported_at=NOW)
OLD = NOW - STALENESS - timedelta(microseconds=1)


def live(pulse: PoolPulse) -> Live:
    return live_of(pulse, now=NOW, staleness=STALENESS)


def test_an_open_pool_takes_what_is_free() -> None:
    assert live(OPEN) == Live(7, None, False)


@pytest.mark.parametrize("state", ["draft", "draining", "retired"])
def test_only_an_active_pool_is_open(state: str) -> None:
    assert live(OPEN._replace(state=state)).blocked is Reason.STATE


@pytest.mark.parametrize(
    ("reported_at", "blocked"),
    [
        (NOW - STALENESS, None),
        (OLD, Reason.STALE),
        (None, Reason.STALE),
        (NOW + timedelta(hours=1), None),
    ],
)
def test_a_report_counts_for_the_staleness_window(
    reported_at: datetime | None, blocked: Reason | None
) -> None:
    assert live(OPEN._replace(reported_at=reported_at)).blocked is blocked


def test_probation_limits_and_does_not_close() -> None:
    assert live(OPEN._replace(standing="probation")) == Live(7, None, True)


def test_the_weightiest_reason_is_told() -> None:
    """A state that a person chose, then an exclusion, then what a machine noticed, then silence."""
    changes = {
        Reason.STATE: {"state": "draining"},
        Reason.EXCLUDED: {"standing": "excluded"},
        Reason.DEGRADED: {"degraded": True},
        Reason.STALE: {"reported_at": OLD},
    }
    for chosen in product((False, True), repeat=len(changes)):
        applied = [reason for reason, given in zip(changes, chosen, strict=True) if given]
        pulse = OPEN
        for reason in applied:
            pulse = pulse._replace(**changes[reason])  # type: ignore[arg-type]
        assert live(pulse) == Live(7, applied[0] if applied else None, False)


def test_a_failed_launch_closes_an_open_pool_and_hides_no_other_reason() -> None:
    assert backed_off(live(OPEN)) == Live(7, Reason.BACKED_OFF, False)
    probation = OPEN._replace(standing="probation")
    assert backed_off(live(probation)) == Live(7, Reason.BACKED_OFF, True)
    excluded = live(OPEN._replace(standing="excluded"))
    assert backed_off(excluded) == excluded
