"""Taking tokens of a region's budget: bounded waiting on the bucket that all processes share."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import structlog
from sqlalchemy.exc import SQLAlchemyError

from activities.openstack.metrics import ProviderMetrics
from activities.ports import SEND_UNTIL, ProviderError, ProviderErrorKind
from domain.circuit import FAILURE_TEXT, WELL, Circuit, CircuitState, CircuitTerms, Outcome, pause_seconds
from store.budget import BudgetStore, NoBudget, Refusal, Reported, Taken

SHORTEST_SLEEP_SECONDS = 0.005
# After a pause callers come back one by one within this time, or the first calls would be throttled again.
SPREAD_SECONDS = 1.0
# A probe is answered soon: who is refused meanwhile need not wait until it would be given up.
PROBE_RETRY_SECONDS = 2.0
_OUTCOME_OF = {
    Refusal.NO_TOKEN: Outcome.NO_BUDGET,
    Refusal.PAUSED: Outcome.PAUSED,
    Refusal.CIRCUIT_OPEN: Outcome.CIRCUIT_OPEN,
}
log = structlog.get_logger("provider")


class NotSent(ProviderError):
    """A call that was refused here. `outcome` is what it counts as."""

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        outcome: Outcome,
        *,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(kind, message, retry_after_seconds=retry_after_seconds)
        self.outcome = outcome


class _Passed(NamedTuple):
    """How a call was let pass: the region's circuit with the call under way, and when, monotonic."""

    circuit: Circuit
    at: float


class _OnTheirWay(threading.local):
    """This thread's call by region."""

    def __init__(self) -> None:
        self.by_region: dict[str, _Passed] = {}


class _Unasked:
    """Throttled answers in a row, by region, that did not say how long to wait.

    Calls that were on their way together are throttled together: they count once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, float]] = {}

    def count(self, region: str, passed_at: float, now: float) -> int:
        """Take one more into account; returns how many there were before it."""
        with self._lock:
            times, counted_at = self._last.get(region, (0, passed_at))
            if times and passed_at < counted_at:
                return times - 1
            self._last[region] = (times + 1, now)
            return times

    def forget(self, region: str, passed_at: float) -> None:
        """The region answered a call; one that passed before the last throttled answer shows nothing."""
        with self._lock:
            if region in self._last and passed_at >= self._last[region][1]:
                del self._last[region]


class StoreTokenBudget:
    """The port `TokenBudget` over the rows in Postgres. Safe to share between threads."""

    def __init__(
        self,
        store: BudgetStore,
        metrics: ProviderMetrics,
        *,
        max_wait_seconds: float,
        rng: random.Random,
        terms: CircuitTerms = CircuitTerms(),  # noqa: B008 - frozen
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._max_wait_seconds = max_wait_seconds
        self._rng = rng
        self._terms = terms
        self._sleep = sleep
        self._monotonic = monotonic
        self._on_their_way = _OnTheirWay()
        self._unasked = _Unasked()

    def take(self, region: str) -> None:
        """Block until a call may go. Without a token nothing may be sent, so every failure refuses.

        Raises NotSent: THROTTLED when no token comes within `max_wait_seconds` or a pause lasts longer
        than that, UNAVAILABLE at once when the circuit is open, the region has no bucket or the bucket
        cannot be read.
        """
        started = self._monotonic()
        patience = self._max_wait_seconds
        send_until = SEND_UNTIL.get()
        if send_until is not None:
            patience = min(patience, max(0.0, send_until - started))
        try:
            self._wait_for_token(region, started, patience)
        finally:
            self._metrics.waited(region, self._monotonic() - started)

    def report(self, region: str, outcome: Outcome, retry_after_seconds: float | None) -> None:
        """Tell how this thread's call ended. A success is written down only where it resets something.

        A report that cannot be written is lost: the answer of the provider counts for more.
        """
        passed = self._on_their_way.by_region.pop(region, None) or _Passed(WELL, self._monotonic())
        try:
            if outcome in FAILURE_TEXT:
                reported = self._store.report_failure(region, passed.circuit, FAILURE_TEXT[outcome])
                self._note(region, reported)
            elif outcome is Outcome.THROTTLED:
                self._pause(region, passed, retry_after_seconds)
            else:
                self._unasked.forget(region, passed.at)
                if not passed.circuit.is_well:
                    self._note(region, self._store.report_answer(region, passed.circuit))
        except (NoBudget, SQLAlchemyError) as error:
            log.warning("provider_report_lost", region=region, outcome=outcome, error=type(error).__name__)

    def _pause(self, region: str, passed: _Passed, asked_seconds: float | None) -> None:
        before = 0 if asked_seconds else self._unasked.count(region, passed.at, self._monotonic())
        seconds = pause_seconds(asked_seconds, before, self._terms)
        reported = self._store.report_answer(region, passed.circuit, pause_seconds=seconds)
        self._metrics.paused(region, seconds)
        self._note(region, reported)
        if reported.pause_began:
            log.warning("provider_paused", region=region, seconds=seconds, until=_text(reported.paused_until))

    def _note(self, region: str, reported: Reported) -> None:
        before, after = reported.before, reported.after
        self._metrics.circuit_is(region, after.state)
        if after.trips > before.trips:
            self._metrics.tripped(region)
            log.warning(
                "circuit_opened",
                region=region,
                problem=after.problem,
                failures=after.failures,
                trips=after.trips,
                until=_text(after.until),
            )
        elif before.state is not CircuitState.CLOSED and after.state is CircuitState.CLOSED:
            log.info("circuit_closed", region=region, opened_at=_text(before.since), trips=before.trips)

    def _wait_for_token(self, region: str, started: float, patience: float) -> None:
        while True:
            found = self._try_take(region)
            self._show(region, found)
            if found.taken:
                self._on_their_way.by_region[region] = _Passed(found.circuit, self._monotonic())
                return
            left = started + patience - self._monotonic()
            if found.refusal is Refusal.CIRCUIT_OPEN:
                raise _circuit_refusal(region, found)
            if found.refusal is Refusal.PAUSED and found.wait_seconds > left:
                raise _pause_refusal(region, found)
            if left <= 0:
                raise _no_token(region, found, patience)
            self._sleep(min(left, self._jittered(found)))

    def _show(self, region: str, found: Taken) -> None:
        self._metrics.circuit_is(region, found.circuit.state)
        if found.taken or found.refusal is Refusal.PAUSED:
            self._metrics.paused(region, found.wait_seconds)

    def _jittered(self, found: Taken) -> float:
        """Up to twice the wait, so that waiters do not all come back for the same token."""
        spread = found.wait_seconds
        if found.refusal is Refusal.PAUSED:
            spread = min(spread, SPREAD_SECONDS)
        return max(SHORTEST_SLEEP_SECONDS, found.wait_seconds + spread * self._rng.random())

    def _try_take(self, region: str) -> Taken:
        try:
            return self._store.try_take(region)
        except (NoBudget, SQLAlchemyError) as error:
            reason = str(error) if isinstance(error, NoBudget) else type(error).__name__
            raise NotSent(
                ProviderErrorKind.UNAVAILABLE,
                f"{region}: the provider budget cannot be used ({reason}); nothing was sent",
                Outcome.NO_BUDGET,
            ) from error


def _no_token(region: str, found: Taken, patience: float) -> NotSent:
    return NotSent(
        ProviderErrorKind.THROTTLED,
        f"{region}: no token of the provider budget within {patience:g} s;"
        " nothing was sent. Raise the region's budget or call less",
        Outcome.NO_BUDGET,
        retry_after_seconds=found.wait_seconds,
    )


def _circuit_refusal(region: str, found: Taken) -> NotSent:
    circuit, seconds = found.circuit, found.wait_seconds
    wait = f"nothing more is until {_text(circuit.until)}, when one call tries the region"
    if circuit.state is CircuitState.HALF_OPEN:
        wait, seconds = "one call is trying the region now", min(seconds, PROBE_RETRY_SECONDS)
    return NotSent(
        ProviderErrorKind.UNAVAILABLE,
        f"{region}: the circuit is open since {_text(circuit.since)}, after {circuit.failures} failures in a"
        f" row (the last: {circuit.problem}); nothing was sent, and {wait}",
        Outcome.CIRCUIT_OPEN,
        retry_after_seconds=seconds,
    )


def _pause_refusal(region: str, found: Taken) -> NotSent:
    return NotSent(
        ProviderErrorKind.THROTTLED,
        f"{region}: the provider asked every caller to wait until {_text(found.until)}; nothing was sent",
        Outcome.PAUSED,
        retry_after_seconds=found.wait_seconds,
    )


def _text(at: datetime | None) -> str:
    return "an unknown time" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
