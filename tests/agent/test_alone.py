"""The agent drains alone: it loads nothing of the control plane, and little of anything."""

from __future__ import annotations

import subprocess
import sys

from tests.agent.rig import ROOT

FORBIDDEN = {
    *("temporalio", "sqlalchemy", "psycopg", "openstack", "keystoneauth1", "fastapi", "structlog", "grpc"),
    *("store", "activities", "workflows", "workers", "api", "clients", "lab"),
}
LAZY = {"lightkube", "agent.drain.slurm", "agent.drain.kubernetes"}
LOADED = "import sys, agent.main, agent.bus, agent.uplink, agent.socket; print(*sorted(sys.modules))"


def test_the_agent_loads_nothing_of_the_control_plane() -> None:
    command = [sys.executable, "-c", LOADED]
    loaded = set(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())
    assert "domain.drain" in loaded
    assert loaded.isdisjoint(FORBIDDEN)
    assert loaded.isdisjoint(LAZY)
