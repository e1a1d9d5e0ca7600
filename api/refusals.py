"""Exceptions of the rooms behind the door, and of the framework, told as problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import sqlalchemy.exc
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from activities.bundle_keys import KeysUnavailable
from activities.bundling import NoBundle
from activities.claiming import NothingToScale
from activities.explaining import UnknownPlacement
from api import problems
from api.problems import FieldProblem, Kind, Problem
from api.web.render import is_screen, problem_page
from domain.intake.words import clean, shown
from store.audits import UnknownAudit
from store.idempotency import KeyInFlight, KeyReused
from store.node_drains import UnknownDrain
from store.nodes import NotRegistered, UnknownNode
from store.partitions import PartitionDiffers, UnknownRegion
from store.registry import DuplicatePool, GroupDiffers, UnknownPool
from store.warm_profiles import UnknownProfile
from store.warm_requests import UnknownRequest
from store.workloads import UnknownContract, UnknownPartition, UnknownWorkload, WorkloadDiffers

MAX_ERRORS = 50
MAX_VALUE = 80
log = structlog.get_logger("api")

TOLD_AS: dict[type[Exception], Kind] = {
    UnknownPool: problems.UNKNOWN_POOL,
    DuplicatePool: problems.DUPLICATE_POOL,
    GroupDiffers: problems.GROUP_DIFFERS,
    UnknownContract: problems.UNKNOWN_CONTRACT,
    UnknownWorkload: problems.UNKNOWN_WORKLOAD,
    UnknownPartition: problems.UNKNOWN_PARTITION,
    UnknownRegion: problems.UNKNOWN_REGION,
    PartitionDiffers: problems.PARTITION_DIFFERS,
    UnknownPlacement: problems.UNKNOWN_PLACEMENT,
    UnknownAudit: problems.UNKNOWN_AUDIT,
    UnknownProfile: problems.UNKNOWN_PROFILE,
    UnknownRequest: problems.UNKNOWN_WARM_REQUEST,
    WorkloadDiffers: problems.WORKLOAD_DIFFERS,
    NothingToScale: problems.NO_CLAIM,
    KeyReused: problems.KEY_REUSED,
    KeyInFlight: problems.KEY_IN_FLIGHT,
    NoBundle: problems.NO_BUNDLE,
    UnknownNode: problems.UNKNOWN_NODE,
    NotRegistered: problems.NOT_REGISTERED,
    UnknownDrain: problems.UNKNOWN_DRAIN,
    ClientDisconnect: problems.UNREADABLE,
}
# What goes to the driver as it is fails with the driver's own errors.
UNREACHABLE = (
    psycopg.OperationalError,
    sqlalchemy.exc.OperationalError,
    sqlalchemy.exc.InterfaceError,
)
# To the driver these are failures of its connection; they are others at the same rows.
RACES = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)
RETRY_SOON = {"Retry-After": "2"}


WHOLE, YES_OR_NO, DECIMAL = "a whole number", "true or false", "a decimal number such as 0.25"
LIST, OBJECT, MOMENT = "a list", "an object", "a time with its zone, such as 2030-01-31T10:00:00Z"
ID = "a UUID such as 0b5d2f8e-6a1c-4f7e-9d3b-2c8a4e6f1a90"
# A rule of ours refused the value, and says in its own sentence what is allowed.
OUR_SENTENCE = "value_error"
# What a field takes, by the kind of constraint that refused its value.
ALLOWED: Mapping[str, str] = {
    "missing": "a value: the field is required",
    "extra_forbidden": "no such field; see /openapi.json for those that exist",
    "repeated": "one value",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_type": "text",
    "decimal_max_digits": "a number of at most {max_digits} digits",
    "decimal_max_places": "a number of at most {decimal_places} decimal places",
    "decimal_whole_digits": "a number of at most {whole_digits} digits before the point",
    **dict.fromkeys(("decimal_type", "decimal_parsing", "finite_number"), DECIMAL),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), WHOLE),
    **dict.fromkeys(("bool_type", "bool_parsing"), YES_OR_NO),
    **dict.fromkeys(("uuid_type", "uuid_parsing"), ID),
    **dict.fromkeys(("list_type", "tuple_type"), LIST),
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), OBJECT),
    OUR_SENTENCE: "{error}",
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_aware"), MOMENT
    ),
}


def install(app: FastAPI) -> None:
    """Answer every exception of a handler with a problem."""
    app.add_exception_handler(Problem, _answer)
    app.add_exception_handler(RequestValidationError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(Exception, _answer)
    for known in (*TOLD_AS, *UNREACHABLE, sqlalchemy.exc.TimeoutError, KeysUnavailable):
        app.add_exception_handler(known, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.kind in (problems.NO_SUCH_ROUTE, problems.WRONG_METHOD):
        problem.detail = f"{request.method} {clean(request.url.path, MAX_VALUE)} is no route"
    # A mounted folder has no route, and says all of its methods itself.
    if problem.kind is problems.WRONG_METHOD and "route" in request.scope:
        problem.headers["Allow"] = ", ".join(_methods_of_path(request))
    return answer(request, problem)


def _methods_of_path(request: Request) -> list[str]:
    """Every method of a path: the framework names those of the first route alone that has it."""
    template = request.scope["route"].path
    routes = [route for route in iter_route_contexts(request.app.routes) if route.path == template]
    return sorted({method for route in routes for method in route.methods or ()})


def answer(request: Request, problem: Problem) -> Response:
    """The problem as a page where a person asked, as JSON elsewhere."""
    if is_screen(request):
        return problem_page(request, problem)
    return problems.respond(request, problem)


def problem_of(error: Exception) -> Problem:
    """What the caller is told of an exception; nothing about our insides."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error.errors())
    if isinstance(error, HTTPException):
        return _refused_by_framework(error)
    if isinstance(error, (*UNREACHABLE, sqlalchemy.exc.TimeoutError, KeysUnavailable)):
        return _busy(error) or _away(error)
    kind = next((kind for known, kind in TOLD_AS.items() if isinstance(error, known)), None)
    if kind is not None:
        headers = RETRY_SOON if kind is problems.KEY_IN_FLIGHT else None
        return Problem(kind, str(error) or kind.title, headers=headers)
    return Problem(problems.BROKEN, "an unexpected error")


def _busy(error: Exception) -> Problem | None:
    """What is told where nothing is wrong but that others were there at the same time."""
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return Problem(problems.OVERLOADED, "every database connection is in use", headers=RETRY_SOON)
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
    if isinstance(cause, RACES):
        text = "other requests changed the same at the same time, so nothing of this one was done"
        return Problem(problems.CONTENDED, text, headers=RETRY_SOON)
    return None


def _away(error: Exception) -> Problem:
    if isinstance(error, KeysUnavailable):
        log.error("bundle_keys_unavailable", problem=str(error))
        return Problem(problems.KEYS_UNAVAILABLE, "no bundle can be signed", headers=RETRY_SOON)
    log.error("database_unreachable", error=type(error).__name__)
    return Problem(problems.NOT_READY, "the database cannot be reached", headers=RETRY_SOON)


def _refused_by_framework(error: HTTPException) -> Problem:
    if isinstance(error, problems.Refused):
        return error.problem
    return problems.of_status(error.status_code, str(error.detail), error.headers)


def _invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    broken = next((one for one in errors if one["type"] == "json_invalid"), None)
    if broken is not None:
        place, why = broken["loc"][-1], broken["ctx"]["error"]
        return Problem(problems.UNREADABLE, f"the body is not JSON: {why} (character {place})")
    told = [field_problem(one) for one in errors[:MAX_ERRORS]]
    more = f"; {len(errors) - 1} more in errors" if len(errors) > 1 else ""
    return Problem(problems.INVALID, _sentence(errors[0]["type"], told[0]) + more, errors=told)


def _sentence(error_type: str, first: FieldProblem) -> str:
    place = first.where if first.field == first.where else f"{first.where} {first.field}"
    if error_type == OUR_SENTENCE:
        return f"{place}: {first.allowed}"
    shown_value = "is missing" if first.value is None else f"is {first.value}"
    return f"{place} {shown_value}; allowed is {first.allowed}"


def field_problem(error: Mapping[str, Any]) -> FieldProblem:
    """One error of pydantic with its field, its value and what is allowed."""
    where, *path = [clean(str(part), MAX_VALUE) for part in error["loc"]]
    missing = error["type"] == "missing"
    ours = error["type"] == OUR_SENTENCE
    allowed = _allowed(error)
    return FieldProblem(
        field=".".join(path) or where,
        where=where,
        value=None if missing else _value(error.get("input")),
        allowed=allowed,
        message=allowed if ours else clean(str(error["msg"])),
    )


def _value(value: object) -> str:
    if value in ([], ()):
        return "an empty list"
    return clean(value, MAX_VALUE) if isinstance(value, str) else shown(value)


def _allowed(error: Mapping[str, Any]) -> str:
    """What the field takes, in words, from the constraint that refused the value."""
    template = ALLOWED.get(error["type"])
    if template is None:
        return clean(str(error["msg"]))
    return template.format(**error.get("ctx", {}))
