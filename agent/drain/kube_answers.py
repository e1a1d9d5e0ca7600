"""What a Kubernetes API answers, read into what a drain has to know: objects, pages, changes, refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from agent.drain.kube_pods import Pod, read_pod
from agent.drain.ports import SchedulerUnreachable

# The API keeps no object that is larger than half of this.
MAX_CHANGE = 4 * 1024 * 1024
MAX_DETAIL = 200
CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
ERROR = "ERROR"
T = TypeVar("T")


class Missing(Exception):
    """The object is not there (any more)."""


class Changed(Exception):
    """The object is no longer what it was when it was read."""


class Blocked(Exception):
    """A disruption budget, or the API's own throttle, says not yet."""


class NodeMarks(NamedTuple):
    """What a node carries, and the version of it that was read."""

    version: str
    taints: tuple[Mapping[str, Any], ...]
    annotations: Mapping[str, str]


class Change(NamedTuple):
    """One line of a watch: the version that it leads to, and the pod if it is about one."""

    kind: str
    version: str
    pod: Pod | None


@contextmanager
def understood() -> Iterator[None]:
    """Turn what asking and reading may raise into SchedulerUnreachable."""
    try:
        yield
    except (OSError, ValueError) as error:
        text = str(error) or "no answer in time"
        raise SchedulerUnreachable(f"{type(error).__name__}: {text}"[:MAX_DETAIL]) from error


def refusal(status: int, said: str) -> Exception:
    """Missing, Changed, Blocked or SchedulerUnreachable, for an answer that is an error."""
    meanings: dict[int, type[Exception]] = {
        HTTPStatus.NOT_FOUND: Missing,
        HTTPStatus.GONE: Changed,
        HTTPStatus.CONFLICT: Changed,
        HTTPStatus.TOO_MANY_REQUESTS: Blocked,
    }
    return meanings.get(status, SchedulerUnreachable)(f"{status}: {said}"[:MAX_DETAIL])


@contextmanager
def shaped() -> Iterator[None]:
    """Turn what reading may raise into ValueError: the answer is not what the API says that it answers."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"an answer of another shape ({type(error).__name__})") from error


def read_body(body: bytes | bytearray | str, read: Callable[[Any], T]) -> T:
    """What `read` makes of a body of JSON. Raises ValueError."""
    with shaped():
        return read(json.loads(body))


def said_in(body: bytes | bytearray) -> str:
    """The message of an error; what is no answer of the API (a proxy's, say) is shown as it begins."""
    try:
        return read_body(body, lambda raw: str(raw["message"]))
    except ValueError:
        return " ".join(body[:MAX_DETAIL].decode(errors="replace").split())


def read_marks(raw: Any) -> NodeMarks:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    taints = tuple(dict(taint) for taint in spec.get("taints") or ())
    return NodeMarks(str(meta["resourceVersion"]), taints, dict(meta.get("annotations") or {}))


def read_change(raw: Any) -> Change:
    """One line of a watch. Raises what an error among them means, such as Changed for a version too old."""
    kind, told = str(raw["type"]), raw["object"]
    if kind == ERROR:
        raise refusal(int(told["code"]), str(told.get("message", "")))
    pod = read_pod(told) if kind in CHANGES else None
    return Change(kind, str(told["metadata"]["resourceVersion"]), pod)


async def lines(parts: AsyncIterator[bytes], most: int = MAX_CHANGE) -> AsyncIterator[bytes]:
    """The lines in what arrives. ValueError when one is longer than `most` bytes; half a line is none."""
    begun = bytearray()
    async for part in parts:
        first, *others = part.split(b"\n")
        begun += first
        for other in others:
            if begun:
                yield bytes(begun)
            begun = bytearray(other)
        if len(begun) > most:
            raise ValueError(f"a change of more than {most} bytes")
