"""The advisory notice that work is told of while it stands and begins no drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.deadline import DrainDeadline
from domain.drain import Memory
from wire.notices import Notice


class Noted:
    """At most one at a time: of several that stand, the one that comes true first."""

    def __init__(self, announce: Callable[[Notice | None, DrainDeadline | None], None]) -> None:
        """`announce` is told the notice and its deadline, and None when it is over."""
        self._announce = announce
        self._notice: Notice | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self, notice: Notice, deadline: DrainDeadline) -> None:
        """Tell of it, unless as near a one is told already: in the metadata it is read again and again."""
        remaining = deadline.remaining_seconds()
        if remaining <= 0 or not self._is_nearer(notice):
            return
        self.drop()
        self._notice = notice
        self._announce(notice, deadline)
        self._timer = asyncio.get_running_loop().call_later(remaining, self._over)

    def review(self, memory: Memory) -> None:
        """Tell that it is over where it stands no longer."""
        if self._notice is not None and not _stands(self._notice, memory):
            self._over()

    def drop(self) -> None:
        """Forget it, and tell nothing: something else is told instead."""
        if self._timer is not None:
            self._timer.cancel()
        self._notice, self._timer = None, None

    def _over(self) -> None:
        self.drop()
        self._announce(None, None)

    def _is_nearer(self, notice: Notice) -> bool:
        before = self._notice.deadline if self._notice is not None else None
        return before is None or (notice.deadline is not None and notice.deadline < before)


def _stands(notice: Notice, memory: Memory) -> bool:
    return any(notice.notice_id in one.ids for one in memory.standing)
