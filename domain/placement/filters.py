"""From a ranking to a shortlist: what one requirement class may use, in which order, and why not the rest.

Thousands of claims share a requirement class, so this is computed once per ranking and class and then
referenced. Filters run in a fixed order and the first that refuses gives the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from domain.claim import Requirements, Shape
from domain.model import Frozen
from domain.placement.scoring import MICRO, PoolScore, Ranking
from domain.pool import PoolFacts, PurchaseModel
from domain.reasons import Reason

VCPU_MILLI = 1000
GIB_MIB = 1024


class SystemReserve(Frozen):
    """What an instance keeps for itself before units fit on it."""

    vcpu_milli: int = 0
    ram_mib: int = 0


class RequirementClass(Frozen):
    """What a claim asks of a pool, without how much. Equal classes share one shortlist.

    `pool_cap_units` is the pool cap, cut off where it no longer changes how full an instance gets.
    """

    requirements: Requirements
    shapes: tuple[Shape, ...]
    tolerated_interruptions_per_hour: Decimal
    pool_cap_units: int
    reserve: SystemReserve = SystemReserve()

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:32]


def units_per_instance(facts: PoolFacts, shape: Shape, reserve: SystemReserve) -> int:
    """How many equal units one instance holds; 0 when it cannot hold one.

    The scarcest resource decides. Memory, vCPU and GPUs are counted whole; a fraction of a unit is waste.
    """
    vcpu_milli = facts.cpu_cores * VCPU_MILLI - reserve.vcpu_milli
    ram_mib = facts.ram_gb * GIB_MIB - reserve.ram_mib
    fits = min(vcpu_milli // shape.vcpu_milli, ram_mib // shape.ram_mib)
    if shape.gpus:
        fits = min(fits, facts.gpu_count // shape.gpus)
    return max(0, fits)


def pool_cap_units_that_matter(ranking: Ranking, shapes: tuple[Shape, ...], cap_units: int) -> int:
    """`cap_units`, cut to the most units that any instance holds: above that, shortlists are equal.

    Pools are ordered by the price of the first shape's units, so that shape alone decides.
    """
    return min(cap_units, max(1, ranking.largest_cpu_cores * VCPU_MILLI // shapes[0].vcpu_milli))


Filter = tuple[Reason, Callable[[PoolScore, RequirementClass], bool]]


def _arch(score: PoolScore, wanted: RequirementClass) -> bool:
    return score.facts.arch is wanted.requirements.arch


def _gpu(score: PoolScore, wanted: RequirementClass) -> bool:
    gpus = max(shape.gpus for shape in wanted.shapes)
    kind = wanted.requirements.gpu_type
    if gpus == 0 and kind is None:
        return score.facts.gpu_count == 0
    return score.facts.gpu_count >= max(1, gpus) and kind in (None, score.facts.gpu_type)


def _nvme(score: PoolScore, wanted: RequirementClass) -> bool:
    return score.facts.nvme or not wanted.requirements.nvme


def _nic(score: PoolScore, wanted: RequirementClass) -> bool:
    return score.facts.nic_gbps >= wanted.requirements.min_nic_gbps


def _region(score: PoolScore, wanted: RequirementClass) -> bool:
    return wanted.requirements.regions is None or score.facts.region in wanted.requirements.regions


def _boundary(score: PoolScore, wanted: RequirementClass) -> bool:
    allowed = wanted.requirements.boundaries
    return allowed is None or score.facts.security_boundary in allowed


def _cpu(score: PoolScore, wanted: RequirementClass) -> bool:
    room = score.facts.cpu_cores * VCPU_MILLI - wanted.reserve.vcpu_milli
    return all(shape.vcpu_milli <= room for shape in wanted.shapes)


def _memory(score: PoolScore, wanted: RequirementClass) -> bool:
    room = score.facts.ram_gb * GIB_MIB - wanted.reserve.ram_mib
    return all(shape.ram_mib <= room for shape in wanted.shapes)


def _price(score: PoolScore, wanted: RequirementClass) -> bool:
    limit = wanted.requirements.max_price_per_unit_hour_usd
    if limit is None:
        return True
    fits = min(units_per_instance(score.facts, shape, wanted.reserve) for shape in wanted.shapes)
    return fits > 0 and score.facts.price_per_hour_usd <= Decimal(limit) * fits


def _tolerated(score: PoolScore, wanted: RequirementClass) -> bool:
    committed = score.facts.purchase_model is not PurchaseModel.RECLAIMABLE
    return committed or score.interruptions_per_hour <= wanted.tolerated_interruptions_per_hour


FACT_FILTERS: tuple[Filter, ...] = (
    (Reason.BOUNDARY, _boundary),
    (Reason.REGION, _region),
    (Reason.ARCH, _arch),
    (Reason.GPU, _gpu),
    (Reason.NVME, _nvme),
    (Reason.NIC, _nic),
    (Reason.CPU, _cpu),
    (Reason.MEMORY, _memory),
)
TERM_FILTERS: tuple[Filter, ...] = (
    (Reason.PRICE, _price),
    (Reason.INTERRUPTION_RATE, _tolerated),
)
FACT_REASONS = frozenset(reason for reason, _ in FACT_FILTERS)


def refused_by(score: PoolScore, wanted: RequirementClass) -> Reason | None:
    """The first filter that refuses the pool for this class, or None."""
    for reason, passes in FACT_FILTERS:
        if not passes(score, wanted):
            return reason
    if score.refused is not None:
        return score.refused
    for reason, passes in TERM_FILTERS:
        if not passes(score, wanted):
            return reason
    return None


@dataclass(frozen=True, slots=True)
class Entry:
    """One pool as the planner sees it: fit per shape and price per instance and hour in micro-USD."""

    pool_id: str
    region: str
    hall: str
    group_id: str
    committed: bool
    price_micro_usd: int
    per_instance: tuple[int, ...]
    depth_band: int
    unit_price_micro_usd: int
    guaranteed: bool = False

    @property
    def reclaimable(self) -> bool:
        """Whether pool, group and probation caps bind here: only what can be reclaimed is capped."""
        return not (self.committed or self.guaranteed)


@dataclass(frozen=True, slots=True)
class Shortlist:
    """What one requirement class may use, best first; `entries` also knows the pools it may not use."""

    ranking_id: str
    class_key: str
    fill: tuple[Entry, ...]
    floor: tuple[Entry, ...]
    cheapest: tuple[tuple[Entry, ...], ...]
    entries: dict[str, Entry]
    refused: dict[str, Reason]
    rank_of: dict[str, int]


def _entry(score: PoolScore, wanted: RequirementClass) -> Entry:
    facts = score.facts
    fits = tuple(units_per_instance(facts, shape, wanted.reserve) for shape in wanted.shapes)
    price = int(facts.price_per_hour_usd * MICRO)
    used = max(1, min(fits[0], wanted.pool_cap_units))
    return Entry(
        pool_id=facts.pool_id,
        region=facts.region,
        hall=facts.hall,
        group_id=facts.group_id,
        committed=facts.purchase_model is PurchaseModel.COMMITTED,
        price_micro_usd=price,
        per_instance=fits,
        depth_band=score.depth_band,
        unit_price_micro_usd=-(-price // used),
        guaranteed=facts.purchase_model is PurchaseModel.GUARANTEED,
    )


def _preference(entry: Entry) -> tuple[int, int, str]:
    return (-entry.depth_band, entry.unit_price_micro_usd, entry.pool_id)


def _by_price(entries: tuple[Entry, ...], shape_index: int) -> tuple[Entry, ...]:
    """Pools by price per unit of one shape, cheapest first; exact, in cross-multiplied integers."""
    scale = max((entry.per_instance[shape_index] for entry in entries), default=1)
    common = MICRO * max(1, scale)
    return tuple(
        sorted(
            entries,
            key=lambda one: (one.price_micro_usd * common // one.per_instance[shape_index], one.pool_id),
        )
    )


def shortlist(ranking: Ranking, wanted: RequirementClass) -> Shortlist:
    """Filter and order every pool of `ranking` for one requirement class."""
    entries = {score.facts.pool_id: _entry(score, wanted) for score in ranking.scores}
    refused: dict[str, Reason] = {}
    fill, floor = [], []
    for score in ranking.scores:
        pool_id, model = score.facts.pool_id, score.facts.purchase_model
        reason = refused_by(score, wanted)
        if reason is not None:
            refused[pool_id] = reason
        elif model is PurchaseModel.RECLAIMABLE:
            fill.append(entries[pool_id])
        elif model is PurchaseModel.COMMITTED:
            floor.append(entries[pool_id])
        else:
            refused[pool_id] = Reason.PURCHASE_MODEL
    ordered = tuple(sorted(fill, key=_preference))
    floors = tuple(sorted(floor, key=_preference))
    return Shortlist(
        ranking_id=ranking.ranking_id,
        class_key=wanted.key,
        fill=ordered,
        floor=floors,
        cheapest=tuple(_by_price(ordered, index) for index in range(len(wanted.shapes))),
        entries=entries,
        refused=refused,
        rank_of={entry.pool_id: place + 1 for place, entry in enumerate(ordered)}
        | {entry.pool_id: place + 1 for place, entry in enumerate(floors)},
    )
