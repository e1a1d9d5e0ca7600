"""Rankings and the shortlists drawn from them, each stored with the inputs it came from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.placement.filters import RequirementClass, Shortlist
from domain.placement.scoring import PoolInputs, PoolScore, Ranking
from domain.policy import ScoringPolicy
from store.engine import Connection
from store.tables import partitions, rankings, shortlists


class UnknownRanking(LookupError):
    """No ranking of this id is stored."""


async def save_ranking(
    connection: Connection, tenant_id: str, ranking: Ranking, inputs: list[PoolInputs]
) -> int:
    """Store a ranking as the newest of its partition; returns its version. Storing it again is no change."""
    partition = sa.select(partitions.c.partition_id).where(
        partitions.c.tenant_id == tenant_id, partitions.c.partition_id == ranking.partition_id
    )
    await connection.execute(partition.with_for_update(key_share=True))
    newest = sa.select(sa.func.coalesce(sa.func.max(rankings.c.version), 0) + 1).where(
        rankings.c.tenant_id == tenant_id, rankings.c.partition_id == ranking.partition_id
    )
    values = {
        "tenant_id": tenant_id,
        "ranking_id": UUID(ranking.ranking_id),
        "partition_id": ranking.partition_id,
        "version": newest.scalar_subquery(),
        "scorer_version": ranking.scorer_version,
        "policy": ranking.policy.model_dump(mode="json"),
        "inputs": [one.model_dump(mode="json") for one in inputs],
        "scores": [one.model_dump(mode="json") for one in ranking.scores],
    }
    statement = insert(rankings).values(values)
    await connection.execute(statement.on_conflict_do_nothing(index_elements=["tenant_id", "ranking_id"]))
    query = sa.select(rankings.c.version).where(
        rankings.c.tenant_id == tenant_id, rankings.c.ranking_id == UUID(ranking.ranking_id)
    )
    return int((await connection.execute(query)).scalar_one())


async def load_ranking(connection: Connection, tenant_id: str, ranking_id: UUID) -> Ranking:
    row = await _ranking_row(connection, tenant_id, ranking_id)
    return Ranking(
        ranking_id=str(row.ranking_id),
        partition_id=row.partition_id,
        scorer_version=row.scorer_version,
        policy=ScoringPolicy.model_validate(row.policy),
        scores=tuple(PoolScore.model_validate(one) for one in row.scores),
    )


async def load_inputs(connection: Connection, tenant_id: str, ranking_id: UUID) -> list[PoolInputs]:
    """What the ranking was computed from."""
    row = await _ranking_row(connection, tenant_id, ranking_id)
    return [PoolInputs.model_validate(one) for one in row.inputs]


async def _ranking_row(connection: Connection, tenant_id: str, ranking_id: UUID) -> sa.Row[Any]:
    query = sa.select(rankings).where(rankings.c.tenant_id == tenant_id, rankings.c.ranking_id == ranking_id)
    row = (await connection.execute(query)).first()
    if row is None:
        raise UnknownRanking(f"no ranking {ranking_id}")
    return row


async def save_shortlist(
    connection: Connection, tenant_id: str, wanted: RequirementClass, listed: Shortlist
) -> None:
    """Store what a class may use in a ranking; equal shortlists are stored once."""
    values = {
        "tenant_id": tenant_id,
        "ranking_id": UUID(listed.ranking_id),
        "class_key": listed.class_key,
        "requirement_class": wanted.model_dump(mode="json"),
        "fill": [entry.pool_id for entry in listed.fill],
        "floor": [entry.pool_id for entry in listed.floor],
        "refused": {pool_id: reason.value for pool_id, reason in sorted(listed.refused.items())},
    }
    await connection.execute(insert(shortlists).values(values).on_conflict_do_nothing())


async def find_shortlist(
    connection: Connection, tenant_id: str, ranking_id: UUID, class_key: str
) -> sa.RowMapping:
    query = sa.select(shortlists).where(
        shortlists.c.tenant_id == tenant_id,
        shortlists.c.ranking_id == ranking_id,
        shortlists.c.class_key == class_key,
    )
    return (await connection.execute(query)).mappings().one()
