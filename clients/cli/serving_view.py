"""Pools that serve models on the screen: their health, their memory, and the models in it."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cli.model_answers import Load, ModelOnPool, PoolHistory
from clients.cli.pool_answers import CachedModel, Pool
from clients.cli.screen import Screen, figures, names, prose, spare
from clients.cli.texts import gpu, moment, number, percent
from domain.pool import PoolKind

LOADS_SHOWN = 5
_COLUMNS = (
    *names("POOL", "STATE", "TAKES WORK", "HEALTH", "STALE"),
    *figures("UTILIZATION", "MEMORY GB", "MODELS", "USD/h"),
    *spare(*names("GPU", "REGION", "BOUNDARY", "KIND", "TENANT")),
)
_MODEL_COLUMNS = (
    *names("MODEL", "STATE"),
    *figures("GB", "PLACEMENTS"),
    *names("LOADED"),
    *prose("PROBLEM"),
)
_LOAD_COLUMNS = (*names("LAST LOADS", "STARTED", "FOR"), *figures("SECONDS"), *prose("OUTCOME"))


def listing(screen: Screen, listed: Sequence[Pool]) -> None:
    """One row for each pool; memory is what is committed of all that there is."""
    screen.table(_COLUMNS, [_row(pool) for pool in listed])


def _row(one: Pool) -> tuple[str, ...]:
    return (
        one.pool_id,
        one.state,
        "yes" if one.placeable else one.not_placeable_reason or "no",
        one.health or "unknown",
        "no" if one.stale_since is None else "yes",
        percent(one.utilization),
        f"{one.committed_vram_gb or 0:,}/{one.vram_gb:,}",
        f"{len(one.cached_models):,}",
        number(one.price_per_hour_usd),
        gpu(one),
        one.region,
        one.security_boundary,
        one.kind,
        one.tenant_id,
    )


def facts(one: Pool) -> list[tuple[str, str]]:
    """What a serving pool has instead of instances."""
    committed = one.committed_vram_gb or 0
    stale = "" if one.stale_since is None else f"; silent for too long since {moment(one.stale_since)}"
    return [
        ("kind", _kind(one)),
        ("machine", f"{one.cpu_cores:,} vCPU, {one.ram_gb:,} GiB, {one.arch}, {gpu(one)}"),
        ("price", f"{number(one.price_per_hour_usd)} USD per hour"),
        ("memory", f"{committed:,} of {one.vram_gb:,} GB committed, {one.vram_gb - committed:,} GB free"),
        ("health", _health(one)),
        ("utilization", f"{percent(one.utilization)}, queue depth {one.queue_depth:,}"),
        ("reported", f"{moment(one.reported_at)}{stale}"),
        ("cold start", _cold_start(one)),
    ]


def _kind(one: Pool) -> str:
    """Only the private cloud has purchase models and flavors."""
    if one.kind != PoolKind.PRIVATE_CLOUD:
        return one.kind
    return f"{one.kind}, {one.purchase_model}, flavor {one.flavor}"


def _health(one: Pool) -> str:
    since = "" if one.health_changed_at is None else f" since {moment(one.health_changed_at)}"
    problem = "" if one.health_problem is None else f": {one.health_problem}"
    return f"{one.health or 'unknown'}{since}{problem}; last probe {moment(one.probed_at)}"


def _cold_start(one: Pool) -> str:
    """As it counts when a model is placed: learned, else as registered; 0 says nothing."""
    if one.learned_cold_start_seconds is not None:
        return f"{one.learned_cold_start_seconds:,} s, learned from its loads"
    if one.cold_start_seconds:
        return f"{one.cold_start_seconds:,} s, as registered"
    return "not known yet"


def models(screen: Screen, one: Pool, told: PoolHistory) -> None:
    """The models on the pool now, and its newest loads.

    Who holds a model of another owner's pool, and why it did not load, is for that owner to know.
    """
    known = {each.model: each for each in told.models}
    if one.cached_models:
        screen.line()
        screen.table(_MODEL_COLUMNS, [_model(each, known.get(each.model)) for each in one.cached_models])
    if told.loads:
        screen.line()
        screen.table(_LOAD_COLUMNS, [_load(each) for each in told.loads[:LOADS_SHOWN]])


def _model(one: CachedModel, known: ModelOnPool | None) -> tuple[str, ...]:
    loaded = "-" if one.loaded_at is None else moment(one.loaded_at)
    holds = "-" if known is None else f"{known.holds:,}"
    problem = known.load_problem if known is not None else None
    return one.model, one.state, f"{one.vram_gb:,}", holds, loaded, problem or "-"


def _load(one: Load) -> tuple[str, ...]:
    seconds = "-" if one.seconds is None else number(one.seconds, 1)
    outcome = one.outcome or "running"
    told = outcome if one.problem is None else f"{outcome}: {one.problem}"
    return one.model, moment(one.started_at), one.cause, seconds, told
