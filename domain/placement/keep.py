"""Which units of a workload's holdings stay, oldest and best first.

What does not fit the claim any more is released: newest and least valuable first. Of the floor, what
keeps it spread over its halls stays before that order counts, so a shrinking floor keeps its spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.placement.caps import Caps
from domain.placement.draft import Holding
from domain.placement.filters import Entry


class Kept(NamedTuple):
    """A holding, and how many of its units may stay."""

    held: Holding
    entry: Entry

    @property
    def room(self) -> int:
        """Units that the holding's instances really hold; an instance that is gone holds none."""
        return min(self.held.units, self.held.instances * self.entry.per_instance[self.held.shape_index])


def floor_to_keep(candidates: Sequence[Kept], units_by_shape: Sequence[int], caps: Caps) -> list[int]:
    """Units to keep of each committed holding: one per hall first, then an even share, then the rest."""
    kept = [0] * len(candidates)
    left, left_by_shape = caps.floor_units, list(units_by_shape)
    by_hall: dict[str, int] = {}
    for hall_limit in (1, caps.floor_hall_units, caps.units):
        for place, one in enumerate(candidates):
            in_hall = by_hall.get(one.entry.hall, 0)
            shape = one.held.shape_index
            room = min(one.room - kept[place], hall_limit - in_hall, left_by_shape[shape], left)
            units = max(0, room)
            kept[place] += units
            left -= units
            left_by_shape[shape] -= units
            by_hall[one.entry.hall] = in_hall + units
    return kept


def floor_to_find(unheld_by_shape: Sequence[int], missing_units: int) -> list[int]:
    """How the floor's missing units fall on shapes: the largest, which are the hardest to place again.

    Only units that run nowhere yet are taken, so that a growing claim moves nothing.
    """
    left, parts = missing_units, []
    for units in unheld_by_shape:
        parts.append(min(units, left))
        left -= parts[-1]
    return parts
