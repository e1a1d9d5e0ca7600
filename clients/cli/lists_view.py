"""Lists on the screen, one row for each thing."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cli import serving_view
from clients.cli.answers import Contract, Generation, Partition, Placement, WorkloadSummary
from clients.cli.pool_answers import Pool
from clients.cli.screen import Column, Screen, figures, names, spare
from clients.cli.texts import gpu, moment, money, number, percent

_POOL_COLUMNS = (
    *names("POOL", "STATE", "TAKES WORK"),
    *figures("vCPU", "GiB"),
    *names("GPU"),
    *figures("FREE", "CAPACITY", "USD/h"),
    *spare(*names("MODEL", "HALL", "GROUP")),
)
_PLACEMENT_COLUMNS = (
    *names("WORKLOAD", "PHASE"),
    *figures("CLAIM", "PLANNED", "GENERATION", "UNITS", "PLACED", "ACTIVE"),
    *spare(*names("WORKFLOW")),
)


def pools(screen: Screen, listed: Sequence[Pool]) -> None:
    """Pools that are launched as instances, and below them those that serve models."""
    launched = [pool for pool in listed if not pool.serves]
    serving = [pool for pool in listed if pool.serves]
    if launched or not serving:
        _launched(screen, launched)
    if launched and serving:
        screen.line()
    if serving:
        serving_view.listing(screen, serving)


def _launched(screen: Screen, listed: Sequence[Pool]) -> None:
    _table_or_none(
        screen,
        "no pool found",
        _POOL_COLUMNS,
        [
            (
                pool.pool_id,
                pool.state,
                "yes" if pool.placeable else pool.not_placeable_reason or "no",
                f"{pool.cpu_cores:,}",
                f"{pool.ram_gb:,}",
                gpu(pool),
                f"{pool.capacity_instances - pool.reserved_instances:,}",
                f"{pool.capacity_instances:,}",
                number(pool.price_per_hour_usd),
                pool.purchase_model,
                pool.hall,
                pool.group_id,
            )
            for pool in listed
        ],
    )


def workloads(screen: Screen, listed: Sequence[WorkloadSummary]) -> None:
    _table_or_none(
        screen,
        "no workload yet: sco apply -f FILE",
        (
            *names("WORKLOAD", "PHASE"),
            *figures("CLAIM", "PLANNED", "GENERATION"),
            *names("PARTITION", "CONTRACT", "OWNER"),
        ),
        [
            (
                one.workload_id,
                one.phase,
                f"{one.claim_version:,}",
                f"{one.planned_version:,}",
                f"{one.generation:,}",
                one.partition_id,
                one.contract_id,
                one.owner_team,
            )
            for one in listed
        ],
    )


def contracts(screen: Screen, listed: Sequence[Contract]) -> None:
    _table_or_none(
        screen,
        "no contract yet: sco apply -f FILE",
        (
            *names("CONTRACT", "TIER"),
            *figures("FLOOR", "POOL CAP", "GROUP CAP", "INTERRUPTIONS/h", "DRAIN s"),
            *spare(*names("CHECKPOINTS", "RESTART", "ADVISORY")),
        ),
        [
            (
                one.contract_id,
                one.tier,
                percent(one.floor_share),
                percent(one.pool_cap_share),
                percent(one.group_cap_share),
                number(one.tolerated_interruptions_per_hour),
                f"{one.drain_budget_seconds}",
                one.checkpoint_mode or "-",
                one.restart or "-",
                "drains" if one.drain_on_advisory else "-",
            )
            for one in listed
        ],
    )


def partitions(screen: Screen, listed: Sequence[Partition]) -> None:
    _table_or_none(
        screen,
        "no partition yet",
        names("PARTITION", "REGION", "SCHEDULER"),
        [(one.partition_id, one.region, one.scheduler) for one in listed],
    )


def placements(screen: Screen, listed: Sequence[Placement]) -> None:
    screen.table(
        _PLACEMENT_COLUMNS,
        [
            (
                one.workload_id,
                one.phase,
                f"{one.claim_version:,}",
                f"{one.planned_version:,}",
                f"{one.generation:,}",
                f"{one.units:,}",
                f"{one.placed_units:,}",
                f"{one.active_instances:,}",
                one.workflow_id,
            )
            for one in listed
        ],
    )


def generations(screen: Screen, listed: Sequence[Generation]) -> None:
    _table_or_none(
        screen,
        "nothing is planned yet: sco claim -f FILE",
        (
            *figures("GENERATION", "CLAIM", "UNITS", "PLACED", "FLOOR", "COST/h", "PREMIUM/h"),
            *names("DECIDED"),
        ),
        [
            (
                f"{one.generation:,}",
                f"{one.claim_version:,}",
                f"{one.units:,}",
                f"{one.placed_units:,}",
                f"{one.floor_units:,}",
                money(one.cost_per_hour),
                money(one.depth_premium_per_hour),
                moment(one.decided_at),
            )
            for one in listed
        ],
    )


def _table_or_none(
    screen: Screen, none: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    if rows:
        screen.table(columns, rows)
    else:
        screen.note(none)
