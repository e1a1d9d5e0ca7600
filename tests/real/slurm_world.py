"""A real Slurm of three nodes with the forwarder beside it, and agents' drivers for its nodes."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.drain.slurm import SlurmDriver
from agent.drain.slurm_forwarder import ForwarderAccess, SlurmForwarder
from agent.drain.slurm_local import SlurmLocal, processes_of_jobs
from clients.cli.main import main
from lab.schedulers.slurm import Slurm
from tests.cli.fake_api import FakeApi, document, serving
from wire.bundle import CheckpointMode, DrainOrders, DrainPath, DrainSignal, Restart

NODES = ("n1", "n2", "n3")
PACKAGE = Path(__file__).parents[2] / "deploy" / "slurm" / "sco_forwarder"
OWNER = "sco-notice-1"
PATIENCE_SECONDS = 40.0
# Counts in a file what it has done, writes it on USR1, and then waits to be requeued or ends as it was told.
# Where it knows an agent's socket, it says there that it has written.
JOB = """
import json, os, pathlib, signal, socket, sys, time
state, told, after = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1] + ".log"), sys.argv[2]
step = json.loads(state.read_text())["step"] if state.exists() else 0

def tell(what):
    with told.open("a") as log:
        log.write(json.dumps({"what": what, "node": os.environ["SLURMD_NODENAME"], "step": step}) + "\\n")

def save(number, frame):
    draft = state.with_suffix(".new")
    draft.write_text(json.dumps({"step": step}))
    draft.replace(state)
    tell("saved")
    agent = pathlib.Path(sys.argv[1] + ".agent")
    if agent.exists():
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(agent.read_text())
            line.sendall(b'{"op":"checkpointed","generation":1,"bytes":9,"final":true}\\n')
            line.recv(4096)
    if after != "waits":
        sys.exit(int(after))

signal.signal(signal.SIGUSR1, save)
tell("began")
while True:
    time.sleep(0.02)
    step += 1
"""


def orders(**changes: Any) -> DrainOrders:
    usual = DrainOrders(
        path=DrainPath.SLURM,
        budget_seconds=100,
        signal=DrainSignal.USR1,
        checkpoint=CheckpointMode.FINAL,
        restart=Restart.RESUME,
    )
    return usual.model_copy(update=changes)


@dataclass
class Deadline:
    """Seconds left, as a test sets them."""

    seconds: float = 119.0

    def remaining_seconds(self) -> float:
        return self.seconds


@dataclass
class Job:
    """One job, its state file and what it has told."""

    job_id: str
    state: Path

    def told(self) -> list[dict[str, Any]]:
        log = Path(f"{self.state}.log")
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def knows(self, agent_socket: Path) -> None:
        Path(f"{self.state}.agent").write_text(str(agent_socket))

    @property
    def node(self) -> str:
        """Where it began first."""
        return self.began()[0]

    def began(self) -> list[str]:
        """Each node on which it began, in order."""
        return [line["node"] for line in self.told() if line["what"] == "began"]


@dataclass
class World:
    slurm: Slurm
    url: str
    keys: dict[str, Ed25519PrivateKey]
    submitted: int = 0

    def forwarder(self, node: str, *, key: Ed25519PrivateKey | None = None, **options: Any) -> SlurmForwarder:
        access = ForwarderAccess(self.url)
        return SlurmForwarder(access, key or self.keys[node], f"i-{node}", **options)

    def driver(self, node: str, **options: Any) -> SlurmDriver:
        folder = self.slurm.folder
        local = SlurmLocal(
            lambda: processes_of_jobs(node), stop=("true",), start=("true",), marker=folder / f"{node}.marker"
        )
        return SlurmDriver(self.forwarder(node), node, local=local, **options)

    def submit(self, after: str = "waits", *, step: bool = False) -> Job:
        """A job that has begun somewhere."""
        self.submitted += 1
        state = self.slurm.folder / f"job-{self.submitted}"
        program = self.slurm.folder / "job.py"
        program.write_text(JOB)
        script = self.slurm.folder / f"job-{self.submitted}.sh"
        command = f"{sys.executable} {program} {state} {after}"
        script.write_text(f"#!/bin/bash\n{'srun ' if step else 'exec '}{command}\n")
        options = ["--requeue", "--ntasks=1", "--mem=100", "--open-mode=append"]
        job_id = self.slurm.submit(script, options=options)
        job = Job(job_id, state)
        self.slurm.wait_for("job that began", lambda: bool(job.began()), PATIENCE_SECONDS)
        return job

    async def until(self, holds: Callable[[], bool]) -> None:
        await asyncio.to_thread(self.slurm.wait_for, "what was awaited", holds, PATIENCE_SECONDS)

    async def drained(self, driver: SlurmDriver) -> None:
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while await driver.left():
            assert time.monotonic() < ends_at, "the node is not drained"
            await asyncio.sleep(0.1)

    def reset(self) -> None:
        """End every job and open every node."""
        self.slurm.end_jobs()
        for node in NODES:
            if self.slurm.node(node)[0].startswith("drain"):
                self.slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.slurm.wait_for("idle nodes", lambda: self.slurm.idle() == len(NODES))


def until() -> datetime:
    return datetime.now(UTC) + timedelta(minutes=5)


def registered(keys: dict[str, Ed25519PrivateKey], file: Path) -> dict[str, dict[str, str]]:
    """The forwarder's file of these nodes, as the command writes it from what the registry answers."""
    nodes = [
        {
            "instanceId": f"i-{node}",
            "node": node,
            "publicKey": base64.b64encode(key.public_key().public_bytes_raw()).decode(),
        }
        for node, key in keys.items()
    ]
    with serving(FakeApi()) as api:
        api.on("GET", "/nodes/forwarder", document({"partitionId": "slurm-a", "nodes": nodes}))
        assert main(["--server", api.url, "slurm-nodes", "slurm-a", "--out", str(file)]) == 0
    return dict(json.loads(file.read_text()))
