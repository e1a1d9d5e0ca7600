"""`sco describe` and `sco status`: one thing in full."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.cli import facts_view, workload_view
from clients.cli.answers import Contract, Pool, Status, Workload, read
from clients.cli.api import path
from clients.cli.commands.options import Output, PoolName, WorkloadName
from clients.cli.screen import Format
from clients.cli.session import checked_name, session_of

describe = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show one pool, workload or contract in full."
)

ContractName = Annotated[
    str, typer.Argument(metavar="CONTRACT", help="The contract's name.", show_default=False)
]


@describe.command("pool")
def describe_pool(context: typer.Context, pool: PoolName, output: Output = Format.TABLE) -> None:
    """Show a pool: its place, size, prices and what it holds.

    \b
    Example:
      sco describe pool eu-north-h1-gp-m
    """
    session = session_of(context)
    document = session.api.get(path("factory", "compute-pools", checked_name("pool", pool)))
    if output is Format.TABLE:
        facts_view.pool(session.screen, read(Pool, document, "the pool"))
    else:
        session.screen.document(document, output)


@describe.command("workload")
def describe_workload(context: typer.Context, workload: WorkloadName, output: Output = Format.TABLE) -> None:
    """Show a workload: its claim and its fleet against caps.

    The fleet is shown by pool, by correlation group and by hall.

    \b
    Example:
      sco describe workload orders-daily
    """
    session = session_of(context)
    document = session.api.get(path("workloads", checked_name("workload", workload)))
    if output is Format.TABLE:
        workload_view.show(session.screen, read(Workload, document, "the workload"))
    else:
        session.screen.document(document, output)


@describe.command("contract")
def describe_contract(context: typer.Context, contract: ContractName, output: Output = Format.TABLE) -> None:
    """Show a contract: its tier, floor and caps.

    \b
    Example:
      sco describe contract orders-daily
    """
    session = session_of(context)
    document = session.api.get(path("contracts", checked_name("contract", contract)))
    if output is Format.TABLE:
        facts_view.contract(session.screen, read(Contract, document, "the contract"))
    else:
        session.screen.document(document, output)


def status(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show what the server holds and whether placements can run.

    \b
    Example:
      sco status
    """
    session = session_of(context)
    document = session.api.get("/status")
    if output is Format.TABLE:
        facts_view.status(session.screen, session.api.server, read(Status, document, "its status"))
    else:
        session.screen.document(document, output)
