"""Contracts, as far as placement needs them: tier, floor and caps."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from domain.model import Frozen
from domain.pool import Name

Share = Annotated[Decimal, Field(ge=0, le=1, max_digits=7, decimal_places=6)]
CapShare = Annotated[Decimal, Field(gt=0, le=1, max_digits=7, decimal_places=6)]


class Tier(StrEnum):
    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"
    T5 = "T5"
    BESPOKE = "bespoke"


TIER_FLOOR: dict[Tier, Decimal] = {
    Tier.T1: Decimal("0.30"),
    Tier.T2: Decimal("0.20"),
    Tier.T3: Decimal("0.10"),
    Tier.T4: Decimal(0),
    Tier.T5: Decimal(0),
    Tier.BESPOKE: Decimal(0),
}


class Contract(Frozen):
    """What a workload's owner declared. Shares are of the whole claim, 0 to 1."""

    contract_id: Name
    tier: Tier
    floor_share: Share
    pool_cap_share: CapShare = Decimal("0.15")
    group_cap_share: CapShare = Decimal("0.30")
    tolerated_interruptions_per_hour: Annotated[Decimal, Field(gt=0, le=100)] = Decimal(1)
    drain_budget_seconds: Annotated[int, Field(ge=1, le=115)] = 115
    repo_commit: Annotated[str, Field(max_length=64)] = ""


def contract_problems(contract: Contract) -> tuple[str, ...]:
    """What is wrong with a contract beyond its field ranges, each with the value and the remedy."""
    minimum = TIER_FLOOR[contract.tier]
    problems = []
    if contract.floor_share < minimum:
        problems.append(
            f"floorShare {contract.floor_share} is below the minimum of tier {contract.tier}, {minimum}:"
            f" raise it to at least {minimum} or choose a tier with a lower floor"
        )
    if contract.group_cap_share < contract.pool_cap_share:
        problems.append(
            f"groupCapShare {contract.group_cap_share} is below poolCapShare {contract.pool_cap_share}:"
            " a group contains its pools, so its cap must be at least as large"
        )
    return tuple(problems)
