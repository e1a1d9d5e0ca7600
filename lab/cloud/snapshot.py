"""The cloud's memory across restarts: one file, written as a whole, readable by its owner only."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from lab.cloud.baremetal import Node
from lab.cloud.estate import Flavor
from lab.cloud.leases import Lease
from lab.cloud.records import Server
from lab.cloud.region import Region

STATE_FILE = "state.json"
OWNER_ONLY = 0o600


@dataclass(slots=True)
class RegionState:
    """What a region must remember; halls, prices and flavors but the reserved ones follow from the seed."""

    servers: list[Server]
    leases: list[Lease]
    limits: dict[str, int]
    totals: dict[str, int]
    lost_halls: list[str]
    nodes: list[Node] = field(default_factory=list)
    reserved_flavors: list[Flavor] = field(default_factory=list)


@dataclass(slots=True)
class CloudState:
    """What the cloud must remember. `starts` keeps ids of one run apart from those of the next."""

    now: datetime
    starts: int
    seed: int
    secrets: dict[str, str]
    regions: dict[str, RegionState] = field(default_factory=dict)


_STATE = TypeAdapter(CloudState)
_DERIVED = {"regions": {"__all__": {"servers": {"__all__": {"keys", "rendered"}}}}}


def save(state: CloudState, folder: Path) -> None:
    """Replace the saved state in `folder` at once, so that a crash leaves the old one whole."""
    write_private(folder / STATE_FILE, orjson.dumps(_STATE.dump_python(state, mode="json", exclude=_DERIVED)))


def load(folder: Path) -> CloudState | None:
    """The saved state of `folder`, or None when there is none."""
    path = folder / STATE_FILE
    return _STATE.validate_json(path.read_bytes()) if path.exists() else None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def region_state(region: Region) -> RegionState:
    return RegionState(
        servers=list(region.servers.all()),
        leases=region.leases.all(),
        limits=dict(region.quota.limits),
        totals={group.name: group.total for group in region.groups.values()},
        lost_halls=sorted(region.lost_halls),
        nodes=region.nodes.all(),
        reserved_flavors=[each for each in region.flavors.values() if each.reservation_id is not None],
    )


def restore_region(region: Region, state: RegionState) -> None:
    """Put a fresh region back into a remembered state, with everything that was still to happen."""
    region.quota.limits.update(state.limits)
    region.lost_halls.update(state.lost_halls)
    region.add_nodes(state.nodes)
    for name, total in state.totals.items():
        region.groups[name].resize(total)
    region.flavors.update({each.id: each for each in state.reserved_flavors})
    for lease in state.leases:
        region.book(lease)
    for server in sorted(state.servers, key=lambda each: each.sequence):
        _restore_server(region, server)


def _restore_server(region: Region, server: Server) -> None:
    region.servers.add(server)
    if region.servers.get(server.id) is None:
        return
    region.quota.take(server.project_id, region.flavors[server.flavor_id])
    if server.group is not None:
        region.groups[server.group].used += 1
    if server.due_at is not None:
        region.watch(server.id, server.due_at)
