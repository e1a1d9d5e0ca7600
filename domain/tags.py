"""Tags of a server: short labels that a provider can filter by. The whole ids are in its metadata."""

from __future__ import annotations

from hashlib import sha256

MAX_TAG_LENGTH = 60
MANAGED_TAG = "sco:managed"
_DIGEST_LENGTH = 12


def server_tags(partition_id: str, workload_id: str, purchase_model: str) -> tuple[str, ...]:
    """The tags that every server of ours carries from its create on."""
    return (
        MANAGED_TAG,
        partition_tag(partition_id),
        purchase_model_tag(purchase_model),
        workload_tag(workload_id),
    )


def workload_tag(workload_id: str) -> str:
    return _tag("workload", workload_id)


def partition_tag(partition_id: str) -> str:
    return _tag("partition", partition_id)


def purchase_model_tag(purchase_model: str) -> str:
    return _tag("purchase-model", purchase_model)


def _tag(name: str, value: str) -> str:
    """`sco:<name>=<value>`; a value too long for a tag keeps its start and ends in its digest."""
    whole = f"sco:{name}={value}"
    if len(whole) <= MAX_TAG_LENGTH:
        return whole
    ending = "~" + sha256(value.encode()).hexdigest()[:_DIGEST_LENGTH]
    return whole[: MAX_TAG_LENGTH - len(ending)] + ending
