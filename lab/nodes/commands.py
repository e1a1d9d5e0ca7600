"""`sco-lab nodes`: real nodes with agents, on servers of the simulated cloud or without any."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.cloud.admin_client import AdminClient
from lab.nodes import running
from lab.nodes.inventory import made_up, of_servers
from lab.nodes.node_file import NODE_FILE, vendordata_target
from lab.nodes.running import RunningNodes
from lab.nodes.workloads import Kind
from lab.reclaimer.targets import Node
from lab.relay.client import RelayRefused
from lab.stack.errors import StackError

DATA_DIR = Path(".lab")
FOLDER = "nodes"
CLOUD_FILE = Path("cloud", "cloud.json")
MAX_NODES = 50
WIDTH = 130

app = typer.Typer(no_args_is_help=True, help="Nodes with real agents, whom the provider can take back.")
DataDir = Annotated[Path, typer.Option("--data-dir", help="Folder for data, logs and what is running.")]
Kinds = Annotated[
    list[Kind] | None, typer.Option("--workload-kind", help="How a workload takes it when it is told to end.")
]


@contextmanager
def refusals() -> Iterator[None]:
    """A refusal is one clear text and exit code 1, never a traceback."""
    try:
        yield
    except (StackError, RelayRefused) as error:
        line = Text.assemble(("sco-lab:", "bold red"), f" {error}")
        Console(stderr=True, highlight=False).print(line, soft_wrap=True)
        raise typer.Exit(1) from error


@app.command()
def start(
    count: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="How many nodes.")] = 3,
    workload: Annotated[
        str | None, typer.Option(help="Run on this workload's servers in the laboratory's cloud.")
    ] = None,
    kinds: Kinds = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Start bus, relay, metadata and nodes, and wait until every agent is ready."""
    with refusals():
        chosen = tuple(kinds) if kinds else running.KINDS
        if workload is None:
            started = RunningNodes.start(data_dir / FOLDER, made_up(count), kinds=chosen)
        else:
            started = start_on(data_dir, workload, count, chosen)
    show(started.nodes)


@app.command("list")
def list_nodes(data_dir: DataDir = DATA_DIR) -> None:
    """Show the nodes that were started, with pool, correlation group and hall."""
    with refusals():
        show(RunningNodes(data_dir / FOLDER).nodes)


@app.command()
def story(data_dir: DataDir = DATA_DIR) -> None:
    """Tell what the nodes said so far: notices, signals, drains, overruns."""
    console = Console(highlight=False)
    with refusals():
        for line in RunningNodes(data_dir / FOLDER).story():
            console.print(line, markup=False, soft_wrap=True)


@app.command()
def stop(data_dir: DataDir = DATA_DIR) -> None:
    """Stop the nodes, their workloads, the relay and the bus."""
    with refusals():
        stopped = running.stop(data_dir / FOLDER)
    Console(highlight=False).print("The nodes are stopped." if stopped else "No nodes run here.")


def start_on(
    data_dir: Path,
    workload: str,
    count: int,
    kinds: Sequence[Kind] = running.KINDS,
    settings: Mapping[str, str] | None = None,
) -> RunningNodes:
    """Start nodes on servers of a workload; a control plane with our node file gives them their identity.

    `settings` are variables for every agent. Raises StackError.
    """
    folder = data_dir / FOLDER
    node_file = folder / NODE_FILE
    return RunningNodes.start(
        folder,
        servers_of(data_dir, workload, count),
        kinds=kinds,
        cloud_file=data_dir / CLOUD_FILE,
        vendordata_url=vendordata_target(node_file) if node_file.exists() else None,
        settings=settings,
    )


def servers_of(data_dir: Path, workload: str, count: int) -> tuple[Node, ...]:
    """Nodes for the servers that a workload has in the laboratory's cloud. StackError when there are none."""
    path = data_dir / CLOUD_FILE
    if not path.exists():
        raise StackError(f"No cloud runs in {data_dir}. Start the laboratory first: make up")
    known = json.loads(path.read_text())
    cloud = AdminClient(known["base_url"], known["admin"]["token"])
    try:
        found = of_servers(cloud.servers(metadata={"sco_workload": workload}), count)
    finally:
        cloud.close()
    if not found:
        raise StackError(f"Workload {workload!r} has no running server. Place it first: sco claim -f FILE")
    return found


def show(nodes: tuple[Node, ...]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("NODE", "POOL", "CORRELATION GROUP", "HALL"):
        table.add_column(heading, no_wrap=True)
    for node in nodes:
        table.add_row(node.instance_id, node.pool_id, node.group_id, node.hall)
    Console(highlight=False, width=WIDTH).print(table)
