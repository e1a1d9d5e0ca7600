"""`sco`: the command line. A thin client of the REST API; every rule is the server's."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from clients.cli.api import Api, Clock
from clients.cli.commands import describe, pools
from clients.cli.commands.apply import apply
from clients.cli.commands.audit import audit
from clients.cli.commands.claim import claim, place, scale
from clients.cli.commands.describe import status
from clients.cli.commands.explain import explain
from clients.cli.commands.get import get
from clients.cli.commands.models import models
from clients.cli.commands.nodes import drains, explain_drain, nodes, revoke_node
from clients.cli.commands.regions import regions
from clients.cli.commands.slurm import slurm_nodes
from clients.cli.commands.warm import warm
from clients.cli.credential import find_credential
from clients.cli.failures import Failure, usage
from clients.cli.screen import PipeClosed, Screen, output_checked
from clients.cli.session import Session, Surroundings
from clients.cli.settings import find_server

PACKAGE = "spot-capacity-orchestrator"
REQUEST_SECONDS = 30.0
INTERRUPTED = 130
PIPE_CLOSED = 141

app = typer.Typer(
    name="sco",
    help=(
        "Run work on capacity that can be taken back, and models on pools that serve them: see where"
        " they run and why."
        "\n\n\b\nExit codes: 0 ok, 1 refused by the server (of sco audit: findings), 2 wrong usage"
        "\nor unreadable file, 3 no usable answer from the server, 4 waited too long, 5 ended in a"
        "\nshortfall or found no pool for a model, 6 a replayed decision differs, 7 an audit that"
        "\ncould not see everything."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(apply)
app.command()(claim)
app.command()(place)
app.command()(scale)
app.add_typer(get, name="get")
app.add_typer(describe.describe, name="describe")
app.command()(explain)
app.command()(audit)
app.add_typer(pools.activate, name="activate")
app.add_typer(pools.change, name="change")
app.add_typer(pools.drain, name="drain")
app.add_typer(pools.resume, name="resume")
app.add_typer(pools.retire, name="retire")
app.add_typer(models, name="models")
app.command()(warm)
app.command()(regions)
app.command()(nodes)
app.command(name="revoke-node")(revoke_node)
app.command()(drains)
app.command(name="explain-drain")(explain_drain)
app.command(name="slurm-nodes")(slurm_nodes)
app.command()(status)


def package_version() -> str:
    try:
        return installed_version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sco {package_version()}")
        raise typer.Exit


@app.callback()
def sco(
    context: typer.Context,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="Where the API is. Otherwise SCO_SERVER, then .lab/api.url, then http://127.0.0.1:8080.",
            show_default=False,
        ),
    ] = None,
    request_timeout: Annotated[
        float,
        typer.Option(
            "--request-timeout", metavar="SECONDS", min=0.1, max=600, help="How long one answer may take."
        ),
    ] = REQUEST_SECONDS,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    surroundings = context.obj
    assert isinstance(surroundings, Surroundings)
    address = find_server(server, os.environ, Path.cwd())
    api = Api(
        address,
        timeout_seconds=request_timeout,
        clock=surroundings.clock,
        new_key=surroundings.new_key,
        version=package_version(),
        credential=find_credential(
            os.environ,
            address,
            timeout_seconds=request_timeout,
            monotonic=surroundings.clock.monotonic,
        ),
    )
    context.call_on_close(api.close)
    context.obj = Session(api, surroundings.clock, surroundings.screen)


def main(
    arguments: Sequence[str] | None = None,
    *,
    clock: Clock = Clock(time.monotonic, time.sleep),  # noqa: B008 - frozen
) -> int:
    """Run one command; returns its exit code. Failures are told in words, never as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    screen = Screen()
    try:
        with output_checked():
            _require_output()
            code = _run(arguments, Surroundings(clock, lambda: str(uuid4()), screen))
            sys.stdout.flush()
    except Failure as failure:
        screen.failure(failure)
        return failure.code
    except PipeClosed:
        return PIPE_CLOSED
    if code == INTERRUPTED:
        screen.note("interrupted; what the server has begun goes on")
    return code


def _require_output() -> None:
    """Python opens nothing where the descriptor is closed, and every answer would be lost unseen."""
    if sys.stdout is None:
        raise usage("the output cannot be written: it is closed")


def _run(arguments: Sequence[str] | None, surroundings: Surroundings) -> int:
    try:
        app(args=None if arguments is None else list(arguments), prog_name="sco", obj=surroundings)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
