"""Lists on the screen, one row for each thing."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cli.answers import Contract, Generation, Partition, Placement, Pool, WorkloadSummary
from clients.cli.screen import Screen
from clients.cli.texts import moment, money, number, percent

_POOL_COLUMNS = (
    "POOL",
    "STATE",
    "TAKES WORK",
    "MODEL",
    "HALL",
    "GROUP",
    ">vCPU",
    ">GiB",
    "GPU",
    ">FREE",
    ">CAPACITY",
    ">USD/h",
)

_PLACEMENT_COLUMNS = (
    "WORKLOAD",
    "PHASE",
    ">CLAIM",
    ">PLANNED",
    ">GENERATION",
    ">UNITS",
    ">PLACED",
    ">ACTIVE",
    "WORKFLOW",
)


def pools(screen: Screen, listed: Sequence[Pool]) -> None:
    _table_or_none(
        screen,
        "no pool fits these filters",
        _POOL_COLUMNS,
        [
            (
                pool.pool_id,
                pool.state,
                "yes" if pool.placeable else pool.not_placeable_reason or "no",
                pool.purchase_model,
                pool.hall,
                pool.group_id,
                f"{pool.cpu_cores:,}",
                f"{pool.ram_gb:,}",
                gpu(pool),
                f"{pool.capacity_instances - pool.reserved_instances:,}",
                f"{pool.capacity_instances:,}",
                number(pool.price_per_hour_usd),
            )
            for pool in listed
        ],
    )


def gpu(pool: Pool) -> str:
    return f"{pool.gpu_count}x{pool.gpu_type}" if pool.gpu_count else "-"


def workloads(screen: Screen, listed: Sequence[WorkloadSummary]) -> None:
    _table_or_none(
        screen,
        "no workload yet: sco apply -f FILE",
        ("WORKLOAD", "PHASE", "PARTITION", "CONTRACT", "OWNER", ">CLAIM", ">PLANNED", ">GENERATION"),
        [
            (
                one.workload_id,
                one.phase,
                one.partition_id,
                one.contract_id,
                one.owner_team,
                f"{one.claim_version:,}",
                f"{one.planned_version:,}",
                f"{one.generation:,}",
            )
            for one in listed
        ],
    )


def contracts(screen: Screen, listed: Sequence[Contract]) -> None:
    _table_or_none(
        screen,
        "no contract yet: sco apply -f FILE",
        ("CONTRACT", "TIER", ">FLOOR", ">POOL CAP", ">GROUP CAP", ">INTERRUPTIONS/h", ">DRAIN s"),
        [
            (
                one.contract_id,
                one.tier,
                percent(one.floor_share),
                percent(one.pool_cap_share),
                percent(one.group_cap_share),
                number(one.tolerated_interruptions_per_hour),
                f"{one.drain_budget_seconds}",
            )
            for one in listed
        ],
    )


def partitions(screen: Screen, listed: Sequence[Partition]) -> None:
    _table_or_none(
        screen,
        "no partition yet",
        ("PARTITION", "REGION", "SCHEDULER"),
        [(one.partition_id, one.region, one.scheduler) for one in listed],
    )


def placements(screen: Screen, listed: Sequence[Placement]) -> None:
    screen.table(
        (
            "WORKLOAD",
            "PHASE",
            ">CLAIM",
            ">PLANNED",
            ">GENERATION",
            ">UNITS",
            ">PLACED",
            ">ACTIVE",
            "WORKFLOW",
        ),
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
        (">GENERATION", ">CLAIM", ">UNITS", ">PLACED", ">FLOOR", ">COST/h", ">PREMIUM/h", "DECIDED"),
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


def _table_or_none(screen: Screen, none: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        screen.table(columns, rows)
    else:
        screen.note(none)
