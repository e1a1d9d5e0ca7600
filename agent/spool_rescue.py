"""What can still be read of a damaged spool goes into a new one, which takes its place.

Whatever the file holds, this ends with a usable spool or with sqlite3.Error or OSError of the disk itself.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from agent.spool_file import COLUMNS, SUFFIXES, SpoolFile, intact
from agent.spool_policy import Loss, Spooled

BATCH = 500


def rescue(path: Path, limit_bytes: int) -> SpoolFile:
    """Put a new spool in the place of a damaged one, with the rows that are intact, and mark the loss."""
    rescued = path.with_name(f"{path.name}.rescue")
    _remove(rescued)
    new = SpoolFile(rescued, limit_bytes)
    try:
        with contextlib.suppress(sqlite3.Error):
            _copy(path, new)
        new.add((), Loss(unknown=1))
    finally:
        new.close()
    # The old log first: SQLite would apply it to whatever stands under the name.
    _remove(path, SUFFIXES[1:])
    os.replace(rescued, path)
    _sync_folder(path.parent)
    return SpoolFile(path, limit_bytes)


def _copy(path: Path, new: SpoolFile) -> None:
    batch: list[Spooled] = []
    for event in _readable(path):
        batch.append(event)
        if len(batch) >= BATCH:
            new.add(batch, Loss())
            batch = []
    new.add(batch, Loss())


def _readable(path: Path) -> Iterator[Spooled]:
    """Intact rows from either end of the table, up to where it breaks."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
    try:
        with contextlib.suppress(sqlite3.Error):
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        reached = 0
        for event in _rows(db, "ASC"):
            reached = event.sequence
            yield event
        for event in _rows(db, "DESC"):
            if event.sequence <= reached:
                break
            yield event
    finally:
        db.close()


def _rows(db: sqlite3.Connection, order: str) -> Iterator[Spooled]:
    query = f"SELECT {COLUMNS} FROM event NOT INDEXED ORDER BY sequence {order}"  # noqa: S608
    with contextlib.suppress(sqlite3.Error):
        for row in db.execute(query):
            event = intact(row)
            if event is not None:
                yield event


def _remove(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    for suffix in suffixes:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
