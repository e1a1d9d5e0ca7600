"""Contracts, workloads and their claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.claim import Demand
from domain.contract import Contract
from store import documents
from store.engine import Connection
from store.tables import claims, contracts, partitions, workloads

ADD_CLAIM = """
    WITH workload AS (
      UPDATE workloads SET claim_version = claim_version + 1, updated_at = now()
      WHERE tenant_id = %(tenant)s AND workload_id = %(workload)s
      RETURNING tenant_id, workload_id, claim_version, partition_id
    )
    INSERT INTO claims (tenant_id, workload_id, version, units, demand, source, intake)
    SELECT tenant_id, workload_id, claim_version, %(units)s, CAST(%(demand)s AS jsonb), %(source)s,
           CAST(%(intake)s AS jsonb)
    FROM workload
    RETURNING version, (SELECT partition_id FROM workload)
"""
LOCK = """
    SELECT workload_id FROM workloads
    WHERE tenant_id = %(tenant)s AND workload_id = %(workload)s FOR NO KEY UPDATE
"""


class UnknownContract(LookupError):
    """No contract of this id belongs to the tenant."""


class UnknownWorkload(LookupError):
    """No workload of this id belongs to the tenant."""


class UnknownPartition(LookupError):
    """No partition of this id belongs to the tenant."""


class WorkloadDiffers(ValueError):
    """A workload of this id exists in another partition."""


async def put_contract(connection: Connection, tenant_id: str, contract: Contract) -> None:
    """Create or replace a contract."""
    values = contract.model_dump(mode="python") | {"tenant_id": tenant_id}
    statement = insert(contracts).values(values)
    changed = {name: statement.excluded[name] for name in values if name not in ("tenant_id", "contract_id")}
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "contract_id"],
            set_=changed | {"version": contracts.c.version + 1, "updated_at": sa.func.now()},
        )
    )


async def find_contract(connection: Connection, tenant_id: str, contract_id: str) -> Contract:
    columns = (contracts.c[name] for name in Contract.model_fields)
    query = sa.select(*columns).where(
        contracts.c.tenant_id == tenant_id, contracts.c.contract_id == contract_id
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownContract(f"no contract {contract_id!r}: apply its file first (`sco apply -f FILE`)")
    return Contract.model_validate(dict(row))


async def list_contracts(connection: Connection, tenant_id: str) -> list[Contract]:
    columns = (contracts.c[name] for name in Contract.model_fields)
    query = sa.select(*columns).where(contracts.c.tenant_id == tenant_id).order_by(contracts.c.contract_id)
    return [Contract.model_validate(dict(row)) for row in (await connection.execute(query)).mappings()]


async def put_workload(
    connection: Connection,
    *,
    tenant_id: str,
    workload_id: str,
    partition_id: str,
    contract_id: str,
    owner_team: str,
) -> None:
    """Create a workload or change its contract and owner; its partition is fixed."""
    await find_contract(connection, tenant_id, contract_id)
    await _require_partition(connection, tenant_id, partition_id)
    row = {
        "tenant_id": tenant_id,
        "workload_id": workload_id,
        "partition_id": partition_id,
        "contract_id": contract_id,
        "owner_team": owner_team,
    }
    statement = insert(workloads).values(row)
    stored = await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "workload_id"],
            set_={"contract_id": contract_id, "owner_team": owner_team, "updated_at": sa.func.now()},
        ).returning(workloads.c.partition_id)
    )
    known = stored.scalar_one()
    if known != partition_id:
        raise WorkloadDiffers(
            f"workload {workload_id!r} is in partition {known!r}, not {partition_id!r}:"
            " a workload stays in its partition, so choose another workloadId"
        )


async def _require_partition(connection: Connection, tenant_id: str, partition_id: str) -> None:
    query = sa.select(partitions.c.partition_id).where(partitions.c.tenant_id == tenant_id)
    known = sorted((await connection.execute(query)).scalars())
    if partition_id not in known:
        raise UnknownPartition(
            f"no partition {partition_id!r}: the partitions are {', '.join(known) or 'none'}"
        )


async def add_claim(
    connection: Connection,
    *,
    tenant_id: str,
    workload_id: str,
    demand: Demand,
    source: str,
    intake: dict[str, Any],
) -> tuple[int, str]:
    """Store a new claim of a workload; returns its version and the workload's partition."""
    row = {
        "tenant": tenant_id,
        "workload": workload_id,
        "units": demand.units,
        "demand": demand.model_dump_json(),
        "source": source,
        "intake": documents.dumps(intake),
    }
    added = (await connection.exec_driver_sql(ADD_CLAIM, row)).first()
    if added is None:
        raise UnknownWorkload(f"no workload {workload_id!r}: register it first, with its contract and owner")
    return added.version, added.partition_id


async def find_claim(
    connection: Connection, tenant_id: str, workload_id: str, version: int | None = None
) -> sa.RowMapping:
    """One claim of a workload, the newest unless a version is named; `UnknownWorkload` when there is none."""
    query = sa.select(claims).where(claims.c.tenant_id == tenant_id, claims.c.workload_id == workload_id)
    if version is not None:
        query = query.where(claims.c.version == version)
    row = (await connection.execute(query.order_by(claims.c.version.desc()).limit(1))).mappings().first()
    if row is None:
        raise UnknownWorkload(f"workload {workload_id!r} has no claim yet: submit one (`sco claim -f FILE`)")
    return row


async def find_workload(connection: Connection, tenant_id: str, workload_id: str) -> sa.RowMapping:
    query = sa.select(workloads).where(
        workloads.c.tenant_id == tenant_id, workloads.c.workload_id == workload_id
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise UnknownWorkload(f"no workload {workload_id!r}: see `sco get workloads` for those that exist")
    return row


async def lock_workload(connection: Connection, tenant_id: str, workload_id: str) -> None:
    """Lock a workload against whoever else changes its plan or its slots, until the transaction ends.

    It comes before every other lock on what belongs to the workload, so that two never wait for each
    other. Rows that only refer to the workload may still be written by others.
    """
    await connection.exec_driver_sql(LOCK, {"tenant": tenant_id, "workload": workload_id})


async def list_workloads(
    connection: Connection, tenant_id: str, *, after: str = "", limit: int = 1000
) -> Sequence[sa.RowMapping]:
    query = sa.select(workloads).where(workloads.c.tenant_id == tenant_id, workloads.c.workload_id > after)
    return (await connection.execute(query.order_by(workloads.c.workload_id).limit(limit))).mappings().all()
