"""The drains of a node, one at a time: begun, hastened, withdrawn, and gone on with after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from agent.bounded import bounded, describe
from agent.clock import ProviderClock
from agent.deadline import DrainDeadline, first_sight
from agent.drain.executor import Executor, Surroundings, Systems
from agent.drain.noted import Noted
from agent.drain.ports import DrainDriver, OffersLocal
from agent.drain_record import WORK_IS_GONE, Drain, Mark
from agent.telling import of_notice, once
from domain.drain import Memory, end
from wire.bundle import DrainOrders, DrainPath
from wire.lifecycle import EventType
from wire.notices import Notice

UNCORDON_LIMIT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
MOST_MARKS = 64
PLAIN = str(DrainPath.PLAIN)
log = logging.getLogger("sco.agent")


class Drains:
    """Holds the drain under way. What it is told here is in force at once and on disk a moment later."""

    def __init__(
        self,
        around: Surroundings,
        provider: ProviderClock,
        driver_for: Callable[[DrainPath], DrainDriver],
        plain: Callable[[], DrainDriver],
        announce: Callable[[Notice | None, DrainDeadline | None], None],
    ) -> None:
        """Both make a new driver for each drain. Whatever `driver_for` raises, the plain one is used.

        `announce` is told the notice in force and its deadline, and None when there is no drain any more.
        """
        self._around, self._kept, self._provider = around, around.kept, provider
        self._driver_for, self._plain, self._announce = driver_for, plain, announce
        self._deadline: DrainDeadline | None = None
        self._began_timed = False
        self._run: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._prepared: tuple[DrainPath, Systems] | None = None
        self._complaint = ""
        self._used: dict[str, Systems] = {}
        self._to_uncordon = asyncio.Event()
        self._noted = Noted(announce)

    @property
    def memory(self) -> Memory:
        return self._kept.saved.memory

    @property
    def deadline(self) -> DrainDeadline | None:
        """That of the drain under way."""
        return self._deadline

    @property
    def current(self) -> Drain | None:
        return self._kept.saved.drain

    def prepare(self, path: DrainPath) -> Systems:
        """What the next drain will use, made ahead of it: loading a client takes longer than a signal may."""
        if self._prepared is not None and self._prepared[0] is path:
            return self._prepared[1]
        try:
            driver = self._driver_for(path)
        except Exception as error:
            # Not kept: what is missing, such as the node's own key, may be there when the drain begins.
            self._complain(f"path {path} cannot be used: {describe(error)}; processes are signalled directly")
            driver = self._plain()
            return Systems(driver, driver)
        local = driver.local() if isinstance(driver, OffersLocal) else self._plain()
        systems = Systems(driver, driver if driver.name == local.name == PLAIN else local)
        self._prepared = (path, systems)
        return systems

    def driver(self, path: DrainPath) -> DrainDriver:
        """That of the drain under way, else what the next would use."""
        used = self._used.get(self.current.owner) if self.current is not None else None
        return (used or self.prepare(path)).driver

    def resume(self) -> None:
        """Go on with what is kept: the drain under way, and marks to be taken back."""
        drain = self.current
        if drain is not None:
            log.warning("going on with the drain of notice %s, phase %s", drain.notice.notice_id, drain.phase)
            self._start(drain)
            # A restart of the machine took the file, and a kill may have come before its last writing.
            self._tell_work()
        else:
            # A kill may have come after the last one's end and before its file was taken away.
            self._later(self._around.file.remove())
        if self._kept.saved.to_uncordon:
            self._to_uncordon.set()

    def remember(self, memory: Memory) -> None:
        """Keep what was heard where it changes no drain."""
        self._kept.change(memory=memory)
        self._later(self._kept.save())
        self._noted.review(memory)

    def note(self, notice: Notice) -> None:
        """Let the work know of an advisory notice that begins no drain, while it stands."""
        if self.current is None:
            self._noted.take(notice, DrainDeadline(self._around.clock, self._ends_at(notice)))

    def begin(
        self, notice: Notice, orders: DrainOrders, memory: Memory, *, heard_by: str | None = None
    ) -> None:
        """Begin a drain. Returns at once; the drain runs by itself. One before it is over."""
        if self.current is not None:
            self._kept.change(to_uncordon=self._marks())
            self._stop()
        boot = self._around.clock.boot()
        drain = Drain(
            notice=notice,
            orders=orders,
            owner=f"sco-{notice.notice_id}",
            heard_by=heard_by,
            heard_at=boot,
            ends_at=self._ends_at(notice, memory.deadline),
        )
        log.warning("notice %s: draining, %.1f s left", notice.notice_id, drain.ends_at - boot)
        self._kept.change(memory=memory, drain=drain)
        self._start(drain)

    def hasten(self, notice: Notice, memory: Memory, *, tell: bool, heard_by: str | None = None) -> None:
        """Another notice joins the drain under way; it may bring its deadline nearer.

        Where its work has ended already, what came since is drained anew: it was never told.
        """
        drain = self.current
        if drain is not None and drain.phase in WORK_IS_GONE and not _is_twin(notice, memory):
            self.begin(notice, drain.orders, memory, heard_by=heard_by)
            # That of the first still stands, and was heard when it was fresh.
            self.tighten(drain.ends_at)
            return
        self._kept.change(memory=memory)
        if tell:
            self._kept.advance(joined=notice)
        self.tighten(self._ends_at(notice))
        if tell:
            fields = of_notice(notice) | {"event_id": once(notice, EventType.NOTICE)}
            self._around.record.tell(EventType.NOTICE, path=heard_by, **fields)
            self._announce(self._kept.saved.in_force, self._deadline)
            self._tell_work()
        self._later(self._kept.save())

    def clock_was_measured(self) -> None:
        """The provider's time is known (better): the deadline may be nearer than was thought.

        A drain that began by the provider's time and is not over by the steady clock is not over by a clock
        that was set since.
        """
        if self.current is None:
            return
        ends_at = self._ends_at(self._kept.saved.in_force)
        if not self._began_timed or ends_at > self._around.clock.boot():
            self.tighten(ends_at)

    def tighten(self, ends_at: float) -> None:
        """Bring the deadline of the drain under way nearer; a later one changes nothing."""
        if self._deadline is None or not self._deadline.tighten(ends_at):
            return
        self._kept.advance(ends_at=ends_at)
        self._tell_work()

    def withdraw(self, withdrawal: Notice, memory: Memory) -> None:
        """End the drain under way and let the node take work again."""
        drain = self.current
        log.warning("notice %s is withdrawn: the drain ends", withdrawal.withdraws)
        self._close(memory)
        if drain is not None:
            self._around.metrics.drains.labels("withdrawn").inc()
            fields = of_notice(drain.notice) | {"event_id": once(drain.notice, EventType.WITHDRAWN)}
            self._around.record.tell(EventType.WITHDRAWN, detail=f"in phase {drain.phase}", **fields)

    async def run_uncordoning(self) -> None:
        """Take back what marks are left, until none is. While a drain runs nobody opens its node."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._to_uncordon.wait()
            self._to_uncordon.clear()
            if self.current is not None:
                continue
            marks = self._kept.saved.to_uncordon
            done = {mark for mark in marks if await self._uncordon(mark)}
            left = tuple(mark for mark in self._kept.saved.to_uncordon if mark not in done)
            self._kept.change(to_uncordon=left)
            if done:
                pause = FIRST_PAUSE_SECONDS
                await self._kept.save()
            if left:
                self._to_uncordon.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def close(self) -> None:
        """Stop without ending the drain: the next start goes on with it."""
        self._noted.drop()
        tasks = [task for task in (self._run, *self._background) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            log.error("%s", text)

    def _start(self, drain: Drain) -> None:
        systems = self._used[drain.owner] = self.prepare(drain.orders.path)
        self._prepared = None
        self._began_timed = self._provider.now() is not None
        self._deadline = DrainDeadline(self._around.clock, drain.ends_at)
        self._around.metrics.draining.set(1)
        self._noted.drop()
        self._announce(self._kept.saved.in_force, self._deadline)
        executor = Executor(self._around, systems, self._deadline)
        self._run = asyncio.get_running_loop().create_task(self._through(executor))

    async def _through(self, executor: Executor) -> None:
        """Run a drain to its end; one that fails is gone on with from the phase that it had reached."""
        while True:
            try:
                await executor.run()
                break
            except Exception as error:
                log.exception("the drain failed and is gone on with: %s", describe(error))
                await asyncio.sleep(FIRST_PAUSE_SECONDS)
        log.warning("the node outlived its deadline: it takes work again")
        self._run = None
        self._close(end(self.memory))

    def _close(self, memory: Memory) -> None:
        self._stop()
        self._announce(None, None)
        self._around.metrics.draining.set(0)
        self._kept.change(memory=memory, drain=None, to_uncordon=self._marks())
        self._later(self._kept.save())
        self._later(self._around.file.remove())
        self._to_uncordon.set()

    def _stop(self) -> None:
        if self._run is not None:
            self._run.cancel()
        self._run, self._deadline = None, None

    def _marks(self) -> tuple[Mark, ...]:
        """Those that are to be taken back once no drain runs, that of the drain under way among them."""
        drain, owed = self.current, self._kept.saved.to_uncordon
        return (*owed, Mark(drain.owner, drain.orders.path))[-MOST_MARKS:] if drain is not None else owed

    def _tell_work(self) -> None:
        if self._deadline is not None:
            self._later(self._around.file.write(self._kept.saved.in_force, self._deadline))

    async def _uncordon(self, mark: Mark) -> bool:
        """Those who marked the node take the mark back; after a restart, others who know its owner."""
        systems = self._used.get(mark.owner) or self.prepare(mark.path)
        try:
            for driver in dict.fromkeys(systems):
                if self.current is not None:
                    return False
                await bounded(driver.uncordon(mark.owner), UNCORDON_LIMIT_SECONDS)
        except Exception as error:
            log.warning("the mark of %s is not taken back yet: %s", mark.owner, describe(error))
            return False
        self._used.pop(mark.owner, None)
        return True

    def _ends_at(self, notice: Notice, deadline: datetime | None = None) -> float:
        """When a notice comes true, on the steady clock; another one's deadline may come before its own."""
        until = deadline or notice.deadline
        assert until is not None, "only notices with a deadline begin or join a drain"
        return first_sight(until, notice.issued_at, self._around.clock, self._provider)

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _is_twin(notice: Notice, memory: Memory) -> bool:
    """Whether it says once more what another said under another id."""
    return any(notice.notice_id in one.ids[1:] for one in memory.standing)
