"""The server's answers about nodes and their drains."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from clients.cli.answers import Answer
from domain.forwarder_nodes import NODE_NAME
from wire.node import InstanceId


class LastEvent(Answer):
    type: str
    occurred_at: datetime


class LastDrain(Answer):
    outcome: str
    at: datetime


class Node(Answer):
    """A live node. Without a bundle version it has only the copy that it was launched with.

    `bundle_held` is the version that it says it holds, `bundle_version` the one that was issued to it.
    """

    instance_id: str
    state: str
    hall: str
    pool_id: str
    workload_id: str
    revoked_at: datetime | None = None
    bundle_version: int | None = None
    bundle_age_seconds: int | None = None
    bundle_held: int | None = None
    bundle_held_reported_at: datetime | None = None
    last_event: LastEvent | None = None
    drain: LastDrain | None = None


class Drain(Answer):
    """One drain of a node, or its end without a notice."""

    drain_id: str
    instance_id: str
    outcome: str
    cause: str
    hall: str
    workload_id: str
    at: datetime
    signalled_after_seconds: float | None = None
    seconds_to_spare: float | None = None


class DrainLine(Answer):
    seconds: float | None = None
    at: datetime
    text: str


class DrainStory(Drain):
    """A drain explained; `gaps` say what is not known."""

    counts_in_ledger: bool
    deadline: datetime | None = None
    path: str | None = None
    sentence: str
    lines: tuple[DrainLine, ...] = ()
    gaps: tuple[str, ...] = ()


class Revoked(Answer):
    """A node whose identity was revoked; its entry to the bus, where there is one, ends by itself."""

    instance_id: str
    revoked_at: datetime
    revoked_by: str | None = None
    bus_credentials_end_by: datetime | None = None


class ForwarderNode(Answer):
    """A node whose requests a forwarder may carry out; the key is 32 bytes in base64."""

    instance_id: InstanceId
    node: Annotated[str, Field(pattern=rf"^{NODE_NAME.pattern}$")]
    public_key: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$")]


class LeftOut(Answer):
    instance_id: str
    server_name: str | None = None
    reason: str


class ForwarderNodes(Answer):
    """Every node of one partition of Slurm, and the instances that are none yet."""

    nodes: tuple[ForwarderNode, ...]
    left_out: tuple[LeftOut, ...] = ()
