"""Many nodes in one process: the same agent each, with workloads that are objects instead of processes.

`python -m lab.nodes.in_process --plan FILE` runs the nodes of a plan until SIGTERM. What differs from a node
of its own is the last step alone: a workload is told by a call instead of a signal, and stamps the moment in
its own handler all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import uvloop
from pydantic import BaseModel, ConfigDict

from agent.assemble import Agent
from agent.drain.choose import Drivers
from agent.drain.ports import Deadline, Work
from agent.settings import AgentSettings
from lab.nodes.workloads import ENDS_BY_ITSELF, STAMP_FILE, Kind, Stamp
from wire.bundle import DrainOrders, DrainPath

READY = "ready"
WORK = "in_process"


class PlannedNode(BaseModel):
    """One node of a plan: its folder holds `state`, laid down already, `run` and `work/0`."""

    model_config = ConfigDict(frozen=True)

    instance_id: str
    folder: Path
    metadata_url: str
    kind: Kind


class Plan(BaseModel):
    model_config = ConfigDict(frozen=True)

    nodes: tuple[PlannedNode, ...]
    poll_seconds: float
    linger_seconds: float


class InProcessWork:
    """A workload that is told by a call. It ends `linger_seconds` after that, if it is of such a kind."""

    def __init__(self, folder: Path, kind: Kind, linger_seconds: float) -> None:
        self._folder, self._kind, self._linger_seconds = folder, kind, linger_seconds
        self._told = False
        self.runs = True
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def handle(self, name: str) -> None:
        stamp = Stamp(time.time_ns(), time.monotonic_ns(), name)
        if self._told:
            return
        self._told = True
        # Written a moment later: a workload of its own would not do it in the agent's time.
        asyncio.get_running_loop().call_later(self._linger_seconds, self._come_out, stamp)

    def kill(self) -> None:
        self.runs = False

    def _come_out(self, stamp: Stamp) -> None:
        (self._folder / STAMP_FILE).write_text(json.dumps(stamp._asdict()))
        if self._kind in ENDS_BY_ITSELF:
            self.kill()


class InProcessDriver:
    """Takes one such workload off its node, as the plain driver does with processes."""

    name = "plain"
    signals_again = False

    def __init__(self, work: InProcessWork) -> None:
        self._work = work

    async def cordon(self, owner: str, until: datetime) -> None:
        """Nobody gives work to this node."""

    async def uncordon(self, owner: str) -> None:
        """Nothing was closed."""

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        self._work.handle(f"SIG{orders.signal}")

    async def left(self) -> tuple[Work, ...]:
        # Without a pid: nobody may signal this process for what it holds.
        return (Work(WORK, "0", ()),) if self._work.runs else ()

    async def force(self, work: Sequence[Work]) -> None:
        self._work.kill()

    async def finish(self, orders: DrainOrders) -> None:
        """The work has ended."""


class InProcessDrivers(Drivers):
    """One driver for every path, since no process could be signalled here."""

    def __init__(self, settings: AgentSettings, instance_id: str, work: InProcessWork) -> None:
        super().__init__(settings, instance_id)
        self._driver = InProcessDriver(work)

    def for_path(self, path: DrainPath) -> InProcessDriver:
        return self._driver

    def plain(self) -> InProcessDriver:
        return self._driver


def agent_of(node: PlannedNode, plan: Plan) -> Agent:
    """The agent of one node of a plan."""
    settings = AgentSettings(
        instance_id=node.instance_id,
        state_dir=node.folder / "state",
        run_dir=node.folder / "run",
        boot_bundle=node.folder / "none",
        metadata_url=node.metadata_url,
        poll_seconds=plan.poll_seconds,
        metrics_port=0,
    )
    work = InProcessWork(node.folder / "work" / "0", node.kind, plan.linger_seconds)
    return Agent(settings, node.instance_id, drivers=InProcessDrivers(settings, node.instance_id, work))


async def run(plan: Plan) -> None:
    """Run every node of the plan until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    agents = [agent_of(node, plan) for node in plan.nodes]
    running = [asyncio.create_task(agent.run(stop)) for agent in agents]
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    await asyncio.gather(*running)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.nodes.in_process")
    parser.add_argument("--plan", type=Path, required=True, help="JSON file with the nodes to run")
    plan = Plan.model_validate_json(parser.parse_args().plan.read_bytes())
    logging.basicConfig(level=logging.ERROR)
    uvloop.run(run(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
