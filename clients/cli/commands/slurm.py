"""`sco slurm-nodes`: the file by which a Slurm forwarder knows its nodes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer

from clients.cli import nodes_view
from clients.cli.answers import read
from clients.cli.failures import unreachable
from clients.cli.files import replace_file, spoken
from clients.cli.node_answers import ForwarderNode, ForwarderNodes
from clients.cli.session import checked_name, session_of


def slurm_nodes(
    context: typer.Context,
    *,
    partition: Annotated[
        str, typer.Argument(metavar="PARTITION", help="The partition that Slurm is.", show_default=False)
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="The file to replace.", show_default=False)
    ],
) -> None:
    """Write the file of nodes that a Slurm forwarder reads.

    Every node of the partition that is registered, live and not revoked, with its name and key. The file
    is replaced as a whole; when anything fails, the old one stays as it is.

    \b
    Example:
      sco slurm-nodes slurm-eu-north --out /var/lib/sco-forwarder/nodes.json
    """
    session = session_of(context)
    document = session.api.get("/nodes/forwarder", {"partitionId": checked_name("partition", partition)})
    found = read(ForwarderNodes, document, "the nodes")
    changed = replace_file(out, _content(found.nodes))
    nodes_view.left_out(session.screen, found.left_out)
    counted = f"{len(found.nodes):,} node{'' if len(found.nodes) == 1 else 's'} of {partition}"
    session.screen.line(f"{counted} in {spoken(out)}{'' if changed else ', as before'}")


def _content(nodes: tuple[ForwarderNode, ...]) -> bytes:
    """The file's text. A forwarder would refuse one in which an instance or a node stands twice."""
    for words, what in (
        ([one.node for one in nodes], "node"),
        ([one.instance_id for one in nodes], "instance"),
    ):
        twice = [word for word, times in Counter(words).items() if times > 1]
        if twice:
            raise unreachable(f"the server names {what} {twice[0]} more than once; nothing was written")
    listed = {one.instance_id: {"node": one.node, "publicKey": one.public_key} for one in nodes}
    return (json.dumps(listed, indent=1, sort_keys=True) + "\n").encode()
