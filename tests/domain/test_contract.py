"""Contracts: ranges of their fields and what is wrong beyond them, said with value and remedy."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from domain.contract import TIER_FLOOR, Contract, Tier, contract_problems


def contract(**changed: Any) -> Contract:
    return Contract(**{"contract_id": "etl", "tier": Tier.T1, "floor_share": Decimal("0.30"), **changed})


def test_a_contract_within_its_tier_has_no_problems() -> None:
    assert contract_problems(contract()) == ()
    assert contract_problems(contract(floor_share=Decimal(1))) == ()


@pytest.mark.parametrize("tier", list(Tier))
def test_the_floor_of_a_tier_is_its_minimum(tier: Tier) -> None:
    minimum = TIER_FLOOR[tier]
    assert contract_problems(contract(tier=tier, floor_share=minimum)) == ()
    if minimum > 0:
        (problem,) = contract_problems(contract(tier=tier, floor_share=minimum - Decimal("0.01")))
        assert f"{minimum - Decimal('0.01')} is below the minimum of tier {tier}, {minimum}" in problem
        assert f"raise it to at least {minimum}" in problem


def test_a_group_cap_below_the_pool_cap_is_named_with_both_values() -> None:
    (problem,) = contract_problems(contract(group_cap_share=Decimal("0.10")))
    assert "groupCapShare 0.10" in problem
    assert "poolCapShare 0.15" in problem


def test_every_problem_is_told_at_once() -> None:
    assert len(contract_problems(contract(floor_share=Decimal(0), group_cap_share=Decimal("0.1")))) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("floor_share", "-0.01"),
        ("floor_share", "1.01"),
        ("floor_share", "NaN"),
        ("pool_cap_share", "0"),
        ("group_cap_share", "1.000001"),
        ("drain_budget_seconds", 116),
        ("drain_budget_seconds", 0),
        ("tolerated_interruptions_per_hour", "0"),
        ("contract_id", "Not A Name"),
        ("tier", "T9"),
        ("discount", "0.5"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        contract(**{field: value})
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


def test_the_caps_of_the_tier_catalogue() -> None:
    assert (contract().pool_cap_share, contract().group_cap_share) == (Decimal("0.15"), Decimal("0.30"))
    assert {tier: TIER_FLOOR[tier] for tier in (Tier.T1, Tier.T2, Tier.T3, Tier.T4, Tier.T5)} == {
        Tier.T1: Decimal("0.30"),
        Tier.T2: Decimal("0.20"),
        Tier.T3: Decimal("0.10"),
        Tier.T4: Decimal(0),
        Tier.T5: Decimal(0),
    }
