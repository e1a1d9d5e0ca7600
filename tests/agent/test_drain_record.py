"""What is kept of a drain: at once for the next process, a moment later for the next start of the machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent.clock import ProviderClock, SystemClock
from agent.drain_record import NAME, DrainRecord


@pytest.fixture(autouse=True)
def _long_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.drain_record.GATHER_SECONDS", 60.0)


def record(folder: Path, failed: list[str]) -> DrainRecord:
    """With its disk below `disk` and the machine's memory below `run`."""
    (folder / "disk").mkdir()
    clock = SystemClock()
    return DrainRecord(folder / "disk", folder / "run", failed.append, clock, ProviderClock(clock))


def writes(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / NAME).read_text())["writes"])
    except FileNotFoundError:
        return None


async def test_the_disk_is_written_once_for_what_is_kept_in_a_moment(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    failed: list[str] = []
    kept = record(tmp_path, failed)
    for number in (1, 2, 3):
        await kept.save()
        assert writes(tmp_path / "run") == number
    assert writes(tmp_path / "disk") is None
    await kept.close()
    assert writes(tmp_path / "disk") == 3
    assert failed == []


async def test_what_memory_does_not_take_is_on_disk_when_it_counts_as_kept(tmp_path: Path) -> None:
    failed: list[str] = []
    kept = record(tmp_path, failed)
    for number in (1, 2):
        await asyncio.wait_for(kept.save(), 20)
        assert writes(tmp_path / "disk") == number
    assert failed == [NAME, NAME]
    await kept.close()
