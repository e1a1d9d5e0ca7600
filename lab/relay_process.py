"""The provider's side of a laboratory's nodes as one of its processes: node bus, relay and metadata.

It is the process that `sco-lab nodes` knows, at first without a node. Keys, ports and what the bus keeps stay
in its folder, so that one with nodes takes its place after a moment without a bus.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from lab.nodes import running
from lab.nodes.commands import FOLDER
from lab.nodes.node_file import vendordata_target, write_node_file
from lab.nodes.plans import PLAN_FILE, PROVIDER_FOLDER, STATE_FILE, NodesPlan
from lab.nodes.provider import BUS_FOLDER
from lab.relay.admission import write_private
from lab.relay.bus import NodeBus
from lab.stack import process
from lab.stack.process import Identity


class RelayProcess:
    """The relay of one laboratory, whoever started it: `sco-lab up` or `sco-lab nodes start`."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = (data_dir / FOLDER).resolve()

    @property
    def ready_file(self) -> Path:
        """It is there once the process serves."""
        return self.folder / STATE_FILE

    def identity(self) -> Identity | None:
        path = self.folder / running.PROCESS_FILE
        return Identity(**json.loads(path.read_text())) if path.exists() else None

    def node_file(self, api_url: str) -> Path:
        """What the API and the workers are told of nodes, for `SCO_NODE_FILE`."""
        return write_node_file(self.folder, api_url)

    def history_environment(self) -> dict[str, str]:
        """What the history writer is told of the bus."""
        bus = self._bus()
        return {
            "SCO_NODE_BUS_URL": bus.url,
            "SCO_NODE_BUS_CREDENTIALS": str(bus.admission.history_file()),
        }

    def command(self, api_url: str, cloud_file: Path) -> list[str]:
        """Write the plan of a relay without a node, and answer the command that runs it."""
        target = vendordata_target(self.node_file(api_url))
        plan = NodesPlan(
            folder=self.folder,
            nodes=(),
            kinds=running.KINDS,
            cache_seconds=running.CACHE_SECONDS,
            cloud_file=cloud_file,
            vendordata_url=target,
        )
        self.ready_file.unlink(missing_ok=True)
        path = write_private(self.folder / PLAN_FILE, plan.model_dump_json())
        return [sys.executable, "-m", "lab.nodes", "--plan", str(path)]

    def remember(self, started: Identity) -> None:
        """From now on `sco-lab nodes` and `sco-lab reclaim` find it."""
        (self.folder / running.PROCESS_FILE).write_text(json.dumps(asdict(started)))

    def stop(self) -> None:
        """Stop it with every node that runs on it."""
        running.stop(self.folder)

    def kill(self) -> None:
        """End it without any warning, and what stood on it with it, as a lost machine does."""
        identity = self.identity()
        if identity is not None:
            process.kill(identity)
        self.stop()

    def _bus(self) -> NodeBus:
        return NodeBus(self.folder / PROVIDER_FOLDER / BUS_FOLDER)
