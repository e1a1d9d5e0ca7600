"""What was measured: a table on screen, and `build/bench.json` for whoever compares runs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from domain.model import Frozen


class Figure(Frozen):
    """One measured figure. `target` is what the product promises, where it promises something."""

    name: str
    value: float
    unit: str
    method: str
    target: str = ""


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `values` must not be empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * int(share * 1000) // 1000) - 1))]


def machine() -> str:
    """The machine in one line: processor, cores, memory, Python."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"


def show(console: Console, figures: Sequence[Figure]) -> None:
    table = Table(title=f"Measured on {machine()}")
    for heading in ("name", "value", "unit", "target", "method"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for one in figures:
        table.add_row(one.name, f"{one.value:,.2f}", one.unit, one.target, one.method)
    console.print(table)


def write(path: Path, figures: Sequence[Figure]) -> None:
    """Replace the figures of these names in the file, keep the others."""
    kept = json.loads(path.read_text()) if path.exists() else []
    names = {one.name for one in figures}
    rows = [row for row in kept if row["name"] not in names]
    rows += [one.model_dump(exclude={"target"}) | {"machine": machine()} for one in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sorted(rows, key=lambda row: row["name"]), indent=2) + "\n")
