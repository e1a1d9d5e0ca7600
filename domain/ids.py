"""Keys that are minted in a decision, before anything exists that could have an id of its own."""

from __future__ import annotations

from uuid import UUID, uuid5

from domain.claim import Shape

# Whose partitions and pools are called by their plain names. Every tenant chooses such names for itself.
PLATFORM = "platform"
SPACE = UUID("5c0f1ee7-0000-4000-8000-000000000001")
# Leaves room for a generation and a number within the batch of six digits each.
NAMED_WORKLOAD, NAME_DIGITS = 34, 8


def shape_key(shape: Shape) -> str:
    """A shape in words: `4000m-16384Mi` or `8000m-65536Mi-1g`."""
    gpus = f"-{shape.gpus}g" if shape.gpus else ""
    return f"{shape.vcpu_milli}m-{shape.ram_mib}Mi{gpus}"


def batch_key(decision_id: UUID, pool_id: str, shape_index: int, number: int) -> str:
    """The key of one multi-create: the same decision always mints the same key."""
    return f"b-{uuid5(SPACE, f'{decision_id}/{pool_id}/{shape_index}/{number}').hex}"


def slot_key(batch: str, number: int) -> str:
    """The key of one planned instance within its batch."""
    return f"{batch}-{number:03d}"


def server_prefix(workload_id: str, generation: int, batch: str, attempt: int) -> str:
    """What the names of the servers of one multi-create begin with; the provider adds `-1`, `-2`, and so on.

    A server's name is its host's name too, by which a scheduler knows it: it has 63 characters at most, and
    no other server of ours has it.
    """
    once = uuid5(SPACE, f"{batch}/{attempt}").hex[:NAME_DIGITS]
    return f"sco-{workload_id[:NAMED_WORKLOAD].rstrip('-')}-g{generation}-{once}"


def event_id(kind: str, tenant_id: str, once: str) -> UUID:
    """The id of what happens once in a tenant, as `once` names it: equal however often it is written."""
    return uuid5(SPACE, f"{kind}/{tenant_id}/{once}")


def own_name(tenant_id: str, name: str) -> str:
    """A partition or region by a name that no other tenant's has, whatever that tenant calls its own."""
    return name if tenant_id == PLATFORM else f"tenant/{tenant_id}/{name}"


def placement_workflow_id(tenant_id: str, partition_id: str, workload_id: str) -> str:
    return f"placement/{own_name(tenant_id, partition_id)}/{workload_id}"


def reconcile_workflow_id(tenant_id: str, partition_id: str) -> str:
    return f"reconcile/{own_name(tenant_id, partition_id)}"


def audit_workflow_id(audit_id: UUID) -> str:
    return f"audit/{audit_id}"


def pool_drain_workflow_id(tenant_id: str, pool_id: str) -> str:
    return f"pool-drain/{tenant_id}/{pool_id}"


def model_placement_workflow_id(tenant_id: str, placement_id: UUID) -> str:
    return f"placement/model/{tenant_id}/{placement_id}"


def warm_keep_workflow_id(tenant_id: str, pool_id: str) -> str:
    return f"warm-keep/{tenant_id}/{pool_id}"


# Serving pools of all tenants have one task queue.
SERVING_QUEUE = "serving"


def partition_queue(tenant_id: str, partition_id: str) -> str:
    """Task queue of one partition: adding a partition adds a queue, not code.

    What a tenant starts waits for a worker of that tenant, and is never taken up by another's.
    """
    return f"partition-{own_name(tenant_id, partition_id)}"


def provider_queue(tenant_id: str, region: str) -> str:
    """Task queue of a tenant's calls to one region's provider: a region that hangs holds up no other."""
    return f"provider-{own_name(tenant_id, region)}"
