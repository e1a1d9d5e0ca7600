"""Host groups: where instances run, how many fit, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass

from domain.pool import PurchaseModel
from lab.cloud.estate import Flavor, GroupPlan, stable_id


@dataclass(slots=True)
class HostGroup:
    """The hosts of one pool. `total` and `used` count instances of the group's own size.

    A committed group offers only what active leases hold, so its total follows them and never
    exceeds `reservable`.
    """

    id: str
    plan: GroupPlan
    flavor: Flavor
    reservable: int
    total: int
    used: int = 0
    generation: int = 1

    @classmethod
    def from_plan(cls, plan: GroupPlan, flavor: Flavor) -> HostGroup:
        committed = plan.purchase_model is PurchaseModel.COMMITTED
        return cls(
            id=stable_id("provider", plan.name),
            plan=plan,
            flavor=flavor,
            reservable=plan.total,
            total=0 if committed else plan.total,
        )

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def free(self) -> int:
        return max(0, self.total - self.used)

    def claim(self, count: int) -> None:
        if count > self.free:
            raise ValueError(f"host group {self.name} has {self.free} free instances, {count} were claimed")
        self.used += count
        self.generation += 1

    def release(self) -> None:
        if self.used == 0:
            raise ValueError(f"host group {self.name} holds no instance to release")
        self.used -= 1
        self.generation += 1

    def resize(self, total: int) -> None:
        """Set the capacity. Below `used` it stays over-committed until servers go, as in Placement."""
        self.total = total
        self.generation += 1


def spread(groups: list[HostGroup], count: int) -> list[HostGroup] | None:
    """A host group for each of `count` servers, emptiest first; None when they do not all fit."""
    if sum(group.free for group in groups) < count:
        return None
    chosen: list[HostGroup] = []
    for group in sorted(groups, key=lambda each: (-each.free, each.name)):
        chosen += [group] * min(group.free, count - len(chosen))
    return chosen
