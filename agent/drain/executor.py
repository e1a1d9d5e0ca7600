"""One drain, from the notice to the last of its work: every step bounded, and on disk before the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from agent.bounded import bounded, describe
from agent.clock import Clock
from agent.deadline import DeadlineFile, DrainDeadline, workload_budget
from agent.drain.account import Account, names
from agent.drain.plain import strike
from agent.drain.ports import DrainDriver, Record, SaysWhatItTold
from agent.drain_record import Drain, DrainRecord, Phase, Route
from agent.metrics import AgentMetrics
from agent.verifier import EDGE_SECONDS, Left, Verifier, edge
from wire.bundle import DrainOrders, DrainSignal
from wire.lifecycle import EventType

SIGNAL_LIMIT_SECONDS = 1.0
FORCE_LIMIT_SECONDS = 1.0
FINISH_LIMIT_SECONDS = 5.0
RETRY_SECONDS = 1.0
# How often is looked which notices stand while an empty node waits for its end.
STANDING_SECONDS = 5.0
# How long our mark on the node outlives the deadline where nobody takes it back.
MARK_OUTLIVES = timedelta(minutes=10)
# A signal that a kill of the agent may have swallowed is sent again: work that was never told loses more than
# work that is told twice. Not so INT, which by custom means "at once" the second time; evictions have none.
WITHOUT_SIGNALS = frozenset({"kubernetes", "spark"})
Step = Callable[[], Awaitable[object]]
log = logging.getLogger("sco.agent")


class Limits(NamedTuple):
    """Seconds: how long a scheduler may take, and when after its deadline a node is taken to live on."""

    scheduler_seconds: float = 0.8
    lives_on_seconds: float = 120.0


class Surroundings(NamedTuple):
    """What every drain of this node works with."""

    kept: DrainRecord
    record: Record
    file: DeadlineFile
    clock: Clock
    now: Callable[[], datetime]
    metrics: AgentMetrics
    limits: Limits = Limits()


class Systems(NamedTuple):
    """Who takes the work off the node in one drain, and who does where that one does not answer."""

    driver: DrainDriver
    local: DrainDriver


class Executor:
    """Runs the drain that is kept, from the phase that it has reached."""

    def __init__(self, around: Surroundings, systems: Systems, deadline: DrainDeadline) -> None:
        self._around, self._kept = around, around.kept
        self._driver, self._local = systems
        self._deadline = deadline
        self._account = Account(around, systems, deadline)
        self._verifier = Verifier(self._account.work_ended)
        self._cordoning: asyncio.Task[None] | None = None
        self._signalling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Signal, see the work end, say what came of it. Ends when the node outlives its deadline."""
        self._account.repeat()
        if self._drain.route is Route.LOCAL and self._driver is not self._local:
            # After a restart: whom the local path has passed by is still to close the node.
            self._cordoning = asyncio.ensure_future(self._cordon_later())
        try:
            if self._drain.phase in (Phase.HEARD, Phase.SIGNALLING):
                await self._reach_the_work()
            elif self._drain.phase is Phase.SIGNALLED:
                await self._signal_again()
            if self._drain.phase in (Phase.SIGNALLED, Phase.OVERRUN):
                await self._see_it_end()
            if self._drain.phase is not Phase.FINISHED:
                await self._finish()
            await self._outlive()
        finally:
            for task in (self._cordoning, self._signalling):
                if task is not None:
                    task.cancel()

    @property
    def _drain(self) -> Drain:
        drain = self._kept.saved.drain
        assert drain is not None, "an executor runs while a drain is kept"
        return drain

    async def _reach_the_work(self) -> None:
        repeated = self._drain.phase is Phase.SIGNALLING
        self._account.tell(EventType.NOTICE, seconds_since_notice=0.0, path=self._drain.heard_by)
        writing: list[Step] = [partial(self._around.file.write, self._kept.saved.in_force, self._deadline)]
        if not repeated:
            asking: list[Step] = []
            if not isinstance(self._driver, SaysWhatItTold):
                asking.append(
                    partial(self._verifier.note, self._driver, self._around.limits.scheduler_seconds)
                )
            if self._driver is not self._local:
                # A scheduler may take its time, in which work and a restart must already know of the drain.
                asking += [self._kept.save, *writing]
                writing = []
            route, *_ = await asyncio.gather(self._cordon(), *(step() for step in asking))
            self._kept.advance(phase=Phase.SIGNALLING, route=route)
            writing.append(self._kept.save)
        await asyncio.gather(*(step() for step in writing))
        if not repeated or self._harmless_twice():
            await self._signal_somebody()
            # A signal that failed found nothing, which does not mean that nothing is there.
            if isinstance(self._driver, SaysWhatItTold) and (told := self._driver.told()):
                await self._verifier.saw(told, self._driver)
        self._around.metrics.to_signal.observe(self._account.since_notice())
        self._account.reach(Phase.SIGNALLED, EventType.SIGNALLED)
        await self._kept.save()

    async def _cordon(self) -> Route:
        try:
            await bounded(self._mark(), self._around.limits.scheduler_seconds)
        except Exception as error:
            log.warning(
                "%s did not close the node: %s; the local path is used", self._driver.name, describe(error)
            )
            self._around.metrics.local_paths.inc()
            self._cordoning = asyncio.ensure_future(self._cordon_later())
            return Route.LOCAL
        return Route.DRIVER

    async def _cordon_later(self) -> None:
        """A scheduler that comes back must not send new work to a node that is going."""
        while self._deadline.remaining_seconds() > 0:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await bounded(self._mark(), FINISH_LIMIT_SECONDS)
            except Exception as error:
                log.info("%s still does not close the node: %s", self._driver.name, describe(error))
            else:
                return

    async def _mark(self) -> None:
        remaining = timedelta(seconds=max(0.0, self._deadline.remaining_seconds()))
        await self._driver.cordon(self._drain.owner, self._around.clock.wall() + remaining + MARK_OUTLIVES)

    async def _signal_somebody(self) -> None:
        """Again while nobody could be told, since nobody could say what runs: it is not told then."""
        while not await self._signal():
            if self._deadline.remaining_seconds() <= EDGE_SECONDS + RETRY_SECONDS:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _signal(self) -> bool:
        """Whether the work was told; False when nobody knows of any and some may be there."""
        orders = self._cut_orders()
        if self._drain.route is Route.DRIVER:
            try:
                await bounded(self._driver.signal(orders, self._deadline), SIGNAL_LIMIT_SECONDS)
            except Exception as error:
                log.warning(
                    "%s did not signal: %s; the local path is used", self._driver.name, describe(error)
                )
                self._around.metrics.local_paths.inc()
                self._kept.advance(route=Route.LOCAL)
                await self._kept.save()
            else:
                return True
        try:
            await bounded(self._local.signal(orders, self._deadline), SIGNAL_LIMIT_SECONDS)
            return True
        except Exception as error:
            log.warning(
                "the local path did not signal: %s; processes are signalled directly", describe(error)
            )
            left = await self._verifier.look(self._local, self._driver)
            strike(left.work or (), orders.signal)
            return left.work is not None

    async def _signal_again(self) -> None:
        """After a restart: only a driver that has signalled asks again for what a budget holds back."""
        again = self._drain.route is Route.DRIVER and self._driver.signals_again and self._harmless_twice()
        if again and not await self._try_signal():
            self._signalling = asyncio.ensure_future(self._keep_signalling())

    async def _keep_signalling(self) -> None:
        while self._deadline.remaining_seconds() > 0:
            await asyncio.sleep(RETRY_SECONDS)
            if await self._try_signal():
                return

    async def _try_signal(self) -> bool:
        # What the work has used of its budget stays used.
        orders = self._cut_orders(self._account.since_notice())
        return await _try(self._driver.signal(orders, self._deadline), SIGNAL_LIMIT_SECONDS)

    async def _see_it_end(self) -> None:
        asked, instead = self._askable()
        if self._drain.phase is Phase.SIGNALLED:
            until = edge(self._deadline.remaining_seconds())
            left = await self._verifier.until_gone(asked, instead, self._deadline, until)
            if left.work == ():
                self._around.metrics.drains.labels("drained").inc()
                self._account.reach(Phase.DRAINED, EventType.DRAINED)
                await self._kept.save()
                return
            self._around.metrics.drains.labels("overrun").inc()
            self._account.reach(Phase.OVERRUN, EventType.OVERRUN, f"left: {names(left)}")
            await self._force(left)
            await self._kept.save()
        await self._force_the_rest(asked, instead)

    async def _force_the_rest(self, asked: DrainDriver, instead: DrainDriver) -> None:
        """What was forced may need a moment, and what it left behind is forced too."""
        while self._deadline.remaining_seconds() > -self._around.limits.lives_on_seconds:
            left = await self._verifier.look(asked, instead)
            if left.work == ():
                return
            await self._force(left)
            await asyncio.sleep(RETRY_SECONDS)

    async def _force(self, left: Left) -> None:
        try:
            await bounded(left.seen_by.force(left.work or ()), FORCE_LIMIT_SECONDS)
        except Exception as error:
            log.warning("%s did not force the rest: %s", left.seen_by.name, describe(error))
            rest = await self._verifier.look(self._local, self._driver)
            if rest.seen_by is not left.seen_by:
                await _try(self._local.force(rest.work or ()), FORCE_LIMIT_SECONDS)

    async def _finish(self) -> None:
        """Tried until it is done or the node is gone: without it, work may not resume elsewhere."""
        while not await _try(self._driver.finish(self._cut_orders()), FINISH_LIMIT_SECONDS):
            if self._deadline.remaining_seconds() <= 0:
                break
            await asyncio.sleep(RETRY_SECONDS)
        self._kept.advance(phase=Phase.FINISHED)
        await self._kept.save()

    async def _outlive(self) -> None:
        """Wait until none of the notices that stand can still come true."""
        while True:
            left = self._seconds_to_live_on()
            if left <= 0:
                return
            await asyncio.sleep(min(left, STANDING_SECONDS))

    def _seconds_to_live_on(self) -> float:
        memory = self._kept.saved.memory
        later = (
            (memory.latest - memory.deadline).total_seconds() if memory.latest and memory.deadline else 0.0
        )
        return self._deadline.remaining_seconds() + later + self._around.limits.lives_on_seconds

    def _askable(self) -> tuple[DrainDriver, DrainDriver]:
        local_first = self._drain.route is Route.LOCAL
        return (self._local, self._driver) if local_first else (self._driver, self._local)

    def _harmless_twice(self) -> bool:
        by_signal = self._drain.route is Route.LOCAL or self._driver.name not in WITHOUT_SIGNALS
        return not by_signal or self._drain.orders.signal is not DrainSignal.INT

    def _cut_orders(self, used_seconds: float = 0.0) -> DrainOrders:
        orders = self._drain.orders
        budget = workload_budget(
            orders.budget_seconds - int(used_seconds), self._deadline.remaining_seconds()
        )
        return orders.model_copy(update={"budget_seconds": budget})


async def _try(call: Any, seconds: float) -> bool:
    try:
        await bounded(call, seconds)
    except Exception as error:
        log.warning("%s", describe(error))
        return False
    return True
