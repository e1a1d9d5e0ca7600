"""The fault matrix as a measurement: how many cases were lived through, and what they left behind."""

from __future__ import annotations

from collections.abc import Callable

from lab.bench.report import Figure
from lab.chaos.judge import Breach
from lab.chaos.matrix import Table, cases, run_all, told
from lab.stack.stack import Stack

CASES, SEED, JOBS = 512, 1, 2
PROGRESS_EVERY = 64


def measure(stack: Stack, echo: Callable[[str], None]) -> list[Figure]:
    """Every cell of the matrix in turn."""
    table = Table()
    for outcome in run_all(stack, cases(CASES, SEED), JOBS):
        table.add(outcome)
        if not outcome.passed:
            echo(told(outcome))
        if table.cases % PROGRESS_EVERY == 0:
            echo(f"  {table.cases} of {CASES} cases, {len(table.broken)} broken")
    lived = f"seeds from {SEED} in {len(table.rows)} cells, processes killed on the way"
    return [
        Figure(
            name="provider_fault_cases",
            value=table.cases,
            unit="cases",
            method=f"fault x step on the simulated cloud, {lived}; {len(table.broken)} broken",
            target=">= 500",
        ),
        Figure(
            name="provider_fault_leaks",
            value=table.count(Breach.LEAKED, Breach.DUPLICATE, Breach.FOREIGN),
            unit="cases",
            method="cases that left a server without a slot, two for one, or touched one of others",
            target="0",
        ),
        Figure(
            name="provider_rate_over_budget_max",
            value=table.rate_used,
            unit="ratio",
            method="most calls at the cloud in any 0.25, 1 or 5 s over what the budget allows in them",
            target="<= 1",
        ),
    ]
