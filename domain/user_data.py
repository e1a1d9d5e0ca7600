"""Launch user-data: the part of the contract that a node must know before anything else reaches it.

It is cloud-init configuration, written as JSON (which is YAML too), that puts one file on the node.
It is readable by whoever reads a server's details, so it holds no secret, price, cap or floor.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field

from domain.claim import WorkloadId
from domain.contract import Contract
from domain.model import Frozen
from domain.pool import Name

CONTRACT_PATH = "/etc/sco/contract.json"
MAX_ENCODED_BYTES = 65_535
_HEADER = "#cloud-config\n"


class NodeContract(Frozen):
    """The contract subset on a node's disk. A node ignores a version that it does not know."""

    version: Literal[1] = 1
    contract_id: Name
    workload_id: WorkloadId
    drain_budget_seconds: Annotated[int, Field(ge=1, le=115)]


def node_contract(contract: Contract, workload_id: str) -> NodeContract:
    """The subset of `contract` that a node of this workload needs."""
    return NodeContract(
        contract_id=contract.contract_id,
        workload_id=workload_id,
        drain_budget_seconds=contract.drain_budget_seconds,
    )


def user_data(subset: NodeContract) -> str:
    """The user-data of a launch, the same text for the same subset. ValueError when it is too large."""
    file = {
        "path": CONTRACT_PATH,
        "owner": "root:root",
        "permissions": "0644",
        "content": _json(subset.model_dump(mode="json")) + "\n",
    }
    text = _HEADER + _json({"write_files": [file]}) + "\n"
    check_size(text)
    return text


def check_size(text: str) -> None:
    """ValueError when `text`, as base64, is larger than a compute service accepts."""
    encoded = encoded_bytes(text)
    if encoded > MAX_ENCODED_BYTES:
        raise ValueError(
            f"user-data is {encoded} bytes as base64, the limit is {MAX_ENCODED_BYTES}: make it smaller"
        )


def encoded_bytes(text: str) -> int:
    """Length of the base64 of `text`, which carries three bytes in four."""
    return -(-len(text.encode()) // 3) * 4


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
