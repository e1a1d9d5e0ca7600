"""What is told of a drain: each event once, also when it is told again after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.drain.endings import endings_of
from agent.drain.ports import Deadline, DrainDriver, Work
from agent.drain_record import Drain, Phase, Route, Told
from agent.telling import of_notice, once
from agent.verifier import Left
from wire.lifecycle import MAX_DETAIL, EventType

if TYPE_CHECKING:
    from agent.drain.executor import Surroundings, Systems

# How long an exit code is waited for; near the deadline, where every moment counts, not at all.
ENDING_SECONDS = 0.5
NO_TIME_SECONDS = 5.0
MOST_NAMED = 10


class Account:
    """Tells of the drain that is kept."""

    def __init__(self, around: Surroundings, systems: Systems, deadline: Deadline) -> None:
        self._around, self._kept = around, around.kept
        self._driver, self._local = systems
        self._deadline = deadline

    def tell(self, type: EventType, once_for: str = "", **fields: Any) -> None:
        """One event, with what all events of the drain say. `once_for` tells those of one type apart."""
        notice = self._drain.notice
        told = of_notice(notice) | fields | {"event_id": once(notice, type, once_for)}
        self._around.record.tell(type, **told)

    def reach(self, phase: Phase, type: EventType, detail: str = "") -> None:
        """Enter a phase, in memory, and tell of it."""
        told = Told(
            type,
            self._around.now(),
            self.since_notice(),
            self._deadline.remaining_seconds(),
            self._path(),
            detail[:MAX_DETAIL],
        )
        self._kept.advance(phase=phase, told=(*self._drain.told, told))
        self.tell(**told._asdict())

    def repeat(self) -> None:
        """Tell again what was told before a restart, which the spool may have lost."""
        for told in self._drain.told:
            self.tell(**told._asdict())

    async def work_ended(self, gone: Sequence[Work], seen_by: DrainDriver) -> None:
        """Tell of work that is gone, with its exit code where its system knows that."""
        since, spare = self.since_notice(), self._deadline.remaining_seconds()
        known = await endings_of(seen_by, gone, ENDING_SECONDS) if spare > NO_TIME_SECONDS else None
        codes = {(one.kind, one.name): one.exit_code for one in known or ()}
        for work in gone:
            detail = f"{work.kind} {work.name}"[:MAX_DETAIL]
            self.tell(
                EventType.WORK_ENDED,
                once_for=detail,
                detail=detail,
                seconds_since_notice=since,
                seconds_to_spare=spare,
                exit_code=codes.get((work.kind, work.name)),
            )

    def since_notice(self) -> float:
        return max(0.0, self._around.clock.boot() - self._drain.heard_at)

    @property
    def _drain(self) -> Drain:
        drain = self._kept.saved.drain
        assert drain is not None, "told of while it is kept"
        return drain

    def _path(self) -> str:
        drain = self._drain
        local = drain.route is Route.LOCAL and self._local is not self._driver
        return f"{self._driver.name}-local" if local else self._driver.name


def names(left: Left) -> str:
    """What is left, in words; no more of it than anybody reads."""
    if left.work is None:
        return f"nobody can say ({left.detail})"
    return ", ".join(f"{one.kind} {one.name} ({len(one.pids)} processes)" for one in left.work[:MOST_NAMED])
