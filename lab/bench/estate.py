"""The estate that is measured: all 432 reclaimable and 108 committed pools, scored, with ample capacity."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

from domain.claim import Demand, Requirements, Shape, ShapeCount
from domain.pool import Arch, PoolFacts, PurchaseModel
from lab.cloud import estate

TENANT = "platform"
SEED = 20_260
CAPACITY_INSTANCES = 1_000_000
# The requirement classes that claims are drawn from: vCPU in thousandths, MiB.
SHAPES = tuple(
    Shape(vcpu_milli=vcpu * 1000, ram_mib=vcpu * gib * 1024) for vcpu in (1, 2, 4) for gib in (2, 4)
)


def facts() -> list[PoolFacts]:
    """Facts of every pool of the simulated cloud, without asking it."""
    return [
        _facts(region, flavor, plan)
        for region in estate.REGIONS
        for plan in estate.group_plans(region, SEED)
        for flavor in estate.flavors(region)
        if flavor.name == plan.flavor and plan.purchase_model is not PurchaseModel.GUARANTEED
    ]


def _facts(region: str, flavor: estate.Flavor, plan: estate.GroupPlan) -> PoolFacts:
    specs = flavor.extra_specs
    return PoolFacts(
        pool_id=plan.name,
        tenant_id=TENANT,
        region=region,
        hall=plan.hall,
        sku_family=plan.sku,
        size=plan.size,
        arch=Arch(specs["sco:arch"]),
        gpu_type=specs.get("sco:gpu_type"),
        gpu_count=int(specs["sco:gpu_count"]),
        vram_gb=int(specs["sco:vram_gb"]),
        cpu_cores=flavor.vcpus,
        ram_gb=flavor.ram_mib // 1024,
        nvme=specs["sco:nvme"] == "true",
        nic_gbps=int(specs["sco:nic_gbps"]),
        purchase_model=plan.purchase_model,
        group_id=plan.aggregate,
        price_per_hour_usd=estate.price(region, plan, SEED),
        guaranteed_price_per_hour_usd=estate.guaranteed_price(region, plan.sku, plan.size),
        flavor=flavor.name,
    )


def demands(rng: random.Random) -> Iterator[Demand]:
    """Endless distinct claims of 20 to 60 units that may run in every region."""
    everywhere = Requirements(regions=estate.REGIONS)
    while True:
        group = ShapeCount(shape=rng.choice(SHAPES), units=rng.randint(20, 60))
        yield Demand(shapes=(group,), requirements=everywhere)


FLOOR_SHARE = Decimal("0.30")
