"""Hands of one pool that is kept warm, which only say what the store and the endpoint would have said."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.model_placement_calls import LOAD_MODEL, LoadModelRequest, ModelLoaded
from activities.warm_calls import LOOK_AT_MODELS, ModelsLooked, Wanted, WarmKeepInput
from activities.warm_keep_start import start_warm_keep
from tests.workflows.fake_hands import TENANT, FakeHands, Stage
from workers.assemble import make_worker
from workflows.warm_keep import WarmKeep

Handle = WorkflowHandle[Any, Any]
NEXT_LOOK = datetime(2030, 1, 31, 14, 35, tzinfo=UTC)


class WarmHands:
    """A pool that is to have `wants` loaded, has `loaded`, and `refuses` some; `over` ends it.

    The load of the model `slow` waits for the event of that name.
    """

    def __init__(self, own: FakeHands) -> None:
        self.own = own
        self.pool_id = f"gpu-{own.tag}"
        self.wants: list[str] = []
        self.loaded: list[str] = []
        self.refuses: set[str] = set()
        self.over = False
        self.problem: str | None = None
        self.pause_seconds = 3_600.0
        self.failing = 0
        self.slow: asyncio.Event | None = None

    @property
    def counts(self) -> Counter[str]:
        return self.own.counts

    @property
    def looks(self) -> list[WarmKeepInput]:
        return [request for name, request in self.own.calls if name == LOOK_AT_MODELS]

    @activity.defn(name=LOOK_AT_MODELS)
    async def look(self, request: WarmKeepInput) -> ModelsLooked:
        await self.own._called(LOOK_AT_MODELS, request)
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the database is away")
        if self.over:
            return ModelsLooked(over=True)
        failed = {one.model for one in request.failed}
        missing = [one for one in self.wants if one not in self.loaded and one not in failed]
        return ModelsLooked(
            over=False,
            kept=len(self.wants),
            warm=len(self.loaded),
            loads=tuple(self.load_of(one) for one in missing),
            problem=self.problem,
            pause_seconds=self.pause_seconds,
            next_look_at=NEXT_LOOK,
        )

    def load_of(self, model: str) -> LoadModelRequest:
        return LoadModelRequest(
            tenant_id=TENANT, pool_id=self.pool_id, model=model, vram_gb=40, cause="warm_keep"
        )

    @activity.defn(name=LOAD_MODEL)
    async def load_model(self, request: LoadModelRequest) -> ModelLoaded:
        await self.own._called(LOAD_MODEL, request)
        if request.model in self.refuses:
            raise ApplicationError("40 GB do not fit", type="no_memory", non_retryable=True)
        if request.model == "slow" and self.slow is not None:
            await self.slow.wait()
        self.loaded.append(request.model)
        return ModelLoaded(caused=True, seconds=12.5)


@asynccontextmanager
async def keeping(stage: Stage, own: FakeHands) -> AsyncIterator[WarmHands]:
    """The product's workflow with these hands, on a queue of the test's own."""
    hands = WarmHands(own)
    async with played(stage, hands):
        yield hands


@asynccontextmanager
async def played(stage: Stage, hands: WarmHands) -> AsyncIterator[None]:
    worker = make_worker(
        stage.client,
        queue_of(hands),
        stage.settings,
        slots=20,
        workflows=[WarmKeep],
        activities=[hands.look, hands.load_model],
    )
    async with worker:
        yield


def queue_of(hands: WarmHands) -> str:
    return f"warm-{hands.own.tag}"


async def begin(stage: Stage, hands: WarmHands, wanted: Wanted | None = None) -> Handle:
    request = WarmKeepInput(tenant_id=TENANT, pool_id=hands.pool_id)
    workflow_id = await start_warm_keep(stage.client, request, wanted, queue_of(hands))
    return stage.client.get_workflow_handle(workflow_id)
