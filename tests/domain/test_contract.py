"""Contracts: ranges of their fields and what is wrong beyond them, said with value and remedy."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from domain.contract import (
    CHECKPOINTS,
    MAX_BUDGET_SECONDS,
    TIER_BOUNDS,
    TIER_DRAIN,
    TIER_FLOOR,
    WRITES_LAST,
    CheckpointMode,
    Contract,
    Restart,
    Tier,
    contract_problems,
    contract_warnings,
)

MODES, RESTARTS = list(CheckpointMode), list(Restart)


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
        ("drain_on_advisory", "perhaps"),
        ("checkpoint_mode", "sometimes"),
        ("final_write_seconds", 0),
        ("final_write_seconds", 86_401),
        ("restart", "later"),
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


def of_tier(tier: Tier, **changed: Any) -> Contract:
    return contract(tier=tier, floor_share=TIER_FLOOR[tier], **changed)


@pytest.mark.parametrize("tier", list(Tier))
def test_what_is_not_said_of_the_end_is_as_the_tier_declares(tier: Tier) -> None:
    silent, null = of_tier(tier), of_tier(tier, checkpoint_mode=None, restart=None)
    assert silent == null
    assert (silent.checkpoint_mode, silent.restart) == TIER_DRAIN[tier]
    assert (silent.drain_on_advisory, silent.final_write_seconds) == (False, None)
    assert contract_problems(silent) == ()
    said = of_tier(tier, checkpoint_mode="final", restart="requeue")
    assert (said.checkpoint_mode, said.restart) == (CheckpointMode.FINAL, Restart.REQUEUE)


@pytest.mark.parametrize("tier", list(Tier))
def test_every_end_is_allowed_or_refused_with_a_remedy_that_is_allowed(tier: Tier) -> None:
    """Whoever follows the remedies gets a contract, and nothing that the tier excludes slips through."""
    for mode in MODES:
        for restart in RESTARTS:
            problems = contract_problems(of_tier(tier, checkpoint_mode=mode, restart=restart))
            bounds = TIER_BOUNDS[tier]
            outside = mode not in bounds.checkpoint_modes or restart not in bounds.restarts
            lost = restart is Restart.RESUME and mode is CheckpointMode.NONE
            assert bool(problems) == (outside or lost), (mode, restart, problems)
    for mode in TIER_BOUNDS[tier].checkpoint_modes:
        for restart in TIER_BOUNDS[tier].restarts:
            better = mode if restart is not Restart.RESUME or mode is not CheckpointMode.NONE else "periodic"
            assert contract_problems(of_tier(tier, checkpoint_mode=better, restart=restart)) == ()


@pytest.mark.parametrize(
    ("tier", "changed", "told"),
    [
        (
            Tier.T1,
            {"checkpoint_mode": "periodic"},
            "checkpointMode periodic is not for tier T1, since its deadlines count on a final write:"
            " choose final or periodic_and_final, or another tier",
        ),
        (
            Tier.T3,
            {"checkpoint_mode": "none", "restart": "requeue"},
            "checkpointMode none is not for tier T3, since its work checkpoints:"
            " choose periodic, final or periodic_and_final, or another tier",
        ),
        (
            Tier.T4,
            {"restart": "resume", "checkpoint_mode": "final"},
            "restart resume is not for tier T4, since its work starts over: choose requeue, or another tier",
        ),
        (
            Tier.T5,
            {"restart": "none"},
            "restart none is not for tier T5, since its work starts over: choose requeue, or another tier",
        ),
        (
            Tier.T2,
            {"restart": "resume"},
            "restart resume needs a checkpoint to go on from, and checkpointMode is none: choose periodic,"
            " final or periodic_and_final, or restart requeue for work that starts over",
        ),
        (
            Tier.T1,
            {"final_write_seconds": 90, "drain_budget_seconds": 60},
            "finalWriteSeconds 90 is longer than drainBudgetSeconds 60:"
            " raise drainBudgetSeconds to at least 90, or write less after a notice",
        ),
        (
            Tier.T1,
            {"final_write_seconds": 600},
            "finalWriteSeconds 600 is longer than drainBudgetSeconds 115, which can be 115 at most:"
            " write less after a notice, such as only what changed since the last periodic checkpoint",
        ),
        (
            Tier.T3,
            {"final_write_seconds": 116},
            "finalWriteSeconds 116 is longer than drainBudgetSeconds 115, which can be 115 at most:"
            " write less after a notice, such as only what changed since the last periodic checkpoint,"
            " or choose checkpointMode periodic",
        ),
        (
            Tier.T3,
            {"final_write_seconds": 20, "checkpoint_mode": "periodic"},
            "finalWriteSeconds 20 is declared, and checkpointMode periodic has no final write: leave it out,"
            " or choose checkpointMode final or periodic_and_final",
        ),
    ],
)
def test_an_end_that_cannot_be_kept_is_told_with_value_and_remedy(
    tier: Tier, changed: dict[str, Any], told: str
) -> None:
    assert contract_problems(of_tier(tier, **changed)) == (told,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seconds", [1, 60, 61, MAX_BUDGET_SECONDS, 116])
def test_a_final_write_fits_the_budget_or_is_refused(mode: CheckpointMode, seconds: int) -> None:
    said = of_tier(Tier.BESPOKE, checkpoint_mode=mode, final_write_seconds=seconds, drain_budget_seconds=60)
    problems = contract_problems(said)
    assert (problems == ()) == (mode in WRITES_LAST and seconds <= 60)
    assert all(f"finalWriteSeconds {seconds}" in problem for problem in problems)


def test_a_final_write_of_unknown_length_is_warned_about() -> None:
    for mode in MODES:
        unsaid, said = (
            of_tier(Tier.BESPOKE, checkpoint_mode=mode, final_write_seconds=seconds) for seconds in (None, 30)
        )
        assert len(contract_warnings(unsaid)) == (mode in WRITES_LAST)
        assert contract_warnings(said) == ()
    (told,) = contract_warnings(contract(drain_budget_seconds=70))
    assert "declare finalWriteSeconds" in told
    assert "drainBudgetSeconds 70" in told


def test_the_bounds_of_the_tier_catalogue() -> None:
    everything = (tuple(CheckpointMode), tuple(Restart))
    assert {tier: bounds[:2] for tier, bounds in TIER_BOUNDS.items()} == {
        Tier.T1: (WRITES_LAST, tuple(Restart)),
        Tier.T2: everything,
        Tier.T3: (CHECKPOINTS, tuple(Restart)),
        Tier.T4: (tuple(CheckpointMode), (Restart.REQUEUE,)),
        Tier.T5: (tuple(CheckpointMode), (Restart.REQUEUE,)),
        Tier.BESPOKE: everything,
    }
    assert {CheckpointMode.FINAL, CheckpointMode.PERIODIC_AND_FINAL} == set(WRITES_LAST)
