"""A workload on the screen: what it claims, where it runs, and how near it is to its caps."""

from __future__ import annotations

from clients.cli.answers import FleetPool, Shortfall, Workload
from clients.cli.screen import Screen, figures, names, spare
from clients.cli.texts import count, money, number, percent, totals


def show(screen: Screen, workload: Workload) -> None:
    screen.title(f"workload {workload.workload_id}: {workload.phase}")
    screen.facts(_facts(workload))
    if workload.fleet:
        _fleet(screen, workload.fleet)
        _shares(screen, workload)


def _facts(workload: Workload) -> list[tuple[str, str]]:
    facts = [
        ("partition", workload.partition_id),
        ("contract", workload.contract_id),
        ("owner", workload.owner_team),
    ]
    if workload.claim is None:
        facts.append(("claim", f"none yet: sco claim -f FILE --workload {workload.workload_id}"))
        return facts
    facts.append((f"claim {workload.claim_version}", totals(workload.claim)))
    if workload.generation:
        planned = f"generation {workload.generation}, for claim {workload.planned_version}"
        facts.append(("plan", planned))
    if workload.caps is not None:
        caps = workload.caps
        facts.append(
            (
                "caps",
                f"floor {caps.floor_units:,} guaranteed units; at most {caps.pool_units:,} units per"
                f" reclaimable pool and {caps.group_units:,} per correlation group",
            )
        )
    facts.extend(_outcome(workload))
    return facts


def _outcome(workload: Workload) -> list[tuple[str, str]]:
    facts = []
    states = workload.instances_by_state
    if states:
        told = ", ".join(f"{total:,} {state}" for state, total in sorted(states.items()) if total)
        facts.append(("instances", told or "none"))
    if workload.shortfall is not None and workload.shortfall.units:
        facts.append(("shortfall", shortfall_text(workload.shortfall)))
    if workload.cost_per_hour is not None:
        facts.append(("cost", f"{money(workload.cost_per_hour)} per hour"))
    if workload.depth_premium_per_hour is not None:
        premium = money(workload.depth_premium_per_hour)
        facts.append(("depth premium", f"{premium} per hour more than the cheapest fill, for the spread"))
    if workload.waste is not None:
        waste = workload.waste
        facts.append(
            ("not used", f"{number(waste.vcpu)} vCPU and {number(waste.memory_gib)} GiB of the instances")
        )
    return facts


def shortfall_text(shortfall: Shortfall) -> str:
    why = shortfall.text or shortfall.reason or "the server gave no reason"
    return f"{count(shortfall.units, 'unit')} not placed: {why}"


def _fleet(screen: Screen, fleet: tuple[FleetPool, ...]) -> None:
    """One row for each pool and shape; instances are those there are of those that are planned."""
    screen.line()
    screen.table(
        (
            *names("POOL"),
            *figures("UNITS", "SHARE", "INSTANCES"),
            *names("SHAPE"),
            *spare(*names("MODEL", "HALL", "GROUP")),
        ),
        [
            (
                one.pool_id,
                f"{one.units:,}",
                percent(one.share),
                f"{one.instances:,}/{one.target_instances:,}",
                one.shape,
                one.purchase_model,
                one.hall,
                one.group_id,
            )
            for one in fleet
        ],
    )


def _shares(screen: Screen, workload: Workload) -> None:
    if workload.by_group:
        screen.line()
        screen.table(
            (*names("GROUP"), *figures("RECLAIMABLE UNITS", "SHARE", "CAP")),
            [
                (one.group_id, f"{one.units:,}", percent(one.share), f"{one.cap_units:,}")
                for one in workload.by_group
            ],
        )
    if workload.by_hall:
        screen.line()
        screen.table(
            (*names("HALL"), *figures("UNITS", "SHARE", "COMMITTED", "RECLAIMABLE", "EVEN SHARE")),
            [
                (
                    one.hall,
                    f"{one.units:,}",
                    percent(one.share),
                    f"{one.committed_units:,}",
                    f"{one.reclaimable_units:,}",
                    f"{one.cap_units:,}",
                )
                for one in workload.by_hall
            ],
        )
