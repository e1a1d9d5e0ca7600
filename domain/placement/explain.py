"""Why this pool? One decision, told for people.

Every pool of the ranking appears once, with one reason: it is kept, or it is not and `reason` says why.

The score is for the eye, the order is the rule. It puts the shortlist's order into one figure from 0 to 1:

    score = (depth_band + price_score) / bands
    price_score = (dearest - price) / (dearest + 1)     in micro-USD per unit and hour, dearest of the listed

A deeper band is always above every price, and the cheaper pool is above the dearer one in its band.
Equal scores stand in the order of their pool ids. Figures are exact; whoever shows them rounds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from domain.claim import Shape
from domain.model import Frozen
from domain.placement.caps import Caps
from domain.placement.filters import GIB_MIB, VCPU_MILLI, Entry, Shortlist
from domain.placement.portfolio import Allocation, Plan, Shortfall
from domain.placement.scoring import FOUR_PLACES, MICRO, PoolScore
from domain.pool import PurchaseModel
from domain.reasons import REASON_TEXT, SHORTFALL_TEXT, Reason, ShortfallReason


class Candidate(Frozen):
    """One pool of the ranking. `place` counts from 1 within its purchase model; None when not listed.

    Prices are per hour; a unit's is that of the claim's first shape, None where it does not fit.
    """

    pool_id: str
    purchase_model: PurchaseModel
    region: str
    hall: str
    group_id: str
    kept: bool
    reason: Reason | None
    text: str
    place: int | None
    score: Decimal | None
    depth: Decimal
    depth_band: int
    interruptions_per_hour: Decimal
    history_known: bool
    price_per_hour_usd: Decimal
    unit_price_per_hour_usd: Decimal | None
    units: int
    instances: int


class ReasonCount(Frozen):
    """How many pools were left out for one reason."""

    reason: Reason
    text: str
    pools: int


class Missing(Frozen):
    """Units that found no place."""

    units: int
    reason: ShortfallReason
    text: str


class CapsInForce(Frozen):
    """The caps of the claim in whole units; pool, group and probation caps bind reclaimable units."""

    units: int
    floor_units: int
    pool_units: int
    group_units: int
    probation_units: int
    hall_units: int


class FleetPart(Frozen):
    """What stands in one pool, correlation group or hall. Shares are of the whole claim, 0 to 1."""

    name: str
    units: int
    instances: int
    share: Decimal
    reclaimable_share: Decimal


class Waste(Frozen):
    """What instances have and units do not ask for: thousandths of a vCPU, MiB of memory."""

    vcpu_milli: int
    ram_mib: int


class PoolWaste(Waste):
    pool_id: str


class Explanation(Frozen):
    """Candidates in the order of reading: those kept, the rest of the shortlist, those refused."""

    candidates: tuple[Candidate, ...]
    counts_by_reason: tuple[ReasonCount, ...]
    missing: tuple[Missing, ...]
    caps: CapsInForce
    pools: tuple[FleetPart, ...]
    groups: tuple[FleetPart, ...]
    halls: tuple[FleetPart, ...]
    waste: tuple[PoolWaste, ...]
    waste_total: Waste
    cost_per_hour_usd: Decimal
    depth_premium_per_hour_usd: Decimal


@dataclass(frozen=True, slots=True)
class Decision:
    """The stored parts of a plan that an explanation needs. Prices are micro-USD per hour."""

    caps: Caps
    allocations: tuple[Allocation, ...]
    shortfalls: tuple[Shortfall, ...]
    reasons: Mapping[str, Reason]
    cost_micro_usd: int
    depth_premium_micro_usd: int


def explain(
    scores: Mapping[str, PoolScore],
    shortlist: Shortlist,
    decided: Plan | Decision,
    shapes: Sequence[Shape],
    *,
    depth_bands: int,
) -> Explanation:
    """Explain a plan over the ranking's `scores` by pool id and the class's `shortlist` and `shapes`.

    `depth_bands` is that of the policy the ranking was made under.
    """
    candidates = _Candidates(scores, shortlist, decided, depth_bands).all()
    counts = Counter(one.reason for one in candidates if one.reason is not None)
    waste = _waste(scores, decided.allocations, shapes)
    return Explanation(
        candidates=candidates,
        counts_by_reason=tuple(
            ReasonCount(reason=reason, text=REASON_TEXT[reason], pools=counts[reason])
            for reason in Reason
            if counts[reason]
        ),
        missing=tuple(
            Missing(units=one.units, reason=one.reason, text=SHORTFALL_TEXT[one.reason])
            for one in decided.shortfalls
        ),
        caps=_caps(decided.caps),
        pools=_fleet(shortlist, decided, lambda entry: entry.pool_id),
        groups=_fleet(shortlist, decided, lambda entry: entry.group_id),
        halls=_fleet(shortlist, decided, lambda entry: entry.hall),
        waste=waste,
        waste_total=Waste(
            vcpu_milli=sum(one.vcpu_milli for one in waste), ram_mib=sum(one.ram_mib for one in waste)
        ),
        cost_per_hour_usd=_usd(decided.cost_micro_usd),
        depth_premium_per_hour_usd=_usd(decided.depth_premium_micro_usd),
    )


class _Candidates:
    """Tells the pools of one decision."""

    def __init__(
        self,
        scores: Mapping[str, PoolScore],
        shortlist: Shortlist,
        decided: Plan | Decision,
        depth_bands: int,
    ) -> None:
        self.scores, self.shortlist, self.decided = scores, shortlist, decided
        self.depth_bands = depth_bands
        self.units: Counter[str] = Counter()
        self.instances: Counter[str] = Counter()
        for one in decided.allocations:
            self.units[one.pool_id] += one.units
            self.instances[one.pool_id] += one.instances
        listed = (*shortlist.floor, *shortlist.fill)
        self.dearest = max((entry.unit_price_micro_usd for entry in listed), default=0)

    def all(self) -> tuple[Candidate, ...]:
        return tuple(sorted((self.candidate(pool_id) for pool_id in self.scores), key=_reading_order))

    def candidate(self, pool_id: str) -> Candidate:
        score, entry = self.scores[pool_id], self.shortlist.entries[pool_id]
        kept = self.units[pool_id] > 0
        reason = None if kept else self.reason(entry)
        return Candidate(
            pool_id=pool_id,
            purchase_model=score.facts.purchase_model,
            region=entry.region,
            hall=entry.hall,
            group_id=entry.group_id,
            kept=kept,
            reason=reason,
            text=self.kept_text(entry) if reason is None else REASON_TEXT[reason],
            place=self.shortlist.rank_of.get(pool_id),
            score=self.score(entry),
            depth=score.depth,
            depth_band=score.depth_band,
            interruptions_per_hour=score.interruptions_per_hour,
            history_known=score.history_known,
            price_per_hour_usd=score.facts.price_per_hour_usd,
            unit_price_per_hour_usd=_usd(entry.unit_price_micro_usd) if entry.per_instance[0] else None,
            units=self.units[pool_id],
            instances=self.instances[pool_id],
        )

    def reason(self, entry: Entry) -> Reason:
        """What the plan met there, else the filter that refused it, else that it was not needed."""
        found = self.decided.reasons.get(entry.pool_id) or self.shortlist.refused.get(entry.pool_id)
        if found is not None:
            return found
        caps = self.decided.caps
        part_of_claim = caps.floor_units if entry.committed else caps.units - caps.floor_units
        return Reason.OUTSCORED if part_of_claim > 0 else Reason.PURCHASE_MODEL

    def kept_text(self, entry: Entry) -> str:
        units, instances = self.units[entry.pool_id], self.instances[entry.pool_id]
        holds = f"holds {_counted(units, 'unit')} on {_counted(instances, 'instance')}"
        refused = self.shortlist.refused.get(entry.pool_id)
        if refused is not None:
            return f"{holds} from before and takes no more: {REASON_TEXT[refused]}"
        part = "floor" if entry.committed else "fill"
        listed = len(self.shortlist.floor if entry.committed else self.shortlist.fill)
        return f"{holds}, place {self.shortlist.rank_of[entry.pool_id]} of {listed} for the {part}"

    def score(self, entry: Entry) -> Decimal | None:
        if entry.pool_id not in self.shortlist.rank_of:
            return None
        price_score = Decimal(self.dearest - entry.unit_price_micro_usd) / (self.dearest + 1)
        return (entry.depth_band + price_score) / self.depth_bands


def _reading_order(one: Candidate) -> tuple[bool, bool, bool, int, str]:
    """Kept before listed before refused; within these, the floor before the fill, each by place."""
    fill = one.purchase_model is not PurchaseModel.COMMITTED
    listed = one.place is not None
    return (not one.kept, not listed, fill and listed, one.place or 0, one.pool_id)


def _caps(caps: Caps) -> CapsInForce:
    return CapsInForce(
        units=caps.units,
        floor_units=caps.floor_units,
        pool_units=caps.pool_units,
        group_units=caps.group_units,
        probation_units=caps.probation_units,
        hall_units=caps.hall_units,
    )


def _fleet(
    shortlist: Shortlist, decided: Plan | Decision, name_of: Callable[[Entry], str]
) -> tuple[FleetPart, ...]:
    """What stands where, by name."""
    by_name: dict[str, list[Allocation]] = {}
    for one in decided.allocations:
        by_name.setdefault(name_of(shortlist.entries[one.pool_id]), []).append(one)
    return tuple(_part(shortlist, decided.caps, name, by_name[name]) for name in sorted(by_name))


def _part(shortlist: Shortlist, caps: Caps, name: str, allocations: Iterable[Allocation]) -> FleetPart:
    rows = [(one, shortlist.entries[one.pool_id].reclaimable) for one in allocations]
    units = sum(one.units for one, _ in rows)
    reclaimable = sum(one.units for one, can_be_reclaimed in rows if can_be_reclaimed)
    return FleetPart(
        name=name,
        units=units,
        instances=sum(one.instances for one, _ in rows),
        share=_share(units, caps),
        reclaimable_share=_share(reclaimable, caps),
    )


def _share(units: int, caps: Caps) -> Decimal:
    return (Decimal(units) / caps.units).quantize(FOUR_PLACES)


def _waste(
    scores: Mapping[str, PoolScore], allocations: Sequence[Allocation], shapes: Sequence[Shape]
) -> tuple[PoolWaste, ...]:
    vcpu_milli: Counter[str] = Counter()
    ram_mib: Counter[str] = Counter()
    for one in allocations:
        facts, shape = scores[one.pool_id].facts, shapes[one.shape_index]
        vcpu_milli[one.pool_id] += one.instances * facts.cpu_cores * VCPU_MILLI - one.units * shape.vcpu_milli
        ram_mib[one.pool_id] += one.instances * facts.ram_gb * GIB_MIB - one.units * shape.ram_mib
    return tuple(
        PoolWaste(pool_id=pool_id, vcpu_milli=vcpu_milli[pool_id], ram_mib=ram_mib[pool_id])
        for pool_id in sorted(vcpu_milli)
    )


def _usd(micro_usd: int) -> Decimal:
    return Decimal(micro_usd) / MICRO


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
