"""The Slurm forwarder as a process of its own, with small programs in place of Slurm's commands."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wire.node_requests import Asked, sign_request

PACKAGE = Path(__file__).parents[2] / "deploy" / "slurm" / "sco_forwarder"
COMMANDS = ("sinfo", "squeue", "scontrol", "scancel")
SAYING = (*COMMANDS, "squeue-steps")
START_SECONDS = 30.0
# Writes down how it was called, then prints the file of its name, or hangs where there is a file `hangs`.
# Asked for steps, squeue prints another file.
COMMAND = """#!/bin/sh
name=$(basename "$0")
printf '%s\\n' "$name" "$@" -- >> {folder}/calls
[ -e {folder}/hangs ] && exec sleep 60
case " $* " in *" -s "*) name=$name-steps;; esac
exec cat {folder}/$name.says
"""


@dataclass
class Answer:
    status: int
    body: dict[str, Any]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason"))


@dataclass
class Session:
    """A forwarder that runs, and the keys of the nodes n1 and n2, which are instances i-n1 and i-n2."""

    url: str
    folder: Path
    keys: dict[str, Ed25519PrivateKey]
    process: subprocess.Popen[bytes]
    client: httpx2.Client

    def says(self, command: str, text: str) -> None:
        """What a command of Slurm prints from now on."""
        (self.folder / f"{command}.says").write_text(text)

    def calls(self) -> list[list[str]]:
        """Every command that was run: its name and arguments."""
        text = (self.folder / "calls").read_text() if (self.folder / "calls").exists() else ""
        return [call.splitlines() for call in re.split(r"^--\n", text, flags=re.MULTILINE) if call]

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)

    def signed(
        self,
        node: str,
        order: str,
        body: Any,
        *,
        key: str = "",
        at: datetime | None = None,
        instance_id: str = "",
    ) -> tuple[str, bytes, dict[str, str]]:
        """A request as the agent of a node makes it: target, body and headers."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        asked = Asked("POST", f"/v1/{order}", raw)
        headers = sign_request(
            asked,
            key=self.keys[key or node],
            instance_id=instance_id or f"i-{node}",
            at=at or datetime.now(UTC),
            nonce=secrets.token_urlsafe(24),
        )
        return asked.target, raw, headers

    def send(self, target: str, raw: bytes, headers: dict[str, str]) -> Answer:
        response = self.client.post(f"{self.url}{target}", content=raw, headers=headers)
        return Answer(response.status_code, response.json())

    def order(self, node: str, order: str, body: Any = None, **options: Any) -> Answer:
        return self.send(*self.signed(node, order, {} if body is None else body, **options))

    def register(self, nodes: dict[str, Any]) -> None:
        draft = self.folder / "nodes.new"
        draft.write_text(json.dumps(nodes))
        draft.replace(self.folder / "nodes.json")

    def audit(self) -> list[dict[str, Any]]:
        """The audit lines, in order."""
        log = (self.folder / "log").read_text()
        return [json.loads(line.split(" audit ", 1)[1]) for line in log.splitlines() if " audit " in line]


def entry(key: Ed25519PrivateKey, node: str) -> dict[str, str]:
    return {"node": node, "publicKey": base64.b64encode(key.public_key().public_bytes_raw()).decode()}


def run_forwarder(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    command = [sys.executable, "-m", PACKAGE.name, "--port", "0", *arguments]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=PACKAGE.parent, env=environment, stdout=subprocess.DEVNULL, stderr=log
        )


@contextmanager
def forwarding(folder: Path, *arguments: str) -> Iterator[Session]:
    """A running forwarder; a command of Slurm may take 5 s unless `arguments` say otherwise."""
    (folder / "bin").mkdir()
    for command in COMMANDS:
        program = folder / "bin" / command
        program.write_text(COMMAND.format(folder=folder))
        program.chmod(0o755)
    for name in SAYING:
        (folder / f"{name}.says").touch()
    keys = {node: Ed25519PrivateKey.generate() for node in ("n1", "n2")}
    (folder / "nodes.json").write_text(json.dumps({f"i-{node}": entry(keys[node], node) for node in keys}))
    process = run_forwarder(
        folder, "--nodes", str(folder / "nodes.json"), "--command-seconds", "5", *arguments
    )
    try:
        with httpx2.Client(timeout=START_SECONDS) as client:
            yield Session(_address(folder / "log", process), folder, keys, process, client)
    finally:
        process.terminate()
        assert process.wait(START_SECONDS) == 0


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at and process.poll() is None:
        found = re.search(r"listening on (\S+)", log.read_text())
        if found:
            return f"http://{found[1]}"
        time.sleep(0.02)
    raise AssertionError(f"the forwarder does not listen: {log.read_text()}")
