"""The spool on disk: one SQLite file in WAL mode, bounded, each row with its own checksum.

SQLite answers for whole transactions through a loss of power; the checksums answer for what it does not look
at, the content of a page. All calls are made by one thread. What the disk refuses comes out as sqlite3.Error.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from agent.spool_policy import Loss, Spooled

PAGE = 4096
# Shares of the limit: what the rows may take, what the file may, and where its log is folded back in. The
# rest is for the log and for pages that are not full.
ROWS_SHARE = 0.6
FILE_SHARE = 0.9
LOG_SHARE = 1 / 32
# Given up at a time, so that a full spool does not pay for every event.
STEP_SHARE = 0.01
# How often more than that is given up for one write.
RELIEFS = 3
# What a row costs besides its body: its columns, and its place in two indexes.
ROW_BYTES = 160
SUFFIXES = ("", "-wal", "-shm", "-journal")
COLUMNS = "sequence, event_id, worth, body, crc"

SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
    sequence INTEGER PRIMARY KEY, event_id BLOB NOT NULL UNIQUE, worth INTEGER NOT NULL,
    body BLOB NOT NULL, crc INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS event_by_worth ON event (worth, sequence);
CREATE TABLE IF NOT EXISTS state (
    id INTEGER PRIMARY KEY CHECK (id = 1), high INTEGER, lost INTEGER, unknown INTEGER, crc INTEGER
);
"""


class UnreachableError(sqlite3.OperationalError):
    """The file can be neither opened nor made."""


class SpoolFile:
    """An open spool. `high` is the highest sequence it ever held, `loss` what no gap event tells yet."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Open or make the file. sqlite3.Error when it cannot be had or is damaged."""
        self.path = path
        self._rows_limit = int(limit_bytes * ROWS_SHARE)
        self._step = max(1, int(limit_bytes * STEP_SHARE))
        self._db = _connect(path, limit_bytes)
        try:
            self._check()
            self._db.executescript(SCHEMA)
            row = self._db.execute("SELECT count(*), coalesce(sum(length(body)), 0) FROM event").fetchone()
            self.events = int(row[0])
            self.bytes = int(row[1]) + self.events * ROW_BYTES
            self.high, self.loss = self._read_state()
        except BaseException:
            self._db.close()
            raise

    def add(self, events: Sequence[Spooled], loss: Loss) -> Loss:
        """Keep the events and add to what is lost, in one transaction; what must go for them goes.

        Answers what was given up for want of room. An event whose id is here already is left as it is.
        """
        given_up = Loss()
        for _ in range(RELIEFS):
            try:
                return given_up.plus(self._add(events, loss, self._rows_limit))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
            # Pages that are not full took more than their share, or the disk is full: rows give way to rows.
            given_up = given_up.plus(self._add((), Loss(), self.bytes - 4 * self._step))
        return given_up.plus(self._add(events, loss, self._rows_limit))

    def remove(self, event_ids: Sequence[UUID]) -> None:
        with self._transaction():
            for event_id in event_ids:
                self._gone("DELETE FROM event WHERE event_id = ? RETURNING length(body)", event_id.bytes)

    def read(self, limit: int, after: int) -> list[Spooled]:
        """The oldest events after a sequence. Rows with a wrong checksum are removed and counted as lost."""
        rows = self._db.execute(
            f"SELECT {COLUMNS} FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?",  # noqa: S608
            (after, limit),
        ).fetchall()
        events = [intact(row) for row in rows]
        damaged = [row[0] for row, event in zip(rows, events, strict=True) if event is None]
        if damaged:
            with self._transaction():
                for sequence in damaged:
                    self._gone("DELETE FROM event WHERE sequence = ? RETURNING length(body)", sequence)
                self._write_state(self.high, self.loss.plus(Loss(len(damaged))))
        return [event for event in events if event is not None]

    def holds(self, worth: int) -> bool:
        """Whether an event of exactly this worth waits."""
        return (
            self._db.execute("SELECT 1 FROM event WHERE worth = ? LIMIT 1", (worth,)).fetchone() is not None
        )

    def close(self) -> None:
        self._db.close()

    def _add(self, events: Sequence[Spooled], loss: Loss, rows_limit: int) -> Loss:
        with self._transaction():
            for event in events:
                row = (event.sequence, event.event_id.bytes, event.worth, event.body, _crc(event))
                if self._db.execute("INSERT OR IGNORE INTO event VALUES (?, ?, ?, ?, ?)", row).rowcount:
                    self.events += 1
                    self.bytes += len(event.body) + ROW_BYTES
            given_up = Loss(self._make_room(rows_limit))
            high = max([self.high, *(event.sequence for event in events)])
            self._write_state(high, self.loss.plus(loss).plus(given_up))
        return given_up

    def _make_room(self, rows_limit: int) -> int:
        if self.bytes <= rows_limit:
            return 0
        before = self.events
        worst = self._db.execute("SELECT sequence, length(body) FROM event ORDER BY worth, sequence")
        going, spared = [], 0
        for sequence, size in worst:
            if self.bytes - spared <= rows_limit - self._step:
                break
            going.append(sequence)
            spared += size + ROW_BYTES
        for sequence in going:
            self._gone("DELETE FROM event WHERE sequence = ? RETURNING length(body)", sequence)
        return before - self.events

    def _gone(self, delete: str, key: int | bytes) -> None:
        for (size,) in self._db.execute(delete, (key,)).fetchall():
            self.events -= 1
            self.bytes -= int(size) + ROW_BYTES

    def _read_state(self) -> tuple[int, Loss]:
        row = self._db.execute("SELECT high, lost, unknown, crc FROM state").fetchone()
        if row is None and not self.events:
            return 0, Loss()
        if row is None or row[3] != _state_crc(row[:3]):
            raise sqlite3.DatabaseError("the state row is not what was written")
        return int(row[0]), Loss(int(row[1]), int(row[2]))

    def _write_state(self, high: int, loss: Loss) -> None:
        state = (high, *loss)
        self._db.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?)", (*state, _state_crc(state)))
        self.high, self.loss = high, loss

    def _check(self) -> None:
        found = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if found is None or found[0] != "ok":
            raise sqlite3.DatabaseError(f"integrity check: {found and str(found[0])[:100]}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        before = (self.events, self.bytes, self.high, self.loss)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self.events, self.bytes, self.high, self.loss = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def intact(row: tuple[object, ...]) -> Spooled | None:
    """The event of a row; None when the row is not what was written."""
    sequence, event_id, worth, body, crc = row
    if not (isinstance(sequence, int) and isinstance(worth, int) and isinstance(body, bytes)):
        return None
    if not (isinstance(event_id, bytes) and len(event_id) == len(UUID(int=0).bytes)):
        return None
    event = Spooled(sequence, UUID(bytes=event_id), worth, body)
    return event if crc == _crc(event) else None


def size_on_disk(path: Path) -> int:
    """Bytes that the spool takes, its log included; 0 where there is none."""
    return sum(_size(path, suffix) for suffix in SUFFIXES)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is broken, rather than the disk full, read-only or gone."""
    if isinstance(error, UnreachableError):
        return False
    if isinstance(error, sqlite3.OperationalError):
        # A schema that lost its tables, or a damaged one that still parses.
        return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_ERROR, None)
    return isinstance(error, sqlite3.DatabaseError)


def _connect(path: Path, limit_bytes: int) -> sqlite3.Connection:
    try:
        # Made here for its mode; SQLite gives its log the same.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise UnreachableError(f"{path}: {error.strerror}") from error
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
    try:
        for pragma in (
            # Alone with the file, SQLite needs no shared memory beside it.
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "temp_store = MEMORY",
            "cache_size = -512",
            f"wal_autocheckpoint = {max(16, int(limit_bytes * LOG_SHARE / PAGE))}",
            f"journal_size_limit = {int(limit_bytes * LOG_SHARE)}",
            f"max_page_count = {int(limit_bytes * FILE_SHARE / PAGE)}",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        db.close()
        raise
    return db


def _crc(event: Spooled) -> int:
    return zlib.crc32(event.body, zlib.crc32(f"{event.sequence} {event.worth} {event.event_id}".encode()))


def _state_crc(state: tuple[object, ...]) -> int:
    return zlib.crc32(repr(tuple(state)).encode())


def _size(path: Path, suffix: str) -> int:
    try:
        return os.stat(f"{path}{suffix}").st_size
    except OSError:
        return 0
