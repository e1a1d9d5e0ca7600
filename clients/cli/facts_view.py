"""One thing on the screen, as names and values."""

from __future__ import annotations

from clients.cli import serving_view
from clients.cli.answers import Contract, RankedPartition, Status
from clients.cli.pool_answers import Pool
from clients.cli.screen import Screen, figures, names
from clients.cli.texts import duration, gpu, moment, number, percent


def pool(screen: Screen, one: Pool) -> None:
    screen.title(f"pool {one.pool_id}: {one.state}")
    blocked = one.not_placeable_text or one.not_placeable_reason or "the server gave no reason"
    group = f", {one.hall}, group {one.group_id} (by {one.group_basis})"
    screen.facts(
        [
            ("takes work", "yes" if one.placeable else f"no: {blocked}"),
            ("where", one.region + ("" if _stands_alone(one) else group)),
            ("boundary", f"{one.security_boundary}, tenant {one.tenant_id}"),
            *(serving_view.facts(one) if one.serves else _instances(one)),
            *_life(one),
            ("endpoint", one.endpoint_ref or "none"),
            ("version", f"{one.version}"),
        ]
    )


def _stands_alone(one: Pool) -> bool:
    """A pool outside the private cloud is its own group, in a hall that is the region."""
    return (one.hall, one.group_id) == (one.region, one.pool_id)


def _instances(one: Pool) -> list[tuple[str, str]]:
    free = one.capacity_instances - one.reserved_instances
    discount = 1 - one.price_per_hour_usd / one.guaranteed_price_per_hour_usd
    return [
        ("kind", f"{one.kind}, {one.purchase_model}, flavor {one.flavor}"),
        ("instance", _instance(one)),
        ("price", f"{number(one.price_per_hour_usd)} USD per instance and hour"),
        (
            "guaranteed",
            f"{number(one.guaranteed_price_per_hour_usd)} USD; this pool is {percent(discount)} below it",
        ),
        ("free", f"{free:,} of {one.capacity_instances:,} instances; {one.reserved_instances:,} reserved"),
        ("utilization", f"{percent(one.utilization)}, queue depth {one.queue_depth:,}"),
        ("reported", moment(one.reported_at)),
        ("cold start", f"{one.cold_start_seconds:,} s"),
    ]


def _life(one: Pool) -> list[tuple[str, str]]:
    """What the pool holds, and how far its drain is."""
    rows = [("holds", held_text(one))] if one.held is not None else []
    if one.draining_since is not None:
        rows.append(("draining since", moment(one.draining_since)))
        rows.append(("drained", moment(one.drained_at) if one.drained_at is not None else "not yet"))
    return rows


def held_text(one: Pool) -> str:
    """Such as `4 units on 2 instances of orders, web; models llama-70b`."""
    held = one.held
    if held is None:
        return "what the server did not say"
    parts = []
    if held.units or held.instances:
        whose = f" of {', '.join(held.workloads)}" if held.workloads else ""
        parts.append(f"{held.units:,} units on {held.instances:,} instances{whose}")
    if held.models:
        parts.append(f"models {', '.join(model.model for model in held.models)}")
    return "; ".join(parts) or "nothing"


def _instance(one: Pool) -> str:
    parts = [f"{one.cpu_cores:,} vCPU", f"{one.ram_gb:,} GiB", one.arch]
    if one.gpu_count:
        parts.append(f"{gpu(one)}, {one.vram_gb:,} GB each")
    if one.nvme:
        parts.append("local NVMe")
    parts.append(f"{one.nic_gbps:,} Gbps")
    return f"{one.sku_family}, size {one.size}: {', '.join(parts)}"


def contract(screen: Screen, one: Contract) -> None:
    screen.title(f"contract {one.contract_id}: tier {one.tier}")
    screen.facts(
        [
            ("floor", f"{percent(one.floor_share)} of every claim on committed capacity"),
            ("caps", f"{percent(one.pool_cap_share)} per pool, {percent(one.group_cap_share)} per group"),
            ("interruptions", f"up to {number(one.tolerated_interruptions_per_hour)} per hour"),
            ("drain budget", f"{one.drain_budget_seconds} s"),
            *_ending(one),
            ("from commit", one.repo_commit or "unknown"),
            *(("warning", warning) for warning in one.warnings),
        ]
    )


def _ending(one: Contract) -> list[tuple[str, str]]:
    """How the work ends; an older server does not say it."""
    if not one.checkpoint_mode:
        return []
    final = "" if one.final_write_seconds is None else f", the final write within {one.final_write_seconds} s"
    return [
        ("advisory notice", "drains" if one.drain_on_advisory else "lets the work run"),
        ("checkpoints", one.checkpoint_mode.replace("_", " ") + final),
        ("restart", one.restart),
    ]


def status(screen: Screen, server: str, one: Status) -> None:
    screen.title(f"server {server} at {moment(one.at)}")
    phases = ", ".join(f"{total:,} {phase}" for phase, total in one.workloads_by_phase.items() if total)
    screen.facts(
        [
            ("placements", "can run" if one.temporal_reachable else "cannot run: Temporal cannot be reached"),
            ("workloads", phases or "none"),
            ("events to be sent", f"{one.outbox_waiting:,}"),
        ]
    )
    if one.pools:
        screen.line()
        screen.table(
            (*figures("POOLS"), *names("STATE", "MODEL")),
            [(f"{count.pools:,}", count.state, count.purchase_model) for count in one.pools],
        )
    if one.partitions:
        screen.line()
        screen.table(
            (*names("PARTITION", "REGION", "SCHEDULER"), *figures("RANKING", "AGE")),
            [_ranked(partition) for partition in one.partitions],
        )


def _ranked(one: RankedPartition) -> tuple[str, ...]:
    version = "none yet" if one.ranking_version is None else f"{one.ranking_version:,}"
    age = "-" if one.ranking_age_seconds is None else duration(one.ranking_age_seconds)
    return one.partition_id, one.region, one.scheduler, version, age
