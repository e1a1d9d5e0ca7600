"""Contracts from before they said how their work ends: still there, and their nodes drain as they did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from domain.bundle_compile import Drain, drain_of
from domain.contract import Tier
from lab.stack import Stack
from store import migrate, workloads
from tests.database import bare_database, opened

BEFORE = "0010"
# By tier: checkpoint mode and restart of its nodes' bundles, and the signal of a Slurm job.
AS_BEFORE = {
    Tier.T1: ("periodic_and_final", "resume", "USR1"),
    Tier.T2: ("none", "none", "TERM"),
    Tier.T3: ("periodic_and_final", "resume", "USR1"),
    Tier.T4: ("none", "requeue", "TERM"),
    Tier.T5: ("none", "requeue", "TERM"),
    Tier.BESPOKE: ("none", "none", "TERM"),
}
INSERT = sa.text(
    """
    INSERT INTO contracts (tenant_id, contract_id, tier, floor_share, pool_cap_share, group_cap_share,
        tolerated_interruptions_per_hour, drain_budget_seconds, repo_commit)
    VALUES ('acme', :name, :tier, 0.5, 0.15, 0.3, 1, 77, 'abc')
    """
)


@pytest.fixture
def old_dsn(stack: Stack) -> Iterator[str]:
    """A database as the release before left it, without rows."""
    with bare_database(stack) as dsn:
        migrate.upgrade(dsn, BEFORE)
        yield dsn


async def add(dsn: str, prefix: str) -> None:
    """One contract of each tier, in the words of the release before."""
    async with opened(dsn) as engine, engine.begin() as connection:
        for tier in Tier:
            await connection.execute(INSERT, {"name": f"{prefix}-{tier.lower()}", "tier": tier.value})


async def drains(dsn: str, prefix: str) -> dict[Tier, Drain]:
    async with opened(dsn) as engine, engine.connect() as connection:
        found = {
            tier: await workloads.find_contract(connection, "acme", f"{prefix}-{tier.lower()}")
            for tier in Tier
        }
    return {tier: drain_of(contract, "slurm") for tier, contract in found.items()}


async def test_a_contract_from_before_compiles_as_it_did(old_dsn: str) -> None:
    await add(old_dsn, "old")
    migrate.upgrade(old_dsn)
    # A process of the release before may still write while the others are replaced.
    await add(old_dsn, "late")
    for prefix in ("old", "late"):
        found = await drains(old_dsn, prefix)
        assert {
            tier: (drain.checkpoint, drain.restart, drain.signal) for tier, drain in found.items()
        } == AS_BEFORE
        assert {(drain.budget_seconds, drain.drain_on_advisory) for drain in found.values()} == {(77, False)}
