"""When the work has to be gone: the provider's deadline on the steady clock, and the file that tells it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from agent.clock import Clock, ProviderClock
from agent.files import Writer, write_atomic
from wire.notices import Notice

# What is kept back from the workload for the verification and the report.
RESERVE_SECONDS = 3
READABLE = 0o644
# A clock that is right may still be read a moment before the notice was issued, and is told to a second.
TOLERANCE = timedelta(seconds=2)


class DrainDeadline:
    """A moment on the steady clock. It only ever comes nearer."""

    def __init__(self, clock: Clock, ends_at: float) -> None:
        self._clock = clock
        self.ends_at = ends_at

    def remaining_seconds(self) -> float:
        return self.ends_at - self._clock.boot()

    def tighten(self, ends_at: float) -> bool:
        """Take an earlier moment; a later one changes nothing and gives False."""
        if ends_at >= self.ends_at:
            return False
        self.ends_at = ends_at
        return True


def first_sight(deadline: datetime, issued_at: datetime, clock: Clock, provider: ProviderClock) -> float:
    """When it is over, on the steady clock: the earliest that any clock says which can be believed."""
    boot = clock.boot()
    steady = boot + (deadline - issued_at).total_seconds()
    now = time_for(deadline, issued_at, clock, provider)
    return steady if now is None else min(steady, boot + (deadline - now).total_seconds())


def time_for(
    deadline: datetime, issued_at: datetime, clock: Clock, provider: ProviderClock
) -> datetime | None:
    """The time by the clock that can be believed about a notice: the provider's as a rule, None if nobody's.

    Where it says that the notice is over and the wall clock says that it stands, the wall clock and the
    notice are two against one: a metadata service that is ahead must not end all drains, or stop them.
    """
    told, wall = provider.now(), _plausible_wall(deadline, issued_at, clock)
    is_over = told is None or told > deadline + TOLERANCE
    return wall if is_over and wall is not None else told


def after_reboot(
    deadline: datetime, issued_at: datetime, remaining_seconds: float, clock: Clock, provider: ProviderClock
) -> float:
    """The same for a drain of before the machine's last start, when `remaining_seconds` were left."""
    return min(clock.boot() + remaining_seconds, first_sight(deadline, issued_at, clock, provider))


def workload_budget(budget_seconds: int, remaining_seconds: float) -> int:
    """How long the work may take, in whole seconds: at least one, since a grace is never below zero."""
    return max(1, min(budget_seconds, int(remaining_seconds - RESERVE_SECONDS)))


class DeadlineFile:
    """The file that tells workloads on this node when they have to be gone; there is none without a drain."""

    def __init__(self, path: Path, writer: Writer, clock: Clock) -> None:
        self._path, self._writer, self._clock = path, writer, clock

    async def write(self, notice: Notice, deadline: DrainDeadline) -> None:
        content = deadline_text(notice, deadline, self._clock)
        await self._writer.run(self._path.name, partial(_publish, self._path, content))

    async def remove(self) -> None:
        await self._writer.run(self._path.name, partial(self._path.unlink, missing_ok=True))


def deadline_text(notice: Notice, deadline: DrainDeadline, clock: Clock) -> bytes:
    """What workloads read: the provider's moment, and the same on both of the node's own clocks."""
    ends_at = clock.wall() + timedelta(seconds=deadline.remaining_seconds())
    said: dict[str, Any] = {
        "noticeId": str(notice.notice_id),
        "kind": str(notice.kind),
        "cause": str(notice.cause),
        "deadline": _text(notice.deadline) if notice.deadline else None,
        "endsAt": _text(ends_at),
        "endsAtBootSeconds": round(deadline.ends_at, 3),
    }
    return json.dumps(said).encode() + b"\n"


def _publish(path: Path, content: bytes) -> None:
    write_atomic(path, content, mode=READABLE, durable=False)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plausible_wall(deadline: datetime, issued_at: datetime, clock: Clock) -> datetime | None:
    """The wall clock where it fits the notice; one that is hours off would end the drain at once."""
    wall = clock.wall()
    return wall if issued_at - TOLERANCE <= wall <= deadline else None
