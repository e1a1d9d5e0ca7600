"""The configuration of the laboratory's Slurm: loopback only, and right for the version that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.schedulers.slurm_conf import Layout, Version, slurm_conf, version_of

LAYOUT = Layout(Path("/x"), "ada", ("n1", "n2"), {"slurmctld": 7000, "n1": 7001, "n2": 7002})


def test_everything_listens_on_loopback_alone() -> None:
    text = slurm_conf(LAYOUT, (22, 5))["slurm.conf"]
    assert "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny" in text
    assert "SlurmctldHost=localhost(127.0.0.1)" in text
    assert text.count("NodeAddr=127.0.0.1") == 2


@pytest.mark.parametrize(("version", "files"), [((22, 5), 1), ((23, 2), 1), ((23, 11), 2), ((24, 11), 2)])
def test_newer_versions_are_told_that_there_are_no_control_groups(version: Version, files: int) -> None:
    assert len(slurm_conf(LAYOUT, version)) == files


@pytest.mark.parametrize(("text", "version"), [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5-1", (24, 11))])
def test_the_version_is_read_from_what_slurm_says(text: str, version: Version) -> None:
    assert version_of(text) == version


def test_a_text_without_a_version_is_quoted() -> None:
    with pytest.raises(ValueError, match="no version of Slurm in 'what'"):
        version_of("what")
