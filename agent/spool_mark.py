"""The highest sequence that was ever given out, beside the spool: it outlives a lost or full spool.

Two fixed slots are written in turn and in place, so that a full disk does not matter and a torn write costs
one slot at most.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

SLOT = 32
SLOTS = 2
DIGITS = 20


class Mark:
    """A number that only grows. Reading never raises; writing raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = 0

    def read(self) -> int:
        """The highest number that either slot holds intact; 0 when none does."""
        try:
            with self._path.open("rb") as file:
                raw = file.read(SLOT * SLOTS)
        except OSError:
            return 0
        numbers = [_parse(raw[start : start + SLOT]) for start in range(0, SLOT * SLOTS, SLOT)]
        # The next write goes to the lower slot, so that the higher one stays whole.
        self._turn = numbers.index(min(numbers))
        return max(numbers)

    def write(self, number: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(descriptor, _slot(number), self._turn * SLOT)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self._turn = (self._turn + 1) % SLOTS

    def prepare(self) -> None:
        """Make the file with both slots while there is room. A failure shows again at the first write."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size >= SLOT * SLOTS:
                return
        with contextlib.suppress(OSError):
            number = self.read()
            for _ in range(SLOTS):
                self.write(number)


def _slot(number: int) -> bytes:
    text = f"{number:0{DIGITS}d}"
    return f"{text} {zlib.crc32(text.encode()):08x}".encode().ljust(SLOT - 1) + b"\n"


def _parse(slot: bytes) -> int:
    text, _, check = slot.strip().partition(b" ")
    if len(text) != DIGITS or not text.isdigit() or check != f"{zlib.crc32(text):08x}".encode():
        return 0
    return int(text)
