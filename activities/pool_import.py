"""From what a provider offers to facts of pools: one pool per hall, flavor and purchase model."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from activities.ports import FlavorFacts, PoolObservation, RegionCatalog
from domain.pool import Arch, PoolFacts, PurchaseModel

GIB_MIB = 1024


def pool_facts(
    tenant_id: str, catalog: RegionCatalog, observed: Iterable[PoolObservation]
) -> list[PoolFacts]:
    """Facts of every reclaimable or committed pool that the provider offers; unknown flavors are left out."""
    flavors = {flavor.name: flavor for flavor in catalog.flavors}
    facts = []
    for one in observed:
        flavor = flavors.get(one.flavor)
        if flavor is not None and one.purchase_model != PurchaseModel.GUARANTEED:
            facts.append(_facts(tenant_id, catalog, flavor, one))
    return sorted(facts, key=lambda fact: fact.pool_id)


def _facts(tenant_id: str, catalog: RegionCatalog, flavor: FlavorFacts, one: PoolObservation) -> PoolFacts:
    specs = flavor.extra_specs
    sku, size = specs["sco:sku"], specs["sco:size"]
    model = PurchaseModel(one.purchase_model)
    suffix = "" if model is PurchaseModel.RECLAIMABLE else f"-{model}"
    return PoolFacts(
        pool_id=f"{one.hall}-{sku}-{size}{suffix}",
        tenant_id=tenant_id,
        region=one.region,
        hall=one.hall,
        sku_family=sku,
        size=size,
        arch=Arch(specs["sco:arch"]),
        gpu_type=specs.get("sco:gpu_type") or None,
        gpu_count=int(specs.get("sco:gpu_count", 0)),
        vram_gb=int(specs.get("sco:vram_gb", 0)),
        cpu_cores=flavor.vcpus,
        ram_gb=flavor.ram_mib // GIB_MIB,
        nvme=specs.get("sco:nvme", "false").lower() == "true",
        nic_gbps=int(specs.get("sco:nic_gbps", 10)),
        purchase_model=model,
        group_id=catalog.group_of[one.hall, sku],
        price_per_hour_usd=Decimal(one.price_per_hour_usd),
        guaranteed_price_per_hour_usd=Decimal(one.guaranteed_price_per_hour_usd),
        flavor=flavor.name,
    )
