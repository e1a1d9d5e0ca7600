"""Serving pools in a test's own database, and the hand that places models on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from pydantic import SecretStr

from activities.model_placement_calls import ModelPlacementInput, PlacementRequest
from activities.model_placing import ModelPlacing, Placed
from activities.secrets.ports import Credential, SecretsUnavailable
from domain.ids import model_placement_workflow_id
from domain.policy import Policy
from domain.pool import PoolFacts, PoolState, PurchaseModel, SecurityBoundary
from domain.serving.requirements import ModelRequirements
from store import registry
from store.engine import Engine
from tests.domain.serving.pools import wanted
from tests.estates import Clock

ACME = "acme"
PLATFORM = "platform"
MODEL = "llama3.3:70b"

BROKEN_MEMORY = """
    SELECT 'pool', s.tenant_id, s.pool_id, s.committed_vram_gb, coalesce(m.vram_gb, 0)
    FROM pool_serving s LEFT JOIN (
      SELECT tenant_id, pool_id, sum(vram_gb) AS vram_gb FROM cached_models GROUP BY 1, 2
    ) m USING (tenant_id, pool_id)
    WHERE s.committed_vram_gb <> coalesce(m.vram_gb, 0) OR s.committed_vram_gb > s.vram_gb
    UNION ALL
    SELECT 'model', m.tenant_id, m.pool_id, m.holds, coalesce(h.holds, 0)
    FROM cached_models m LEFT JOIN (
      SELECT pool_tenant_id AS tenant_id, pool_id, model, count(*) AS holds, max(vram_gb) AS most
      FROM model_placements WHERE state = 'held' GROUP BY 1, 2, 3
    ) h USING (tenant_id, pool_id, model)
    WHERE m.holds <> coalesce(h.holds, 0) OR m.vram_gb < coalesce(h.most, 0)
      OR (m.state = 'promised' AND m.holds = 0)
    UNION ALL
    SELECT 'placement', p.pool_tenant_id, p.pool_id, 0, 1 FROM model_placements p
    WHERE p.state = 'held' AND NOT EXISTS (
      SELECT FROM cached_models m
      WHERE (m.tenant_id, m.pool_id, m.model) = (p.pool_tenant_id, p.pool_id, p.model))
"""


class Vault:
    """A secrets port that gives out numbered credentials until it is `down`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.down = False
        self.asked: list[tuple[str, str]] = []

    async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential:
        self.asked.append((tenant_id, pool_id))
        if self.down:
            raise SecretsUnavailable("nobody answers")
        token = SecretStr(f"secret-{len(self.asked)}-of-{pool_id}")
        return Credential(token=token, expires_at=self.clock() + timedelta(minutes=5))


class RecordingStarts:
    """Remembers which placements it was asked to start, or to tell; `down` makes it fail."""

    def __init__(self) -> None:
        self.started: list[ModelPlacementInput] = []
        self.told: list[PlacementRequest] = []
        self.down = False

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        if self.down:
            raise ConnectionError("Temporal is away")
        self.started.append(request)
        return model_placement_workflow_id(request.tenant_id, request.placement_id)

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        if self.down:
            raise ConnectionError("Temporal is away")
        self.told.append(request)


def serving_facts(pool_id: str, tenant_id: str, **other: Any) -> PoolFacts:
    usual: dict[str, Any] = {
        "pool_id": pool_id,
        "tenant_id": tenant_id,
        "region": "eu-north",
        "hall": "eu-north-h1",
        "security_boundary": SecurityBoundary.PRIVATE,
        "sku_family": "g2",
        "size": "m",
        "gpu_type": "a100",
        "gpu_count": 2,
        "vram_gb": 160,
        "cpu_cores": 32,
        "ram_gb": 256,
        "purchase_model": PurchaseModel.GUARANTEED,
        "group_id": "eu-north-h1-a3",
        "price_per_hour_usd": Decimal(2),
        "guaranteed_price_per_hour_usd": Decimal(4),
        "flavor": "g2.m",
    }
    return PoolFacts(**usual | other)


class ServingEstate:
    """Pools that serve models, seen by the hand through `engine` and by the test through `owner`."""

    def __init__(self, owner: Engine, engine: Engine, clock: Clock) -> None:
        self.owner = owner
        self.clock = clock
        self.vault = Vault(clock)
        self.starts = RecordingStarts()
        self.policy = Policy()
        self.hand = ModelPlacing(
            engine,
            policy=lambda: self.policy,
            now=clock,
            secrets=self.vault,
            starter=self.starts,
        )

    async def pool(
        self,
        pool_id: str = "gpu-1",
        tenant_id: str = ACME,
        *,
        cold_start_seconds: int = 40,
        loaded: str | None = None,
        loaded_gb: int = 70,
        reported: bool = True,
        endpoint: bool = True,
        **facts: Any,
    ) -> None:
        """An active pool that reported just now; `loaded` names a model that it has in memory."""
        async with self.owner.begin() as connection:
            one = serving_facts(pool_id, tenant_id, **facts)
            await registry.register_pools(connection, [one], PoolState.ACTIVE)
        if endpoint:
            await self.run(
                "UPDATE pools SET endpoint_ref = :ref WHERE tenant_id = :t AND pool_id = :p",
                ref=f"https://{pool_id}.example.net",
                t=tenant_id,
                p=pool_id,
            )
        await self.run(
            "UPDATE pool_capacity SET cold_start_seconds = :cold, reported_at = :at"
            " WHERE tenant_id = :t AND pool_id = :p",
            cold=cold_start_seconds,
            at=self.clock() if reported else None,
            t=tenant_id,
            p=pool_id,
        )
        if loaded is not None:
            await self.load(pool_id, tenant_id, loaded, loaded_gb)

    async def load(
        self, pool_id: str = "gpu-1", tenant_id: str = ACME, model: str = MODEL, vram_gb: int = 70
    ) -> None:
        """The pool's endpoint lists the model."""
        await self.run(
            "INSERT INTO cached_models (tenant_id, pool_id, model, vram_gb, state, loaded_at, last_used_at)"
            " VALUES (:t, :p, :m, :v, 'loaded', :at, :at) ON CONFLICT (tenant_id, pool_id, model)"
            " DO UPDATE SET state = 'loaded', loaded_at = :at, load_key = NULL, load_until = NULL",
            t=tenant_id,
            p=pool_id,
            m=model,
            v=vram_gb,
            at=self.clock(),
        )

    async def report(self) -> None:
        """Every pool reports at the clock's time."""
        await self.run("UPDATE pool_capacity SET reported_at = :at", at=self.clock())

    async def place(
        self, asked: ModelRequirements | None = None, *, tenant: str = ACME, placement_id: UUID | None = None
    ) -> Placed:
        answer = await self.hand.place(tenant, asked or wanted(), placement_id=placement_id or uuid4())
        assert isinstance(answer, Placed), answer
        return answer

    async def run(self, query: str, **named: Any) -> list[Any]:
        async with self.owner.begin() as connection:
            answer = await connection.execute(sa.text(query), named)
            return [tuple(row) for row in answer] if answer.returns_rows else []

    async def committed(self, pool_id: str = "gpu-1", tenant_id: str = ACME) -> int:
        rows = await self.run(
            "SELECT committed_vram_gb FROM pool_serving WHERE tenant_id = :t AND pool_id = :p",
            t=tenant_id,
            p=pool_id,
        )
        return int(rows[0][0])

    async def memory_is_right(self) -> None:
        assert await self.run(BROKEN_MEMORY) == []

    def later(self, seconds: float) -> datetime:
        return self.clock() + timedelta(seconds=seconds)
