"""What the process of the laboratory's nodes is told, and where it then answers."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from lab.nodes.workloads import Kind
from lab.reclaimer.targets import Node

PLAN_FILE, STATE_FILE = "plan.json", "nodes.json"
PROVIDER_FOLDER, NODES_FOLDER = "provider", "nodes"


class NodesPlan(BaseModel):
    """What the process runs. With `cloud_file`, an instance that ends is gone from the cloud as well.

    With `vendordata_url` nodes get identity and bundle from a running control plane, else from this process.
    `settings` are variables for every agent.
    """

    model_config = ConfigDict(frozen=True)

    folder: Path
    nodes: tuple[Node, ...]
    kinds: tuple[Kind, ...]
    cache_seconds: float
    cloud_file: Path | None = None
    vendordata_url: str | None = None
    settings: dict[str, str] = Field(default_factory=dict)


class NodesState(BaseModel):
    """Where the running process answers; `token` opens its door and that of its relay."""

    model_config = ConfigDict(frozen=True)

    relay_url: str
    door_url: str
    bus_url: str
    token: str
    nodes: tuple[Node, ...]
