"""What a person sees of `up`, `status` and `down`."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.stack import Stack, StackError, commands
from lab.stack.state import PASSWORD_FILE


@pytest.fixture
def data_dir(folder: Path) -> Iterator[Path]:
    path = folder / "lab"
    yield path
    Stack.load(path).stop()


def test_up_status_and_down_tell_the_story(data_dir: Path) -> None:
    lines: list[str] = []

    commands.up(data_dir, lines.append)
    story = "\n".join(lines)
    for title in ("NATS", "Temporal", "Postgres"):
        assert re.search(rf"^  {title} ready after \d+\.\d s$", story, re.MULTILINE)
    assert re.search(r"^The stack is up after \d+\.\d s$", story, re.MULTILINE)
    assert (data_dir / PASSWORD_FILE).read_text(encoding="ascii") not in story

    lines.clear()
    assert commands.status(data_dir, lines.append)
    assert [line.split()[1] for line in lines] == ["running"] * 3

    lines.clear()
    commands.down(data_dir, lines.append)
    assert lines[:3] == ["  NATS stopped", "  Temporal stopped", "  Postgres stopped"]
    assert lines[3].endswith(f"its data stays in {data_dir}")
    assert not commands.status(data_dir, lines.append)


def test_the_printed_web_ui_answers(data_dir: Path) -> None:
    lines: list[str] = []
    commands.up(data_dir, lines.append)
    [url] = re.findall(r"Temporal Web UI +(http://\S+)", "\n".join(lines))
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.read().lower().startswith(b"<!doctype html>")


def test_status_points_at_the_log_of_a_server_that_ended_by_itself(data_dir: Path) -> None:
    stack = commands.up(data_dir, lambda line: None)
    record = data_dir / "stack.json"
    before = record.read_text(encoding="utf-8")
    stack.kill_one("nats")
    record.write_text(before, encoding="utf-8")

    lines: list[str] = []
    assert not commands.status(data_dir, lines.append)
    assert f"it ended by itself; see {data_dir / 'logs/nats.log'}" in "\n".join(lines)


@pytest.mark.parametrize("command", [commands.down, commands.status])
def test_nothing_to_stop_or_show_is_said_plainly(folder: Path, command: object) -> None:
    assert callable(command)
    with pytest.raises(StackError, match="No stack was started in"):
        command(folder, lambda line: None)
