"""The hand that rebuilds: lost records are written anew from what servers say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from activities.ports import Server
from domain.acquisition import ServerStatus, SlotState
from domain.ids import slot_key
from domain.reconcile import Drift, DriftKind
from store import adoption, drifts
from store.adoption import Record
from store.audit_log import Action, Entry, record
from store.engine import Connection, Engine
from store.licences import Place
from store.server_names import name_servers

# Records are written in transactions of so many servers, so that none holds its locks for long.
ADOPT_AT_ONCE = 1_000


class Adoptions:
    """Adopts servers for one process."""

    def __init__(self, engine: Engine, *, identity: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._identity = identity
        self._now = now

    async def adopt(
        self, place: Place, servers: dict[str, Server], due: Sequence[Drift]
    ) -> tuple[int, frozenset[str]]:
        """Write lost records anew, as far as claims have units for them; returns the servers too many.

        Nothing at the provider changes, so it needs no licence: it comes before one.
        """
        found = sorted(
            (servers[one.subject] for one in due if one.kind is DriftKind.UNRECORDED),
            key=lambda one: (one.workload_id or "", one.batch_key or "", one.server_id),
        )
        adopted, unwanted = 0, set[str]()
        for start in range(0, len(found), ADOPT_AT_ONCE):
            part = found[start : start + ADOPT_AT_ONCE]
            async with self._engine.begin() as connection:
                more, surplus = await self._adopt_some(connection, place, part)
            adopted += more
            unwanted |= surplus
        return adopted, frozenset(unwanted)

    async def _adopt_some(
        self, connection: Connection, place: Place, servers: Sequence[Server]
    ) -> tuple[int, set[str]]:
        workloads = {one.workload_id or "" for one in servers}
        missing = await adoption.missing_units(connection, place.tenant_id, workloads)
        pools = await adoption.registered(connection, place.tenant_id, {one.pool_id or "" for one in servers})
        records, surplus = _records(servers, missing, pools)
        now = self._now()
        adopted = await adoption.adopt(connection, *place, records, actor=self._identity, at=now)
        entries = (self._entry(place, one) for one in servers if one.server_id in adopted)
        await record(connection, place.tenant_id, now, *entries)
        names = {one.server_id: one.name for one in servers if one.server_id in adopted}
        await name_servers(connection, place.tenant_id, names)
        await drifts.healed(connection, place, adopted)
        return len(adopted), surplus

    def _entry(self, place: Place, server: Server) -> Entry:
        return Entry(
            actor=self._identity,
            action=Action.ADOPT,
            cause="its records were lost",
            region=place.region,
            partition_id=place.partition_id,
            workload_id=server.workload_id,
            pool_id=server.pool_id,
            batch_key=server.batch_key,
            server_id=server.server_id,
        )


def _records(
    servers: Iterable[Server], missing: dict[str, int], pools: frozenset[str]
) -> tuple[list[Record], set[str]]:
    """Slots for as many servers as claims have units for, and the servers that are too many.

    A server that does not say what it serves, or whose pool is not registered, is neither.
    """
    records: list[Record] = []
    surplus: set[str] = set()
    numbers: dict[str, int] = {}
    for server in servers:
        shape, units = server.metadata.get("sco_shape"), server.metadata.get("sco_units", "")
        if not shape or not units.isdigit() or server.pool_id not in pools:
            continue
        workload_id, batch = server.workload_id or "", server.batch_key or ""
        if missing.get(workload_id, 0) <= 0:
            surplus.add(server.server_id)
            continue
        missing[workload_id] -= int(units)
        number = numbers[batch] = numbers.get(batch, -1) + 1
        state = SlotState.ACTIVE if server.status is ServerStatus.ACTIVE else SlotState.BUILDING
        generation = server.metadata.get("sco_generation", "")
        records.append(
            Record(
                server.server_id,
                slot_key(batch, number),
                batch,
                workload_id,
                server.pool_id,
                shape,
                int(units),
                int(generation) if generation.isdigit() else 0,
                state,
                server.created_at,
            )
        )
    return records, surplus
