"""Nova's quota arithmetic: what a project may hold, and what it holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lab.cloud.errors import CloudError
from lab.cloud.estate import Flavor

RESOURCES = ("cores", "instances", "ram")
UNLIMITED = -1


@dataclass(slots=True)
class Quota:
    """Limits of every project in one region, and each project's use. Memory is MiB."""

    limits: dict[str, int]
    _used: dict[str, Counter[str]] = field(default_factory=dict)

    def used(self, project_id: str) -> dict[str, int]:
        counted = self._used.get(project_id, Counter())
        return {resource: counted[resource] for resource in RESOURCES}

    def take(self, project_id: str, flavor: Flavor) -> None:
        self._used.setdefault(project_id, Counter()).update(_needs(flavor, 1))

    def give_back(self, project_id: str, flavor: Flavor) -> None:
        self._used[project_id].subtract(_needs(flavor, 1))

    def allowed(self, project_id: str, flavor: Flavor, low: int, high: int) -> int:
        """How many of `high` servers fit; a 403 in Nova's words when fewer than `low` do."""
        headroom = [
            (self.limits[resource] - self.used(project_id)[resource]) // need
            for resource, need in _needs(flavor, 1).items()
            if self.limits[resource] != UNLIMITED
        ]
        fits = min([high, *headroom])
        if fits < max(1, low):
            raise self.exceeded(project_id, flavor, low, high)
        return fits

    def recheck_failure(self, project_id: str) -> str:
        """What the fault of a server says that was accepted and found to be too many afterwards."""
        used, limit = self.used(project_id)["cores"], self.limits["cores"]
        return f"Quota exceeded for cores: Requested 0, but already used {used} of {limit} cores"

    def exceeded(self, project_id: str, flavor: Flavor, low: int, high: int) -> CloudError:
        """Nova's refusal; names the resources that are over, or instances when none is."""
        used, needs = self.used(project_id), _needs(flavor, high)
        over = [
            resource
            for resource in RESOURCES
            if self.limits[resource] != UNLIMITED and used[resource] + needs[resource] > self.limits[resource]
        ] or ["instances"]
        asked = {**needs, "instances": str(low) if low == high else f"{low}-{high}"}
        names = ", ".join(over)
        return CloudError(
            403,
            f"Quota exceeded for {names}: Requested {', '.join(str(asked[each]) for each in over)},"
            f" but already used {', '.join(str(used[each]) for each in over)}"
            f" of {', '.join(str(self.limits[each]) for each in over)} {names}",
        )


def _needs(flavor: Flavor, count: int) -> dict[str, int]:
    return {"cores": flavor.vcpus * count, "instances": count, "ram": flavor.ram_mib * count}
