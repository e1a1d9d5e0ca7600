"""`sco get`: lists."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.cli import lists_view, model_view, warm_view
from clients.cli.answers import Contract, Generation, Partition, Placement, WorkloadSummary, read_all
from clients.cli.api import Listed, Query, path
from clients.cli.commands.options import DEFAULT_LIMIT, Limit, Output, WorkloadName
from clients.cli.model_answers import ModelPlacement, PlacementState
from clients.cli.model_waiting import PLACEMENTS
from clients.cli.pool_answers import Pool
from clients.cli.screen import Format
from clients.cli.session import Session, checked_name, session_of
from clients.cli.warm_answers import WarmProfile
from domain.pool import PoolKind, PoolState, PurchaseModel
from domain.serving.health import Health
from domain.serving.placing import PlacementOutcome

get = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List pools, workloads, contracts, plans and placements.",
)

Region = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Only this region.", show_default=False)
]
Hall = Annotated[
    str | None, typer.Option("--hall", metavar="NAME", help="Only this hall.", show_default=False)
]
State = Annotated[
    PoolState | None, typer.Option("--state", help="Only pools in this state.", show_default=False)
]
Purchase = Annotated[
    PurchaseModel | None,
    typer.Option("--purchase-model", help="Only this purchase model.", show_default=False),
]
Sku = Annotated[
    str | None, typer.Option("--sku", metavar="NAME", help="Only this SKU family.", show_default=False)
]
Kind = Annotated[PoolKind | None, typer.Option("--kind", help="Only pools of this kind.", show_default=False)]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="TYPE", help="Only this GPU type.", show_default=False)
]
PoolHealth = Annotated[
    Health | None,
    typer.Option("--health", help="Only pools whose endpoint is known to be so.", show_default=False),
]
Stale = Annotated[
    bool, typer.Option("--stale", help="Only serving pools whose agent has been silent for too long.")
]


@get.command()
def pools(
    context: typer.Context,
    *,
    region: Region = None,
    hall: Hall = None,
    state: State = None,
    purchase_model: Purchase = None,
    sku: Sku = None,
    kind: Kind = None,
    gpu: Gpu = None,
    health: PoolHealth = None,
    stale: Stale = False,
    limit: Limit = DEFAULT_LIMIT,
    output: Output = Format.TABLE,
) -> None:
    """List compute pools, by name.

    Pools that serve models are a table of their own, below the others.

    \b
    Examples:
      sco get pools --region eu-north --purchase-model reclaimable
      sco get pools --hall eu-north-h1 --sku gp -o json
      sco get pools --kind cloud_gpu --health degraded
    """
    query: Query = {
        "region": region,
        "hall": hall,
        "state": state,
        "purchaseModel": purchase_model,
        "skuFamily": sku,
        "kind": kind,
        "gpuType": gpu,
        "health": health,
        "stale": stale or None,
    }
    session = session_of(context)
    listed = session.api.listing("/factory/compute-pools", query, limit)
    if not _printed(session, listed, output):
        lists_view.pools(session.screen, read_all(Pool, listed.items, "pools"))
    _say_more(session, listed, limit)


@get.command()
def workloads(context: typer.Context, limit: Limit = DEFAULT_LIMIT, output: Output = Format.TABLE) -> None:
    """List workloads, by name, with how far their claims are.

    \b
    Example:
      sco get workloads
    """
    session = session_of(context)
    listed = session.api.listing("/workloads", {}, limit)
    if not _printed(session, listed, output):
        lists_view.workloads(session.screen, read_all(WorkloadSummary, listed.items, "workloads"))
    _say_more(session, listed, limit)


@get.command()
def contracts(context: typer.Context, limit: Limit = DEFAULT_LIMIT, output: Output = Format.TABLE) -> None:
    """List contracts, by name.

    \b
    Example:
      sco get contracts -o yaml
    """
    session = session_of(context)
    listed = session.api.listing("/contracts", {}, limit)
    if not _printed(session, listed, output):
        lists_view.contracts(session.screen, read_all(Contract, listed.items, "contracts"))
    _say_more(session, listed, limit)


@get.command()
def partitions(context: typer.Context, limit: Limit = DEFAULT_LIMIT, output: Output = Format.TABLE) -> None:
    """List partitions: one scheduler in one region each.

    \b
    Example:
      sco get partitions
    """
    session = session_of(context)
    listed = session.api.listing("/partitions", {}, limit)
    if not _printed(session, listed, output):
        lists_view.partitions(session.screen, read_all(Partition, listed.items, "partitions"))
    _say_more(session, listed, limit)


@get.command()
def placements(
    context: typer.Context,
    workloads: Annotated[
        list[str], typer.Argument(metavar="WORKLOAD", help="The workloads' names.", show_default=False)
    ],
    output: Output = Format.TABLE,
) -> None:
    """Show how far the placements of workloads are.

    \b
    Example:
      sco get placements orders-daily nightly-train
    """
    session = session_of(context)
    names = [checked_name("workload", name) for name in workloads]
    listed = Listed([session.api.get(path("placements", name)) for name in names], has_more=False)
    if not _printed(session, listed, output):
        lists_view.placements(session.screen, read_all(Placement, listed.items, "placements"))


@get.command()
def generations(
    context: typer.Context,
    workload: WorkloadName,
    limit: Limit = DEFAULT_LIMIT,
    output: Output = Format.TABLE,
) -> None:
    """List the plan generations of a workload, newest first.

    \b
    Example:
      sco get generations orders-daily --limit 5
    """
    session = session_of(context)
    where = path("placements", checked_name("workload", workload), "generations")
    listed = session.api.listing(where, {}, limit)
    if not _printed(session, listed, output):
        lists_view.generations(session.screen, read_all(Generation, listed.items, "plan generations"))
    _say_more(session, listed, limit)


@get.command("model-placements")
def model_placements(
    context: typer.Context,
    *,
    outcome: Annotated[
        PlacementOutcome | None,
        typer.Option("--outcome", help="Only placements with this outcome.", show_default=False),
    ] = None,
    state: Annotated[
        PlacementState | None,
        typer.Option("--state", help="Only placements in this state.", show_default=False),
    ] = None,
    deployment: Annotated[
        str | None,
        typer.Option("--deployment", metavar="NAME", help="Only this deployment.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Only this model.", show_default=False),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option("--pool", metavar="POOL", help="Only where this pool was chosen.", show_default=False),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    output: Output = Format.TABLE,
) -> None:
    """List placements of models, newest first.

    \b
    Examples:
      sco get model-placements --state held
      sco get model-placements --outcome no_capacity --model llama3.3:70b
    """
    query: Query = {
        "outcome": outcome,
        "state": state,
        "deploymentId": deployment,
        "model": model,
        "poolId": None if pool is None else checked_name("pool", pool),
    }
    session = session_of(context)
    listed = session.api.listing(path(*PLACEMENTS), query, limit)
    if not _printed(session, listed, output):
        model_view.listing(session.screen, read_all(ModelPlacement, listed.items, "placements"))
    _say_more(session, listed, limit)


@get.command("warm-profiles")
def warm_profiles(
    context: typer.Context, limit: Limit = DEFAULT_LIMIT, output: Output = Format.TABLE
) -> None:
    """List warm profiles, by name.

    Each says which models are kept loaded, on how many pools, and when.

    \b
    Example:
      sco get warm-profiles
    """
    session = session_of(context)
    listed = session.api.listing("/factory/warm-profiles", {}, limit)
    if not _printed(session, listed, output):
        warm_view.profiles(session.screen, read_all(WarmProfile, listed.items, "warm profiles"))
    _say_more(session, listed, limit)


def _printed(session: Session, listed: Listed, output: Format) -> bool:
    """Whether the list was printed as a document; else it is for people."""
    if output is Format.TABLE:
        return False
    session.screen.document(listed.items, output)
    return True


def _say_more(session: Session, listed: Listed, limit: int) -> None:
    if listed.has_more:
        session.screen.note(f"the first {limit:,} are listed and there are more: raise --limit")
