"""What the real cloud is made of: one region with halls, host groups and flavors of the same names."""

from __future__ import annotations

from dataclasses import dataclass

from domain.pool import PurchaseModel
from lab.cloud.estate import Flavor, flavors

REGION = "eu-north"
PROJECT, USER = "sco", "sco-orchestrator"
PLENTY_VCPUS = 20_000
FLAVORS = ("gp.m.reclaimable", "gp.m", "gp.l", "ga.m.reclaimable")


@dataclass(frozen=True, slots=True)
class HostGroup:
    """The hosts of one pool; one fake host stands for all of them."""

    name: str
    hall: str
    aggregate: str
    flavor: str
    vcpus: int = PLENTY_VCPUS
    purchase_model: PurchaseModel = PurchaseModel.RECLAIMABLE


HOST_GROUPS = (
    HostGroup("eu-north-h1-gp-m", "eu-north-h1", "eu-north-h1-a1", "gp.m.reclaimable"),
    HostGroup("eu-north-h1-ga-m", "eu-north-h1", "eu-north-h1-a2", "ga.m.reclaimable"),
    HostGroup("eu-north-h2-gp-m", "eu-north-h2", "eu-north-h2-a1", "gp.m.reclaimable"),
    # Room for two servers of 8 vCPU, so that a batch of three finds no host.
    HostGroup("eu-north-h3-gp-m", "eu-north-h3", "eu-north-h3-a1", "gp.m.reclaimable", vcpus=16),
    # Room for three servers of 16 vCPU, for leases.
    HostGroup(
        "eu-north-h4-gp-l-committed",
        "eu-north-h4",
        "eu-north-h4-a1",
        "gp.l",
        vcpus=48,
        purchase_model=PurchaseModel.COMMITTED,
    ),
)


def offered_flavors() -> tuple[Flavor, ...]:
    """The flavors of this cloud, as the simulated cloud has them."""
    return tuple(each for each in flavors(REGION) if each.name in FLAVORS)
