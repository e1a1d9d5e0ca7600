"""What the agent costs a node: memory, idle processor time, and how long it takes to be ready."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_server import serve
from tests.agent.rig import Node, Relay, letter, node, notice, until

# Measured: 53 with bus, poll and drain, and 64 where the client of Kubernetes is loaded besides.
MOST_MIB, MOST_MIB_OF_KUBERNETES = 60, 70
# A share of one processor, seen over seconds on a machine that does other things too.
MOST_IDLE = 0.03
LOOK_SECONDS = 1.5
PODS = 20


def resident_mib(one: Node) -> float:
    assert one.process is not None
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def processor_seconds(one: Node) -> float:
    assert one.process is not None
    fields = Path(f"/proc/{one.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def as_installed(one: Node, relay: Relay) -> None:
    """The intervals of a node, and the environment of the unit; started twice, so that bytecode is there."""
    one.settings |= {
        "SCO_AGENT_BUS_SERVERS": relay.url,
        "SCO_AGENT_POLL_SECONDS": "5",
        "MALLOC_ARENA_MAX": "2",
    }
    one.start()
    one.stop()
    one.start()


def test_the_agent_is_light_while_it_waits_and_while_it_drains(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        one.work("checkpoints")
        as_installed(one, relay)
        before = processor_seconds(one)
        time.sleep(LOOK_SECONDS)
        assert (processor_seconds(one) - before) / LOOK_SECONDS <= MOST_IDLE
        relay.say(one.instance_id, letter(notice(one.instance_id)))
        until(lambda: one.phase() == "finished")
        assert resident_mib(one) <= MOST_MIB


async def test_the_agent_of_a_kubernetes_node_is_light_too(tmp_path: Path, relay: Relay) -> None:
    cluster = Cluster(0.002)
    cluster.add_node("n1")
    for number in range(PODS):
        cluster.add_pod(f"p{number}", "n1")

    def drained(address: str) -> float:
        with node(tmp_path / "n", path="kubernetes") as one:
            one.settings |= {"SCO_AGENT_KUBERNETES_URL": address, "SCO_AGENT_NODE_NAME": "n1"}
            as_installed(one, relay)
            relay.say(one.instance_id, letter(notice(one.instance_id)))
            until(lambda: one.phase() == "finished")
            return resident_mib(one)

    async with serve(cluster) as address:
        assert await asyncio.to_thread(drained, address) <= MOST_MIB_OF_KUBERNETES
    assert {verb for verb, *_ in cluster.asked} == {"evict"}
    assert len(cluster.asked) == PODS
