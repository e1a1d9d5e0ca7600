"""What a stand-in for a Kubernetes API can be told to do wrong."""

from __future__ import annotations

import asyncio
import re
from enum import StrEnum
from typing import NamedTuple

from lab.schedulers.kube_store import Problem


class Lie(StrEnum):
    """An answer that says it was done, while nothing happens or not all is told."""

    EVICT = "evict"
    DELETE = "delete"
    LIST = "list"


class Fault(NamedTuple):
    """Requests whose `METHOD /path` matches wait, or get an error, so many times (None: until cleared)."""

    matches: str
    code: int | None = None
    hang_seconds: float = 0.0
    times: int | None = None


class Faults:
    """The faults in force. They are set from outside, between two requests."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.lies: set[Lie] = set()

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()
        self.lies.clear()

    async def meet(self, method: str, path: str) -> None:
        """Wait or raise as the first fault that matches says."""
        for number, fault in enumerate(self._faults):
            if re.search(fault.matches, f"{method} {path}") is None:
                continue
            if fault.times is not None:
                self._count(number, fault, fault.times)
            if fault.hang_seconds:
                await asyncio.sleep(fault.hang_seconds)
            if fault.code is not None:
                raise Problem(fault.code, "Faulty", f"a fault answers {fault.code}")
            return

    def _count(self, number: int, fault: Fault, times: int) -> None:
        if times > 1:
            self._faults[number] = fault._replace(times=times - 1)
        else:
            del self._faults[number]
