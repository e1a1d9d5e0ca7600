"""Nodes in the demo: the provider takes one back while the control plane is dead, and it drains alone."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

from lab.control_plane import API, RELAY, WORKER, ControlPlane
from lab.demo.tools import Sco, expect, until
from lab.nodes.commands import show, start_on
from lab.nodes.running import RunningNodes
from lab.reclaimer.targets import Node
from wire.lifecycle import EventType

NODES = 3
# In earnest it is 120 s; the demo does not wait for it either way.
WARNING_SECONDS = 15.0
TOLD = (EventType.NOTICE, EventType.SIGNALLED, EventType.WORK_ENDED, EventType.DRAINED)


def take_back(plane: ControlPlane, console: Console, sco: Sco, workload: str) -> None:
    """Run nodes on servers of a workload, take one back without a control plane, and have it explained."""
    nodes = _start(plane, console, workload)
    node = nodes.nodes[0]
    for name in (API, WORKER):
        plane.kill(name)
    console.print("\nAPI and worker are dead (SIGKILL). Nodes, notice relay and node bus are the provider's.")
    _reclaim(plane, console, nodes, node)
    for name in (WORKER, API):
        expect(f"the {name} runs while the node drains", plane.running(name), expected=False)
    for name in (WORKER, API):
        plane.start(name)
    console.print("\nAPI and worker are up again and read what the node had to tell.")
    _explain(console, sco, node)


def _start(plane: ControlPlane, console: Console, workload: str) -> RunningNodes:
    _show_command(plane, console, "nodes", "start", "--workload", workload, "--count", str(NODES))
    plane.stop(RELAY)
    nodes = start_on(plane.data_dir, workload, NODES)
    expect("nodes that run", len(nodes.nodes), NODES)
    show(nodes.nodes)
    console.print(
        f"\n{NODES} servers run the agent and a workload each. Every agent got its identity, its bundle and"
        " its way onto the node bus from the API, with a token that only its server can read."
    )
    console.print(
        "A stand-in for the Kubernetes API knows the workloads as pods; its kubelets end their processes."
    )
    return nodes


def _reclaim(plane: ControlPlane, console: Console, nodes: RunningNodes, node: Node) -> None:
    seconds = f"{WARNING_SECONDS:.0f}"
    _show_command(plane, console, "reclaim", "--node", node.instance_id, "--warning-seconds", seconds)
    [notice] = nodes.reclaimer(WARNING_SECONDS).reclaim([node])
    assert notice.deadline is not None, "a hard notice has one"
    console.print(
        f"The server ends at {notice.deadline:%H:%M:%S} UTC: a warning of {seconds} s, 120 s in earnest."
    )
    until(lambda: set(TOLD) <= _told(nodes, node), f"{node.instance_id} drained")
    console.print("It drained with nobody but the provider to talk to. What it says waits on the node bus.")


def _show_command(plane: ControlPlane, console: Console, *words: str) -> None:
    """The command that does what follows."""
    folder = os.path.relpath(plane.data_dir)
    console.print(f"\n[bold]$ sco-lab {' '.join(words)} --data-dir {folder}[/]", soft_wrap=True)


def _told(nodes: RunningNodes, node: Node) -> set[str]:
    return {one["type"] for one in nodes.events() if one["instanceId"] == node.instance_id}


def _explain(console: Console, sco: Sco, node: Node) -> None:
    until(lambda: _outcome(sco, node) == EventType.DRAINED, "the history knows of the drain")
    story: dict[str, Any] = sco.data("explain-drain", node.instance_id)
    spare = story["secondsToSpare"]
    expect("whose fault it was", story["sentence"].partition(":")[0], expected="Nobody's fault")
    expect(
        f"{spare} s to spare are some, and fewer than were given", 0 < spare < WARNING_SECONDS, expected=True
    )
    expect("what took the work off the node", story["path"], "kubernetes")
    sco.run("explain-drain", node.instance_id)
    sco.run("drains")
    console.print("The others went in step 7, when the provider said nothing before.")


def _outcome(sco: Sco, node: Node) -> str | None:
    drains = sco.data("drains", "--node", node.instance_id)
    return drains[0]["outcome"] if drains else None
