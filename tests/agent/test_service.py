"""The unit by which systemd runs the agent, and what the agent tells systemd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.settings import AgentSettings
from agent.systemd import SIGNS_PER_INTERVAL, watchdog_seconds
from tests.agent.rig import ROOT, Relay, node, until

UNIT = ROOT / "deploy" / "agent" / "sco-agent.service"


def unit() -> dict[str, list[str]]:
    """Every assignment of the unit, as `Section.Name`; a name may be given more than once."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(f"{section}.{name}", []).append(value)
    return found


def test_the_unit_starts_the_agent_before_work_lands_and_never_gives_up() -> None:
    said = unit()
    assert said["Service.Type"] == ["notify"]
    assert said["Unit.Before"] == ["kubelet.service slurmd.service"]
    assert said["Unit.StartLimitIntervalSec"] == ["0"]
    assert said["Service.Restart"] == ["always"]
    assert 1 <= int(said["Service.WatchdogSec"][0]) <= 30
    assert said["Service.NoNewPrivileges"] == ["yes"]
    assert said["Service.ProtectSystem"] == ["strict"]
    assert "CAP_KILL" in said["Service.CapabilityBoundingSet"][0]
    assert said["Service.EnvironmentFile"] == ["-/etc/sco-agent/environment"]
    assert said["Service.ExecStart"][0].endswith(" -m agent.main")


def test_the_units_folders_are_the_agents_own_defaults() -> None:
    said, defaults = unit(), AgentSettings()
    assert defaults.state_dir == Path("/var/lib") / said["Service.StateDirectory"][0]
    assert defaults.run_dir == Path("/run") / said["Service.RuntimeDirectory"][0]
    assert said["Service.RuntimeDirectoryPreserve"] == ["yes"]
    assert str(defaults.cgroup_root) in said["Service.ReadWritePaths"][0].split()


def test_systemd_hears_of_readiness_and_of_life(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        one.settings |= {"SCO_AGENT_BUS_SERVERS": relay.url, "WATCHDOG_USEC": "300000"}
        one.start()
        until(lambda: one.signs().count("WATCHDOG=1") >= 3)
        assert "STATUS=ready" in one.signs()
        assert one.stop() == 0
        assert "STOPPING=1" in one.signs()


@pytest.mark.parametrize(
    ("micros", "pid", "seconds"),
    [
        ("3000000", None, 3 / SIGNS_PER_INTERVAL),
        ("3000000", "1", None),
        ("soon", None, None),
        ("0", None, None),
    ],
)
def test_signs_of_life_are_due_only_where_systemd_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, micros: str, pid: str | None, seconds: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", micros)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert watchdog_seconds() == seconds
