"""What the pages' forms send: empty fields mean no restriction, and nothing is ever stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from api.paging import MAX_TOKEN
from api.shapes import Generation, Line
from domain.cause import Cause
from domain.claim import WorkloadId
from domain.lifecycle import Outcome
from domain.pool import Name, PoolId, PoolKind, PoolState, PurchaseModel, SecurityBoundary
from domain.reasons import Reason
from domain.serving.health import Health
from domain.serving.models import ModelName
from domain.serving.placing import PlacementOutcome
from domain.serving.requirements import DeploymentId
from store.tables import PlacementState
from wire.node import InstanceId

T = TypeVar("T")
ROWS = 100
MAX_PAGE = 10_000
Search = Annotated[Line, Field(max_length=100)]
PageNumber = Annotated[int, Field(ge=1, le=MAX_PAGE)]


class Form(BaseModel):
    """The query of a page. Fields of other forms are passed over, since people keep old links."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    page: PageNumber = 1

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if value != ""}
        return given

    def link(self, **changed: object) -> str:
        """The query that shows the same page with some fields changed."""
        fields = self.model_dump(mode="json", exclude_defaults=True, by_alias=True) | changed
        return "?" + urlencode({name: value for name, value in fields.items() if value not in (None, "")})


class PoolForm(Form):
    search: Search = ""
    region: Name | None = None
    hall: Name | None = None
    state: PoolState | None = None
    model: PurchaseModel | None = None
    family: Name | None = None
    kind: PoolKind | None = None
    boundary: SecurityBoundary | None = None
    health: Health | None = None
    reports: Literal["fresh", "stale"] | None = None
    owner: Literal["own", "shared"] | None = None


class WhyForm(Form):
    search: Search = ""
    show: Literal["all", "kept", "excluded"] = "all"
    reason: Reason | None = None
    generation: Generation | None = None
    replay: bool = False


class TokenForm(Form):
    """A page of a listing that goes on by tokens; `after` is the one of the page before."""

    after: Annotated[str, Field(max_length=MAX_TOKEN)] | None = None


class CandidateForm(Form):
    """Which pools of one model's placement to show."""

    search: Search = ""
    reason: Reason | None = None


class ModelPlacementForm(TokenForm):
    """Which placements of models to show."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, validate_by_name=True)

    outcome: PlacementOutcome | None = None
    state: PlacementState | None = None
    deployment_id: DeploymentId | None = None
    model: ModelName | None = None
    pool_id: PoolId | None = None


class NodeForm(TokenForm):
    """Which live nodes to show."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, validate_by_name=True)

    hall: Name | None = None
    workload_id: WorkloadId | None = None
    draining: Literal["yes", "no"] | None = None


class DrainForm(TokenForm):
    """Which drains of nodes to show."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, validate_by_name=True)

    outcome: Outcome | None = None
    cause: Cause | None = None
    hall: Name | None = None
    instance_id: InstanceId | None = None


class Sheet(NamedTuple):
    """Which of how many rows a page shows, and the pages next to it; None where there is none."""

    first: int
    last: int
    total: int
    before: int | None
    after: int | None


def sheet(page: int, total: int) -> Sheet:
    first = (page - 1) * ROWS
    last = min(total, first + ROWS)
    return Sheet(
        first=min(first + 1, total),
        last=last,
        total=total,
        before=page - 1 if page > 1 else None,
        after=page + 1 if last < total else None,
    )


def rows_of(page: int, rows: list[T]) -> list[T]:
    """The rows of one page."""
    return rows[(page - 1) * ROWS : page * ROWS]
