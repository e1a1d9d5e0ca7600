"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from clients.cli.screen import Format
from clients.cli.waiting import DEFAULT_SECONDS
from domain.claim import MAX_UNITS

Output = Annotated[
    Format,
    typer.Option("-o", "--output", help="How to print the answer; json and yaml are as the server gave it."),
]
PoolName = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.", show_default=False)]
WorkloadName = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help="The workload's name.", show_default=False)
]
PlacementId = Annotated[
    UUID, typer.Argument(metavar="PLACEMENT", help="The placement's id.", show_default=False)
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the claim is placed or fell short.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long --wait waits at most.")
]
Units = Annotated[
    int,
    typer.Option(
        "--units", metavar="N", min=0, max=MAX_UNITS, help="How many units to run.", show_default=False
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="List at most this many.")
]

DEFAULT_LIMIT = 1000
DEFAULT_TIMEOUT = DEFAULT_SECONDS
CLAIM_FILE = typer.Option(
    "-f",
    "--file",
    metavar="FILE",
    help="A pod list, a Slurm job list or a claim; - is standard input.",
    show_default=False,
)
