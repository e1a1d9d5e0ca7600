"""The demo, run as the README says, ends well and leaves nothing running."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lab.control_plane import NAMES, ControlPlane
from lab.demo.nodes import NODES
from lab.demo.tools import headline
from lab.stack.process import working_in
from lab.stack.stack import Stack

DEMO_SECONDS = 420


@pytest.mark.timeout(DEMO_SECONDS + 60)
def test_the_demo_shows_the_main_job_and_cleans_up(folder: Path) -> None:
    data_dir = folder / "demo"

    ended = subprocess.run(
        [sys.executable, "-m", "lab.main", "demo", "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "42 units, 168 vCPU, 672 GiB" in ended.stdout
    assert "The worker is dead (SIGKILL)" in ended.stdout
    assert "0 of them without a record, twice, or beyond what is reserved" in ended.stdout
    assert "decided again: the same" in ended.stdout
    assert "llama-3.3:70gb is loaded, " in ended.stdout
    assert "llama-3.3:70gb goes to pool cloud-a, where it is loaded" in ended.stdout
    assert "No price buys another region" in ended.stdout
    assert "It ended with exit code 5" in ended.stdout
    assert "API and worker are dead (SIGKILL)" in ended.stdout
    assert "It drained with nobody but the provider to talk to" in ended.stdout
    assert "Nobody's fault: the provider took the node back" in ended.stdout
    assert "The demo ended well" in ended.stdout
    stack = Stack.load(data_dir)
    assert all(server.state == "stopped" for server in stack.status())
    assert not any(ControlPlane(stack).running(name) for name in NAMES)
    nodes = sorted(data_dir.glob("nodes/nodes/*"))
    assert len(nodes) == NODES
    python = Path(sys.executable).resolve().name
    assert [
        one for node in nodes for place in (node, node / "work" / "0") for one in working_in(place, python)
    ] == []


def test_a_headline_is_whole_on_a_narrow_terminal() -> None:
    printed = io.StringIO()
    headline(
        Console(file=printed, width=40), 3, "The provider takes a node back while API and worker are dead"
    )
    said = " ".join(printed.getvalue().split())
    assert said.endswith("3. The provider takes a node back while API and worker are dead")
