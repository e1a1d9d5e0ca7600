"""Hands of one model placement that only say what the store and the endpoint would have said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.model_placement_calls import (
    FAIL_PLACEMENT,
    LOAD_MODEL,
    LOOK_AT_PLACEMENT,
    RECORD_LOAD,
    LoadModelRequest,
    LoadRecord,
    ModelLoaded,
    ModelPlacementEnded,
    ModelPlacementInput,
    PlacementFailure,
    PlacementLook,
    PlacementRequest,
)
from activities.model_placement_start import start_model_placement
from domain.ids import SPACE
from tests.workflows.fake_hands import TENANT, FakeHands, Stage
from workers.assemble import make_worker
from workflows.model_placement import ModelPlacement

MODEL = "llama3.3:70b"
Handle = WorkflowHandle[ModelPlacement, ModelPlacementEnded]


class ModelPlacementHands:
    """A placement as a test sets it: its state, its end, and how its load goes.

    `refusal` is the type and text with which every load fails; so many looks as `failing` find no database.
    """

    def __init__(self, own: FakeHands) -> None:
        self.own = own
        self.queue = f"serving-{own.tag}"
        self.state = "held"
        self.expires_at = datetime.now(UTC) + timedelta(hours=1)
        self.problem: str | None = None
        self.refusal: tuple[str, str] | None = None
        self.caused = True
        self.failing = 0

    @property
    def request(self) -> ModelPlacementInput:
        return ModelPlacementInput(
            tenant_id=TENANT,
            placement_id=self.placement_id,
            pool_tenant_id=TENANT,
            pool_id=f"gpu-{self.own.tag}",
            model=MODEL,
            vram_gb=70,
            cold_start_seconds=40,
        )

    @property
    def placement_id(self) -> UUID:
        return uuid5(SPACE, self.own.tag)

    def times(self, name: str) -> int:
        return self.own.counts[name]

    def asked(self, name: str) -> list[object]:
        return [request for called, request in self.own.calls if called == name]

    def _now_is(self) -> PlacementLook:
        return PlacementLook(state=self.state, expires_at=self.expires_at, problem=self.problem)

    @activity.defn(name=LOAD_MODEL)
    async def load_model(self, request: LoadModelRequest) -> ModelLoaded:
        await self.own._called(LOAD_MODEL, request)
        if self.refusal is not None:
            kind, text = self.refusal
            raise ApplicationError(text, type=kind, non_retryable=True)
        return ModelLoaded(caused=self.caused, seconds=12.5)

    @activity.defn(name=LOOK_AT_PLACEMENT)
    async def look(self, request: PlacementRequest) -> PlacementLook:
        await self.own._called(LOOK_AT_PLACEMENT, request)
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the database is away")
        if self.state == "held" and datetime.now(UTC) >= self.expires_at:
            self.state = "expired"
        return self._now_is()

    @activity.defn(name=RECORD_LOAD)
    async def record_load(self, request: LoadRecord) -> PlacementLook:
        await self.own._called(RECORD_LOAD, request)
        return self._now_is()

    @activity.defn(name=FAIL_PLACEMENT)
    async def fail(self, request: PlacementFailure) -> PlacementLook:
        await self.own._called(FAIL_PLACEMENT, request)
        self.state, self.problem = "released", f"{request.kind}: {request.problem}"
        return self._now_is()


@asynccontextmanager
async def serving(
    stage: Stage, own: FakeHands, *, sandbox: bool = True
) -> AsyncIterator[ModelPlacementHands]:
    """The product's workflow with these hands, on a queue that no other test serves."""
    hands = ModelPlacementHands(own)
    worker = make_worker(
        stage.client,
        hands.queue,
        stage.settings.model_copy(update={"sandbox": sandbox}),
        slots=20,
        workflows=[ModelPlacement],
        activities=[hands.load_model, hands.look, hands.record_load, hands.fail],
    )
    async with worker:
        yield hands


async def begin(stage: Stage, hands: ModelPlacementHands) -> Handle:
    workflow_id = await start_model_placement(stage.client, hands.request, hands.queue)
    return stage.client.get_workflow_handle(workflow_id, result_type=ModelPlacementEnded)
