"""The units as systemd itself reads them, most of all the agent's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "agent" / "sco-agent.service"
UNITS = sorted(DEPLOY.glob("*/*.service"))
DROP_IN = UNIT.with_name("only-with-agent.conf")
# Of 100; what is left above nothing is that it is root, uses the network and signals processes of anybody.
MOST_EXPOSED = 25
# The others have a user of their own and no rights.
MOST_EXPOSED_OTHERS = 20
SECONDS = 60

pytestmark = pytest.mark.real


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_every_line_of_the_unit(tmp_path: Path, unit: Path) -> None:
    installed = tmp_path / unit.name
    installed.write_text(re.sub(r"(?m)^(Exec\w+=)\S+", r"\1/bin/true", unit.read_text()))
    found = analyzed("verify", installed)
    assert (found.returncode, found.stderr) == (0, "")
    installed.write_text(installed.read_text() + "[Service]\nWatchdogSecs=1\n")
    assert "WatchdogSecs" in analyzed("verify", installed).stderr


@pytest.mark.parametrize("other", ["kubelet.service", "slurmd.service"])
def test_those_who_let_work_land_start_after_the_agent_and_only_with_it(tmp_path: Path, other: str) -> None:
    installed = tmp_path / other
    installed.write_text("[Unit]\nDescription=Lets work land\n[Service]\nExecStart=/bin/true\n")
    (tmp_path / UNIT.name).write_text(re.sub(r"(?m)^(ExecStart=)\S+", r"\1/bin/true", UNIT.read_text()))
    folder = tmp_path / f"{other}.d"
    folder.mkdir()
    (folder / DROP_IN.name).write_text(DROP_IN.read_text())
    found = analyzed("verify", installed)
    assert (found.returncode, found.stderr) == (0, "")
    (folder / DROP_IN.name).write_text(DROP_IN.read_text().replace("ExecStartPre", "ExecStartPree"))
    assert "ExecStartPree" in analyzed("verify", installed).stderr, "the file is read"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_unit_gives_little_beyond_what_it_is_for(unit: Path) -> None:
    most = MOST_EXPOSED if unit == UNIT else MOST_EXPOSED_OTHERS
    found = analyzed("security", "--offline=true", f"--threshold={most}", unit)
    assert found.returncode == 0, found.stdout
