"""`sco-lab`: the embedded stack and control plane, the demo and the benches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab.addresses import API_URL_FILE, SCO_FILE, show_addresses
from lab.bring_up import bring_up
from lab.control_plane import NAMES, ControlPlane
from lab.nodes import commands as nodes
from lab.nodes.commands import refusals
from lab.reclaimer.commands import reclaim
from lab.stack import commands
from lab.stack.ports import Ports
from lab.stack.stack import DEFAULT_DATA_DIR as DATA_DIR
from lab.stack.stack import Stack

app = typer.Typer(
    no_args_is_help=True,
    help="Run the orchestrator on this machine: real Temporal, Postgres and NATS, a simulated private cloud.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(nodes.app, name="nodes")
app.command()(reclaim)
# A pipe has no width of its own; the tables need this much.
PIPE_WIDTH = 130
console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
DataDir = Annotated[Path, typer.Option("--data-dir", help="Folder for data, logs and what is running.")]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="Loopback port; 0 is any free one.")]


@app.command()
def up(
    *,
    data_dir: DataDir = DATA_DIR,
    postgres_port: PortOption = 0,
    temporal_port: PortOption = 0,
    web_ui_port: PortOption = 0,
    nats_port: PortOption = 0,
    nats_monitor_port: PortOption = 0,
) -> None:
    """Start everything that does not run yet, and print where to look. Safe to repeat."""
    ports = Ports(
        postgres=postgres_port,
        temporal=temporal_port,
        web_ui=web_ui_port,
        nats=nats_port,
        nats_monitor=nats_monitor_port,
    )
    with refusals():
        stack = commands.up(data_dir, console.print, ports=ports)
        plane = ControlPlane(stack)
        bring_up(plane, lambda line: console.print(f"  {line}"))
        show_addresses(plane, console)


@app.command()
def down(data_dir: DataDir = DATA_DIR) -> None:
    """Stop everything that `up` started; data is kept."""
    with refusals():
        stack = Stack.load(data_dir)
        ControlPlane(stack).stop_all(lambda line: console.print(f"  {line}"))
        commands.down(data_dir, console.print)
        for name in (API_URL_FILE, SCO_FILE):
            (data_dir / name).unlink(missing_ok=True)


@app.command()
def status(data_dir: DataDir = DATA_DIR) -> None:
    """Show what runs; exit code 1 when something does not."""
    with refusals():
        healthy = commands.status(data_dir, console.print)
        plane = ControlPlane(Stack.load(data_dir))
        for name in NAMES:
            running = plane.running(name)
            healthy &= running
            console.print(f"{name:<9} {'running' if running else 'stopped'}")
    raise typer.Exit(0 if healthy else 1)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running afterwards.")] = False,
    data_dir: DataDir = DATA_DIR / "demo",
) -> None:
    """Place, explain, grow, shrink, survive a killed worker and drain a node alone, on a fresh laboratory."""
    from lab.demo.run import run  # noqa: PLC0415 - the other commands need not load it

    with refusals():
        run(data_dir, console, keep=keep)


@app.command()
def bench(
    output: Annotated[Path, typer.Option(help="File for the figures.")] = Path("build/bench.json"),
) -> None:
    """Measure the planner and durable placements on this machine."""
    from lab.bench.run import run  # noqa: PLC0415 - the other commands need not load it

    with refusals():
        run(output, console)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
