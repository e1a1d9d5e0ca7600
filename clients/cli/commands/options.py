"""Options that several commands share."""

from __future__ import annotations

import sys
from typing import Annotated
from uuid import UUID

import typer

from clients.cli.failures import usage
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
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
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


def confirm(question: str, yes: bool) -> None:
    """Go on once a person has said yes. Failure where the answer is no, or nobody is there to give one."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage("nobody is there to confirm it, and nothing was changed", "repeat it with --yes")
    if not typer.confirm(question, err=True):
        raise usage("it was not confirmed, and nothing was changed")
