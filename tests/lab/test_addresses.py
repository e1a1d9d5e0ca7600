"""What a laboratory prints at its end is true, and what cannot be done is told in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.addresses import stop_command

SECONDS = 60


@pytest.mark.parametrize(
    ("data_dir", "command"),
    [
        (".lab", "make down"),
        (".lab/demo", ".venv/bin/sco-lab down --data-dir .lab/demo"),
        ("my lab", ".venv/bin/sco-lab down --data-dir 'my lab'"),
    ],
)
def test_a_laboratory_is_stopped_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data_dir: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stop_command(tmp_path / data_dir) == command
    assert stop_command(Path(data_dir)) == command


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "lab"
    ended = subprocess.run(
        [sys.executable, "-m", "lab.main", "up", "--data-dir", str(place)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    why = "Not a directory. Choose a folder that you may write to."
    assert ended.stderr == f"sco-lab: {place} cannot be made: {why}\n"
