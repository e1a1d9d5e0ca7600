"""Plain programs that a node runs in the laboratory: `python -m lab.nodes.workloads --kind K --folder F`.

Each writes `pid` once it is ready, and `signal.json` from its own signal handler: when it was told to end, by
the wall clock and by the steady clock that all processes of a machine share. Only the standard library is
loaded, so that hundreds of them start quickly.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import NamedTuple

PID_FILE, STAMP_FILE, STATE_FILE = "pid", "signal.json", "checkpoint.json"
CHILDREN = 3
WRONG_EXIT = 7
# A workload that nobody ends is no longer wanted: a killed laboratory leaves none behind.
LIFE_SECONDS = 900.0
STEP_SECONDS = 0.05
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)


class Kind(StrEnum):
    """How a workload takes it when it is told to end."""

    HONEST = "honest"
    CHECKPOINTS = "checkpoints"
    FORKS = "forks"
    EXITS_WRONGLY = "exits_wrongly"
    IGNORES = "ignores"
    HANGS = "hangs"


ENDS_BY_ITSELF = frozenset({Kind.HONEST, Kind.CHECKPOINTS, Kind.FORKS, Kind.EXITS_WRONGLY})


class Stamp(NamedTuple):
    """When a workload's own handler ran; both in nanoseconds."""

    wall_ns: int
    monotonic_ns: int
    signal: str


class Workload:
    """One program: works in steps until it is told to end."""

    def __init__(self, kind: Kind, folder: Path, linger_seconds: float) -> None:
        self._kind = kind
        self._folder = folder
        self._linger_seconds = linger_seconds
        self._told: Stamp | None = None
        self._steps = 0

    def run(self) -> int:
        """The exit code, once the work has ended."""
        for number in SIGNALS:
            signal.signal(number, self._handle)
        if self._kind is Kind.FORKS:
            self._fork()
        _write(self._folder / PID_FILE, f"{os.getpid()}\n")
        ends = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < ends and not (self._told and self._kind in ENDS_BY_ITSELF):
            time.sleep(STEP_SECONDS)
            self._steps += 1
        return self._end()

    def _handle(self, number: int, _: FrameType | None) -> None:
        stamp = Stamp(time.time_ns(), time.monotonic_ns(), signal.Signals(number).name)
        first = self._told is None
        self._told = self._told or stamp
        # A tree of processes writes one stamp: that of whoever was told first.
        if first and not (self._folder / STAMP_FILE).exists():
            _write(self._folder / STAMP_FILE, json.dumps(stamp._asdict()))
        if self._kind is Kind.HANGS:
            # It never comes out of its handler.
            time.sleep(LIFE_SECONDS)

    def _end(self) -> int:
        time.sleep(self._linger_seconds)
        if self._kind is Kind.CHECKPOINTS:
            _write(self._folder / STATE_FILE, json.dumps({"steps": self._steps}))
        return WRONG_EXIT if self._kind is Kind.EXITS_WRONGLY else 0

    def _fork(self) -> None:
        """Children that outlive the parent for a moment, as a shell's do."""
        for _ in range(CHILDREN):
            if os.fork() == 0:
                ends = time.monotonic() + LIFE_SECONDS
                while time.monotonic() < ends and self._told is None:
                    time.sleep(STEP_SECONDS)
                os._exit(0)


def read_stamp(folder: Path) -> Stamp | None:
    """When the workload of a folder was told to end; None while it was not."""
    try:
        return Stamp(**json.loads((folder / STAMP_FILE).read_text()))
    except FileNotFoundError:
        return None


def _write(path: Path, text: str) -> None:
    # Whole or not at all: readers poll. Each process of a tree has a name of its own for it.
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.nodes.workloads", description=__doc__)
    parser.add_argument("--kind", type=Kind, choices=list(Kind), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where pid and stamps are written")
    parser.add_argument("--linger-seconds", type=float, default=0.0, help="time that ending takes")
    options = parser.parse_args()
    return Workload(options.kind, options.folder, options.linger_seconds).run()


if __name__ == "__main__":
    sys.exit(main())
