"""The command: settings that are wrong, and the self-check from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.selfcheck import _writable
from agent.settings import SettingsError, read_settings
from tests.agent.rig import ROOT, Node, Relay, node


def run(one: Node, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent.main", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=one.environment(), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SCO_AGENT_POLL_SECONDS", "soon", "valid number"),
        ("SCO_AGENT_POLL_SECONDS", "nan", "finite number"),
        ("SCO_AGENT_METADATA_URL", "ftp://example", "match pattern"),
        ("SCO_AGENT_UNITS", "../etc", "below the root"),
        ("SCO_AGENT_BUS_SERVERS", "nats://me:secret@example", "without a password"),
        ("SCO_AGENT_INSTANCE_ID", "a b", "match pattern"),
        ("SCO_AGENT_PORT", "1", "no setting"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(variable: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings({variable: value, "PATH": "/bin"})
    text = str(raised.value)
    assert variable in text
    assert said in text
    assert "\n" not in text


def test_the_command_ends_with_two_and_a_line(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.settings["SCO_AGENT_METRICS_PORT"] = "-1"
        ended = run(one)
        assert ended.returncode == 2
        assert ended.stderr.startswith("sco-agent: SCO_AGENT_METRICS_PORT is '-1'")
        assert len(ended.stderr.splitlines()) == 1


def test_the_check_says_what_is_missing_and_changes_nothing(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        one.settings["SCO_AGENT_BUS_SERVERS"] = relay.url
        missing = run(one, "check")
        assert missing.returncode == 1
        assert "state_folder  no" in missing.stdout
        assert not one.state.exists()
        for folder in (one.state, one.folder / "run"):
            folder.mkdir()
        ended = run(one, "check")
        assert ended.returncode == 0, ended.stdout
        assert "poll answers, push answers" in ended.stdout
        assert list(one.state.iterdir()) == []


@pytest.mark.parametrize("full", [{"f_bfree": 1}, {"f_files": 10, "f_ffree": 0}])
def test_a_full_disk_is_found_before_a_drain_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: dict[str, int]
) -> None:
    disk = SimpleNamespace(**{"f_bfree": 10_000, "f_frsize": 4096, "f_files": 0, "f_ffree": 0} | full)
    monkeypatch.setattr("agent.selfcheck.os.statvfs", lambda folder: disk)
    check = _writable("state_folder", tmp_path)
    assert not check.passed
    assert "no room" in check.detail
