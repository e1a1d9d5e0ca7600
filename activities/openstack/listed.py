"""Servers as Nova shows them: read, or refused when an answer must not be taken for the truth."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from activities.ports import ProviderError, ProviderErrorKind, Server
from domain.acquisition import ServerStatus

BATCH_KEY, POOL_KEY, WORKLOAD_KEY = "sco_batch", "sco_pool", "sco_workload"

_GONE = frozenset({"DELETED", "SOFT_DELETED"})
_CELL_DOWN = "UNKNOWN"
_STATUS = {
    "BUILD": ServerStatus.BUILDING,
    "REBUILD": ServerStatus.BUILDING,
    "ACTIVE": ServerStatus.ACTIVE,
    "REBOOT": ServerStatus.ACTIVE,
    "HARD_REBOOT": ServerStatus.ACTIVE,
    "MIGRATING": ServerStatus.ACTIVE,
    "PASSWORD": ServerStatus.ACTIVE,
    "ERROR": ServerStatus.ERROR,
}
_DELETING = frozenset({"deleting", "soft-deleting"})


def is_gone(region: str, shown: dict[str, Any]) -> bool:
    """Whether a server is deleted. UNAVAILABLE when its cell is down: then Nova cannot know.

    An incomplete answer must not pass for one: what is missing in it would count as gone.
    """
    if shown["status"] == _CELL_DOWN:
        raise ProviderError(
            ProviderErrorKind.UNAVAILABLE,
            f"{region}: the answer is incomplete: the cell of {shown['id']} is down",
        )
    return shown["status"] in _GONE


def read_tagged(region: str, shown: dict[str, Any], tag: str) -> Server | None:
    """One server of a list that was asked for by `tag`, None when it is deleted.

    UNKNOWN when it lacks the tag: the filter was ignored, and servers of others would count as ours.
    A deleted server may have lost its tags already.
    """
    if is_gone(region, shown):
        return None
    if tag not in shown["tags"]:
        raise ProviderError(
            ProviderErrorKind.UNKNOWN,
            f"{region}: the provider ignored the filter tags={tag}: it listed {shown['id']} without it",
        )
    return read_server(shown)


def read_server(shown: dict[str, Any]) -> Server:
    """One server that is not deleted; its tags come in order, which Nova's do not."""
    metadata = {str(key): str(value) for key, value in shown["metadata"].items()}
    status, fault = _status(shown)
    return Server(
        server_id=shown["id"],
        batch_key=metadata.get(BATCH_KEY),
        pool_id=metadata.get(POOL_KEY),
        workload_id=metadata.get(WORKLOAD_KEY),
        status=status,
        created_at=datetime.fromisoformat(shown["created"]),
        fault=fault,
        metadata=metadata,
        tags=tuple(sorted(shown["tags"])),
        name=shown["name"],
    )


def _status(shown: dict[str, Any]) -> tuple[ServerStatus, str | None]:
    """What a server is to us, and its fault. One that is stopped, paused or rescued runs no work."""
    if shown["OS-EXT-STS:task_state"] in _DELETING:
        return ServerStatus.DELETING, None
    known = _STATUS.get(shown["status"])
    if known is None:
        return ServerStatus.ERROR, f"the server is {shown['status']}: it exists and runs no work"
    return known, shown.get("fault", {}).get("message") if known is ServerStatus.ERROR else None
