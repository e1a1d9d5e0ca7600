"""Stores of tests: in memory, and one in which every call can be the last."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

from clients.checkpoint import Checkpoints, Clock, Keep, MissingError, Store, StoreDownError


class ManualClock(Clock):
    """Stands still until it is told otherwise; sleeping moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def steady(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class MemoryStore:
    """A store that knows conditions, or (`conditional` false) takes no notice of them."""

    def __init__(self, *, conditional: bool = True) -> None:
        self.objects: dict[str, bytes] = {}
        self._conditional = conditional
        # Keys that listings do not show yet.
        self.unlisted: set[str] = set()
        self.lags = False

    def put(self, key: str, body: bytes) -> None:
        if self.lags and key not in self.objects:
            self.unlisted.add(key)
        self.objects[key] = body

    def put_new(self, key: str, body: bytes) -> bool:
        if self._conditional and key in self.objects:
            return False
        self.put(key, body)
        return True

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise MissingError(key)
        return self.objects[key]

    def size(self, key: str) -> int | None:
        return len(self.objects[key]) if key in self.objects else None

    def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix) and key not in self.unlisted)

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


class Crash(BaseException):
    """The process dies here. No handler of the client may catch it."""


class Fault:
    """What happens at the call with a number (or the first that writes a key), before or after its effect."""

    def __init__(self, at: int | str, before: bool, act: Callable[[], None]) -> None:
        self.at, self.before, self.act = at, before, act

    def is_due(self, call: int, written: str, *, before: bool) -> bool:
        due = self.at in written if isinstance(self.at, str) else self.at == call
        return due and self.before == before


class FaultyStore:
    """Passes calls on, and lets one fault happen at the call that it is set to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls = 0
        self.fault: Fault | None = None

    def arm(self, fault: Fault | None) -> None:
        self.calls, self.fault = 0, fault

    def put(self, key: str, body: bytes) -> None:
        self._begin(key)
        self._store.put(key, body)
        self._end(key)

    def put_new(self, key: str, body: bytes) -> bool:
        self._begin(key)
        answer = self._store.put_new(key, body)
        self._end(key)
        return answer

    def get(self, key: str) -> bytes:
        self._begin()
        answer = self._store.get(key)
        self._end()
        return answer

    def size(self, key: str) -> int | None:
        self._begin()
        answer = self._store.size(key)
        self._end()
        return answer

    def list(self, prefix: str) -> list[str]:
        self._begin()
        answer = self._store.list(prefix)
        self._end()
        return answer

    def delete(self, key: str) -> None:
        self._begin()
        self._store.delete(key)
        self._end()

    def _begin(self, written: str = "") -> None:
        self.calls += 1
        self._strike(written, before=True)

    def _end(self, written: str = "") -> None:
        self._strike(written, before=False)

    def _strike(self, written: str, *, before: bool) -> None:
        fault = self.fault
        if fault is not None and fault.is_due(self.calls, written, before=before):
            self.fault = None
            fault.act()


def crash() -> None:
    raise Crash


def go_down() -> None:
    raise StoreDownError("the store does not answer")


_writers = count(1)


def checkpoints(
    store: Store,
    *,
    clock: Clock | None = None,
    keep: Keep | None = None,
    wait: float = 0.0,
    part_bytes: int = 4,
    workload: str = "job-1",
) -> Checkpoints:
    """A writer with a name of its own, on a clock that stands still, without an agent."""
    dice = random.Random(next(_writers))
    return Checkpoints(
        store,
        workload,
        keep=keep,
        lease_wait_seconds=wait,
        part_bytes=part_bytes,
        agent_socket=None,
        deadline_file=None,
        clock=clock or ManualClock(),
        new_id=lambda: f"{dice.getrandbits(64):016x}",
    )
