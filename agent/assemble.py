"""The agent as a whole: each concern in a task of its own, so that none stops another."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.api import Api
from agent.board import NoticeBoard, NoticeState
from agent.bounded import bounded, describe, supervise
from agent.bundle import BundleStore
from agent.clock import Clock, ProviderClock, SystemClock
from agent.deadline import DeadlineFile, DrainDeadline
from agent.drain.choose import Drivers
from agent.drain.drains import Drains
from agent.drain.ending_watch import EndingWatch
from agent.drain.executor import Limits, Surroundings
from agent.drain_record import DrainRecord
from agent.files import Writer
from agent.identity import Identity
from agent.kept_counts import KeptCounts
from agent.listener import Listener
from agent.metadata import Laid, Metadata
from agent.metrics import AgentMetrics
from agent.selfcheck import Check, SelfCheck, is_ready, said
from agent.settings import AgentSettings
from agent.spool import Spool
from agent.spool_policy import Loss
from agent.systemd import keep_signing, notify
from agent.telling import Telling, of_notice
from agent.watcher import Poll, Push
from wire.lifecycle import EventType, LifecycleEvent
from wire.notices import Notice

if TYPE_CHECKING:
    from agent.bus import NodeBus
    from agent.socket import CheckpointReport, EndReport

SPOOL, CREDENTIALS, DEADLINE, SOCKET = "spool.db", "bus.creds", "deadline", "agent.sock"
# How long the sources may take to answer before systemd is told that work may land.
SETTLE_SECONDS = 2.0
SETTLE_STEP_SECONDS = 0.1
CHECK_SECONDS = 15.0
REFRESH_LIMIT_SECONDS = 20.0
log = logging.getLogger("sco.agent")


class Agent:
    """One node's agent. Several can live in one process, each with folders and an instance of its own."""

    def __init__(
        self,
        settings: AgentSettings,
        instance_id: str,
        clock: Clock | None = None,
        drivers: Drivers | None = None,
    ) -> None:
        """`drivers` are made from the settings where none are given."""
        self.settings, self.instance_id = settings, instance_id
        self.metrics = AgentMetrics()
        self.clock = clock or SystemClock()
        self.provider = ProviderClock(self.clock)
        self.writer = Writer(self._not_written)
        self.bundles = BundleStore(
            settings.state_dir, settings.boot_bundle, instance_id, self.writer, self.metrics
        )
        self.spool = Spool(settings.state_dir / SPOOL, self._gap)
        self.counts = KeptCounts(self.spool)
        self.metrics.registry.register(self.counts)
        self.telling = Telling(lambda: self.bundles.bundle, self.spool.append, self.clock, self.provider)
        self.kept = DrainRecord(
            settings.state_dir, settings.run_dir, self._not_written, self.clock, self.provider
        )
        self.api = Api(self.clock, self.provider)
        self.identity = Identity(
            settings.state_dir, instance_id, self.api, offer=self.bundles.offer, api_url=settings.api_url
        )
        self.board = NoticeBoard()
        self.drivers = drivers or Drivers(settings, instance_id)
        self._passing_on: set[asyncio.Task[None]] = set()
        self.drains = self._drains()
        self.endings = EndingWatch(
            instance_id, self.drains, lambda: self.bundles.orders.path, record=self.telling, clock=self.clock
        )
        self.listener = Listener(
            instance_id=instance_id,
            bundles=self.bundles,
            drains=self.drains,
            record=self.telling,
            provider=self.provider,
            clock=self.clock,
            metrics=self.metrics,
        )
        self.metadata = Metadata(settings.metadata_url, self.clock, self.provider, self._clock_measured)
        self.poll = Poll(
            self.metadata,
            listener=self.listener,
            metrics=self.metrics,
            clock=self.clock,
            seconds=settings.poll_seconds,
            laid=self._laid,
        )
        self.push = Push(
            settings.bus_servers,
            settings.state_dir / CREDENTIALS,
            instance_id=instance_id,
            bundles=self.bundles,
            listener=self.listener,
            metrics=self.metrics,
            beside=self._uplink,
        )
        self.check = SelfCheck(
            self.bundles,
            self.drains,
            {"push": lambda: self.push.is_up, "poll": lambda: self.poll.is_up},
            {"state_folder": settings.state_dir, "run_folder": settings.run_dir},
            self.metrics,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Watch, and drain when told to, until `stop` is set. A drain under way is gone on with at once."""
        self._make_folders()
        self.load()
        self.spool.start()
        self.drains.resume()
        tasks = [
            asyncio.create_task(supervise(name, run, self._restarted)) for name, run in self._parts().items()
        ]
        try:
            await stop.wait()
        finally:
            notify("STOPPING=1")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.drains.close()
            await self.kept.close()
            await asyncio.to_thread(self.spool.close)
            self.writer.close()

    def load(self) -> None:
        """Take up what is on disk. What cannot be read is left aside."""
        self.bundles.load()
        self.kept.load()
        self.identity.load()

    async def check_once(self, limit_seconds: float) -> tuple[Check, ...]:
        """The self-check of an agent that does not run: it looks and connects, and hears no notice."""
        self.load()
        answers = await asyncio.gather(self.poll.answers(), self.push.connects(limit_seconds))
        ways = dict(zip(("poll", "push"), answers, strict=True))
        self.check.sources = {name: partial(bool, answer) for name, answer in ways.items()}
        try:
            return await self.check.run()
        finally:
            self.writer.close()

    def _make_folders(self) -> None:
        for folder, mode in ((self.settings.state_dir, 0o700), (self.settings.run_dir, 0o755)):
            try:
                folder.mkdir(mode=mode, parents=True, exist_ok=True)
            except OSError as error:
                log.warning("%s cannot be made: %s", folder, error.strerror)

    def _parts(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "poll": self.poll.run,
            "push": self.push.run,
            "bundle": self._refresh,
            "identity": self.identity.run,
            "socket": self._serve,
            "uncordoning": self.drains.run_uncordoning,
            "endings": self.endings.run,
            "check": self._keep_checking,
            "watchdog": keep_signing,
        }

    async def _keep_checking(self) -> None:
        """The first answer decides when work may land, and every change of it is told."""
        before: bool | None = None
        for _ in range(int(SETTLE_SECONDS / SETTLE_STEP_SECONDS)):
            if is_ready(await self.check.run()):
                break
            await asyncio.sleep(SETTLE_STEP_SECONDS)
        # What was loaded by now stays: a search for garbage among all of it would hold up a drain.
        gc.freeze()
        while True:
            checks = await self.check.run()
            # A node that drains would hear a notice as well, but it is ready for no work.
            ready = is_ready(checks) and self.drains.current is None
            status = "draining" if is_ready(checks) and not ready else said(checks)
            notify("READY=1", f"STATUS={status}")
            if ready is not before:
                before = ready
                log.warning("self-check: %s", status)
                if ready:
                    self.telling.tell(EventType.READY, detail=f"bundle {self.bundles.version}")
            await asyncio.sleep(CHECK_SECONDS)

    async def _refresh(self) -> None:
        while True:
            if self.identity.is_known:
                try:
                    await bounded(self.bundles.refresh(self.identity), REFRESH_LIMIT_SECONDS)
                except Exception as error:
                    self.metrics.refresh_failures.inc()
                    log.info("no newer bundle: %s", describe(error))
            await asyncio.sleep(self.settings.bundle_refresh_seconds)

    async def _serve(self) -> None:
        from agent.socket import AgentSocket  # noqa: PLC0415 - a socket that fails stops nothing else

        served = AgentSocket(self.settings.run_dir / SOCKET, self.board, self._reported)
        await served.start()
        self.counts.socket = served.stats
        try:
            await asyncio.Event().wait()
        finally:
            await served.close()

    async def _uplink(self, bus: NodeBus, hall: str) -> None:
        from agent.uplink import Uplink  # noqa: PLC0415 - loaded with the client of the bus

        uplink = Uplink(self.spool, bus, hall=hall, instance_id=self.instance_id)
        self.counts.uplink = uplink.stats
        await supervise("uplink", uplink.run, self._restarted)

    def _drains(self) -> Drains:
        settings, drivers = self.settings, self.drivers
        around = Surroundings(
            kept=self.kept,
            record=self.telling,
            # A writer of its own: a disk that hangs must not keep the deadline from the work.
            file=DeadlineFile(settings.run_dir / DEADLINE, Writer(self._not_written), self.clock),
            clock=self.clock,
            now=lambda: self.provider.now() or self.clock.wall(),
            metrics=self.metrics,
            limits=Limits(settings.scheduler_seconds, settings.lives_on_seconds),
        )
        return Drains(around, self.provider, drivers.for_path, drivers.plain, self._announce)

    def _clock_measured(self) -> None:
        offset = self.provider.offset_seconds()
        if offset is not None:
            self.metrics.clock_offset.set(offset)
        self.drains.clock_was_measured()

    def _laid(self, laid: Laid) -> None:
        self.identity.laid(laid.own)

    def _announce(self, notice: Notice | None, deadline: DrainDeadline | None) -> None:
        self.board.publish(NoticeState() if notice is None else NoticeState.of(notice, deadline))

    def _reported(self, report: CheckpointReport | EndReport) -> None:
        from agent.socket_lines import EndReport  # noqa: PLC0415 - loaded with the socket, which calls this

        if isinstance(report, EndReport):
            peer = report.peer
            # At once: its process is there as long as it waits for the answer.
            self.drivers.work_ended(peer.pid, peer.started, report.said.exit_code)
        else:
            self._checkpointed(report)

    def _checkpointed(self, report: CheckpointReport) -> None:
        drain = self.drains.current
        due = of_notice(drain.notice) if drain is not None else {}
        type = EventType.CHECKPOINTED if report.is_written else EventType.CHECKPOINT_FAILED
        self.telling.tell(type, detail=report.detail(), **due)
        if report.is_last:
            self._pass_on(self.drivers.last_checkpoint(report.peer.pid, report.peer.uid))

    def _pass_on(self, report: Coroutine[Any, Any, None]) -> None:
        passing = asyncio.ensure_future(report)
        self._passing_on.add(passing)
        passing.add_done_callback(self._passing_on.discard)

    def _gap(self, loss: Loss) -> LifecycleEvent | None:
        return self.telling.event(EventType.GAP, lost_events=loss.events, detail=loss.detail())

    def _not_written(self, name: str) -> None:
        self.metrics.write_failures.labels(name).inc()

    def _restarted(self, name: str) -> None:
        self.metrics.restarts.labels(name).inc()
