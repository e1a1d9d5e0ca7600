"""How deep and how cheap a pool is. Depth outranks price.

Depth is the chance that capacity taken now is still there in an hour, times how much of it there is:

    depth = calm * room
    calm  = 1 / (1 + r)     r: expected reclaim episodes per hour
    r     = (episodes + prior_rate * prior_hours) / (observed_hours + prior_hours)
    room  = min(1, free / deep_instances)     free: the least of the next 24 hours, within quota

A pool without history has exactly the prior's rate: unknown, never perfect. Depth is cut into equal
bands; a pool in a deeper band always ranks before one in a shallower band, whatever it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import Annotated

from pydantic import Field

from domain.model import Frozen
from domain.policy import ScoringPolicy
from domain.pool import PoolFacts, PurchaseModel
from domain.reasons import Reason

SCORER_VERSION = "1"
FOUR_PLACES = Decimal("0.0001")
SIX_PLACES = Decimal("0.000001")
MICRO = 1_000_000


class PoolInputs(Frozen):
    """What is known of one pool when it is scored.

    `free_instances` is the provider's forward capacity: the least that stays free over the next 24 h.
    `quota_instances` is how many more of this size the region's quota admits; None is unlimited.
    Episodes are merged reclaims of the last `history_days`; `observed_hours` is how long we held capacity.
    """

    facts: PoolFacts
    episodes: Annotated[int, Field(ge=0)] = 0
    observed_hours: Annotated[int, Field(ge=0)] = 0
    free_instances: Annotated[int, Field(ge=0)]
    quota_instances: Annotated[int, Field(ge=0)] | None = None


class PoolScore(Frozen):
    """One row of a ranking. `refused` names the filter that no claim can pass today."""

    facts: PoolFacts
    depth: Decimal
    depth_band: int
    interruptions_per_hour: Decimal
    history_known: bool
    discount_share: Decimal
    refused: Reason | None = None


class Ranking(Frozen):
    """Every pool of a partition, scored once; stored with the inputs it came from."""

    ranking_id: str
    partition_id: str
    scorer_version: str
    policy: ScoringPolicy
    scores: tuple[PoolScore, ...]

    @cached_property
    def largest_cpu_cores(self) -> int:
        """vCPUs of the largest instance in the ranking; 1 when it is empty."""
        return max((score.facts.cpu_cores for score in self.scores), default=1)


def interruptions_per_hour(inputs: PoolInputs, policy: ScoringPolicy) -> Decimal:
    """The expected reclaim episodes per hour, pulled towards the prior where little was seen.

    Only reclaimable capacity is ever reclaimed.
    """
    if inputs.facts.purchase_model is not PurchaseModel.RECLAIMABLE:
        return Decimal(0)
    prior_episodes = policy.prior_interruptions_per_hour * policy.prior_hours
    rate = (inputs.episodes + prior_episodes) / (inputs.observed_hours + policy.prior_hours)
    return rate.quantize(SIX_PLACES)


def depth_of(inputs: PoolInputs, rate_per_hour: Decimal, policy: ScoringPolicy) -> Decimal:
    """Depth between 0 and 1: see the module's text."""
    free = inputs.free_instances
    if inputs.quota_instances is not None:
        free = min(free, inputs.quota_instances)
    room = min(Decimal(1), Decimal(free) / policy.deep_instances)
    return (room / (1 + rate_per_hour)).quantize(FOUR_PLACES)


def refusal(inputs: PoolInputs, price_share: Decimal, policy: ScoringPolicy) -> Reason | None:
    """Why no claim may use this pool until the next run, or None. `price_share` is exact, not rounded."""
    reclaimable = inputs.facts.purchase_model is PurchaseModel.RECLAIMABLE
    if reclaimable and price_share > policy.discount_limit:
        return Reason.DISCOUNT
    if inputs.quota_instances == 0:
        return Reason.QUOTA
    return None


def score_pool(inputs: PoolInputs, policy: ScoringPolicy) -> PoolScore:
    facts = inputs.facts
    rate_per_hour = interruptions_per_hour(inputs, policy)
    depth = depth_of(inputs, rate_per_hour, policy)
    price_share = facts.price_per_hour_usd / facts.guaranteed_price_per_hour_usd
    return PoolScore(
        facts=facts,
        depth=depth,
        depth_band=min(int(depth * policy.depth_bands), policy.depth_bands - 1),
        interruptions_per_hour=rate_per_hour,
        history_known=inputs.observed_hours > 0 or facts.purchase_model is not PurchaseModel.RECLAIMABLE,
        discount_share=1 - price_share.quantize(FOUR_PLACES),
        refused=refusal(inputs, price_share, policy),
    )


def rank(ranking_id: str, partition_id: str, inputs: Sequence[PoolInputs], policy: ScoringPolicy) -> Ranking:
    """Score every pool; the order of `inputs` does not matter."""
    ordered = sorted(inputs, key=lambda one: one.facts.pool_id)
    return Ranking(
        ranking_id=ranking_id,
        partition_id=partition_id,
        scorer_version=SCORER_VERSION,
        policy=policy,
        scores=tuple(score_pool(one, policy) for one in ordered),
    )
