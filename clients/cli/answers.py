"""The server's answers, as far as people are shown them. Unknown fields are passed over."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from clients.cli.failures import unreachable
from domain.intake.words import shown

# Bounded, since `1e999999999` is a valid number that would fill the memory when it is written out.
Amount = Annotated[Decimal, Field(max_digits=60)]


class Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class Money(Answer):
    amount: Amount
    currency: str


class Partition(Answer):
    partition_id: str
    region: str
    scheduler: str


class Contract(Answer):
    contract_id: str
    tier: str
    floor_share: Amount
    pool_cap_share: Amount
    group_cap_share: Amount
    tolerated_interruptions_per_hour: Amount
    drain_budget_seconds: int
    drain_on_advisory: bool = False
    checkpoint_mode: str = ""
    final_write_seconds: int | None = None
    restart: str = ""
    repo_commit: str = ""
    warnings: tuple[str, ...] = ()


class Applied(Answer):
    """What was created or changed, with what may yet go wrong with it."""

    warnings: tuple[str, ...] = ()


class Totals(Answer):
    units: int
    vcpu: Amount
    memory_gib: Amount
    gpus: int


class Caps(Answer):
    units: int
    floor_units: int
    pool_units: int
    group_units: int


class Shortfall(Answer):
    units: int
    reason: str | None = None
    text: str | None = None


class FleetPool(Answer):
    pool_id: str
    shape: str
    units: int
    instances: int
    target_instances: int
    share: Amount
    purchase_model: str
    region: str
    hall: str
    group_id: str


class GroupShare(Answer):
    """The reclaimable units in one correlation group."""

    group_id: str
    units: int
    share: Amount
    cap_units: int


class HallShare(Answer):
    """The units in one hall; reclaimable ones are spread within `cap_units` where pools allow it."""

    hall: str
    units: int
    share: Amount
    cap_units: int
    reclaimable_units: int
    committed_units: int


class Waste(Answer):
    vcpu: Amount
    memory_gib: Amount


class WorkloadSummary(Answer):
    """A workload and how far its claim is."""

    workload_id: str
    partition_id: str
    contract_id: str
    owner_team: str
    phase: str
    claim_version: int
    planned_version: int
    generation: int
    shortfall: Shortfall | None = None
    updated_at: datetime


class Workload(WorkloadSummary):
    """A workload in full; before its first claim there is no fleet."""

    claim: Totals | None = None
    caps: Caps | None = None
    fleet: tuple[FleetPool, ...] = ()
    by_group: tuple[GroupShare, ...] = ()
    by_hall: tuple[HallShare, ...] = ()
    waste: Waste | None = None
    cost_per_hour: Money | None = None
    depth_premium_per_hour: Money | None = None
    instances_by_state: dict[str, int] = {}


class LeftOut(Answer):
    name: str
    reason: str
    detail: str = ""


class Unreadable(Answer):
    name: str
    problem: str


class Launch(Answer):
    """A placement on its way; `queued` is taken up as soon as placements can run."""

    workflow_id: str
    started: bool | str


class Claimed(Totals):
    """A claim that was taken, or would be; `claim_version` is None where nothing was stored."""

    claim_version: int | None = None
    left_out: tuple[LeftOut, ...] = ()
    left_out_by_reason: dict[str, int] = {}
    unreadable: tuple[Unreadable, ...] = ()
    unreadable_total: int = 0
    notes: tuple[str, ...] = ()
    placement: Launch | None = None


class Placing(Answer):
    """A placement that was told to look at its workload again."""

    claim_version: int
    placement: Launch | None = None


class Placement(Answer):
    """How far a placement is."""

    workload_id: str
    phase: str
    claim_version: int
    planned_version: int
    generation: int
    units: int
    placed_units: int
    active_instances: int
    workflow_id: str


class Generation(Answer):
    generation: int
    claim_version: int
    units: int
    placed_units: int
    floor_units: int
    cost_per_hour: Money
    depth_premium_per_hour: Money
    decided_at: datetime


class Candidate(Answer):
    """One pool of a decision; `reason` is None where it was kept."""

    pool_id: str
    region: str
    hall: str
    group_id: str
    purchase_model: str
    kept: bool
    units: int
    instances: int
    reason: str | None = None
    text: str
    rank: int | None = None
    price_per_hour_usd: Amount
    discount_share: Amount
    interruptions_per_hour: Amount
    history_known: bool


class Explanation(Answer):
    """One decision with its candidates, the kept ones first."""

    workload_id: str
    generation: int
    claim_version: int
    ranking_id: str
    decided_at: datetime
    outcome: str
    units: int
    placed_units: int
    floor_units: int
    pool_cap_units: int
    group_cap_units: int
    cost_per_hour: Money
    depth_premium_per_hour: Money
    shortfalls: tuple[Shortfall, ...] = ()
    candidates: tuple[Candidate, ...]


class Difference(Answer):
    part: str
    stored: str
    recomputed: str


class Replay(Answer):
    workload_id: str
    generation: int
    same: bool
    differences: tuple[Difference, ...] = ()
    omitted: int = 0


class PoolCount(Answer):
    state: str
    purchase_model: str
    pools: int


class RankedPartition(Partition):
    """A partition with its newest ranking; None where it was never ranked."""

    ranking_version: int | None = None
    ranking_age_seconds: int | None = None


class Status(Answer):
    at: datetime
    pools: tuple[PoolCount, ...]
    partitions: tuple[RankedPartition, ...]
    workloads_by_phase: dict[str, int]
    outbox_waiting: int
    temporal_reachable: bool


_AnswerT = TypeVar("_AnswerT", bound=Answer)


def read(model: type[_AnswerT], document: Any, what: str) -> _AnswerT:
    """The document as `model`, or a failure that names the first field that is not as expected."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _not_understood(error, what) from None


def read_all(model: type[_AnswerT], documents: list[Any], what: str) -> list[_AnswerT]:
    try:
        return TypeAdapter(list[model]).validate_python(documents)  # type: ignore[valid-type]
    except ValidationError as error:
        raise _not_understood(error, what) from None


def _not_understood(error: ValidationError, what: str) -> Exception:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the answer"
    found = "missing" if first["type"] == "missing" else f"{shown(first['input'])} ({first['msg'].lower()})"
    return unreachable(
        f"the server's answer about {what} is not as expected: {where} is {found}",
        "do sco and the server belong to the same release? sco --version, sco status",
    )
