"""Which instances the laboratory's nodes are: made up, or servers that run in its simulated cloud."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from domain.pool import PurchaseModel
from lab.cloud.estate import GROUP_SKUS, METAL_AGGREGATE
from lab.reclaimer.targets import Node

HALLS = ("eu-north-h1", "eu-north-h2")
RUNNING = "ACTIVE"
_AGGREGATE = {sku: aggregate for aggregate, skus in GROUP_SKUS.items() for sku in skus}
_NAMESPACE = uuid.UUID("0f7c6f0a-52a8-4c5e-9f43-0c7cb5f0a1d2")


def made_up(count: int) -> tuple[Node, ...]:
    """Nodes over two halls, the same ones each time."""
    return tuple(
        node_at(str(uuid.uuid5(_NAMESPACE, str(number))), hall, f"{hall}-gp-s")
        for number, hall in ((number, HALLS[number % len(HALLS)]) for number in range(count))
    )


def of_servers(servers: Iterable[Mapping[str, Any]], count: int) -> tuple[Node, ...]:
    """The first `count` servers that run and can be taken back, by id; `servers` is the admin API's list."""
    running = sorted((one for one in servers if _can_go(one)), key=lambda one: str(one["id"]))
    return tuple(
        node_at(str(one["id"]), str(one["availability_zone"]), str(one["group"])) for one in running[:count]
    )


def _can_go(server: Mapping[str, Any]) -> bool:
    model = str(server["metadata"].get("sco_purchase_model", PurchaseModel.RECLAIMABLE))
    return str(server["status"]) == RUNNING and model == PurchaseModel.RECLAIMABLE


def node_at(instance_id: str, hall: str, pool_id: str) -> Node:
    """A node of a pool; hosts of one aggregate of a hall go together."""
    sku = pool_id.removeprefix(f"{hall}-").split("-")[0]
    return Node(instance_id, hall, pool_id, f"{hall}-{_AGGREGATE.get(sku, METAL_AGGREGATE)}")
