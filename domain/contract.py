"""Contracts: what an owner declared of floor, caps, and how the work ends on a node that is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from domain.model import Frozen
from domain.pool import Name

Share = Annotated[Decimal, Field(ge=0, le=1, max_digits=7, decimal_places=6)]
CapShare = Annotated[Decimal, Field(gt=0, le=1, max_digits=7, decimal_places=6)]
MAX_BUDGET_SECONDS = 115
# Far more than any budget: a final write that is too long is told with its remedy, not as out of range.
MAX_FINAL_WRITE_SECONDS = 86_400
BudgetSeconds = Annotated[int, Field(ge=1, le=MAX_BUDGET_SECONDS)]
FinalWriteSeconds = Annotated[int, Field(ge=1, le=MAX_FINAL_WRITE_SECONDS)]


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


class CheckpointMode(StrEnum):
    """When the work writes its state; a final write follows a notice."""

    NONE = "none"
    PERIODIC = "periodic"
    FINAL = "final"
    PERIODIC_AND_FINAL = "periodic_and_final"


class Restart(StrEnum):
    """What becomes of work that a node was taken from: it goes on, starts over, or is not ours to start."""

    RESUME = "resume"
    REQUEUE = "requeue"
    NONE = "none"


class TierDrain(NamedTuple):
    """What holds for contracts of a tier that do not say how their work ends."""

    checkpoint_mode: CheckpointMode
    restart: Restart


class TierBounds(NamedTuple):
    """What contracts of a tier may declare instead, and why no more."""

    checkpoint_modes: tuple[CheckpointMode, ...]
    restarts: tuple[Restart, ...]
    because: str


TIER_DRAIN: dict[Tier, TierDrain] = {
    Tier.T1: TierDrain(CheckpointMode.PERIODIC_AND_FINAL, Restart.RESUME),
    Tier.T2: TierDrain(CheckpointMode.NONE, Restart.NONE),
    Tier.T3: TierDrain(CheckpointMode.PERIODIC_AND_FINAL, Restart.RESUME),
    Tier.T4: TierDrain(CheckpointMode.NONE, Restart.REQUEUE),
    Tier.T5: TierDrain(CheckpointMode.NONE, Restart.REQUEUE),
    Tier.BESPOKE: TierDrain(CheckpointMode.NONE, Restart.NONE),
}
WRITES_LAST = (CheckpointMode.FINAL, CheckpointMode.PERIODIC_AND_FINAL)
CHECKPOINTS = (CheckpointMode.PERIODIC, *WRITES_LAST)
_ALL_MODES, _ALL_RESTARTS = tuple(CheckpointMode), tuple(Restart)
_FREE = TierBounds(_ALL_MODES, _ALL_RESTARTS, "")
_STARTS_OVER = TierBounds(_ALL_MODES, (Restart.REQUEUE,), "its work starts over")
TIER_BOUNDS: dict[Tier, TierBounds] = {
    Tier.T1: TierBounds(WRITES_LAST, _ALL_RESTARTS, "its deadlines count on a final write"),
    Tier.T2: _FREE,
    Tier.T3: TierBounds(CHECKPOINTS, _ALL_RESTARTS, "its work checkpoints"),
    Tier.T4: _STARTS_OVER,
    Tier.T5: _STARTS_OVER,
    Tier.BESPOKE: _FREE,
}


class Contract(Frozen):
    """What a workload's owner declared. Shares are of the whole claim, 0 to 1.

    `checkpoint_mode` and `restart` that are left out, or None, are as the tier declares.
    """

    contract_id: Name
    tier: Tier
    floor_share: Share
    pool_cap_share: CapShare = Decimal("0.15")
    group_cap_share: CapShare = Decimal("0.30")
    tolerated_interruptions_per_hour: Annotated[Decimal, Field(gt=0, le=100)] = Decimal(1)
    drain_budget_seconds: BudgetSeconds = MAX_BUDGET_SECONDS
    drain_on_advisory: bool = False
    checkpoint_mode: CheckpointMode = CheckpointMode.NONE
    final_write_seconds: FinalWriteSeconds | None = None
    restart: Restart = Restart.NONE
    repo_commit: Annotated[str, Field(max_length=64)] = ""

    @model_validator(mode="before")
    @classmethod
    def _as_the_tier_declares(cls, said: Any) -> Any:
        tier = said.get("tier") if isinstance(said, dict) else None
        if not isinstance(tier, str) or tier not in TIER_DRAIN:
            return said
        left_out = {
            name: value for name, value in TIER_DRAIN[Tier(tier)]._asdict().items() if said.get(name) is None
        }
        return said | left_out


def contract_problems(contract: Contract) -> tuple[str, ...]:
    """What is wrong with a contract beyond its field ranges, each with the value and the remedy."""
    return (*_share_problems(contract), *_ending_problems(contract), *_final_write_problems(contract))


def contract_warnings(contract: Contract) -> tuple[str, ...]:
    """What cannot be checked for want of a declaration."""
    if contract.checkpoint_mode not in WRITES_LAST or contract.final_write_seconds is not None:
        return ()
    mode, budget = contract.checkpoint_mode, contract.drain_budget_seconds
    return (
        f"checkpointMode {mode} has a final write, and how long that takes is not said:"
        f" declare finalWriteSeconds, which is checked against drainBudgetSeconds {budget}",
    )


def _share_problems(contract: Contract) -> list[str]:
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
    return problems


def _ending_problems(contract: Contract) -> list[str]:
    """What its tier does not allow a contract comes first: a remedy against the tier would be none."""
    bounds = TIER_BOUNDS[contract.tier]
    declared = (
        ("checkpointMode", contract.checkpoint_mode, bounds.checkpoint_modes),
        ("restart", contract.restart, bounds.restarts),
    )
    problems = [
        f"{name} {value} is not for tier {contract.tier}, since {bounds.because}:"
        f" choose {_one_of(allowed)}, or another tier"
        for name, value, allowed in declared
        if value not in allowed
    ]
    if (
        not problems
        and contract.restart is Restart.RESUME
        and contract.checkpoint_mode is CheckpointMode.NONE
    ):
        problems.append(
            "restart resume needs a checkpoint to go on from, and checkpointMode is none:"
            f" choose {_one_of(CHECKPOINTS)}, or restart requeue for work that starts over"
        )
    return problems


def _final_write_problems(contract: Contract) -> list[str]:
    seconds, budget = contract.final_write_seconds, contract.drain_budget_seconds
    if seconds is None:
        return []
    if contract.checkpoint_mode not in WRITES_LAST:
        return [
            f"finalWriteSeconds {seconds} is declared, and checkpointMode {contract.checkpoint_mode} has no"
            f" final write: leave it out, or choose checkpointMode {_one_of(WRITES_LAST)}"
        ]
    if seconds <= budget:
        return []
    too_long = f"finalWriteSeconds {seconds} is longer than drainBudgetSeconds {budget}"
    if seconds <= MAX_BUDGET_SECONDS:
        return [f"{too_long}: raise drainBudgetSeconds to at least {seconds}, or write less after a notice"]
    may_leave_it = CheckpointMode.PERIODIC in TIER_BOUNDS[contract.tier].checkpoint_modes
    return [
        f"{too_long}, which can be {MAX_BUDGET_SECONDS} at most: write less after a notice, such as only what"
        " changed since the last periodic checkpoint"
        + (", or choose checkpointMode periodic" if may_leave_it else "")
    ]


def _one_of(allowed: Sequence[str]) -> str:
    *others, last = allowed
    return f"{', '.join(others)} or {last}" if others else last
