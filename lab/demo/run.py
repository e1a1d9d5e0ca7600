"""The demo, step by step. Every step shows the commands that a user would type."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console

from lab import oracle
from lab.addresses import show_addresses
from lab.bring_up import bring_up
from lab.control_plane import WORKER, ControlPlane
from lab.demo.models import place_models
from lab.demo.nodes import take_back
from lab.demo.tools import WAIT_SECONDS, CloudRecord, Sco, headline, until
from lab.stack import commands
from lab.stack.errors import StackError
from lab.stack.stack import Stack
from lab.stack.state import STATE_FILE

WORKLOAD = "orders-daily"
EXAMPLES = Path("examples")
CONTRACT = EXAMPLES / "contracts" / "orders-daily.yaml"
PODS = EXAMPLES / "demand" / "orders-daily-pods.json"
GROWN, SHRUNK, DURING_KILL = 60, 24, 90
REFUSED_SHOWN = 3
# So slow that the worker dies while servers are being built.
SLOW_CLOUD = 2.0
TAKEN_AWAY = 3


def run(data_dir: Path, console: Console, *, keep: bool) -> None:
    """Act the main job out on a fresh laboratory in `data_dir`; StackError when a step goes wrong."""
    began = time.monotonic()
    _require_examples()
    _wipe(data_dir)
    headline(
        console,
        1,
        "Start real Temporal, Postgres and NATS, a simulated private cloud, worker, issuer and API",
    )
    stack = commands.up(data_dir, console.print)
    plane = ControlPlane(stack)
    try:
        bring_up(plane, lambda line: console.print(f"  {line}"))
        _act(plane, console)
        console.print(f"\n[bold green]The demo ended well[/] after {time.monotonic() - began:.0f} s.")
        if keep:
            show_addresses(plane, console)
    finally:
        if not keep:
            headline(console, 12, "Stop everything (run with --keep to look around)")
            plane.stop_all(lambda line: console.print(f"  {line}"))
            commands.down(data_dir, console.print)


def _require_examples() -> None:
    for path in (CONTRACT, PODS):
        if not path.is_file():
            raise StackError(f"{path} is missing: run the demo from the root of the repository")


def _wipe(data_dir: Path) -> None:
    """Every demo starts from nothing; a laboratory that still runs there is stopped first."""
    if (data_dir / STATE_FILE).exists():
        stack = Stack.load(data_dir)
        ControlPlane(stack).stop_all()
        stack.stop()
    if data_dir.exists():
        shutil.rmtree(data_dir)


def _act(plane: ControlPlane, console: Console) -> None:
    sco, cloud = Sco(plane, console), CloudRecord(plane)
    headline(console, 2, "A contract and a pod list on disk become a claim, and the claim a fleet")
    sco.run("apply", "-f", str(CONTRACT))
    sco.run("claim", "-f", str(PODS), "--workload", WORKLOAD, "--wait")
    headline(console, 3, "The fleet by pool, group and hall, against the caps of the contract")
    sco.run("describe", "workload", WORKLOAD)
    headline(console, 4, "Why this pool, and why not those?")
    _explain(sco)
    headline(
        console, 5, f"Grow to {GROWN} units, then shrink to {SHRUNK}: newest first, never below the floor"
    )
    sco.run("scale", WORKLOAD, "--units", str(GROWN), "--wait")
    sco.run("scale", WORKLOAD, "--units", str(SHRUNK), "--wait")
    sco.run("get", "generations", WORKLOAD)
    headline(console, 6, "Kill the worker in the middle of a placement")
    _kill_worker(plane, console, sco, cloud)
    headline(console, 7, "The provider takes servers away; what is lost is placed anew")
    _take_away(console, sco, cloud)
    headline(console, 8, "Nothing is lost, nothing is there twice")
    sco.run("regions")
    sco.run("audit")
    _check(plane, console, cloud)
    headline(console, 9, "The decision can be made again from its stored inputs")
    sco.run("explain", WORKLOAD, "--replay")
    headline(console, 10, "Which pool may run a model now, how soon, and why not the cheaper one?")
    place_models(console, sco)
    headline(console, 11, "The provider takes a node back while API and worker are dead: it drains alone")
    take_back(plane, console, sco, WORKLOAD)


def _explain(sco: Sco) -> None:
    """One chosen pool, and one refused pool for each of three reasons."""
    candidates = sco.data("explain", WORKLOAD)["candidates"]
    chosen = next(one["poolId"] for one in candidates if one["kept"])
    sco.run("explain", WORKLOAD, "--pool", chosen)
    by_reason: dict[str, str] = {}
    for one in candidates:
        if not one["kept"]:
            by_reason.setdefault(one["reason"], one["poolId"])
    for reason in sorted(by_reason, key=_interest)[:REFUSED_SHOWN]:
        sco.run("explain", WORKLOAD, "--pool", by_reason[reason])


def _interest(reason: str) -> tuple[int, str]:
    """Reasons that say most about spreading come first."""
    telling = ("cap", "hall_spread", "outscored", "discount", "interruption_rate", "arch", "region")
    return (telling.index(reason) if reason in telling else len(telling), reason)


def _kill_worker(plane: ControlPlane, console: Console, sco: Sco, cloud: CloudRecord) -> None:
    before = len(cloud.live_servers())
    cloud.admin.set_speed(SLOW_CLOUD)
    scaling = sco.start("scale", WORKLOAD, "--units", str(DURING_KILL), "--wait", "--timeout", "240")
    until(lambda: len(cloud.live_servers()) > before, "the cloud has new servers")
    plane.kill(WORKER)
    seen = cloud.live_servers()
    building = sum(one["status"] == "BUILD" for one in seen)
    console.print(
        f"The worker is dead (SIGKILL). The cloud holds {len(seen)} servers, {building} of them building."
    )
    cloud.admin.set_speed(plane.pace.cloud_speed)
    plane.start(WORKER)
    console.print("A new worker is up; Temporal hands it the placement where the old one left it.")
    output, _ = scaling.communicate(timeout=WAIT_SECONDS * 4)
    console.print(output.rstrip(), markup=False, soft_wrap=True)
    if scaling.returncode != 0:
        raise StackError(f"the placement did not finish after the worker's death (exit {scaling.returncode})")


def _take_away(console: Console, sco: Sco, cloud: CloudRecord) -> None:
    """The provider's own notifications say what went; reconcile confirms it and has it placed anew."""
    before = sco.data("describe", "workload", WORKLOAD)["generation"]
    taken = [one["id"] for one in cloud.live_servers()[:TAKEN_AWAY]]
    for server_id in taken:
        cloud.admin.terminate(server_id)
    console.print(f"The provider took {len(taken)} servers away.")
    began = time.monotonic()
    until(lambda: _placed_anew(sco, before), "the lost servers are replaced")
    console.print(f"Others run in their place after {time.monotonic() - began:.0f} s.")
    sco.run("get", "generations", WORKLOAD)


def _placed_anew(sco: Sco, before: int) -> bool:
    workload = sco.data("describe", "workload", WORKLOAD)
    return bool(workload["phase"] == "placed" and workload["generation"] > before)


def _check(plane: ControlPlane, console: Console, cloud: CloudRecord) -> None:
    servers = cloud.live_servers()
    found = oracle.check(plane.stack.postgres_dsn, cloud.admin)
    console.print(
        f"The cloud holds {len(servers)} servers in {len(cloud.servers_by_batch())} batches;"
        f" {len(found)} of them without a record, twice, or beyond what is reserved."
    )
    if found:
        raise StackError("the cloud and the records differ:\n" + "\n".join(found))
