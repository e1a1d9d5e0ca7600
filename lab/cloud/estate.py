"""What the cloud is made of: regions, halls, families, sizes, flavors, capacities and prices.

Everything is derived from a seed, so that two clouds with one seed are the same cloud.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache

from domain.money import rounded
from domain.pool import Arch, PurchaseModel

REGIONS = ("eu-north", "eu-west", "eu-south")
HALLS_PER_REGION = 4
SIZES: dict[str, int] = {"s": 4, "m": 8, "l": 16, "xl": 32}
COMMITTED_SIZE = "l"
GROUP_SKUS: dict[str, tuple[str, ...]] = {
    "a1": ("gp", "cm", "mm"),
    "a2": ("ga", "ca", "st"),
    "a3": ("hn", "g1", "g2"),
}
METAL_SIZE, METAL_AGGREGATE = "xl", "a4"
INVERTED_POOLS = 6
_NAMESPACE = uuid.UUID("5a0c1f5e-3f4b-4c52-9c56-6f1d5c0a7b11")
_REGION_PRICE = {"eu-north": Decimal("0.96"), "eu-west": Decimal("1.04"), "eu-south": Decimal("1.00")}
_COMMITTED_SHARE = Decimal("0.62")


@dataclass(frozen=True, slots=True)
class Sku:
    """One family. `gpus` is by size, `vram_gb` per GPU, prices are USD per hour."""

    name: str
    ram_gib_per_vcpu: int
    vcpu_price: Decimal
    arch: Arch = Arch.X86_64
    gpu_type: str | None = None
    gpus: tuple[int, int, int, int] = (0, 0, 0, 0)
    vram_gb: int = 0
    gpu_price: Decimal = Decimal(0)
    nvme: bool = False
    nic_gbps: int = 25


SKUS: dict[str, Sku] = {
    sku.name: sku
    for sku in (
        Sku("gp", 4, Decimal("0.033")),
        Sku("cm", 2, Decimal("0.029")),
        Sku("mm", 8, Decimal("0.043")),
        Sku("ga", 4, Decimal("0.027"), arch=Arch.ARM64),
        Sku("ca", 2, Decimal("0.024"), arch=Arch.ARM64),
        Sku("st", 8, Decimal("0.049"), nvme=True),
        Sku("hn", 4, Decimal("0.041"), nic_gbps=100),
        Sku(
            "g1", 4, Decimal("0.033"), gpu_type="l4", gpus=(1, 1, 2, 4), vram_gb=24, gpu_price=Decimal("0.7")
        ),
        Sku(
            "g2",
            8,
            Decimal("0.043"),
            gpu_type="a100",
            gpus=(1, 2, 4, 8),
            vram_gb=80,
            gpu_price=Decimal("2.6"),
        ),
    )
}

METAL: dict[str, Sku] = {
    sku.name: sku
    for sku in (
        Sku("bm", 8, Decimal("0.039"), nvme=True, nic_gbps=100),
        Sku(
            "bg",
            16,
            Decimal("0.043"),
            gpu_type="a100",
            gpus=(0, 0, 0, 8),
            vram_gb=80,
            gpu_price=Decimal("2.4"),
            nvme=True,
            nic_gbps=100,
        ),
    )
}
"""Families of whole machines. A cloud has none of them until nodes are enrolled."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A Nova flavor. One that Blazar made for a reservation bears its id and names it."""

    id: str
    name: str
    sku: str
    size: str
    purchase_model: PurchaseModel
    vcpus: int
    ram_mib: int
    disk_gib: int
    ephemeral_gib: int
    extra_specs: dict[str, str]
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A host group as the estate plans it: name, place, size and how many instances it takes."""

    name: str
    hall: str
    aggregate: str
    flavor: str
    sku: str
    size: str
    purchase_model: PurchaseModel
    total: int


def stable_id(*parts: str) -> str:
    """The same UUID for the same parts, in every run."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(parts)))


def halls(region: str) -> tuple[str, ...]:
    return tuple(f"{region}-h{number}" for number in range(1, HALLS_PER_REGION + 1))


def flavors(region: str) -> tuple[Flavor, ...]:
    """The 72 flavors of a region; ids differ between regions, as they do in real clouds."""
    return tuple(
        _flavor(region, sku, size, model)
        for sku in SKUS.values()
        for size in SIZES
        for model in (PurchaseModel.RECLAIMABLE, PurchaseModel.GUARANTEED)
    )


def flavor_name(sku: str, size: str, model: PurchaseModel) -> str:
    return f"{sku}.{size}.reclaimable" if model is PurchaseModel.RECLAIMABLE else f"{sku}.{size}"


def group_name(hall: str, sku: str, size: str, model: PurchaseModel) -> str:
    """The host group of a pool: the pool id itself for reclaimable, with a suffix otherwise."""
    base = f"{hall}-{sku}-{size}"
    return base if model is PurchaseModel.RECLAIMABLE else f"{base}-{model}"


def group_plans(region: str, seed: int) -> tuple[GroupPlan, ...]:
    """144 reclaimable, 144 guaranteed and 36 committed host groups of a region."""
    return tuple(
        GroupPlan(
            name=group_name(hall, sku, size, model),
            hall=hall,
            aggregate=f"{hall}-{aggregate}",
            flavor=flavor_name(sku, size, model),
            sku=sku,
            size=size,
            purchase_model=model,
            total=_capacity(seed, hall, SKUS[sku], size, model),
        )
        for hall in halls(region)
        for aggregate, skus in GROUP_SKUS.items()
        for sku in skus
        for size in SIZES
        for model in PurchaseModel
        if model is not PurchaseModel.COMMITTED or size == COMMITTED_SIZE
    )


def resource_class(sku: str) -> str:
    """What Ironic calls the nodes of a family; Placement calls them CUSTOM_METAL_BM and so on."""
    return f"metal.{sku}"


def metal_flavor(region: str, sku: str) -> Flavor:
    """A flavor that asks for one whole node and none of the resources of a virtual machine."""
    flavor = _flavor(region, METAL[sku], METAL_SIZE, PurchaseModel.RECLAIMABLE)
    specs = {
        f"resources:CUSTOM_METAL_{sku.upper()}": "1",
        "resources:VCPU": "0",
        "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0",
    }
    return replace(flavor, extra_specs=flavor.extra_specs | specs)


def metal_plan(hall: str, sku: str) -> GroupPlan:
    """The host group of a bare-metal pool, which holds as many instances as there are nodes."""
    return GroupPlan(
        name=group_name(hall, sku, METAL_SIZE, PurchaseModel.RECLAIMABLE),
        hall=hall,
        aggregate=f"{hall}-{METAL_AGGREGATE}",
        flavor=flavor_name(sku, METAL_SIZE, PurchaseModel.RECLAIMABLE),
        sku=sku,
        size=METAL_SIZE,
        purchase_model=PurchaseModel.RECLAIMABLE,
        total=0,
    )


def price(region: str, plan: GroupPlan, seed: int) -> Decimal:
    """USD per instance and hour, to six places."""
    guaranteed = guaranteed_price(region, plan.sku, plan.size)
    if plan.purchase_model is PurchaseModel.GUARANTEED:
        return guaranteed
    if plan.purchase_model is PurchaseModel.COMMITTED:
        return rounded(guaranteed * _COMMITTED_SHARE)
    return rounded(guaranteed * _reclaimable_share(seed, plan.name))


def guaranteed_price(region: str, sku_name: str, size: str) -> Decimal:
    sku = (SKUS | METAL)[sku_name]
    gpus = sku.gpus[list(SIZES).index(size)]
    return rounded((SIZES[size] * sku.vcpu_price + gpus * sku.gpu_price) * _REGION_PRICE[region])


def calendar_peak(seed: int, plan: GroupPlan) -> int:
    """Most instances that the calendar gives to guaranteed tenants at once in any coming day."""
    if plan.purchase_model is not PurchaseModel.RECLAIMABLE:
        return 0
    return int(plan.total * _random(seed, plan.name, "calendar").uniform(0, 0.35))


def lease_amount(seed: int, plan: GroupPlan) -> int:
    """Instances of the lease that a committed group starts with."""
    ceiling = min(60, plan.total)
    return _random(seed, plan.name, "lease").randint(min(12, ceiling), ceiling)


def _flavor(region: str, sku: Sku, size: str, model: PurchaseModel) -> Flavor:
    vcpus = SIZES[size]
    gpus = sku.gpus[list(SIZES).index(size)]
    specs = {
        "sco:sku": sku.name,
        "sco:size": size,
        "sco:arch": str(sku.arch),
        "sco:gpu_count": str(gpus),
        "sco:vram_gb": str(sku.vram_gb),
        "sco:nvme": str(sku.nvme).lower(),
        "sco:nic_gbps": str(sku.nic_gbps),
        "sco:purchase_model": str(model),
    }
    if sku.gpu_type is not None:
        specs["sco:gpu_type"] = sku.gpu_type
    name = flavor_name(sku.name, size, model)
    return Flavor(
        id=stable_id("flavor", region, name),
        name=name,
        sku=sku.name,
        size=size,
        purchase_model=model,
        vcpus=vcpus,
        ram_mib=vcpus * sku.ram_gib_per_vcpu * 1024,
        disk_gib=40,
        ephemeral_gib=200 * vcpus if sku.nvme else 0,
        extra_specs=specs,
    )


def _capacity(seed: int, hall: str, sku: Sku, size: str, model: PurchaseModel) -> int:
    low, high = {"g1": (20, 80), "g2": (4, 40)}.get(sku.name, (20, 400))
    if model is PurchaseModel.COMMITTED:
        low, high = max(low, 16), min(high, 120)
    drawn = _random(seed, group_name(hall, sku.name, size, model), "capacity").randint(low, high)
    share = {"s": 100, "m": 100, "l": 75, "xl": 50}[size]
    return max(low, drawn * share // 100)


def _reclaimable_share(seed: int, pool: str) -> Decimal:
    draw = _random(seed, pool, "price")
    if pool in _inverted(seed):
        return Decimal(draw.randint(860, 960)) / 1000
    return Decimal(min(600, max(220, round(draw.gauss(350, 45))))) / 1000


@cache
def _inverted(seed: int) -> frozenset[str]:
    pools = [
        f"{hall}-{sku}-{size}"
        for region in REGIONS
        for hall in halls(region)
        for sku in SKUS
        for size in SIZES
    ]
    return frozenset(_random(seed, "inverted").sample(pools, INVERTED_POOLS))


def _random(seed: int, *parts: str) -> random.Random:
    return random.Random("/".join((str(seed), *parts)))
