"""The ledger of one plan in the making: units taken so far, and how much a pool may still take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from domain.placement.caps import Caps
from domain.placement.filters import Entry
from domain.reasons import Reason


class Live(NamedTuple):
    """What may have changed in a pool since its ranking. `free` counts instances."""

    free: int
    blocked: Reason | None = None
    probation: bool = False


class Holding(NamedTuple):
    """Units that the workload holds already in one pool, for one of the claim's shapes."""

    pool_id: str
    shape_index: int
    units: int
    instances: int
    generation: int


class Limits(NamedTuple):
    """How strict one pass over the pools is."""

    even_halls: bool
    tidy: bool


class Row(NamedTuple):
    """What the draft holds in one pool for one shape."""

    entry: Entry
    shape_index: int
    units: int
    instances: int


class Draft:
    """Counts units and instances by pool and shape; caps bind over all shapes of the claim together."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self._entries: dict[str, Entry] = {}
        self._units: dict[tuple[str, int], int] = {}
        self._instances: dict[tuple[str, int], int] = {}
        self._held_instances: dict[tuple[str, int], int] = {}
        self._new_instances: dict[str, int] = {}
        self._by_pool: dict[str, int] = {}
        self._by_group: dict[str, int] = {}
        self._by_hall: dict[tuple[bool, str], int] = {}

    def cap_left(self, entry: Entry, probation: bool) -> int:
        """Units that the hard caps still admit in this pool; only reclaimable capacity has any."""
        if not entry.reclaimable:
            return self.caps.units
        return min(
            self.pool_cap(probation) - self._by_pool.get(entry.pool_id, 0),
            self.caps.group_units - self._by_group.get(entry.group_id, 0),
        )

    def pool_cap(self, probation: bool) -> int:
        return self.caps.probation_units if probation else self.caps.pool_units

    def hold(self, entry: Entry, held: Holding, units: int) -> None:
        """Keep `units` of a holding; idle room of instances that stay is used before new ones."""
        key = (entry.pool_id, held.shape_index)
        needed = -(-units // entry.per_instance[held.shape_index])
        instances = held.instances if units == held.units else needed
        self._held_instances[key] = self._held_instances.get(key, 0) + held.instances
        self._add(entry, held.shape_index, units, min(instances, held.instances))

    def take(
        self, entry: Entry, index: int, wanted: int, live: Live, limits: Limits
    ) -> tuple[int, Reason | None]:
        """Take up to `wanted` units; returns how many, and why none where it is none."""
        per_instance = entry.per_instance[index]
        key = (entry.pool_id, index)
        slack = self._instances.get(key, 0) * per_instance - self._units.get(key, 0)
        room = slack + (live.free - self._new_instances.get(entry.pool_id, 0)) * per_instance
        if room <= 0:
            return 0, Reason.CAPACITY
        hard = self.cap_left(entry, live.probation)
        if hard <= 0:
            return 0, Reason.CAP
        soft = self._hall_left(entry) if limits.even_halls else wanted
        if soft <= 0:
            return 0, Reason.HALL_SPREAD
        units = min(wanted, hard, room, soft)
        if units < wanted and limits.tidy:
            units = self._tidy(units, slack, per_instance, live.probation)
        if units <= 0:
            return 0, Reason.HALL_SPREAD if soft < hard else Reason.CAP
        added = -(-max(0, units - slack) // per_instance)
        self._new_instances[entry.pool_id] = self._new_instances.get(entry.pool_id, 0) + added
        self._add(entry, index, units, added)
        return units, None

    def _hall_left(self, entry: Entry) -> int:
        in_hall = self._by_hall.get((entry.committed, entry.hall), 0)
        if not entry.committed:
            return self.caps.hall_units - in_hall
        return min(self.caps.floor_hall_units - in_hall, self._floor_left(opens_hall=in_hall == 0))

    def _floor_left(self, *, opens_hall: bool) -> int:
        """Units that the floor still lacks, less one for each further hall that it has yet to reach."""
        by_hall = self.hall_units(committed=True)
        halls_to_reach = self.caps.floor_halls - len(by_hall) - opens_hall
        left = self.caps.floor_units - sum(by_hall) - max(0, halls_to_reach)
        return max(1, left) if opens_hall else left

    def _tidy(self, units: int, slack: int, per_instance: int, probation: bool) -> int:
        """Whole instances only, unless the pool's cap can never fill one."""
        whole = max(0, units - slack) // per_instance * per_instance
        if whole == 0 and slack <= 0 and self.pool_cap(probation) < per_instance:
            return units
        return min(units, slack) + whole

    def _add(self, entry: Entry, index: int, units: int, instances: int) -> None:
        key = (entry.pool_id, index)
        self._entries[entry.pool_id] = entry
        self._units[key] = self._units.get(key, 0) + units
        self._instances[key] = self._instances.get(key, 0) + instances
        if entry.guaranteed:
            return
        hall = (entry.committed, entry.hall)
        self._by_hall[hall] = self._by_hall.get(hall, 0) + units
        if entry.reclaimable:
            self._by_pool[entry.pool_id] = self._by_pool.get(entry.pool_id, 0) + units
            self._by_group[entry.group_id] = self._by_group.get(entry.group_id, 0) + units

    def held_instances(self, pool_id: str, index: int) -> int:
        return self._held_instances.get((pool_id, index), 0)

    def hall_units(self, *, committed: bool) -> list[int]:
        """Units by hall, most first: those of the floor, or those that can be reclaimed."""
        return sorted((units for (of, _), units in self._by_hall.items() if of is committed), reverse=True)

    def cost_micro_usd(self) -> int:
        """The hourly price of all instances in the draft."""
        return sum(row.instances * row.entry.price_micro_usd for row in self.rows())

    def rows(self) -> Iterator[Row]:
        """What is held by pool and shape, in a fixed order."""
        for key in sorted(self._units):
            yield Row(self._entries[key[0]], key[1], self._units[key], self._instances[key])
