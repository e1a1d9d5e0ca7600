"""The audit log: every action at the provider, with who did it and why, written before it is done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from store.engine import Connection
from store.tables import audit_log


class Action(StrEnum):
    """What is done at the provider, or learnt from it and acted upon."""

    LAUNCH = "launch"
    DELETE = "delete"
    ADOPT = "adopt"
    LOSE = "lose"
    SET_TAGS = "set_tags"
    RENEW_LEASE = "renew_lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One action. `paced` actions count against what a window allows after an outage."""

    actor: str
    action: Action
    cause: str
    region: str
    partition_id: str | None = None
    workload_id: str | None = None
    pool_id: str | None = None
    batch_key: str | None = None
    server_id: str | None = None
    instances: int = 1
    paced: bool = False


async def record(connection: Connection, tenant_id: str, at: datetime, *entries: Entry) -> None:
    """Write entries in the caller's transaction."""
    if entries:
        rows = [asdict(entry) | {"tenant_id": tenant_id, "at": at} for entry in entries]
        await connection.execute(sa.insert(audit_log), rows)


async def deleted_by_us(
    connection: Connection, tenant_id: str, server_ids: Collection[str]
) -> frozenset[str]:
    """Which of these servers somebody here has asked to delete."""
    query = sa.select(audit_log.c.server_id).where(
        audit_log.c.tenant_id == tenant_id,
        audit_log.c.action == Action.DELETE,
        audit_log.c.server_id.in_(sorted(server_ids)),
    )
    return frozenset((await connection.execute(query)).scalars())


async def paced_since(
    connection: Connection, tenant_id: str, partition_id: str, region: str, since: datetime
) -> int:
    """Instances that paced actions have touched since then."""
    query = sa.select(sa.func.coalesce(sa.func.sum(audit_log.c.instances), 0)).where(
        audit_log.c.tenant_id == tenant_id,
        audit_log.c.partition_id == partition_id,
        audit_log.c.region == region,
        audit_log.c.paced,
        audit_log.c.at > since,
    )
    return int((await connection.execute(query)).scalar_one())
