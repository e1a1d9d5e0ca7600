"""Real nodes of the laboratory together: started, ended by the provider, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab.nodes.papers import PLAIN_ORDERS
from lab.nodes.process import NodeProcess, end_leftovers
from lab.nodes.provider import Provider
from lab.nodes.workloads import Kind
from lab.reclaimer.targets import Node
from wire.bundle import DrainOrders

NO_METRICS = "0"


class Fleet:
    """Agent processes with their workloads, on one provider."""

    def __init__(
        self,
        folder: Path,
        provider: Provider,
        *,
        settings: Mapping[str, str] | None = None,
        papers: bool = True,
        ended: Callable[[str], None] = lambda instance_id: None,
    ) -> None:
        """`settings` are variables for every agent; `ended` is told each instance that the provider ends.

        Without `papers` a node begins with an empty disk and registers at the control plane.
        """
        self._folder = folder
        self._provider = provider
        self._settings = dict(settings or {})
        self._papers = papers
        self._ended = ended
        self.nodes: dict[str, NodeProcess] = {}

    def add(self, node: Node, kinds: Sequence[Kind], orders: DrainOrders = PLAIN_ORDERS) -> NodeProcess:
        """A node that does not run yet; with papers, it holds its bundle and its bus credentials already."""
        told = {
            "SCO_AGENT_INSTANCE_ID": node.instance_id,
            "SCO_AGENT_METADATA_URL": self._provider.metadata.url_of(node.instance_id),
            "SCO_AGENT_METRICS_PORT": NO_METRICS,
            "SCO_AGENT_NODE_NAME": node.instance_id,
        }
        end_leftovers(self._folder / node.instance_id)
        process = NodeProcess(self._folder / node.instance_id, node, kinds, told | self._settings)
        if self._papers:
            self._provider.papers.lay_down(process.state_dir, node, orders)
        self.nodes[node.instance_id] = process
        return process

    def start(self) -> None:
        """Start every node: all workloads first, then, when they are ready, the agents."""
        for node in self.nodes.values():
            node.start_workloads()
        for node in self.nodes.values():
            node.wait_for_workloads()
        for node in self.nodes.values():
            node.start_agent()

    async def end(self, instance_id: str) -> None:
        """End an instance as the provider does; one that is not here is somebody else's."""
        node = self.nodes.get(instance_id)
        if node is not None:
            await asyncio.to_thread(node.end)
            self._ended(instance_id)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()
