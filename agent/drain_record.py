"""The drain under way, on disk: what a restarted agent has to know to go on with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent.bounded import describe
from agent.clock import Clock, ProviderClock, boot_id
from agent.deadline import after_reboot
from agent.files import Writer, read_bounded, write_atomic
from domain.drain import Memory
from wire.bundle import DrainOrders, DrainPath
from wire.lifecycle import EventType
from wire.notices import Notice

NAME = "drain.json"
# What is kept twice within this is one write to the disk, and none on a signal's way.
GATHER_SECONDS = 0.1
# A moment on the steady clock, within thirty years of any start: what is further off was never written here.
Steady = Annotated[float, Field(ge=-1e9, le=1e9)]
log = logging.getLogger("sco.agent")


class Phase(StrEnum):
    """How far a drain has come. Each is kept before what follows it is done."""

    HEARD = "heard"
    SIGNALLING = "signalling"
    SIGNALLED = "signalled"
    OVERRUN = "overrun"
    DRAINED = "drained"
    FINISHED = "finished"


WORK_IS_GONE = frozenset({Phase.DRAINED, Phase.FINISHED})


class Route(StrEnum):
    """By which way the work was told. A drain changes it at most once, from the first to the second."""

    DRIVER = "driver"
    LOCAL = "local"


class Told(NamedTuple):
    """What was told of a drain and must not be lost: a kill may come before the spool has written it."""

    type: EventType
    occurred_at: datetime
    seconds_since_notice: float
    seconds_to_spare: float
    path: str
    detail: str


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Drain(_Kept):
    """One drain. Moments are seconds on the steady clock of the machine's start that `Saved` names.

    `heard_by` is the way by which the notice came, `joined` the last that hardened or hastened the drain.
    """

    notice: Notice
    joined: Notice | None = None
    orders: DrainOrders
    owner: str
    heard_by: str | None = None
    phase: Phase = Phase.HEARD
    route: Route | None = None
    heard_at: Steady
    ends_at: Steady
    told: tuple[Told, ...] = ()

    @field_validator("notice", "joined")
    @classmethod
    def _ends(cls, notice: Notice | None) -> Notice | None:
        if notice is not None and notice.deadline is None:
            raise ValueError("a drain is due to notices with a deadline")
        return notice


class Mark(NamedTuple):
    """A node that was closed: by whom, and in which system."""

    owner: str
    path: DrainPath


class Saved(_Kept):
    """Everything kept: what was heard, the drain, and marks that are still to be taken back."""

    boot_id: str
    saved_at: Steady
    writes: int = 0
    memory: Memory = Memory()
    drain: Drain | None = None
    to_uncordon: tuple[Mark, ...] = Field(default=(), max_length=64)

    @property
    def in_force(self) -> Notice:
        """What the work is told of the drain: the last notice that counted, and the earliest deadline."""
        assert self.drain is not None, "no drain is under way"
        notice = self.drain.joined or self.drain.notice
        return notice.model_copy(update={"deadline": self.memory.deadline or notice.deadline})

    @field_validator("memory")
    @classmethod
    def _comparable(cls, memory: Memory) -> Memory:
        moments = [memory.deadline, memory.forgotten_until, *(at for _, at in memory.heard)]
        moments += [at for one in memory.standing for at in (one.issued_at, one.deadline)]
        if any(at is not None and at.tzinfo is None for at in moments):
            raise ValueError("moments without an offset cannot be compared with those of notices")
        return memory


class DrainRecord:
    """What is kept, in memory and in two copies.

    The one below the run folder is in the machine's memory: it outlives the agent, costs a moment, and is
    there when the disk is full or hangs. The one on disk outlives the machine, and nobody waits for it.
    """

    def __init__(
        self, disk: Path, run: Path, failed: Callable[[str], None], clock: Clock, provider: ProviderClock
    ) -> None:
        """Folders of the two copies; `failed` is told the name of what could not be written."""
        self._disk, self._run = disk / NAME, run / NAME
        self._to_disk, self._to_run = Writer(failed), Writer(failed)
        self._clock, self._provider, self._boot_id = clock, provider, boot_id()
        self._unwritten: bytes | None = None
        self._writing: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.saved = Saved(boot_id=self._boot_id, saved_at=clock.boot())

    def load(self) -> None:
        """Take up what was kept. A drain of before the machine's last start keeps its deadline."""
        found = [one for one in map(_read, (self._disk, self._run)) if one is not None]
        if not found:
            return
        saved = max(found, key=lambda one: one.writes)
        if saved.boot_id != self._boot_id and saved.drain is not None:
            saved = saved.model_copy(update={"drain": self._moved(saved.drain, saved.saved_at)})
        self.saved = saved.model_copy(update={"boot_id": self._boot_id})

    def change(self, **fields: Any) -> None:
        """Change what is kept, in memory. Fields are those of `Saved`."""
        self.saved = self.saved.model_copy(update=fields)

    def advance(self, **fields: Any) -> Drain:
        """Change the drain under way, in memory. Fields are those of `Drain`."""
        assert self.saved.drain is not None, "no drain is under way"
        drain = self.saved.drain.model_copy(update=fields)
        self.change(drain=drain)
        return drain

    async def save(self) -> None:
        """Keep it beyond this process; beyond the machine's next start a moment later."""
        self.change(saved_at=self._clock.boot(), writes=self.saved.writes + 1)
        content = self._unwritten = self.saved.model_dump_json(by_alias=True).encode()
        if self._writing is None or self._writing.done():
            self._hurry.clear()
            self._writing = asyncio.ensure_future(self._write_to_disk())
        writing = self._writing
        if not await self._to_run.run(NAME, partial(write_atomic, self._run, content, durable=False)):
            self._hurry.set()
            await asyncio.shield(writing)

    async def close(self) -> None:
        self._hurry.set()
        if self._writing is not None:
            await self._writing
        self._to_disk.close()
        self._to_run.close()

    async def _write_to_disk(self) -> None:
        """Write what is newest a moment from now, and what comes while it is written."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), GATHER_SECONDS)
        while (content := self._unwritten) is not None:
            self._unwritten = None
            await self._to_disk.run(NAME, partial(write_atomic, self._disk, content))

    def _moved(self, drain: Drain, saved_at: float) -> Drain:
        notice, boot = drain.notice, self._clock.boot()
        remaining = drain.ends_at - saved_at
        assert notice.deadline is not None, "a drain is due to a notice with a deadline"
        ends_at = after_reboot(notice.deadline, notice.issued_at, remaining, self._clock, self._provider)
        moved: dict[str, Any] = {"heard_at": boot - max(0.0, saved_at - drain.heard_at), "ends_at": ends_at}
        # An empty node that outlived its deadline is not drained again, as far as anybody knows the time yet.
        is_over = drain.phase in WORK_IS_GONE and self._clock.wall() > notice.deadline
        if ends_at > boot and not is_over:
            # What runs after a start of the machine was not there to be told.
            moved |= {"phase": Phase.HEARD, "route": None}
        return drain.model_copy(update=moved)


def _read(path: Path) -> Saved | None:
    raw = read_bounded(path)
    if raw is None:
        return None
    try:
        return Saved.model_validate_json(raw)
    except (ValidationError, RecursionError) as error:
        log.warning("%s cannot be used: %s", path, describe(error))
        return None
