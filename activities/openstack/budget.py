"""Taking tokens of a region's budget: bounded waiting on the bucket that all processes share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from activities.openstack.metrics import ProviderMetrics
from activities.ports import ProviderError, ProviderErrorKind
from store.budget import BudgetStore, NoBudget, Taken

SHORTEST_SLEEP_SECONDS = 0.005


class StoreTokenBudget:
    """The port `TokenBudget` over the buckets in Postgres. Safe to share between threads."""

    def __init__(
        self,
        store: BudgetStore,
        metrics: ProviderMetrics,
        *,
        max_wait_seconds: float,
        rng: random.Random,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._max_wait_seconds = max_wait_seconds
        self._rng = rng
        self._sleep = sleep
        self._monotonic = monotonic

    def take(self, region: str) -> None:
        """Block until a token is taken. Without one nothing may be sent, so every failure refuses.

        Raises ProviderError: THROTTLED when none comes within `max_wait_seconds`, UNAVAILABLE when the
        region has no bucket or the bucket cannot be read.
        """
        started = self._monotonic()
        try:
            self._wait_for_token(region, deadline=started + self._max_wait_seconds)
        finally:
            self._metrics.waited(region, self._monotonic() - started)

    def _wait_for_token(self, region: str, deadline: float) -> None:
        while True:
            found = self._try_take(region)
            if found.taken:
                return
            left = deadline - self._monotonic()
            if left <= 0:
                raise ProviderError(
                    ProviderErrorKind.THROTTLED,
                    f"{region}: no token of the provider budget within {self._max_wait_seconds:g} s;"
                    " nothing was sent. Raise the region's budget or call less",
                    retry_after_seconds=found.wait_seconds,
                )
            self._sleep(min(left, self._jittered(found.wait_seconds)))

    def _jittered(self, wait_seconds: float) -> float:
        """Up to twice the wait, so that waiters do not all come back for the same token."""
        return max(SHORTEST_SLEEP_SECONDS, wait_seconds * (1 + self._rng.random()))

    def _try_take(self, region: str) -> Taken:
        try:
            return self._store.try_take(region)
        except (NoBudget, SQLAlchemyError) as error:
            reason = str(error) if isinstance(error, NoBudget) else type(error).__name__
            raise ProviderError(
                ProviderErrorKind.UNAVAILABLE,
                f"{region}: the provider budget cannot be used ({reason}); nothing was sent",
            ) from error
