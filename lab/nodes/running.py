"""The laboratory's nodes as seen from outside: started, reclaimed, listened to and stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2

from lab.nodes.plans import (
    NODES_FOLDER,
    PLAN_FILE,
    PROVIDER_FOLDER,
    STATE_FILE,
    NodesPlan,
    NodesState,
)
from lab.nodes.process import end_leftovers
from lab.nodes.workloads import Kind
from lab.reclaimer.reclaimer import Reclaimer
from lab.reclaimer.targets import Node
from lab.relay.admission import write_private
from lab.relay.bus import NodeBus
from lab.relay.client import RelayClient
from lab.relay.decisions import WARNING_SECONDS
from lab.stack import process
from lab.stack.errors import StackError
from lab.stack.process import Identity

PROCESS_FILE = "process.json"
LOG_FILE = "nodes.log"
READY_SECONDS = 120.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05
CALL_SECONDS = 60.0
# The most that the runbook allows whatever stands before a metadata service.
CACHE_SECONDS = 1.0
KINDS = (Kind.CHECKPOINTS,)


class RunningNodes:
    """The nodes of one folder. Every method raises StackError with a text for people."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / STATE_FILE
        if not path.exists():
            raise StackError("No nodes run here. Start some first: sco-lab nodes start")
        self._state = NodesState.model_validate_json(path.read_bytes())

    @classmethod
    def start(
        cls,
        folder: Path,
        nodes: Sequence[Node],
        *,
        kinds: Sequence[Kind] = KINDS,
        cache_seconds: float = CACHE_SECONDS,
        cloud_file: Path | None = None,
        vendordata_url: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> RunningNodes:
        """Start the nodes as a process that outlives the caller, and wait until all of them are ready.

        `cloud_file` says how to end their servers; `vendordata_url` is where a control plane, whose node
        file was made by `node_file.write_node_file`, gives them their identity; `settings` are variables
        for every agent, such as where the cluster's API server is.
        """
        if not nodes:
            raise StackError("There is no instance to run a node on: place a workload first.")
        if running(folder):
            if cls(folder).nodes:
                raise StackError("Nodes run here already. Stop them first: sco-lab nodes stop")
            # The relay of a laboratory without a node gives way to one that has some.
            stop(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / STATE_FILE).unlink(missing_ok=True)
        plan = NodesPlan(
            folder=folder.resolve(),
            nodes=tuple(nodes),
            kinds=tuple(kinds),
            cache_seconds=cache_seconds,
            cloud_file=None if cloud_file is None else cloud_file.resolve(),
            vendordata_url=vendordata_url,
            settings=dict(settings or {}),
        )
        write_private(folder / PLAN_FILE, plan.model_dump_json())
        command = [sys.executable, "-m", "lab.nodes", "--plan", str(folder / PLAN_FILE)]
        log = folder / LOG_FILE
        started = process.spawn(command, log=log, folder=Path.cwd(), environment=os.environ, account=None)
        (folder / PROCESS_FILE).write_text(json.dumps(asdict(started)))
        _wait(folder, started, log)
        return cls(folder)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._state.nodes

    @property
    def relay_url(self) -> str:
        return self._state.relay_url

    def relay(self) -> RelayClient:
        return RelayClient(self._state.relay_url, self._state.token)

    def reclaimer(self, warning_seconds: float = WARNING_SECONDS) -> Reclaimer:
        """The provider's hand on these nodes."""
        return Reclaimer(self.relay(), self.end, warning_seconds=warning_seconds)

    def end(self, instances: Sequence[str]) -> None:
        """End instances at once, without notice."""
        self._call("POST", "/ends", {"instances": list(instances)})

    def story(self) -> list[str]:
        """What the nodes said so far, a line per event, by time."""
        return [str(line) for line in self._call("GET", "/story")["lines"]]

    def events(self) -> list[dict[str, Any]]:
        """The same as lifecycle events in JSON."""
        return list(self._call("GET", "/story")["events"])

    def stop(self) -> None:
        """Stop all of them, and what they listened to."""
        stop(self._folder)

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        try:
            response = httpx2.request(
                method,
                self._state.door_url + path,
                json=body,
                headers={"Authorization": f"Bearer {self._state.token}"},
                timeout=CALL_SECONDS,
                trust_env=False,
            )
            answer: dict[str, Any] = response.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise StackError(f"The nodes do not answer: {error}. See {self._folder / LOG_FILE}.") from error
        if response.is_error:
            raise StackError(f"The nodes refused: {answer.get('error')}")
        return answer


def running(folder: Path) -> bool:
    """Whether nodes of this folder run."""
    identity = _identity(folder)
    return identity is not None and process.alive(identity)


def stop(folder: Path) -> bool:
    """Stop the nodes of a folder; False when none ran."""
    # Leftovers are known by where they work, which the kernel tells in full.
    folder = folder.resolve()
    identity = _identity(folder)
    ran = identity is not None and process.alive(identity)
    if identity is not None:
        process.stop(identity, signal.SIGTERM, STOP_SECONDS)
    # A process that was killed has left what it ran.
    for place in sorted((folder / NODES_FOLDER).glob("*")):
        ran |= end_leftovers(place) > 0
    ran |= NodeBus.end_leftovers(folder / PROVIDER_FOLDER / "bus") > 0
    for name in (PROCESS_FILE, STATE_FILE):
        (folder / name).unlink(missing_ok=True)
    return ran


def _identity(folder: Path) -> Identity | None:
    path = folder / PROCESS_FILE
    return Identity(**json.loads(path.read_text())) if path.exists() else None


def _wait(folder: Path, started: Identity, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not (folder / STATE_FILE).exists():
        if not process.alive(started) or time.monotonic() > deadline:
            process.stop(started, signal.SIGTERM, STOP_SECONDS)
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise StackError(f"The nodes did not start. Last lines of {log}:\n{tail}")
        time.sleep(POLL_SECONDS)
