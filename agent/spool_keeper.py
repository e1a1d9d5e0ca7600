"""The thread's side of the spool: what is on disk, what waits in memory, and how one becomes the other.

Used by one thread. Nothing here raises what the disk does: it is tried again at growing intervals.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from agent.spool_file import SpoolFile, is_damage
from agent.spool_mark import Mark
from agent.spool_policy import Loss, Spooled, spooled, to_give_up, worth
from agent.spool_rescue import rescue
from wire.lifecycle import EventType, LifecycleEvent

# Ids that the history keeps and the disk would not let go of. Beyond this, some are sent once more.
MAX_UNREMOVED = 10_000
RETRY_SECONDS = (1.0, 60.0)
GAP_WORTH = worth(EventType.GAP)

# Makes the event that tells of a loss; None while the node cannot yet say who it is.
GapMaker = Callable[[Loss], LifecycleEvent | None]

log = logging.getLogger(__name__)


class SpoolStats(NamedTuple):
    """`events` wait in all, `in_memory` of them not on disk; `lost` counts since the start of the process."""

    events: int = 0
    in_memory: int = 0
    lost: int = 0
    on_disk: bool = False


class Keeper:
    """Events by sequence: on disk, or in memory (at most `memory_events`) while the disk cannot be had."""

    def __init__(
        self, path: Path, gap: GapMaker, limit_bytes: int, memory_events: int, steady: Callable[[], float]
    ) -> None:
        self._path, self._gap, self._limit, self._steady = path, gap, limit_bytes, steady
        self._memory_events = memory_events
        self._mark = Mark(path.with_name(f"{path.name}.mark"))
        self._marked = self._sequence = self._mark.read()
        self._file: SpoolFile | None = None
        self._opened_once = False
        self._held: list[Spooled] = []
        self._unremoved: dict[UUID, None] = {}
        self._unsaved = Loss()
        self._lost = 0
        self._retry_at = 0.0
        self._retry_seconds = RETRY_SECONDS[0]

    def take(self, arrived: Sequence[LifecycleEvent], overflow: int) -> None:
        """Keep what arrived; `overflow` is how many were given up before they could be looked at."""
        self._lose(Loss(overflow))
        for event in arrived:
            self._sequence += 1
            self._held.append(spooled(event, self._sequence))
        self.save()
        self._bound_held()

    def save(self) -> None:
        """Bring to disk what waits in memory, when the disk is due another try."""
        if self._steady() < self._retry_at:
            return
        for _ in range(2):
            try:
                self._write()
                self._retry_at, self._retry_seconds = 0.0, RETRY_SECONDS[0]
                return
            except sqlite3.Error as error:
                if not self._mend(error):
                    return

    def _write(self) -> None:
        file = self._file or self._open()
        if self._held or self._unsaved != Loss():
            self._remember()
        while self._held or self._unsaved != Loss():
            some = _first(self._held, self._limit // 16)
            given_up = file.add(some, self._unsaved)
            self._lost += given_up.events
            self._held, self._unsaved = self._held[len(some) :], Loss()
        if self._unremoved:
            file.remove(tuple(self._unremoved))
            self._unremoved = {}

    def _open(self) -> SpoolFile:
        self._mark.prepare()
        file = SpoolFile(self._path, self._limit)
        self._adopt(file)
        return file

    def _adopt(self, file: SpoolFile) -> None:
        """Go on after what the file holds; what was numbered before it could be read is renumbered."""
        if not self._opened_once:
            if self._marked > file.high:
                # An earlier run gave out sequences that the file knows nothing of.
                self._lose(Loss(unknown=1))
            start = max(file.high, self._marked)
            self._held = [one._replace(sequence=start + n) for n, one in enumerate(self._held, start=1)]
            self._sequence = start + len(self._held)
        self._file, self._opened_once = file, True

    def _mend(self, error: sqlite3.Error) -> bool:
        """Whether it is worth another try at once: a damaged file was replaced."""
        if not is_damage(error):
            self._later(error)
            return False
        log.error("the spool is damaged (%s): what can be read goes into a new one", error)
        try:
            if self._file is not None:
                self._file.close()
            self._file = None
            self._adopt(rescue(self._path, self._limit))
        except (sqlite3.Error, OSError) as failure:
            self._later(failure)
            return False
        return True

    def _later(self, error: Exception) -> None:
        if self._retry_seconds == RETRY_SECONDS[0]:
            log.warning("the spool cannot be written (%s): events wait in memory", error)
        self._retry_at = self._steady() + self._retry_seconds
        self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS[1])
        if self._held:
            self._remember()

    def _remember(self) -> None:
        with contextlib.suppress(OSError):
            # In place, so it mostly works on a full disk too: the next run does not give these out again.
            self._mark.write(self._sequence)

    def _bound_held(self) -> None:
        excess = len(self._held) - self._memory_events
        if excess > 0:
            given_up = {one.sequence for one in to_give_up(self._held, excess)}
            self._held = [one for one in self._held if one.sequence not in given_up]
            self._lose(Loss(excess))

    def _lose(self, loss: Loss) -> None:
        self._unsaved = self._unsaved.plus(loss)
        self._lost += loss.events

    def pending(self, limit: int, after: int) -> list[Spooled]:
        """The oldest events above a sequence; a gap that is due becomes one of them."""
        rows = self._read(limit, after)
        if self._mark_gap():
            rows = self._read(limit, after)
        held = [one for one in self._held if one.sequence > after]
        waiting = [one for one in (*rows, *held) if one.event_id not in self._unremoved]
        return sorted(waiting, key=lambda one: one.sequence)[:limit]

    def _read(self, limit: int, after: int) -> list[Spooled]:
        if self._file is None:
            return []
        try:
            # What is kept already may stand before what is asked for.
            return self._file.read(limit + len(self._unremoved), after)
        except sqlite3.Error as error:
            if self._mend(error) and self._file is not None:
                with contextlib.suppress(sqlite3.Error):
                    return self._file.read(limit, after)
            return []

    def _mark_gap(self) -> bool:
        """Tell of what is lost, once; while one gap waits, what else is lost is told by the next."""
        known = self._file.loss if self._file is not None else Loss()
        loss = known.plus(self._unsaved)
        event = None if loss == Loss() or self._gap_waits() else self._gap(loss)
        if event is None:
            return False
        self._unsaved = Loss().minus(known)
        self.take((event,), 0)
        return True

    def _gap_waits(self) -> bool:
        if any(one.worth == GAP_WORTH for one in self._held):
            return True
        try:
            return self._file is not None and self._file.holds(GAP_WORTH)
        except sqlite3.Error as error:
            self._mend(error)
            return True

    def remove(self, event_ids: Sequence[UUID]) -> None:
        """Let go of what the history keeps; what the disk does not release is never handed out again."""
        known = set(event_ids)
        self._held = [one for one in self._held if one.event_id not in known]
        self._unremoved.update(dict.fromkeys(event_ids))
        for _ in range(len(self._unremoved) - MAX_UNREMOVED):
            del self._unremoved[next(iter(self._unremoved))]
        self.save()

    def patience(self) -> float | None:
        """Seconds until the disk is due another try; None when nothing waits for it."""
        if self._file is not None and not self._held and not self._unremoved:
            return None
        return max(0.05, self._retry_at - self._steady())

    def saved(self) -> bool:
        return self._file is not None and not self._held

    def stats(self) -> SpoolStats:
        file = self._file
        return SpoolStats(
            events=len(self._held) + (file.events if file is not None else 0),
            in_memory=len(self._held),
            lost=self._lost,
            on_disk=self.saved(),
        )

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._file.close()


def _first(events: Sequence[Spooled], most_bytes: int) -> Sequence[Spooled]:
    """As many as one transaction should hold, one at least."""
    total = 0
    for count, one in enumerate(events):
        total += len(one.body)
        if count and total > most_bytes:
            return events[:count]
    return events
