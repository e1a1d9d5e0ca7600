"""`python -m lab.nodes --plan FILE`: what surrounds real nodes, and the nodes, as one process, until SIGTERM.

Around them are bus, relay, metadata, and the stand-in of a Kubernetes API.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from lab.cloud.admin_client import AdminClient
from lab.nodes.door import NodesDoor
from lab.nodes.fleet import Fleet
from lab.nodes.kubelets import Kubelets
from lab.nodes.metadata import http_target
from lab.nodes.plans import NODES_FOLDER, PROVIDER_FOLDER, STATE_FILE, NodesPlan, NodesState
from lab.nodes.provider import Provider
from lab.nodes.story import listening
from lab.relay.admission import write_private
from lab.schedulers.kube_server import serve
from lab.stack.ports import LOOPBACK, listen_on
from wire.node import notice_subject

READY_SECONDS = 90.0
POLL_SECONDS = 0.1


async def run(plan: NodesPlan) -> None:
    """Serve until SIGTERM or SIGINT. RuntimeError when the nodes do not come up."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    targets = {} if plan.vendordata_url is None else {"sco": http_target(plan.vendordata_url)}
    provider = Provider(plan.folder / PROVIDER_FOLDER, cache_seconds=plan.cache_seconds, targets=targets)
    kubelets = Kubelets()
    tell = _teller(plan.cloud_file)

    def ended(instance_id: str) -> None:
        kubelets.lose(instance_id)
        tell(instance_id)

    async with serve(kubelets.cluster) as api_server:
        fleet = Fleet(
            plan.folder / NODES_FOLDER,
            provider,
            settings={"SCO_AGENT_KUBERNETES_URL": api_server} | plan.settings,
            papers=plan.vendordata_url is None,
            ended=ended,
        )
        for node in plan.nodes:
            kubelets.join(fleet.add(node, plan.kinds))
        await _run(plan, provider, fleet, stop)


async def _run(plan: NodesPlan, provider: Provider, fleet: Fleet, stop: asyncio.Event) -> None:
    async with provider.serving(fleet.end), listening(provider.bus) as heard:
        try:
            await asyncio.to_thread(fleet.start)
            await _all_listen(plan, provider)
            async with _serving(NodesDoor(fleet, heard, provider.token).app()) as url:
                _write_state(plan, provider, url)
                await stop.wait()
        finally:
            (plan.folder / STATE_FILE).unlink(missing_ok=True)
            await asyncio.to_thread(fleet.stop)


async def _all_listen(plan: NodesPlan, provider: Provider) -> None:
    """Wait until a notice would reach every node."""
    wanted = {notice_subject(node.hall, node.instance_id) for node in plan.nodes}
    deadline = time.monotonic() + READY_SECONDS
    while not wanted <= await asyncio.to_thread(provider.bus.subscribed):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not every node listens after {READY_SECONDS:.0f} s: see {plan.folder}")
        await asyncio.sleep(POLL_SECONDS)


def _write_state(plan: NodesPlan, provider: Provider, door_url: str) -> None:
    state = NodesState(
        relay_url=provider.relay.base_url,
        door_url=door_url,
        bus_url=provider.bus.url,
        token=provider.token,
        nodes=plan.nodes,
    )
    write_private(plan.folder / STATE_FILE, state.model_dump_json(indent=2))


@asynccontextmanager
async def _serving(app: Starlette) -> AsyncIterator[str]:
    bound = listen_on(0)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    )
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield f"http://{LOOPBACK}:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


def _teller(cloud_file: Path | None) -> Callable[[str], None]:
    """What tells the simulated cloud that the provider has ended an instance."""
    if cloud_file is None:
        return lambda instance_id: None
    known = json.loads(cloud_file.read_text())

    def tell(instance_id: str) -> None:
        client = AdminClient(known["base_url"], known["admin"]["token"])
        # Its owner may have deleted it a moment before.
        with contextlib.suppress(ValueError):
            client.terminate(instance_id)
        client.close()

    return tell


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.nodes", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="JSON file with what to run")
    plan = NodesPlan.model_validate_json(parser.parse_args().plan.read_bytes())
    asyncio.run(run(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
