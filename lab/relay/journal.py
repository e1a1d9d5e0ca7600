"""The relay's memory on disk: every letter that it signed, so that a restart forgets none that stands."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path

from wire.notices import Notice


class Journal:
    """One letter per line. What follows a torn line after a crash is read all the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path, os.O_APPEND)

    def read(self) -> list[tuple[Notice, bytes]]:
        """What was written, in order; lines that are no notice are passed over."""
        found = []
        for line in self._path.read_bytes().splitlines():
            try:
                found.append((Notice.model_validate(json.loads(line)["payload"]), line))
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def append(self, letters: Sequence[bytes]) -> None:
        """Hand letters to the operating system: they survive the end of this process at once.

        OSError when it does not take all of them.
        """
        # A line of its own, whatever a crash or a full disk left of the last one.
        _write(self._file, [b"", *letters])

    async def settle(self) -> None:
        """Have everything on the disk itself. Nothing waits for it on a notice's way."""
        await asyncio.to_thread(os.fsync, self._file.fileno())

    def replace(self, letters: Iterable[bytes]) -> None:
        """Begin anew with the letters that still stand."""
        fresh = self._path.with_suffix(".new")
        with _open(fresh, os.O_TRUNC) as file:
            _write(file, letters)
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._file.close()
        self._file = _open(self._path, os.O_APPEND)

    def close(self) -> None:
        self._file.close()


def _write(file: FileIO, lines: Iterable[bytes]) -> None:
    """Each on a line, and OSError where a full disk took a part only."""
    content = b"".join(line + b"\n" for line in lines)
    if file.write(content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open(path: Path, flags: int) -> FileIO:
    # Without a buffer, so that a full disk fails one write and leaves nothing behind for the next.
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600), "r+b")
