"""What callers send, as values of the rules; what cannot be one is refused with its field and its limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel, ValidationError

from api.grpc.calls import Refused, invalid
from api.refusals import field_problem
from domain.intake.words import clean, shown
from domain.model import Frozen
from domain.pool import Name, PoolId, SecurityBoundary
from domain.serving.health import MAX_PROBLEM
from domain.serving.requirements import LatencyClass, ModelRequirements
from domain.serving.utilization import UtilizationReport
from wire.proto import control_pb2 as pb

CURRENCY = "USD"
BOUNDARIES = {
    pb.SECURITY_BOUNDARY_PRIVATE: SecurityBoundary.PRIVATE,
    pb.SECURITY_BOUNDARY_REGIONAL: SecurityBoundary.REGIONAL,
    pb.SECURITY_BOUNDARY_SHARED: SecurityBoundary.SHARED,
}
LATENCY_CLASSES = {
    pb.LATENCY_CLASS_UNSPECIFIED: LatencyClass.STANDARD,
    pb.LATENCY_CLASS_INTERACTIVE: LatencyClass.INTERACTIVE,
    pb.LATENCY_CLASS_STANDARD: LatencyClass.STANDARD,
    pb.LATENCY_CLASS_BATCH: LatencyClass.BATCH,
}
# What fields of the rules are called in messages, where that differs.
SAID_AS = {"max_price_per_hour_usd": "max_price_per_hour.amount"}
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_Model = TypeVar("_Model", bound=BaseModel)
_Kind = TypeVar("_Kind")


class PoolNamed(Frozen):
    """A pool in full."""

    tenant_id: Name
    pool_id: PoolId


class EndpointProblem(NamedTuple):
    """What a caller saw at the endpoint of a pool."""

    pool: PoolNamed
    problem: str


def uuid_of(text: str, field: str) -> UUID:
    """A UUID in its usual form."""
    if not _UUID.fullmatch(text):
        raise invalid(
            f"{field} is {shown(text)}; allowed is a UUID such as 0b5d2f8e-6a1c-4f7e-9d3b-2c8a4e6f1a90"
        )
    return UUID(text)


def requirements_of(request: pb.PlaceRequest) -> ModelRequirements:
    """What is asked of a pool."""
    values = {
        "deployment_id": request.deployment_id,
        "run_id": uuid_of(request.run_id, "run_id") if request.run_id else None,
        "model": request.model,
        "vram_gb": request.vram_gb,
        "boundary": _of_enum("boundary", request.boundary, BOUNDARIES, "SECURITY_BOUNDARY_"),
        "regions": tuple(request.regions),
        "latency_class": _of_enum("latency_class", request.latency_class, LATENCY_CLASSES, "LATENCY_CLASS_"),
        "max_price_per_hour_usd": _price(request),
    }
    return _validated(ModelRequirements, values)


def endpoint_problem_of(request: pb.ReportEndpointRequest, own_tenant: str) -> EndpointProblem:
    """Which pool's endpoint does not answer, and why; the pool is the caller's own unless said."""
    pool = _validated(
        PoolNamed, {"tenant_id": request.pool.tenant_id or own_tenant, "pool_id": request.pool.pool_id}
    )
    problem = clean(request.problem.strip(), MAX_PROBLEM)
    if not problem:
        raise invalid(
            "problem is empty; allowed is a line that says what was seen, such as 'connection refused'"
        )
    return EndpointProblem(pool, problem)


def report_of(request: pb.ReportUtilizationRequest, now: datetime) -> UtilizationReport:
    """One report of utilization."""
    if not _DECIMAL.fullmatch(request.utilization):
        raise invalid(f"utilization is {shown(request.utilization)}; allowed is a decimal number from 0 to 1")
    reported_at = _moment(request, "reported_at") or now
    values = {
        "pool_id": request.pool_id,
        "utilization": request.utilization,
        "queue_depth": request.queue_depth,
        "models": tuple(
            {
                "model": one.model,
                "vram_gb": one.vram_gb,
                "last_used_at": _moment(one, "last_used_at") or reported_at,
            }
            for one in request.models
        ),
        "reported_at": reported_at,
    }
    return _validated(UtilizationReport, values)


def _price(request: pb.PlaceRequest) -> str | None:
    if not request.HasField("max_price_per_hour"):
        return None
    price = request.max_price_per_hour
    if price.currency != CURRENCY:
        raise invalid(f"max_price_per_hour.currency is {shown(price.currency)}; allowed is {CURRENCY!r}")
    if not _DECIMAL.fullmatch(price.amount):
        raise invalid(
            f"max_price_per_hour.amount is {shown(price.amount)}; allowed is a decimal number such as '2.50'"
            " with up to 12 digits before and 6 behind the point"
        )
    return price.amount


def _of_enum(field: str, number: int, known: Mapping[Any, _Kind], prefix: str) -> _Kind:
    if number not in known:
        value = "missing" if number == 0 else str(number)
        allowed = ", ".join(f"{prefix}{str(each).upper()}" for each in dict.fromkeys(known.values()))
        raise invalid(f"{field} is {value}; allowed are {allowed}")
    return known[number]


def _moment(message: Any, field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    moment: Timestamp = getattr(message, field)
    try:
        return moment.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise invalid(
            f"{field} is {moment.seconds} s and {moment.nanos} ns; allowed are times of the years 1 to 9999"
        ) from None


def _validated(kind: type[_Model], values: Mapping[str, Any]) -> _Model:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _refused(error) from None


def _refused(error: ValidationError) -> Refused:
    """The first thing that is wrong."""
    first = error.errors(include_url=False)[0]
    path = [SAID_AS.get(str(part), str(part)) for part in first["loc"]]
    told = field_problem({**first, "loc": ("message", *path)})
    value = "missing" if told.value in (None, "") else told.value
    return invalid(f"{told.field} is {value}; allowed is {told.allowed}")
