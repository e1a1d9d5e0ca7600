"""What a request handler may use: handed to the application once, and reached through dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import Depends, Path, Request

from api.ports import Starter
from domain.claim import WorkloadId
from domain.policy import Policy
from domain.pool import Name, PoolId
from store.engine import Connection, Engine

PLATFORM = "platform"


@dataclass(frozen=True, slots=True)
class Deps:
    """`temporal_reachable` answers within a second or two, whatever the state of Temporal.

    `workflow_pages` is the address of Temporal's screen for one namespace, if people have one.
    """

    engine: Engine
    starter: Starter
    temporal_reachable: Callable[[], Awaitable[bool]]
    now: Callable[[], datetime]
    policy: Policy = field(default_factory=Policy)
    workflow_pages: str | None = None

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
    return cast(Deps, request.app.state.deps)


async def tenant_of() -> str:
    """Whose rows a request sees. One tenant until people sign in."""
    return PLATFORM


Uses = Annotated[Deps, Depends(deps_of)]
Tenant = Annotated[str, Depends(tenant_of)]
PoolPath = Annotated[PoolId, Path(alias="poolId", description="The id of a pool")]
PartitionPath = Annotated[Name, Path(alias="partitionId", description="The id of a partition")]
ContractPath = Annotated[Name, Path(alias="contractId", description="The id of a contract")]
WorkloadPath = Annotated[WorkloadId, Path(alias="workloadId", description="The id of a workload")]
