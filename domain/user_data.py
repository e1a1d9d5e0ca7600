"""Launch user-data: the part of the contract that a node must know before anything else reaches it.

It is cloud-init configuration, written as JSON (which is YAML too), that puts files on the node.
It is readable by whoever reads a server's details, so it holds no secret, price, cap or floor. Where bundles
are signed, a copy of the bundle goes with it: it is signed for the batch, since no instance has an id before
the provider has answered.
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
BUNDLE_PATH = "/etc/sco-agent/bundle.json"
ENVIRONMENT_PATH = "/etc/sco-agent/environment"
API_URL = "SCO_AGENT_API_URL"
MAX_ENCODED_BYTES = 65_535
_HEADER = "#cloud-config\n"


class NodeContract(Frozen):
    """The contract subset on a node's disk. A node ignores a version that it does not know."""

    version: Literal[1] = 1
    contract_id: Name
    workload_id: WorkloadId
    drain_budget_seconds: Annotated[int, Field(ge=1, le=115)]


class BootCopy(Frozen):
    """What an agent starts with: a signed bundle as text, and where it asks for newer ones."""

    bundle: Annotated[str, Field(min_length=2, max_length=32_768)]
    api_url: Annotated[str, Field(pattern=r"^https?://[!-~]+$", max_length=255)]


def node_contract(contract: Contract, workload_id: str) -> NodeContract:
    """The subset of `contract` that a node of this workload needs."""
    return NodeContract(
        contract_id=contract.contract_id,
        workload_id=workload_id,
        drain_budget_seconds=contract.drain_budget_seconds,
    )


def user_data(subset: NodeContract, boot: BootCopy | None = None) -> str:
    """The user-data of a launch, the same text for the same input. ValueError when it is too large."""
    files = [_file(CONTRACT_PATH, _json(subset.model_dump(mode="json")) + "\n")]
    if boot is not None:
        files += [
            _file(BUNDLE_PATH, boot.bundle),
            _file(ENVIRONMENT_PATH, f"{API_URL}={boot.api_url}\n"),
        ]
    text = _HEADER + _json({"write_files": files}) + "\n"
    check_size(text)
    return text


def _file(path: str, content: str) -> dict[str, str]:
    return {"path": path, "owner": "root:root", "permissions": "0644", "content": content}


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
