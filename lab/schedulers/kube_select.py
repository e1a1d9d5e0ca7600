"""Field and label selectors, as a list or a watch carries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from lab.schedulers.kube_store import Object

Test = Callable[[Object], bool]


def selector_of(request: Request) -> Test:
    """Whether an object is among those that a request asks for: its namespace, fields and labels."""
    namespace = request.path_params.get("namespace")
    fields = terms(request.query_params.get("fieldSelector", ""))
    labels = terms(request.query_params.get("labelSelector", ""))

    def chosen(found: Object) -> bool:
        if namespace is not None and found["metadata"].get("namespace") != namespace:
            return False
        right_fields = all((_field(found, name) == value) is same for name, value, same in fields)
        carried = found["metadata"].get("labels") or {}
        return right_fields and all((carried.get(name, "") == value) is same for name, value, same in labels)

    return chosen


def terms(text: str) -> list[tuple[str, str, bool]]:
    """Name, value and whether they must be the same, of each part such as `a=b`, `a==b` or `a!=b`."""
    found = []
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("!=" if "!=" in part else "=")
        found.append((name, value.removeprefix("="), "!=" not in part))
    return found


def _field(found: Any, path: str) -> str:
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return str(found or "")
