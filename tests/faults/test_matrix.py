"""The fault matrix: every cell with several seeds, and what the table must be for that to mean something."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.chaos.matrix import Case, Field, Table, cases, field_of, told
from lab.chaos.report import page
from lab.chaos.table import STEPS, Cell, Fault, cells, impossible
from lab.stack import Stack

SEED, CASES = 1, 512
LEAST_CASES = 500
PAGE = Path(__file__).parents[2] / "docs/reference/fault-matrix.md"
ALL = cases(CASES, SEED)
JOBS = max(1, min(2, os.cpu_count() or 1))


@pytest.fixture(scope="module")
def own_field(stack: Stack) -> Iterator[Field]:
    """Workers that are at every case already, in the order of the tests."""
    with field_of(stack, JOBS) as own:
        own.submit(sorted(ALL, key=lambda one: list(Fault).index(one.cell.fault)))
        yield own


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_nothing_leaks_or_is_made_twice_whatever_fails(own_field: Field, fault: Fault) -> None:
    table = Table()
    for outcome in own_field.results([one for one in ALL if one.cell.fault is fault]):
        table.add(outcome)
        print(f"{outcome.cell}, seed {outcome.seed}: {outcome.seconds:.1f} s, {outcome.deaths} deaths")
    assert not table.broken, "\n" + "\n".join(told(outcome) for outcome in table.broken)
    assert all(row.fired >= row.cases for row in table.rows.values())
    assert table.rate_used <= 1


def test_there_are_enough_cases_and_every_cell_is_one_or_says_why_not() -> None:
    assert len(ALL) >= LEAST_CASES
    assert len(set(ALL)) == len(ALL)
    every = [Cell(fault, step) for fault in Fault for step in STEPS]
    possible = set(cells())
    assert all((cell in possible) == (impossible(cell) is None) for cell in every)
    assert {one.cell for one in ALL} == possible
    assert all(any(cell.fault is fault for cell in possible) for fault in Fault)


def test_a_case_is_repeated_by_its_command() -> None:
    case = Case(Cell(Fault.DONE_503, STEPS[0]), 7)
    assert case in cases(1, 7, str(case.cell))
    assert '--only "503 after the work x create" --seed 7' in case.again


def test_a_name_that_no_cell_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no cell of the matrix is named '504 x moon'"):
        cases(1, 1, "504 x moon")


def test_the_page_has_every_cell_of_the_table() -> None:
    """`make fault-matrix` writes it anew when the table changes."""
    text = PAGE.read_text()
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| ")][1:]
    assert [tuple(row) for row in rows] == [(f"| {cell.fault.value}", cell.step.value) for cell in cells()]
    empty = page(Table(), (1, 1))
    assert text[text.index("## Cells that") :] == empty[empty.index("## Cells that") :]
