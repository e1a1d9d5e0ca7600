"""Which node of a scheduler an instance is, for whoever lets nodes change themselves alone.

A scheduler knows a node by its host's name. That is the server's name at the provider, and never what the
node says of itself. Where two servers have one name, neither is believed to be that node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

# What Slurm takes for the name of one node, and a host for its own.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class LeftOutAs(StrEnum):
    """Why a registered instance is no node of its scheduler."""

    NO_NAME_YET = "no_name_yet"
    NO_NODE_NAME = "no_node_name"
    SHARED_NAME = "shared_name"


class LiveServer(NamedTuple):
    """A live server. Without `public_key` no node of it is believed: unregistered, or revoked."""

    instance_id: str
    server_name: str | None
    public_key: str | None


class ForwarderNode(NamedTuple):
    """An instance, its node's name in the scheduler, and the key that its requests are signed with."""

    instance_id: str
    node: str
    public_key: str


class LeftOut(NamedTuple):
    instance_id: str
    server_name: str | None
    reason: LeftOutAs


class ForwarderNodes(NamedTuple):
    nodes: tuple[ForwarderNode, ...]
    left_out: tuple[LeftOut, ...]


def forwarder_nodes(servers: Sequence[LiveServer]) -> ForwarderNodes:
    """The nodes of one scheduler from all of its live servers, and the registered ones that are none."""
    held = Counter(one.server_name for one in servers)
    nodes, left_out = list[ForwarderNode](), list[LeftOut]()
    for one in sorted(servers, key=lambda server: server.instance_id):
        if one.public_key is None:
            continue
        named = _named(one.server_name, held)
        if isinstance(named, LeftOutAs):
            left_out.append(LeftOut(one.instance_id, one.server_name, named))
        else:
            nodes.append(ForwarderNode(one.instance_id, named, one.public_key))
    return ForwarderNodes(tuple(nodes), tuple(left_out))


def _named(name: str | None, held: Counter[str | None]) -> str | LeftOutAs:
    """The name of a node, or why it is none; a reason is a text too, so ask for it first."""
    if name is None:
        return LeftOutAs.NO_NAME_YET
    if NODE_NAME.fullmatch(name) is None:
        return LeftOutAs.NO_NODE_NAME
    return LeftOutAs.SHARED_NAME if held[name] > 1 else name
