"""Which pool may run a model now, and why the others may not.

Filters come first, in a fixed order, and the first that refuses a pool gives its reason. What is left is
scored, and the best is chosen. A score is a sum of four parts, each 0 to 1 and each with its weight:

- warm: 1 where the model is loaded, else 0
- price: the cheapest price of those kept over its own
- utilization: what of the pool is not in use
- latency: how much of the time that the latency class allows is left when the model can serve

Parts are whole millionths, rounded down, so that equal inputs give equal scores on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

from domain.pool import PoolState
from domain.reasons import Reason
from domain.serving.placement_terms import ModelPlacementTerms, Weights
from domain.serving.requirements import STRICTNESS, ModelRequirements

MICRO = 1_000_000
PoolName = tuple[str, str]


class PlacementOutcome(StrEnum):
    """What came of a placement request."""

    PLACED = "placed"
    NO_CAPACITY = "no_capacity"
    POLICY_DENIED = "policy_denied"


class PoolNow(NamedTuple):
    """One pool with accelerator memory, as the registry holds it now.

    `price_micro_usd` is per hour; `utilization_micro` is a share. `cold_start_seconds` is None where nobody
    knows. `resident_vram_gb` is what the model asked for has on the pool already, loaded or promised;
    `loading` says that somebody loads it there at this moment, `backed_off` that it did not load there a
    short while ago.
    """

    tenant_id: str
    pool_id: str
    region: str
    boundary: str
    state: str
    endpoint_ref: str | None
    standing: str
    degraded: bool
    reported_at: datetime | None
    vram_gb: int
    committed_vram_gb: int
    price_micro_usd: int
    utilization_micro: int
    queue_depth: int
    cold_start_seconds: int | None = None
    resident_vram_gb: int = 0
    loaded: bool = False
    loading: bool = False
    backed_off: bool = False

    @property
    def name(self) -> PoolName:
        """The pool in full: an id is unique within its tenant only."""
        return (self.tenant_id, self.pool_id)


class Parts(NamedTuple):
    """The parts of a score, in millionths."""

    warm: int
    price: int
    utilization: int
    latency: int


class Kept(NamedTuple):
    """A pool that may run the model, in `start_seconds`; `cold_start_seconds` of them it loads."""

    pool: PoolNow
    cold_start_seconds: int
    start_seconds: int
    parts: Parts = Parts(0, 0, 0, 0)
    score: Decimal = Decimal(0)


class Excluded(NamedTuple):
    """A pool that may not run the model, for one reason."""

    pool: PoolNow
    reason: Reason


class Decision(NamedTuple):
    """What was decided. `kept` is best first and the first is chosen; `excluded` is in the order of names."""

    outcome: PlacementOutcome
    kept: tuple[Kept, ...]
    excluded: tuple[Excluded, ...]

    @property
    def chosen(self) -> Kept | None:
        return self.kept[0] if self.kept else None


class Question(NamedTuple):
    """What is decided on, besides the pools. `full` are pools that proved to have no room left."""

    wanted: ModelRequirements
    terms: ModelPlacementTerms
    now: datetime
    staleness: timedelta
    full: Collection[PoolName] = frozenset()


class _Limits(NamedTuple):
    """The requirements in the form in which pools are compared with them."""

    strictness: int
    regions: frozenset[str]
    vram_gb: int
    price_micro_usd: int | None
    start_seconds: int
    unknown_cold_start_seconds: int
    queued_request_seconds: int
    reported_since: datetime
    full: Collection[PoolName]


Filter = Callable[[PoolNow, _Limits], bool]


def decide(question: Question, pools: Iterable[PoolNow]) -> Decision:
    """Choose among pools; each of them is kept or excluded, once and for one reason."""
    limits = _limits(question)
    open_pools: list[PoolNow] = []
    excluded: list[Excluded] = []
    for pool in sorted(pools):
        reason = _refused(pool, limits)
        if reason is None:
            open_pools.append(pool)
        else:
            excluded.append(Excluded(pool, reason))
    kept = _scored(open_pools, limits, question.terms)
    return Decision(_outcome(kept, excluded), kept, tuple(excluded))


def cold_start_seconds(pool: PoolNow, unknown_seconds: int) -> int:
    """How long the model takes to load there; 0 where it is loaded."""
    if pool.loaded:
        return 0
    return unknown_seconds if pool.cold_start_seconds is None else pool.cold_start_seconds


def _boundary(pool: PoolNow, limits: _Limits) -> bool:
    return STRICTNESS[pool.boundary] >= limits.strictness


def _region(pool: PoolNow, limits: _Limits) -> bool:
    return not limits.regions or pool.region in limits.regions


def _memory(pool: PoolNow, limits: _Limits) -> bool:
    return pool.vram_gb >= limits.vram_gb


def _price(pool: PoolNow, limits: _Limits) -> bool:
    return limits.price_micro_usd is None or pool.price_micro_usd <= limits.price_micro_usd


def _latency(pool: PoolNow, limits: _Limits) -> bool:
    return _start_seconds(pool, limits) <= limits.start_seconds


def _state(pool: PoolNow, limits: _Limits) -> bool:
    return pool.state == PoolState.ACTIVE and pool.endpoint_ref is not None


def _reported(pool: PoolNow, limits: _Limits) -> bool:
    return pool.reported_at is not None and pool.reported_at >= limits.reported_since


def _healthy(pool: PoolNow, limits: _Limits) -> bool:
    return not pool.degraded


def _not_excluded(pool: PoolNow, limits: _Limits) -> bool:
    return pool.standing != "excluded"


def _not_in_probation(pool: PoolNow, limits: _Limits) -> bool:
    return pool.standing != "probation"


def _not_backed_off(pool: PoolNow, limits: _Limits) -> bool:
    return pool.loaded or not pool.backed_off


def _capacity(pool: PoolNow, limits: _Limits) -> bool:
    more = max(0, limits.vram_gb - pool.resident_vram_gb)
    return pool.committed_vram_gb + more <= pool.vram_gb and pool.name not in limits.full


FILTERS: tuple[tuple[Reason, Filter], ...] = (
    (Reason.BOUNDARY, _boundary),
    (Reason.REGION, _region),
    (Reason.MEMORY, _memory),
    (Reason.PRICE, _price),
    (Reason.LATENCY, _latency),
    (Reason.STATE, _state),
    (Reason.STALE, _reported),
    (Reason.DEGRADED, _healthy),
    (Reason.EXCLUDED, _not_excluded),
    (Reason.PROBATION, _not_in_probation),
    (Reason.BACKED_OFF, _not_backed_off),
    (Reason.CAPACITY, _capacity),
)
# What a policy forbids: no pool of another boundary or region is taken because these have no room.
POLICY_REASONS = frozenset({Reason.BOUNDARY, Reason.REGION})


def _refused(pool: PoolNow, limits: _Limits) -> Reason | None:
    """The first filter that refuses the pool, or None."""
    for reason, passes in FILTERS:
        if not passes(pool, limits):
            return reason
    return None


def _limits(question: Question) -> _Limits:
    wanted, terms = question.wanted, question.terms
    price = wanted.max_price_per_hour_usd
    return _Limits(
        strictness=STRICTNESS[wanted.boundary],
        regions=frozenset(wanted.regions),
        vram_gb=wanted.vram_gb,
        price_micro_usd=None if price is None else int(price * MICRO),
        start_seconds=terms.start_seconds(wanted.latency_class),
        unknown_cold_start_seconds=terms.unknown_cold_start_seconds,
        queued_request_seconds=terms.queued_request_seconds,
        reported_since=question.now - question.staleness,
        full=question.full,
    )


def _start_seconds(pool: PoolNow, limits: _Limits) -> int:
    """When the model could serve: loaded, and behind what waits already."""
    loading = cold_start_seconds(pool, limits.unknown_cold_start_seconds)
    return loading + pool.queue_depth * limits.queued_request_seconds


def _scored(pools: list[PoolNow], limits: _Limits, terms: ModelPlacementTerms) -> tuple[Kept, ...]:
    """Pools with their scores, the best first; equal ones in the order of tenant and pool."""
    cheapest = min((pool.price_micro_usd for pool in pools), default=0)
    kept = [_kept(pool, limits, cheapest, terms.weights) for pool in pools]
    return tuple(sorted(kept, key=lambda one: (-one.score, one.pool.name)))


def score_of(parts: Parts, weights: Weights) -> Decimal:
    """The score, exact: 0 to 1."""
    weighed: Decimal = sum((weight * part for weight, part in zip(weights, parts, strict=True)), Decimal(0))
    return weighed / MICRO


def _kept(pool: PoolNow, limits: _Limits, cheapest: int, weights: Weights) -> Kept:
    start = _start_seconds(pool, limits)
    price = pool.price_micro_usd
    parts = Parts(
        warm=MICRO if pool.loaded else 0,
        price=MICRO if price == cheapest else cheapest * MICRO // price,
        utilization=max(0, MICRO - pool.utilization_micro),
        latency=(limits.start_seconds - start) * MICRO // limits.start_seconds,
    )
    return Kept(
        pool=pool,
        cold_start_seconds=cold_start_seconds(pool, limits.unknown_cold_start_seconds),
        start_seconds=start,
        parts=parts,
        score=score_of(parts, weights),
    )


def _outcome(kept: tuple[Kept, ...], excluded: list[Excluded]) -> PlacementOutcome:
    if kept:
        return PlacementOutcome.PLACED
    if all(one.reason in POLICY_REASONS for one in excluded):
        return PlacementOutcome.POLICY_DENIED
    return PlacementOutcome.NO_CAPACITY


def verdicts(decision: Decision) -> Iterator[tuple[PoolNow, Reason | None]]:
    """Every candidate with its reason: None for the chosen pool, `outscored` for the others kept."""
    for place, one in enumerate(decision.kept):
        yield one.pool, None if place == 0 else Reason.OUTSCORED
    for refused in decision.excluded:
        yield refused.pool, refused.reason
