"""`python -m lab.chaos --cases N --seed S`: the fault matrix, on a stack that is thrown away afterwards."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from lab.chaos import report
from lab.chaos.matrix import Case, Table, cases, run_all, told
from lab.stack.stack import Stack

CASES, SEED = 610, 1
PROGRESS_EVERY = 20
PIPE_WIDTH = 150


def main() -> int:
    """0 when nothing is broken, 1 when something is, 2 when no cell has the name that was asked for."""
    options = _parser().parse_args()
    try:
        wanted = cases(options.cases, options.seed, options.only)
    except ValueError as error:
        sys.stderr.write(f"lab.chaos: {error}\n")
        return 2
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    table = _run(wanted, options.jobs, console)
    report.show(console, table)
    if options.write is not None:
        options.write.write_text(report.page(table, (wanted[0].seed, wanted[-1].seed)))
    return 1 if table.broken else 0


def _run(wanted: list[Case], jobs: int, console: Console) -> Table:
    table, began = Table(), time.monotonic()
    with _stack() as stack:
        for outcome in run_all(stack, wanted, jobs):
            table.add(outcome)
            if not outcome.passed:
                console.print(told(outcome))
            if table.cases % PROGRESS_EVERY == 0:
                seconds = time.monotonic() - began
                console.print(
                    f"{table.cases} of {len(wanted)} cases, {len(table.broken)} broken, {seconds:.0f} s"
                )
    return table


@contextmanager
def _stack() -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="sco-chaos-"))
    folder.chmod(0o755)
    stack = Stack.start(folder)
    try:
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos", description="The fault matrix.")
    parser.add_argument("--cases", type=int, default=CASES, help="how many, in turn for every cell")
    parser.add_argument("--seed", type=int, default=SEED, help="the seed of the first round")
    parser.add_argument("--only", default="", help="cells whose name has this, such as '503' or 'x list'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
