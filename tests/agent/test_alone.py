"""The agent drains alone: it loads nothing of the control plane, and little of anything."""

from __future__ import annotations

import subprocess
import sys

from tests.agent.rig import ROOT

FORBIDDEN = {
    *("temporalio", "sqlalchemy", "psycopg", "openstack", "keystoneauth1", "fastapi", "structlog", "grpc"),
    *("store", "activities", "workflows", "workers", "api", "clients", "lab"),
    # Each costs a node as much memory as all of the agent's own code.
    *("httpx2", "lightkube", "msgspec", "yaml"),
}
LAZY = {"h11", "agent.drain.slurm", "agent.drain.kubernetes"}
PLAIN = "import sys, agent.main, agent.bus, agent.uplink, agent.socket"
DRIVERS = "import agent.drain.slurm, agent.drain.spark"


def loaded(*imports: str) -> set[str]:
    command = [sys.executable, "-c", "; ".join((*imports, "print(*sorted(sys.modules))"))]
    return set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())


def test_the_agent_loads_nothing_of_the_control_plane() -> None:
    plain = loaded(PLAIN)
    assert "domain.drain" in plain
    assert plain.isdisjoint(FORBIDDEN)
    assert plain.isdisjoint(LAZY)


def test_its_drivers_load_nothing_of_it_either() -> None:
    everything = loaded(PLAIN, DRIVERS)
    assert everything >= LAZY
    assert everything.isdisjoint(FORBIDDEN)
