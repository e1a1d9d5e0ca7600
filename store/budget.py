"""The provider's token budget: one bucket per region, shared by every process that calls it.

The same row holds the region's circuit and pause, so that one statement decides whether a call may go:
no process calls through an open circuit or during a pause. Time is the database's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import sqlalchemy as sa

from domain.circuit import WELL, Circuit, CircuitState, CircuitTerms, after_answer, after_failure, let_pass
from store.engine import async_url

_CIRCUIT = "circuit, failures, trips, circuit_problem, circuit_changed_at, circuit_until"
# `let_pass` of domain/circuit.py as a condition and a change of the row; a test holds the two together.
TAKE = sa.text(
    f"""
    UPDATE provider_budgets SET
      tokens = least(burst, tokens + extract(epoch FROM clock_timestamp() - updated_at) * refill_per_second)
               - 1,
      updated_at = clock_timestamp(),
      circuit = CASE circuit WHEN 'closed' THEN circuit ELSE 'half_open' END,
      circuit_until = CASE circuit WHEN 'closed' THEN circuit_until
                      ELSE clock_timestamp() + make_interval(secs => :probe_seconds) END
    WHERE tenant_id = :tenant AND region = :region
      AND least(burst, tokens + extract(epoch FROM clock_timestamp() - updated_at) * refill_per_second) >= 1
      AND (circuit = 'closed' OR circuit_until IS NULL OR circuit_until <= clock_timestamp())
      AND (paused_until IS NULL OR paused_until <= clock_timestamp())
    RETURNING {_CIRCUIT}
    """  # noqa: S608 - column names only
)
LOOK = sa.text(
    f"""
    SELECT {_CIRCUIT}, clock_timestamp() AS now, paused_until,
           greatest(0, (1 - tokens) / refill_per_second
                       - extract(epoch FROM clock_timestamp() - updated_at)) AS token_seconds
    FROM provider_budgets WHERE tenant_id = :tenant AND region = :region
    """  # noqa: S608 - column names only
)
LOCK = sa.text(
    f"""
    SELECT {_CIRCUIT}, clock_timestamp() AS now, paused_until
    FROM provider_budgets WHERE tenant_id = :tenant AND region = :region FOR UPDATE
    """  # noqa: S608 - column names only
)
WRITE = sa.text(
    """
    UPDATE provider_budgets SET
      circuit = :state, failures = :failures, trips = :trips, circuit_problem = :problem,
      circuit_changed_at = :since, circuit_until = :until, paused_until = :paused_until
    WHERE tenant_id = :tenant AND region = :region
    """
)
SET = sa.text(
    """
    INSERT INTO provider_budgets (tenant_id, region, tokens, burst, refill_per_second)
    VALUES (:tenant, :region, :burst, :burst, :refill)
    ON CONFLICT (tenant_id, region) DO UPDATE SET
      burst = excluded.burst, refill_per_second = excluded.refill_per_second,
      tokens = least(provider_budgets.tokens, excluded.burst)
    """
)


class NoBudget(LookupError):
    """No budget is set for a region: nothing may be called there."""


class Refusal(StrEnum):
    """Why a call may not go now."""

    NO_TOKEN = "no_token"  # noqa: S105 - no secret
    PAUSED = "paused"
    CIRCUIT_OPEN = "circuit_open"


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether a token was taken; otherwise why not, and how long until it is worth another try.

    `circuit` is the region's after the call was let pass, or as it refused it. `until` is the end of a
    pause, or of what an open circuit waits for.
    """

    taken: bool
    wait_seconds: float
    refusal: Refusal | None = None
    until: datetime | None = None
    circuit: Circuit = WELL


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report changed. `pause_began` says that the region was not paused before."""

    before: Circuit
    after: Circuit
    pause_began: bool = False
    paused_until: datetime | None = None


class BudgetStore:
    """Blocking access to the buckets, for the threads in which provider calls run."""

    def __init__(
        self,
        dsn: str,
        *,
        tenant_id: str,
        pool_size: int = 4,
        terms: CircuitTerms = CircuitTerms(),  # noqa: B008 - frozen
    ) -> None:
        self._tenant_id = tenant_id
        self._terms = terms
        self._engine = sa.create_engine(
            async_url(dsn),
            pool_size=pool_size,
            max_overflow=pool_size,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5, "application_name": "sco-budget"},
        )
        self._in_transactions = self._engine.execution_options(isolation_level="READ COMMITTED")

    def set_budget(self, region: str, *, burst: int, refill_per_second: Decimal) -> None:
        with self._engine.connect() as connection:
            connection.execute(SET, {**self._of(region), "burst": burst, "refill": refill_per_second})

    def try_take(self, region: str) -> Taken:
        """Take one token, or say why not and how long to wait. `NoBudget` when the region has no bucket."""
        with self._engine.connect() as connection:
            taken = connection.execute(
                TAKE, {**self._of(region), "probe_seconds": self._terms.probe_seconds}
            ).first()
            if taken is not None:
                return Taken(True, 0.0, circuit=_circuit(taken))
            found = connection.execute(LOOK, self._of(region)).first()
        if found is None:
            raise NoBudget(f"no provider budget is set for region {region!r}: set one before calling it")
        return self._refusal(found)

    def report_failure(self, region: str, passed: Circuit, problem: str) -> Reported:
        """A call that was let pass as `passed` failed. `NoBudget` when the region has no bucket."""
        return self._report(
            region, lambda circuit, now: after_failure(circuit, passed, problem, now, self._terms)
        )

    def report_answer(self, region: str, passed: Circuit, *, pause_seconds: float = 0) -> Reported:
        """The region answered such a call; a throttled answer pauses everybody, and never ends a pause.

        `NoBudget` when the region has no bucket.
        """
        return self._report(region, lambda circuit, now: after_answer(circuit, passed, now), pause_seconds)

    def close(self) -> None:
        self._engine.dispose()

    def _of(self, region: str) -> dict[str, str]:
        return {"tenant": self._tenant_id, "region": region}

    def _refusal(self, row: sa.Row[tuple[object, ...]]) -> Taken:
        circuit, now = _circuit(row), row.now
        if let_pass(circuit, now, self._terms) is None:
            return Taken(False, _seconds(now, circuit.until), Refusal.CIRCUIT_OPEN, circuit.until, circuit)
        if row.paused_until is not None and row.paused_until > now:
            return Taken(False, _seconds(now, row.paused_until), Refusal.PAUSED, row.paused_until, circuit)
        return Taken(False, float(row.token_seconds), Refusal.NO_TOKEN, circuit=circuit)

    def _report(
        self, region: str, rule: Callable[[Circuit, datetime], Circuit], pause_seconds: float = 0
    ) -> Reported:
        with self._in_transactions.begin() as connection:
            row = connection.execute(LOCK, self._of(region)).first()
            if row is None:
                raise NoBudget(f"no provider budget is set for region {region!r}: nothing can be reported")
            before, paused_until = _circuit(row), row.paused_until
            after = rule(before, row.now)
            if pause_seconds > 0:
                asked = row.now + timedelta(seconds=pause_seconds)
                paused_until = max(asked, paused_until or asked)
            if (after, paused_until) != (before, row.paused_until):
                values = {**_columns(after), "paused_until": paused_until}
                connection.execute(WRITE, {**self._of(region), **values})
        began = pause_seconds > 0 and (row.paused_until is None or row.paused_until <= row.now)
        return Reported(before, after, began, paused_until)


def _circuit(row: sa.Row[tuple[object, ...]]) -> Circuit:
    return Circuit(
        CircuitState(row.circuit),
        row.failures,
        row.trips,
        row.circuit_problem,
        row.circuit_changed_at,
        row.circuit_until,
    )


def _columns(circuit: Circuit) -> dict[str, object]:
    return {
        "state": circuit.state.value,
        "failures": circuit.failures,
        "trips": circuit.trips,
        "problem": circuit.problem,
        "since": circuit.since,
        "until": circuit.until,
    }


def _seconds(now: datetime, until: datetime | None) -> float:
    return 0.0 if until is None else max(0.0, (until - now).total_seconds())
