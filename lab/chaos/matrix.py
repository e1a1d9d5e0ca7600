"""Running many cases: worker processes with several lanes each, and the table of what came of them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import queue
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import psycopg
import structlog
from psycopg import sql

from lab.chaos.judge import Breach, Broken
from lab.chaos.lane import Lane
from lab.chaos.life import Life, Outcome
from lab.chaos.table import Cell, cells
from lab.stack.stack import Stack
from store.migrate import upgrade

LANES_PER_JOB = 4
# Blocking calls of all lanes at once: clients, the token bucket, and looks into the clouds.
THREADS = 64
# A lane's memory of cases past slows it down.
CASES_PER_LANE = 60
LATE_ANSWER_SECONDS = 180.0
MOST_TOLD = 6


class Case(NamedTuple):
    """One cell and one seed."""

    cell: Cell
    seed: int

    @property
    def again(self) -> str:
        """The command that repeats it alone."""
        return f'python -m lab.chaos --only "{self.cell}" --seed {self.seed} --cases 1'


def cases(count: int, seed: int, only: str = "") -> list[Case]:
    """`count` cases, as many for each cell as there are rounds, from `seed` on."""
    wanted = [cell for cell in cells() if only in str(cell)]
    if not wanted:
        raise ValueError(f"no cell of the matrix is named {only!r}")
    return [Case(wanted[number % len(wanted)], seed + number // len(wanted)) for number in range(count)]


# Workers


def _serve(
    dsns: Sequence[str], todo: multiprocessing.Queue[Case | None], done: multiprocessing.Queue[Outcome]
) -> None:
    """One worker process: its lanes take cases until there are no more."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(_lanes(dsns, todo, done))


async def _lanes(
    dsns: Sequence[str], todo: multiprocessing.Queue[Case | None], done: multiprocessing.Queue[Outcome]
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    await asyncio.gather(*(_lane(dsn, todo, done) for dsn in dsns))


async def _lane(
    dsn: str, todo: multiprocessing.Queue[Case | None], done: multiprocessing.Queue[Outcome]
) -> None:
    lane = await Lane.open(dsn)
    number = 0
    try:
        while (case := await asyncio.to_thread(todo.get)) is not None:
            outcome = await live(lane, case)
            number += 1
            done.put(outcome)
            if not outcome.passed or number % CASES_PER_LANE == 0:
                await lane.reset()
    finally:
        await lane.close()


async def live(lane: Lane, case: Case) -> Outcome:
    """One case; one that ends in an error of its own is broken too."""
    try:
        return await Life(lane, case.cell, case.seed).run()
    except Exception as error:
        text = f"the case itself failed: {type(error).__name__}: {error}"
        return Outcome(case.cell, case.seed, broken=[Broken(Breach.UNSETTLED, text)])


class Field:
    """Worker processes at work. Results come in any order."""

    def __init__(self, stack: Stack, jobs: int, lanes: int = LANES_PER_JOB) -> None:
        context = multiprocessing.get_context("spawn")
        self._todo: multiprocessing.Queue[Case | None] = context.Queue()
        self._done: multiprocessing.Queue[Outcome] = context.Queue()
        self._lanes = jobs * lanes
        names = _databases(stack, self._lanes)
        self._workers = [
            context.Process(
                target=_serve,
                args=(names[job * lanes : (job + 1) * lanes], self._todo, self._done),
                daemon=True,
            )
            for job in range(jobs)
        ]
        self._outcomes: dict[Case, Outcome] = {}
        for worker in self._workers:
            worker.start()

    def submit(self, wanted: Iterable[Case]) -> None:
        for case in wanted:
            self._todo.put(case)

    def results(self, wanted: Sequence[Case]) -> Iterator[Outcome]:
        """The outcomes of submitted cases, in the order in which they end."""
        left = set(wanted)
        while left:
            known = left & self._outcomes.keys()
            for case in sorted(known, key=lambda one: (str(one.cell), one.seed)):
                yield self._outcomes[case]
            left -= known
            if left:
                self._take()

    def _take(self) -> None:
        deadline = time.monotonic() + LATE_ANSWER_SECONDS
        while True:
            try:
                outcome = self._done.get(timeout=1)
            except queue.Empty:
                dead = [worker.exitcode for worker in self._workers if worker.exitcode is not None]
                if dead or time.monotonic() > deadline:
                    raise RuntimeError(f"no case has ended lately; ended workers: {dead or 'none'}") from None
                continue
            self._outcomes[Case(outcome.cell, outcome.seed)] = outcome
            return

    def close(self) -> None:
        for _ in range(self._lanes):
            self._todo.put(None)
        for worker in self._workers:
            worker.join(20)
            if worker.is_alive():
                worker.terminate()
                worker.join()


@contextmanager
def field_of(stack: Stack, jobs: int, lanes: int = LANES_PER_JOB) -> Iterator[Field]:
    own = Field(stack, jobs, lanes)
    try:
        yield own
    finally:
        own.close()


def _databases(stack: Stack, count: int) -> list[str]:
    """Migrated databases without rows, one for each lane; their DSNs."""
    first = "sco_chaos_0"
    with psycopg.connect(stack.dsn("postgres"), autocommit=True) as owner:
        for number in range(count):
            name = sql.Identifier(f"sco_chaos_{number}")
            owner.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        owner.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(first)))
        upgrade(stack.dsn(first))
        for number in range(1, count):
            owner.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(f"sco_chaos_{number}"), sql.Identifier(first)
                )
            )
    return [stack.dsn(f"sco_chaos_{number}") for number in range(count)]


# The table


@dataclass
class Row:
    """What came of all cases of one cell."""

    cell: Cell
    cases: int = 0
    fired: int = 0
    deaths: int = 0
    breaches: dict[Breach, int] = field(default_factory=dict)
    cycles: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.fired += outcome.fired
        self.deaths += outcome.deaths
        self.cycles.append(outcome.cycles)
        for breach in {one.breach for one in outcome.broken}:
            self.breaches[breach] = self.breaches.get(breach, 0) + 1


@dataclass
class Table:
    """All cells with their cases."""

    rows: dict[Cell, Row] = field(default_factory=dict)
    broken: list[Outcome] = field(default_factory=list)
    rate_used: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.rows.setdefault(outcome.cell, Row(outcome.cell)).add(outcome)
        self.rate_used = max(self.rate_used, outcome.rate_used)
        if not outcome.passed:
            self.broken.append(outcome)

    @property
    def cases(self) -> int:
        return sum(row.cases for row in self.rows.values())

    def count(self, *breaches: Breach) -> int:
        """Cases with any of these breaches."""
        return sum(bool({one.breach for one in outcome.broken} & set(breaches)) for outcome in self.broken)


def told(outcome: Outcome) -> str:
    """A broken case in words, with how to repeat it."""
    lines = [f"{outcome.cell}, seed {outcome.seed}:"]
    lines += [f"  {one}" for one in outcome.broken[:MOST_TOLD]]
    if len(outcome.broken) > MOST_TOLD:
        lines.append(f"  and {len(outcome.broken) - MOST_TOLD} more")
    lines.append(f"  again: {Case(outcome.cell, outcome.seed).again}")
    return "\n".join(lines)


def run_all(stack: Stack, wanted: Sequence[Case], jobs: int) -> Iterator[Outcome]:
    """Every case, as each ends."""
    with field_of(stack, jobs) as own:
        own.submit(wanted)
        yield from own.results(wanted)
