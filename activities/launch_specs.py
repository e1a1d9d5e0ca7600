"""What a launch tells the provider: name, tags, metadata and user-data, all before any server id exists."""

from __future__ import annotations

import sqlalchemy as sa

from activities.placement_calls import RegionRequest
from activities.ports import BatchSpec
from domain.contract import Contract
from domain.ids import server_prefix
from domain.tags import server_tags
from domain.user_data import BootCopy, node_contract, user_data


def launch_spec(
    request: RegionRequest,
    slot: sa.RowMapping,
    contract: Contract,
    reservation_id: str | None,
    boot: BootCopy | None = None,
) -> BatchSpec:
    """The one body that a multi-create copies to every server of a batch."""
    purchase_model = slot["purchase_model"]
    return BatchSpec(
        batch_key=slot["batch_key"],
        region=request.region,
        hall=slot["hall"],
        flavor=slot["flavor"],
        name_prefix=server_prefix(
            request.workload_id, slot["generation"], slot["batch_key"], slot["launch_attempts"]
        ),
        metadata={
            "sco_batch": slot["batch_key"],
            "sco_tenant": request.tenant_id,
            "sco_partition": request.partition_id,
            "sco_workload": request.workload_id,
            "sco_generation": str(slot["generation"]),
            "sco_pool": slot["pool_id"],
            "sco_purchase_model": purchase_model,
            "sco_shape": slot["shape_key"],
            "sco_units": str(slot["units_per_instance"]),
        },
        tags=server_tags(request.partition_id, request.workload_id, purchase_model),
        user_data=user_data(node_contract(contract, request.workload_id), boot),
        reservation_id=reservation_id,
    )
