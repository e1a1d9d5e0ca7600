"""The provider's token budget: one bucket per region, shared by every process that calls it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import sqlalchemy as sa

from store.engine import async_url

TAKE = sa.text(
    """
    UPDATE provider_budgets SET
      tokens = least(burst, tokens + extract(epoch FROM clock_timestamp() - updated_at) * refill_per_second)
               - 1,
      updated_at = clock_timestamp()
    WHERE tenant_id = :tenant AND region = :region
      AND least(burst, tokens + extract(epoch FROM clock_timestamp() - updated_at) * refill_per_second) >= 1
    RETURNING tokens
    """
)
WAIT = sa.text(
    """
    SELECT greatest(0, (1 - tokens) / refill_per_second
                       - extract(epoch FROM clock_timestamp() - updated_at)) AS wait_seconds
    FROM provider_budgets WHERE tenant_id = :tenant AND region = :region
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


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether a token was taken; otherwise how long until the next one is there."""

    taken: bool
    wait_seconds: float


class BudgetStore:
    """Blocking access to the buckets, for the threads in which provider calls run."""

    def __init__(self, dsn: str, *, tenant_id: str, pool_size: int = 4) -> None:
        self._tenant_id = tenant_id
        self._engine = sa.create_engine(
            async_url(dsn),
            pool_size=pool_size,
            max_overflow=pool_size,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5, "application_name": "sco-budget"},
        )

    def set_budget(self, region: str, *, burst: int, refill_per_second: Decimal) -> None:
        with self._engine.connect() as connection:
            connection.execute(
                SET,
                {"tenant": self._tenant_id, "region": region, "burst": burst, "refill": refill_per_second},
            )

    def try_take(self, region: str) -> Taken:
        """Take one token, or say how long to wait. `NoBudget` when the region has no bucket."""
        named = {"tenant": self._tenant_id, "region": region}
        with self._engine.connect() as connection:
            if connection.execute(TAKE, named).first() is not None:
                return Taken(True, 0.0)
            wait = connection.execute(WAIT, named).scalar()
        if wait is None:
            raise NoBudget(f"no provider budget is set for region {region!r}: set one before calling it")
        return Taken(False, float(wait))

    def close(self) -> None:
        self._engine.dispose()
