"""What a request handler may use: handed to the application once, and reached through dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import Depends, Path, Request

from activities.secrets.ports import Secrets
from api.node_plane import NodePlane
from api.ports import Starter
from api.sign_in.principal import Principal
from domain.claim import WorkloadId
from domain.policy import Policy
from domain.pool import Name, PoolId
from store.engine import Connection, Engine, of_tenant

DEFAULTS = Policy()


@dataclass(frozen=True, slots=True)
class Deps:
    """`temporal_reachable` answers within a second or two, whatever the state of Temporal.

    `workflow_pages` is the address of Temporal's screen for one namespace, if people have one. Without
    `secrets`, who places models is given no credentials; without `nodes`, no node is served. In a request
    the engine sees what the caller's tenant may see; on an open path, where nobody is known, no rows at all.
    """

    engine: Engine
    starter: Starter
    temporal_reachable: Callable[[], Awaitable[bool]]
    now: Callable[[], datetime]
    policy_in_force: Callable[[], Policy] = lambda: DEFAULTS
    workflow_pages: str | None = None
    secrets: Secrets | None = None
    nodes: NodePlane | None = None

    @property
    def policy(self) -> Policy:
        """The figures of the rules, as they are now."""
        return self.policy_in_force()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """A connection whose reads all see one moment, for answers that are put together of several."""
        async with self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="REPEATABLE READ")

    def workflow_url(self, workflow_id: str) -> str | None:
        if self.workflow_pages is None:
            return None
        return f"{self.workflow_pages.rstrip('/')}/workflows/{quote(workflow_id, safe='')}"


async def deps_of(request: Request) -> Deps:
    deps = cast(Deps, request.app.state.deps)
    principal = known_principal(request)
    return deps if principal is None else replace(deps, engine=of_tenant(deps.engine, principal.tenant_id))


async def tenant_of(request: Request) -> str:
    """Whose rows a request sees: those of the tenant that its caller belongs to."""
    principal = known_principal(request)
    assert principal is not None, "a route on an open path asks for a tenant"
    return principal.tenant_id


def actor_of(request: Request) -> str:
    """Who is named as having done what a request does: the subject of its caller."""
    principal = known_principal(request)
    assert principal is not None, "a route that changes something is not open"
    return principal.subject


def known_principal(request: Request) -> Principal | None:
    """Who sent a request; None on the paths that are open to everybody."""
    return getattr(request.state, "principal", None)


Uses = Annotated[Deps, Depends(deps_of)]
Tenant = Annotated[str, Depends(tenant_of)]
PoolPath = Annotated[PoolId, Path(alias="poolId", description="The id of a pool")]
PartitionPath = Annotated[Name, Path(alias="partitionId", description="The id of a partition")]
ContractPath = Annotated[Name, Path(alias="contractId", description="The id of a contract")]
WorkloadPath = Annotated[WorkloadId, Path(alias="workloadId", description="The id of a workload")]
