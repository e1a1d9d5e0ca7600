"""`sco nodes`, `revoke-node`, `drains` and `explain-drain`: nodes that live, and what became of others."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from clients.cli import nodes_view
from clients.cli.answers import read, read_all
from clients.cli.api import path
from clients.cli.commands.options import DEFAULT_LIMIT, Limit, Output, Yes, confirm
from clients.cli.node_answers import Drain, DrainStory, Node, Revoked
from clients.cli.screen import Format
from clients.cli.session import checked_name, session_of
from domain.cause import Cause
from domain.lifecycle import Outcome

Hall = Annotated[
    str | None, typer.Option("--hall", metavar="NAME", help="Those of this hall.", show_default=False)
]


def nodes(
    context: typer.Context,
    *,
    hall: Hall = None,
    workload: Annotated[
        str | None,
        typer.Option("--workload", metavar="NAME", help="Those of this workload.", show_default=False),
    ] = None,
    draining: Annotated[bool, typer.Option("--draining", help="Those that drain now.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    output: Output = Format.TABLE,
) -> None:
    """List live nodes: bundle, last event and newest drain.

    \b
    Examples:
      sco nodes
      sco nodes --draining --hall eu-north-h1
    """
    session = session_of(context)
    query = {
        "hall": None if hall is None else checked_name("hall", hall),
        "workloadId": None if workload is None else checked_name("workload", workload),
        "draining": True if draining else None,
    }
    listed = session.api.listing("/nodes", query, limit)
    if output is Format.TABLE:
        nodes_view.nodes(session.screen, read_all(Node, listed.items, "the nodes"))
    else:
        session.screen.document(listed.items, output)


def revoke_node(
    context: typer.Context,
    *,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's id.", show_default=False)],
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Believe a node nothing any more. There is no way back.

    It gets no bundle and no new entry to the node bus, and a Slurm forwarder refuses it once its file is
    fresh. The instance goes on running, and drains by what it has.

    \b
    Example:
      sco revoke-node 2f0d9d0e-6a3b-4a0e-9f43-0a6c1d6f2a11 --yes
    """
    session = session_of(context)
    where = path("nodes", checked_name("node", node), "revoke")
    confirm(f"Revoke node {node} for good?", yes)
    document = session.api.post(where)
    if output is Format.TABLE:
        nodes_view.revoked(session.screen, read(Revoked, document, "the node"))
    else:
        session.screen.document(document, output)


def drains(
    context: typer.Context,
    *,
    outcome: Annotated[
        Outcome | None,
        typer.Option("--outcome", metavar="WORD", help=f"One of: {', '.join(Outcome)}.", show_default=False),
    ] = None,
    cause: Annotated[
        Cause | None,
        typer.Option("--cause", metavar="WORD", help=f"One of: {', '.join(Cause)}.", show_default=False),
    ] = None,
    hall: Hall = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Those of this node.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Those that began then or later, such as 2030-01-31T12:00:00Z.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    output: Output = Format.TABLE,
) -> None:
    """List drains of nodes, newest first.

    \b
    Examples:
      sco drains
      sco drains --outcome overrun --since 2030-01-31T12:00:00Z
      sco drains --node 2f0d9d0e-6a3b-4a0e-9f43-0a6c1d6f2a11
    """
    session = session_of(context)
    query = {
        "outcome": outcome,
        "cause": cause,
        "hall": None if hall is None else checked_name("hall", hall),
        "instanceId": None if node is None else checked_name("node", node),
        "since": since,
    }
    listed = session.api.listing("/drains", query, limit)
    if output is Format.TABLE:
        nodes_view.drains(session.screen, read_all(Drain, listed.items, "the drains"))
    else:
        session.screen.document(listed.items, output)


def explain_drain(
    context: typer.Context,
    *,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's id.", show_default=False)],
    drain: Annotated[
        UUID | None,
        typer.Option(
            "--drain", metavar="ID", help="Which drain; the newest if left out.", show_default=False
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Say what happened when a node drained.

    Second by second from its notice, with whose fault it was and what is not known.

    \b
    Examples:
      sco explain-drain 2f0d9d0e-6a3b-4a0e-9f43-0a6c1d6f2a11
    """
    session = session_of(context)
    where = path("drains", checked_name("node", node))
    document = session.api.get(where, {"drainId": None if drain is None else str(drain)})
    story = read(DrainStory, document, "the drain")
    if output is Format.TABLE:
        nodes_view.story(session.screen, story)
    else:
        session.screen.document(document, output)
