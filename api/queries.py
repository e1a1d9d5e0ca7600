"""Names in a query that a route does not know, or that stand twice: refused, since nobody would notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api.gate import SCREENS
from api.sign_in.needs import is_open


async def refuse_unknown_query(request: Request) -> None:
    """Refuse a request whose query has a name twice, or one that its route does not know; for every route.

    Screens and open paths are asked by browsers and by those who watch over us, and are left alone.
    """
    asked = request.query_params
    route = request.scope["route"]
    if not asked or is_open(route.path) or route.path.startswith(SCREENS) or not isinstance(route, APIRoute):
        return
    known = _known(route)
    errors = [
        {"type": "extra_forbidden", "loc": ("query", name), "msg": "no such parameter", "input": asked[name]}
        for name in asked
        if known is not None and name not in known
    ]
    errors += [
        {"type": "repeated", "loc": ("query", name), "msg": "given more than once", "input": ", ".join(given)}
        for name in asked
        if len(given := asked.getlist(name)) > 1
    ]
    if errors:
        raise RequestValidationError(errors)


def _known(route: APIRoute) -> frozenset[str] | None:
    """The names that a route's query may have; None where a closed model reads it, which says it itself."""
    names = set()
    for field in _fields(route.dependant):
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return None
        names.add(field.alias)
    return frozenset(names)


def _fields(dependant: Dependant) -> Iterator[Any]:
    yield from dependant.query_params
    for each in dependant.dependencies:
        yield from _fields(each)
