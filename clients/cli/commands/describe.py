"""`sco describe` and `sco status`: one thing in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from clients.cli import facts_view, model_view, serving_view, workload_view
from clients.cli.answers import Contract, Explanation, Status, Workload, read
from clients.cli.api import Query, path
from clients.cli.commands.options import Output, PlacementId, PoolName, WorkloadName
from clients.cli.failures import Exit, Failure, usage
from clients.cli.model_answers import ModelCandidate, ModelDecision, PoolHistory
from clients.cli.model_waiting import PLACEMENTS
from clients.cli.pool_answers import Pool
from clients.cli.screen import Format
from clients.cli.session import checked_name, session_of

describe = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show one pool, workload, contract or placement in full.",
)

ContractName = Annotated[
    str, typer.Argument(metavar="CONTRACT", help="The contract's name.", show_default=False)
]


@describe.command("pool")
def describe_pool(
    context: typer.Context,
    *,
    pool: PoolName,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            metavar="NAME",
            help="Who owns the pool, such as platform for one that is shared; you if left out.",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a pool: its place, size, prices and what it holds.

    Of a pool that serves models also its health, its memory, the models in it and its last loads.

    \b
    Examples:
      sco describe pool eu-north-h1-gp-m
      sco describe pool cloud-a --tenant platform
    """
    session = session_of(context)
    where = ("factory", "compute-pools", checked_name("pool", pool))
    owner: Query = {"tenantId": tenant}
    document = session.api.get(path(*where), owner)
    if output is not Format.TABLE:
        session.screen.document(document, output)
        return
    one = read(Pool, document, "the pool")
    facts_view.pool(session.screen, one)
    if one.serves:
        history = read(PoolHistory, session.api.get(path(*where, "history"), owner), "the pool's history")
        serving_view.models(session.screen, one, history)


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
    """Show a contract: tier, floor, caps, end of its work.

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


@describe.command("model-placement")
def describe_model_placement(
    context: typer.Context,
    *,
    placement: PlacementId,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool", metavar="POOL", help="Show this candidate alone. May be repeated.", show_default=False
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a placement of a model, and why not other pools.

    Every candidate has its score, or the reason that left it out.

    \b
    Examples:
      sco describe model-placement 0d31f0e2-45f2-4eba-b2b3-933738c1ff2f
      sco describe model-placement 0d31f0e2-45f2-4eba-b2b3-933738c1ff2f --pool cloud-b
    """
    session = session_of(context)
    document = session.api.get(path(*PLACEMENTS, str(placement)))
    if output is not Format.TABLE:
        session.screen.document(document, output)
        return
    if isinstance(document, dict) and "workloadId" in document:
        raise _of_a_claim(placement, read(Explanation, document, "the decision"))
    one = read(ModelDecision, document, "the placement")
    model_view.decision(session.screen, one, _chosen(one, pool))


def _chosen(one: ModelDecision, pools: list[str] | None) -> Sequence[ModelCandidate]:
    """The candidates that are asked for; a failure for one that was none."""
    if not pools:
        return one.candidates
    missing = sorted(set(pools) - {each.pool_id for each in one.candidates})
    if missing:
        raise Failure(
            Exit.REFUSED,
            f"{missing[0]} was no candidate of placement {one.placement_id}",
            ("candidates are pools with accelerator memory, your own and the platform's shared ones",),
        )
    return [each for each in one.candidates if each.pool_id in pools]


def _of_a_claim(placement: UUID, one: Explanation) -> Failure:
    return usage(
        f"{placement} is a decision about workload {one.workload_id}, not about a model",
        f"sco explain {one.workload_id} --generation {one.generation}",
    )


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
