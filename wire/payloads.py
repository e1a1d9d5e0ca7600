"""What each event says: one typed model per event, with its topic and the key that orders it.

Fields may be added within a version; a reader leaves aside what it does not know. The words of an
enumeration are those of the rules.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from wire.events import (
    MODEL_EVICTED,
    MODEL_WARMED,
    NODE_DRAINED,
    NODE_NO_NOTICE,
    NODE_NOTICE,
    NODE_OVERRUN,
    NODE_REVOKED,
    PLACEMENT_DECIDED,
    PLACEMENT_FINISHED,
    PLAN_COMMITTED,
    POOL_CHANGED,
    POOL_DRAINED,
    POOL_REGISTERED,
    POOL_STATE_CHANGED,
)


class OneOf:
    """Marks a text that is one of a few words, as JSON Schema's `enum`."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.words))


TenantId = Annotated[str, Field(min_length=1, max_length=63, description="whose row it is")]
PoolId = Annotated[str, Field(min_length=1, max_length=63, description="unique within its tenant")]
WorkloadId = Annotated[str, Field(min_length=1, max_length=255)]
Model = Annotated[str, Field(min_length=1, max_length=255, description="the model's name at its endpoint")]
InstanceId = Annotated[str, Field(min_length=1, max_length=63, description="the id of the server")]
Actor = Annotated[str, Field(min_length=1, description="the subject of whoever did it")]
Count = Annotated[int, Field(ge=0)]
Version = Annotated[int, Field(ge=1)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
KindWord = Annotated[
    str,
    OneOf(
        "workstation",
        "local_gpu_server",
        "dgx_class",
        "cloud_gpu",
        "azure",
        "customer_data_centre",
        "private_cloud",
    ),
]
StateWord = Annotated[str, OneOf("draft", "active", "draining", "retired")]
BoundaryWord = Annotated[str, OneOf("private", "regional", "shared")]
PurchaseWord = Annotated[str, OneOf("reclaimable", "guaranteed", "committed")]
PlacementWord = Annotated[str, OneOf("placed", "no_capacity", "policy_denied")]
PlanWord = Annotated[str, OneOf("placed", "shortfall", "policy_denied")]
CauseWord = Annotated[str, OneOf("reclaim", "defect", "operator", "drill", "unknown")]
NoticeWord = Annotated[str, OneOf("hard", "advisory")]
PhaseWord = Annotated[str, OneOf("requested", "planned", "placed", "shortfall")]


class Payload(BaseModel):
    """The `data` of one event: camelCase in JSON, decimals as text, times in UTC."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="forbid", frozen=True
    )

    topic: ClassVar[str]
    summary: ClassVar[str]
    key_field: ClassVar[str]

    tenant_id: TenantId

    @property
    def key(self) -> str:
        """The id of what the event is about, within its tenant: events of one key come in order."""
        return str(getattr(self, self.key_field))

    def document(self) -> dict[str, Any]:
        """The payload as plain JSON values."""
        return self.model_dump(mode="json", by_alias=True)


class ComputePoolRegistered(Payload):
    topic: ClassVar[str] = POOL_REGISTERED
    summary: ClassVar[str] = "A pool exists, as a draft, with the facts that never change."
    key_field: ClassVar[str] = "pool_id"

    pool_id: PoolId
    kind: KindWord
    region: str
    security_boundary: BoundaryWord
    hall: str
    sku_family: str
    size: str
    purchase_model: PurchaseWord
    group_id: str
    state: StateWord = "draft"
    registered_by: Actor | None = None


class ComputePoolStateChanged(Payload):
    topic: ClassVar[str] = POOL_STATE_CHANGED
    summary: ClassVar[str] = "A pool took a step in its life: activated, draining, resumed or retired."
    key_field: ClassVar[str] = "pool_id"

    pool_id: PoolId
    from_state: StateWord
    to_state: StateWord
    version: Version
    changed_by: Actor | None = None


class Change(BaseModel):
    """One value that changed; prices are decimal texts in US dollars per instance and hour."""

    model_config = Payload.model_config

    name: Annotated[
        str, OneOf("pricePerHourUsd", "guaranteedPricePerHourUsd", "endpointRef", "coldStartSeconds")
    ]
    old: int | str | None
    new: int | str | None


class ComputePoolChanged(Payload):
    topic: ClassVar[str] = POOL_CHANGED
    summary: ClassVar[str] = "What is no fact of a pool was changed: a price, its endpoint, its cold start."
    key_field: ClassVar[str] = "pool_id"

    pool_id: PoolId
    version: Version
    changes: Annotated[tuple[Change, ...], Field(min_length=1)]
    changed_by: Actor | None = None


class ComputePoolDrained(Payload):
    topic: ClassVar[str] = POOL_DRAINED
    summary: ClassVar[str] = "A pool that drains holds nothing any more, once for each time it drains."
    key_field: ClassVar[str] = "pool_id"

    pool_id: PoolId
    draining_since: datetime | None
    drained_at: datetime


class ModelWarmed(Payload):
    topic: ClassVar[str] = MODEL_WARMED
    summary: ClassVar[str] = "A model is loaded on a pool: the serving port lists it."
    key_field: ClassVar[str] = "pool_id"

    pool_id: PoolId
    model: Model
    vram_gb: Annotated[int, Field(ge=1, description="memory that it takes, GB")]


class ModelEvicted(Payload):
    topic: ClassVar[str] = MODEL_EVICTED
    summary: ClassVar[str] = "A model was unloaded from a pool."
    key_field: ClassVar[str] = "pool_id"

    pool_id: PoolId
    model: Model
    reason: Word


class PlacementDecided(Payload):
    """The tenant is who asked; the pool may be another tenant's shared one, which is then named too."""

    topic: ClassVar[str] = PLACEMENT_DECIDED
    summary: ClassVar[str] = "A placement request of a model was answered."
    key_field: ClassVar[str] = "placement_id"

    placement_id: UUID
    deployment_id: Annotated[str, Field(min_length=1, max_length=255)]
    chosen_pool_id: PoolId | None = None
    chosen_pool_tenant_id: TenantId | None = None
    outcome: PlacementWord

    @model_validator(mode="after")
    def _a_pool_when_placed(self) -> PlacementDecided:
        if (self.outcome == "placed") != (self.chosen_pool_id is not None):
            raise ValueError(f"outcome {self.outcome!r} with chosenPoolId {self.chosen_pool_id!r}")
        return self


class PlanCommitted(Payload):
    topic: ClassVar[str] = PLAN_COMMITTED
    summary: ClassVar[str] = "A plan generation of a workload is committed."
    key_field: ClassVar[str] = "workload_id"

    placement_id: UUID
    workload_id: WorkloadId
    generation: Version
    outcome: PlanWord
    units: Count
    placed_units: Count


class PlacementFinished(Payload):
    topic: ClassVar[str] = PLACEMENT_FINISHED
    summary: ClassVar[str] = "A run of a workload's placement ended."
    key_field: ClassVar[str] = "workload_id"

    workload_id: WorkloadId
    phase: PhaseWord
    units: Count
    placed_units: Count
    active_instances: Count
    shortfall_units: Count
    shortfall_reason: Word | None


class NodeRevoked(Payload):
    topic: ClassVar[str] = NODE_REVOKED
    summary: ClassVar[str] = "A node's identity was revoked: nothing that it signs is believed any more."
    key_field: ClassVar[str] = "instance_id"

    instance_id: InstanceId
    region: str
    hall: str
    pool_id: PoolId
    partition_id: str
    workload_id: WorkloadId
    revoked_at: datetime
    revoked_by: Actor


class NodeLifecycle(Payload):
    """What every event about a node says. Times are the node's, the deadline is the provider's."""

    key_field: ClassVar[str] = "instance_id"

    event_id: Annotated[UUID, Field(description="as the node or the control plane told it")]
    instance_id: InstanceId
    region: str
    hall: str
    pool_id: PoolId
    partition_id: str
    workload_id: WorkloadId
    cause: CauseWord
    counts_in_ledger: Annotated[bool, Field(description="not without a cause")]
    occurred_at: datetime
    notice_id: UUID | None = None
    notice_kind: Annotated[
        NoticeWord | None,
        Field(description="hard: the instance ends at the deadline; advisory: it may; null: not told"),
    ] = None
    deadline: datetime | None = None
    seconds_since_notice: float | None = None
    seconds_to_spare: float | None = None
    detail: str = ""


class NodeNotice(NodeLifecycle):
    topic: ClassVar[str] = NODE_NOTICE
    summary: ClassVar[str] = "A node was told that it will be taken back, or may be."


class NodeDrained(NodeLifecycle):
    topic: ClassVar[str] = NODE_DRAINED
    summary: ClassVar[str] = "Nothing is left on a node that was told to drain."


class NodeOverrun(NodeLifecycle):
    topic: ClassVar[str] = NODE_OVERRUN
    summary: ClassVar[str] = "Work was still running on a node at the edge of its deadline."


class NodeNoNotice(NodeLifecycle):
    topic: ClassVar[str] = NODE_NO_NOTICE
    summary: ClassVar[str] = "A node was gone, and no notice of it is known."


PAYLOADS: tuple[type[Payload], ...] = (
    ComputePoolRegistered,
    ComputePoolStateChanged,
    ComputePoolChanged,
    ComputePoolDrained,
    ModelWarmed,
    ModelEvicted,
    PlacementDecided,
    PlanCommitted,
    PlacementFinished,
    NodeRevoked,
    NodeNotice,
    NodeDrained,
    NodeOverrun,
    NodeNoNotice,
)
BY_TOPIC = {one.topic: one for one in PAYLOADS}
