"""A claim of another size: its shapes in the same proportions, their units adding up exactly.

Every shape gets the whole part of its proportional share; the units that are left go one each to the
shapes with the largest remainders, the larger shape first on a tie. Shapes keep their place even with
no units, so that a claim of nothing can grow again.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.claim import Demand


def scaled(demand: Demand, units: int) -> Demand:
    """`demand` with `units` in all. A demand without units is divided evenly over its shapes."""
    if not demand.shapes:
        raise ValueError("a demand without shapes cannot be scaled")
    shares = apportion([group.units for group in demand.shapes], units)
    shapes = tuple(
        group.model_copy(update={"units": share}) for group, share in zip(demand.shapes, shares, strict=True)
    )
    return demand.model_copy(update={"shapes": shapes})


def apportion(weights: Sequence[int], units: int) -> list[int]:
    """`units` divided as `weights` are, by largest remainder; evenly where all weights are zero."""
    total = sum(weights)
    if total == 0:
        return apportion([1] * len(weights), units)
    shares = [weight * units // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-(weights[index] * units % total), index))
    for index in by_remainder[: units - sum(shares)]:
        shares[index] += 1
    return shares
