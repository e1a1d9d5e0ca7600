"""The depth premium: what depth and spread cost over the cheapest fill of the same units.

The cheapest fill knows no caps and no depth, only price, but it launches whole instances like every
fill. It is searched greedily, so the premium may be told too low, never too high.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from domain.placement.draft import Draft, Live, Row
from domain.placement.filters import Entry, Shortlist


class _Fill(NamedTuple):
    cost_micro_usd: int
    instances: tuple[tuple[str, int], ...]


def depth_premium_micro_usd(shortlist: Shortlist, draft: Draft, live: Callable[[str], Live]) -> int:
    """Per hour, over the pools that the shortlist still offers; 0 where no cheaper fill was found."""
    fill = [row for row in draft.rows() if row.entry.reclaimable and row.entry.pool_id in shortlist.rank_of]
    search = _Search(draft, live)
    cheapest = 0
    for index, order in enumerate(shortlist.cheapest):
        found = search.cheapest(order, index, _units(fill, index))
        if found is None:
            return 0
        cheapest += found
    return max(0, sum(row.instances * row.entry.price_micro_usd for row in fill) - cheapest)


def _units(rows: Sequence[Row], index: int) -> int:
    return sum(row.units for row in rows if row.shape_index == index)


class _Search:
    """Looks for the cheapest fill shape by shape; the shapes share what is free."""

    def __init__(self, draft: Draft, live: Callable[[str], Live]) -> None:
        self._draft = draft
        self._live = live
        self._used: dict[str, int] = {}

    def cheapest(self, order: Sequence[Entry], index: int, units: int) -> int | None:
        """The cost of `units` in `order` (by price per unit, cheapest first), or None without room."""
        if units == 0:
            return 0
        best = self._best(order, index, units)
        if best is None:
            return None
        for pool_id, instances in best.instances:
            new = max(0, instances - self._draft.held_instances(pool_id, index))
            self._used[pool_id] = self._used.get(pool_id, 0) + new
        return best.cost_micro_usd

    def _best(self, order: Sequence[Entry], index: int, units: int) -> _Fill | None:
        """Full instances of the cheapest pools; whichever pool finishes at the least cost finishes.

        Once a finish is known, a pool that cannot beat it alone is passed over unread.
        """
        left, full, best = units, _Fill(0, ()), None
        for entry in order:
            if left == 0 or (best is not None and _never_cheaper(full, entry, index, left, best)):
                break
            needed = -(-left // entry.per_instance[index])
            if best is not None and _plus(full, entry, needed).cost_micro_usd >= best.cost_micro_usd:
                continue
            instances = min(self._available(entry.pool_id, index), needed)
            if instances == needed:
                best = _plus(full, entry, needed)
                instances = left // entry.per_instance[index]
            full = _plus(full, entry, instances)
            left -= instances * entry.per_instance[index]
        return best

    def _available(self, pool_id: str, index: int) -> int:
        state = self._live(pool_id)
        free = 0 if state.blocked is not None else max(0, state.free - self._used.get(pool_id, 0))
        return free + self._draft.held_instances(pool_id, index)


def _never_cheaper(full: _Fill, entry: Entry, index: int, left: int, best: _Fill) -> bool:
    """Whether even this pool's price per unit, the least of all that follow, cannot beat the best."""
    per_instance = entry.per_instance[index]
    least = full.cost_micro_usd * per_instance + left * entry.price_micro_usd
    return least >= best.cost_micro_usd * per_instance


def _plus(fill: _Fill, entry: Entry, instances: int) -> _Fill:
    taken = (*fill.instances, (entry.pool_id, instances))
    return _Fill(fill.cost_micro_usd + instances * entry.price_micro_usd, taken)
