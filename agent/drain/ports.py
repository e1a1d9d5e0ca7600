"""What a drain needs from others: a system that takes work off the node, a deadline, a record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

from wire.bundle import DrainOrders
from wire.lifecycle import EventType


class Work(NamedTuple):
    """What runs on the node and is ours to drain: a pod, a job, a unit or a cgroup, and its processes."""

    kind: str
    name: str
    pids: tuple[int, ...]


class Ending(NamedTuple):
    """How a piece of work ended, where that is known: its exit code, or below 0 the signal that ended it.

    `mark` tells this end from others of work with the same name, also after a restart of the agent.
    """

    kind: str
    name: str
    exit_code: int
    mark: str
    ended_at: datetime | None = None


class SchedulerUnreachable(Exception):
    """The system did not answer, or not usably: the work is signalled by the local path instead."""


class Deadline(Protocol):
    """When the instance ends, as the provider said it. It only ever comes nearer."""

    def remaining_seconds(self) -> float:
        """Seconds left; below zero when it is over."""
        ...


class DrainDriver(Protocol):
    """One system that takes work off this node.

    Every call is bounded by the caller and may be cancelled at any await; calling again must be safe.
    SchedulerUnreachable from any of them means that nothing can be said about what was done.
    """

    @property
    def name(self) -> str:
        """`kubernetes`, `spark`, `slurm` or `plain`."""
        ...

    @property
    def signals_again(self) -> bool:
        """Whether a new driver, after a restart, is to signal what an earlier one has signalled already.

        True where `left` also presses work that was held back, which it does only after `signal`.
        """
        ...

    async def cordon(self, owner: str, until: datetime) -> None:
        """Let no new work land here. The mark carries its owner and the moment it may be taken away."""
        ...

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        """Tell the work to end. `orders.budget_seconds` is already cut to what is left."""
        ...

    async def left(self) -> tuple[Work, ...]:
        """What still runs and is ours to drain."""
        ...

    async def force(self, work: Sequence[Work]) -> None:
        """End what did not end by itself, at the deadline's edge."""
        ...

    async def finish(self, orders: DrainOrders) -> None:
        """What remains to be said once the work has ended, such as that it may resume elsewhere."""
        ...

    async def uncordon(self, owner: str) -> None:
        """Take back the mark of this owner, and no other."""
        ...


@runtime_checkable
class OffersLocal(Protocol):
    """A driver that knows where its work's processes are, and so how to reach them without its system."""

    def local(self) -> DrainDriver: ...


@runtime_checkable
class SaysWhatItTold(Protocol):
    """A driver that has to find the work to signal it, so that nobody else needs to look before."""

    def told(self) -> tuple[Work, ...]:
        """What the last `signal` found, as it was then."""
        ...


@runtime_checkable
class TellsEndings(Protocol):
    """A driver whose system knows how work ended."""

    async def endings(self, of: Sequence[Work] = ()) -> tuple[Ending, ...]:
        """How these ended, or where none is named whatever ended here of late. What is not known is left out.

        SchedulerUnreachable when the system does not answer.
        """
        ...


class Record(Protocol):
    """Where is told what happened."""

    def tell(self, type: EventType, **fields: Any) -> None:
        """Keep one event. Fields are those of LifecycleEvent. Never raises and never waits."""
        ...
