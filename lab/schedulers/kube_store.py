"""What a Kubernetes API remembers: nodes and pods with versions, and the changes that a watch follows."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]
Key = tuple[str, str]
# So many changes are kept for watches; one that asks for older ones has to list again.
KEPT_CHANGES = 500
FIRST_VERSION = 100


class Change(NamedTuple):
    version: int
    resource: str
    kind: str
    object: Object


class Problem(Exception):
    """An answer that is an error, as the API words it: status code, reason, message."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details

    def body(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
            "details": self.details,
        }


class Store:
    """Nodes and pods. Every write makes a new version of the object and of the whole."""

    def __init__(self) -> None:
        self.version = FIRST_VERSION
        self._objects: dict[str, dict[Key, Object]] = {"nodes": {}, "pods": {}}
        self._changes: list[Change] = []
        self._changed = asyncio.Event()
        self._uids = itertools.count(1)

    def new_uid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._uids):012x}"

    def add(self, resource: str, key: Key, body: Object) -> Object:
        if key in self._objects[resource]:
            raise Problem(409, "AlreadyExists", f'{resource} "{key[1]}" already exists')
        return self._write(resource, key, body, "ADDED")

    def find(self, resource: str, key: Key) -> Object:
        found = self._objects[resource].get(key)
        if found is None:
            raise Problem(404, "NotFound", f'{resource} "{key[1]}" not found', name=key[1], kind=resource)
        return copy.deepcopy(found)

    def replace(self, resource: str, key: Key, body: Object) -> Object:
        """Write an object; 409 when it carries another version than the one that is kept."""
        kept = self.find(resource, key)["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion", kept) != kept:
            raise Problem(
                409, "Conflict", "the object has been modified; apply your changes to the latest version"
            )
        return self._write(resource, key, body, "MODIFIED")

    def remove(self, resource: str, key: Key) -> None:
        body = self.find(resource, key)
        self._write(resource, key, body, "DELETED")

    def all(self, resource: str) -> Iterator[Object]:
        return (copy.deepcopy(kept) for kept in list(self._objects[resource].values()))

    def since(self, resource: str, version: int) -> list[Change]:
        """What changed after a version; 410 when that is further back than is kept."""
        if self._changes and version < self._changes[0].version - 1:
            oldest = self._changes[0].version
            raise Problem(410, "Expired", f"too old resource version: {version} ({oldest})")
        return [one for one in self._changes if one.version > version and one.resource == resource]

    def forget_changes(self) -> None:
        """As when the API compacts: only a watch that is up to date may go on."""
        self.version += 1
        self._changes = [Change(self.version, "", "COMPACTED", {})]

    async def wait(self, seconds: float) -> None:
        """Until something changes, or the time is over."""
        changed = self._changed
        try:
            await asyncio.wait_for(changed.wait(), seconds)
        except TimeoutError:
            return

    def _write(self, resource: str, key: Key, body: Object, kind: str) -> Object:
        self.version += 1
        kept = copy.deepcopy(body)
        kept["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self._objects[resource][key]
        else:
            self._objects[resource][key] = kept
        self._changes.append(Change(self.version, resource, kind, copy.deepcopy(kept)))
        del self._changes[:-KEPT_CHANGES]
        self._changed.set()
        self._changed = asyncio.Event()
        return copy.deepcopy(kept)
