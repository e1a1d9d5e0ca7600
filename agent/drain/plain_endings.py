"""How plain work ended: what systemd knows of units, and what work says of itself on the agent's socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from agent.drain.ports import Ending, Work
from agent.drain.processes import Process

STAMP = "ExecMainExitTimestampMonotonic"
SHOW = ("systemctl", "show", f"--property=Id,ActiveState,ExecMainCode,ExecMainStatus,{STAMP}")
SHOW_SECONDS = 1.0
END_SECONDS = 0.2
MAX_OUTPUT = 256 * 1024
MOST_REPORTED = 256
ENDED = frozenset({"inactive", "failed"})
# As waitid(2) has them: the main process ended by itself, or by a signal.
EXITED, KILLED, DUMPED = "1", "2", "3"
HIGHEST = 255


class Reported:
    """Exit codes as work says them of itself. Each counts while its process is among the last of the work."""

    def __init__(self, find: Callable[[], Mapping[Work, Sequence[Process]]]) -> None:
        self._find = find
        self._said: dict[tuple[str, str], tuple[Process, int]] = {}

    def take(self, pid: int, started: int, exit_code: int) -> bool:
        """Take what a process says; False when it is of no work here, so that nobody speaks for others."""
        process = Process(pid, started)
        for work, processes in self._find().items():
            if process in processes:
                self._said.pop((work.kind, work.name), None)
                self._said[work.kind, work.name] = (process, exit_code)
                if len(self._said) > MOST_REPORTED:
                    del self._said[next(iter(self._said))]
                return True
        return False

    def endings(self) -> tuple[Ending, ...]:
        """Of the work that is gone by now."""
        running = {(work.kind, work.name): processes for work, processes in self._find().items()}
        for key, (process, _) in list(self._said.items()):
            if key in running and process not in running[key]:
                # It went on without the one who spoke.
                del self._said[key]
        return tuple(
            Ending(kind, name, code, f"{process.pid}.{process.started}")
            for (kind, name), (process, code) in self._said.items()
            if (kind, name) not in running
        )


async def endings_of_units(
    units: Sequence[str], *, show: Sequence[str] = SHOW, seconds: float = SHOW_SECONDS
) -> tuple[Ending, ...]:
    """How the main processes of units that do not run ended; none where there is no systemd to say it."""
    if not units:
        return ()
    text = await _output((*show, "--", *units), seconds)
    wall, steady = datetime.now(UTC), time.monotonic()
    found = (_ending(block, wall - timedelta(seconds=steady)) for block in text.split("\n\n"))
    return tuple(one for one in found if one is not None)


def _ending(block: str, boot: datetime) -> Ending | None:
    said = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    code, at = _code(said), said.get(STAMP, "")
    if code is None or said.get("ActiveState") not in ENDED or not at.isdigit() or at == "0":
        return None
    return Ending("unit", said.get("Id", ""), code, at, boot + timedelta(microseconds=int(at[:18])))


def _code(said: Mapping[str, str]) -> int | None:
    how, status = said.get("ExecMainCode"), said.get("ExecMainStatus", "")
    if not status.isdigit() or int(status) > HIGHEST:
        return None
    if how == EXITED:
        return int(status)
    return -int(status) if how in (KILLED, DUMPED) else None


async def _output(command: Sequence[str], seconds: float) -> str:
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet
        )
    except OSError:
        return ""
    assert process.stdout is not None, "a pipe was asked for"
    try:
        raw = await asyncio.wait_for(_read(process.stdout), seconds)
    except TimeoutError:
        return ""
    finally:
        await _end(process, process.stdout)
    return raw.decode(errors="replace")


async def _read(pipe: asyncio.StreamReader) -> bytes:
    """Up to the end, or as much of it as is believed to be meant."""
    raw = b""
    while len(raw) < MAX_OUTPUT and (part := await pipe.read(MAX_OUTPUT)):
        raw += part
    return raw


async def _end(process: asyncio.subprocess.Process, pipe: asyncio.StreamReader) -> None:
    """Let go of a process, which ends at once where it has not; what it wrote meanwhile is thrown away."""
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            while await pipe.read(MAX_OUTPUT):
                pass
            await process.wait()


class PlainEndings:
    """Both ways together. What systemd says of a unit goes before what its work says."""

    def __init__(
        self,
        units: Sequence[str],
        reported: Reported,
        units_ended: Callable[[Sequence[str]], Awaitable[tuple[Ending, ...]]] = endings_of_units,
    ) -> None:
        self._units, self._reported, self._units_ended = units, reported, units_ended

    async def __call__(self, of: Sequence[Work] = ()) -> tuple[Ending, ...]:
        asked = {(one.kind, one.name) for one in of}
        units = [name for name in self._units if not asked or ("unit", name) in asked]
        found = {(one.kind, one.name): one for one in self._reported.endings()}
        found |= {(one.kind, one.name): one for one in await self._units_ended(units)}
        return tuple(one for key, one in found.items() if not asked or key in asked)
