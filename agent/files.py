"""Small files that are there whole or not at all, and writes that nobody waits for too long."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_native_id

# A disk that hangs costs a drain this much once, and nothing afterwards.
WRITE_LIMIT_SECONDS = 0.25
MAX_BYTES = 1024 * 1024
# What a killed process left under that name is written over; a link that somebody laid there is not followed.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new one. Raises OSError."""
    # No two threads that write at a time have the same number, whichever process they are of.
    fresh = f"{path.parent}/.{path.name}.{get_native_id()}"
    try:
        with open(os.open(fresh, NEW_FILE, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    if durable:
        _sync_folder(path.parent)


def read_bounded(path: Path) -> bytes | None:
    """The content, or None when it cannot be read or is larger than any file of ours."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= MAX_BYTES else None


class Writer:
    """Writes in order on a thread of its own, so that a slow disk delays nothing but what is written."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        """`failed` is told the name of a file that could not be written in time."""
        self._failed = failed
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="write")
        self._stuck = False
        # A thread takes a moment to start, which the first write of a drain does not have.
        self._threads.submit(int)

    async def run(self, name: str, action: Callable[[], object]) -> bool:
        """True when the action is done. What fails or takes too long is counted, never raised."""
        if self._stuck:
            self._failed(name)
            return False
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, action)
        done, _ = await asyncio.wait({work}, timeout=WRITE_LIMIT_SECONDS)
        if not done:
            self._stuck = True
            work.add_done_callback(self._unstick)
            self._failed(name)
            return False
        if work.exception() is None:
            return True
        self._failed(name)
        return False

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _unstick(self, work: asyncio.Future[object]) -> None:
        work.cancelled() or work.exception()
        self._stuck = False


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
