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


class Draft:
    """Counts units and instances by pool and shape; caps bind over all shapes of the claim together."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self._entries: dict[str, Entry] = {}
        self._units: dict[tuple[str, int], int] = {}
        self._instances: dict[tuple[str, int], int] = {}
        self._held: dict[tuple[str, int], int] = {}
        self._new_instances: dict[str, int] = {}
        self._by_pool: dict[str, int] = {}
        self._by_group: dict[str, int] = {}
        self._by_hall: dict[tuple[bool, str], int] = {}

    def cap_left(self, entry: Entry, probation: bool) -> int:
        """Units that the hard caps still admit in this pool; committed capacity has none."""
        if entry.committed:
            return self.caps.units
        cap = self.caps.probation_units if probation else self.caps.pool_units
        return min(
            cap - self._by_pool.get(entry.pool_id, 0),
            self.caps.group_units - self._by_group.get(entry.group_id, 0),
        )

    def hold(self, entry: Entry, held: Holding, units: int) -> None:
        """Keep `units` of a holding; idle room of instances that stay is used before new ones."""
        per_instance = entry.per_instance[held.shape_index]
        instances = held.instances if units == held.units else -(-units // per_instance)
        self._held[(entry.pool_id, held.shape_index)] = held.units
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
            return 0, Reason.PROBATION if live.probation else Reason.CAP
        soft = self._hall_left(entry) if limits.even_halls else wanted
        if soft <= 0:
            return 0, Reason.HALL_SPREAD
        units = min(wanted, hard, room, soft)
        if units < wanted and limits.tidy:
            units = self._tidy(units, slack, per_instance, live.probation)
        if units <= 0:
            return 0, Reason.CAP
        added = -(-max(0, units - slack) // per_instance)
        self._new_instances[entry.pool_id] = self._new_instances.get(entry.pool_id, 0) + added
        self._add(entry, index, units, added)
        return units, None

    def _hall_left(self, entry: Entry) -> int:
        limit = self.caps.floor_hall_units if entry.committed else self.caps.hall_units
        return limit - self._by_hall.get((entry.committed, entry.hall), 0)

    def _tidy(self, units: int, slack: int, per_instance: int, probation: bool) -> int:
        """Whole instances only, unless the pool's cap can never fill one."""
        cap = self.caps.probation_units if probation else self.caps.pool_units
        whole = max(0, units - slack) // per_instance * per_instance
        if whole == 0 and slack <= 0 and cap < per_instance:
            return units
        return min(units, slack) + whole

    def _add(self, entry: Entry, index: int, units: int, instances: int) -> None:
        key = (entry.pool_id, index)
        self._entries[entry.pool_id] = entry
        self._units[key] = self._units.get(key, 0) + units
        self._instances[key] = self._instances.get(key, 0) + instances
        hall = (entry.committed, entry.hall)
        self._by_hall[hall] = self._by_hall.get(hall, 0) + units
        if not entry.committed:
            self._by_pool[entry.pool_id] = self._by_pool.get(entry.pool_id, 0) + units
            self._by_group[entry.group_id] = self._by_group.get(entry.group_id, 0) + units

    def held_units(self, pool_id: str, index: int) -> int:
        return self._held.get((pool_id, index), 0)

    def fill_units_of_shape(self, index: int) -> int:
        return sum(
            units
            for (pool_id, shape), units in self._units.items()
            if shape == index and not self._entries[pool_id].committed
        )

    def cost_micro_usd(self, *, committed: bool) -> int:
        """The hourly price of all instances in the draft, of one purchase model."""
        return sum(
            count * self._entries[pool_id].price_micro_usd
            for (pool_id, _), count in self._instances.items()
            if self._entries[pool_id].committed is committed
        )

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """Pool, shape, units and instances, in a fixed order."""
        for pool_id, index in sorted(self._units):
            yield pool_id, index, self._units[(pool_id, index)], self._instances[(pool_id, index)]
