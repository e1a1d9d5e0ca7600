"""Small and full-size estates for tests of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from domain.claim import Requirements, Shape
from domain.placement.caps import Terms
from domain.placement.draft import Live
from domain.placement.filters import RequirementClass, Shortlist, shortlist
from domain.placement.scoring import PoolInputs, Ranking, rank
from domain.policy import ScoringPolicy
from domain.pool import Arch, PoolFacts, PurchaseModel

UNIT = Shape(vcpu_milli=4000, ram_mib=16 * 1024)
FAMILIES: dict[str, tuple[Arch, int, str, int]] = {
    "gp": (Arch.X86_64, 4, "a1", 0),
    "cm": (Arch.X86_64, 2, "a1", 0),
    "mm": (Arch.X86_64, 8, "a1", 0),
    "ga": (Arch.ARM64, 4, "a2", 0),
    "ca": (Arch.ARM64, 2, "a2", 0),
    "st": (Arch.X86_64, 8, "a2", 0),
    "hn": (Arch.X86_64, 4, "a3", 0),
    "g1": (Arch.X86_64, 4, "a3", 1),
    "g2": (Arch.X86_64, 8, "a3", 1),
}
SIZES = {"s": 4, "m": 8, "l": 16, "xl": 32}


def facts(
    pool_id: str = "eu-north-h1-gp-m",
    *,
    region: str = "eu-north",
    hall: str = "eu-north-h1",
    group: str = "eu-north-h1-a1",
    family: str = "gp",
    cores: int = 8,
    model: PurchaseModel = PurchaseModel.RECLAIMABLE,
    price: str = "0.35",
    guaranteed: str = "1.00",
) -> PoolFacts:
    arch, gib, _, gpus = FAMILIES[family]
    return PoolFacts(
        pool_id=pool_id,
        tenant_id="platform",
        region=region,
        hall=hall,
        sku_family=family,
        size="m",
        arch=arch,
        gpu_type="a100" if gpus else None,
        gpu_count=gpus * max(1, cores // 8),
        cpu_cores=cores,
        ram_gb=cores * gib,
        nvme=family == "st",
        nic_gbps=100 if family == "hn" else 10,
        purchase_model=model,
        group_id=group,
        price_per_hour_usd=Decimal(price),
        guaranteed_price_per_hour_usd=Decimal(guaranteed),
        flavor=f"{family}.m.reclaimable",
    )


def estate(
    regions: Sequence[str] = ("eu-north", "eu-west", "eu-south"), *, free: int = 100, hours: int = 0
) -> list[PoolInputs]:
    """The full estate: 144 reclaimable and 36 committed pools per region, equal in depth."""
    inputs = []
    for region in regions:
        for number in range(1, 5):
            hall = f"{region}-h{number}"
            for family, (_, gib, aggregate, _) in FAMILIES.items():
                for size, cores in SIZES.items():
                    pool = facts(
                        f"{hall}-{family}-{size}",
                        region=region,
                        hall=hall,
                        group=f"{hall}-{aggregate}",
                        family=family,
                        cores=cores,
                        price=f"{cores * gib * Decimal('0.0035') + number * Decimal('0.0001'):f}",
                        guaranteed=f"{cores * gib * Decimal('0.01'):f}",
                    )
                    inputs.append(PoolInputs(facts=pool, free_instances=free, observed_hours=hours))
                lease = facts(
                    f"{hall}-{family}-l-committed",
                    region=region,
                    hall=hall,
                    group=f"{hall}-{aggregate}",
                    family=family,
                    cores=16,
                    model=PurchaseModel.COMMITTED,
                    price=f"{16 * gib * Decimal('0.006'):f}",
                    guaranteed=f"{16 * gib * Decimal('0.01'):f}",
                )
                inputs.append(PoolInputs(facts=lease, free_instances=free))
    return inputs


def ranking(inputs: Sequence[PoolInputs] | None = None) -> Ranking:
    return rank("ranking-1", "k8s-eu-north", estate() if inputs is None else inputs, ScoringPolicy())


def wanted(
    *shapes: Shape, cap_units: int = 1_000, tolerated: str = "1", requirements: Requirements | None = None
) -> RequirementClass:
    return RequirementClass(
        requirements=requirements or Requirements(),
        shapes=shapes or (UNIT,),
        tolerated_interruptions_per_hour=Decimal(tolerated),
        pool_cap_units=cap_units,
    )


def terms(floor: str = "0", pool: str = "0.15", group: str = "0.30") -> Terms:
    return Terms(
        floor_share=Decimal(floor),
        pool_cap_share=Decimal(pool),
        group_cap_share=Decimal(group),
        probation_cap_share=Decimal("0.05"),
        floor_min_halls=3,
    )


def all_free(listed: Shortlist, free: int = 100) -> dict[str, Live]:
    return {pool_id: Live(free) for pool_id in listed.entries}


def listing(inputs: Sequence[PoolInputs] | None = None, wants: RequirementClass | None = None) -> Shortlist:
    return shortlist(ranking(inputs), wants or wanted())
