"""Loss of power and rot at any byte: the spool opens, keeps what can be read, and marks what cannot."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.spool import Spool
from agent.spool_mark import Mark
from tests.agent.spooling import PATIENCE_SECONDS, event, overwrite, own, started, told, waiting
from wire.lifecycle import EventType

EVENTS = 60
ROUNDS = 60


async def filled(folder: Path) -> list[str]:
    """A spool as a loss of power leaves it: database and log as they are under a running process."""
    spool = started(folder / "live.db", limit_bytes=1024 * 1024)
    given = [event(detail=f"{n} " + "x" * 300) for n in range(EVENTS)]
    for n, one in enumerate(given):
        spool.append(one)
        if n % 20 == 0:
            assert spool.flush(PATIENCE_SECONDS)
    assert spool.flush(PATIENCE_SECONDS)
    for name in ("live.db", "live.db-wal", "live.db.mark"):
        shutil.copy(folder / name, folder / name.replace("live", "kept"))
    spool.close()
    return [str(one.event_id) for one in given]


def laid(folder: Path, name: str) -> Path:
    target = folder / name
    target.mkdir()
    for suffix in ("", "-wal", ".mark"):
        shutil.copy(folder / f"kept.db{suffix}", target / f"spool.db{suffix}")
    return target


def cut(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw) + 1)]


def flipped(raw: bytes, dice: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(dice.choice((1, 3, 50))):
        changed[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def zeroed(raw: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(raw))
    size = dice.choice((1, 512, 4096, 20_000))
    return raw[:start] + bytes(min(size, len(raw) - start)) + raw[start + size :]


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("harm", [cut, flipped, zeroed])
async def test_harm_at_any_byte(
    tmp_path: Path, suffix: str, harm: Callable[[bytes, random.Random], bytes]
) -> None:
    given = await filled(tmp_path)
    for seed in range(ROUNDS // 3):
        dice = random.Random(f"{suffix} {harm.__name__} {seed}")
        folder = laid(tmp_path, str(seed))
        target = folder / f"spool.db{suffix}"
        target.write_bytes(harm(target.read_bytes(), dice))
        await comes_back(folder / "spool.db", given)


async def comes_back(path: Path, given: list[str]) -> None:
    spool = started(path, limit_bytes=1024 * 1024)
    new = event(EventType.DRAINED, "new")
    spool.append(new)
    kept = told(await waiting(spool))
    ids = [str(one.event_id) for one in own(kept)]
    # In order, nothing made up, nothing twice; what is missing is marked; new numbers are new.
    assert ids == [one for one in (*given, str(new.event_id)) if one in set(ids)]
    assert ids[-1] == str(new.event_id)
    assert all(one.detail.startswith(f"{given.index(str(one.event_id))} ") for one in own(kept)[:-1])
    if len(ids) <= EVENTS:
        assert any(one.type is EventType.GAP for one in kept)
    assert own(kept)[-1].sequence > EVENTS
    assert spool.flush(PATIENCE_SECONDS)
    spool.close()
    again = started(path, limit_bytes=1024 * 1024)
    assert [one.event_id for one in told(await waiting(again))] == [one.event_id for one in kept]
    again.close()
    assert {file.name for file in path.parent.iterdir()} == {"spool.db", "spool.db.mark"}


async def test_harm_to_both_files_and_the_mark(tmp_path: Path) -> None:
    given = await filled(tmp_path)
    for seed in range(10):
        dice = random.Random(seed)
        folder = laid(tmp_path, str(seed))
        for suffix in ("", "-wal", ".mark"):
            file = folder / f"spool.db{suffix}"
            file.write_bytes(flipped(file.read_bytes(), dice))
        spool = started(folder / "spool.db")
        spool.append(event(detail="new"))
        kept = told(await waiting(spool))
        assert {str(one.event_id) for one in own(kept)[:-1]} <= set(given)
        assert own(kept)[-1].detail == "new"
        spool.close()


async def test_a_spool_that_is_none_at_all(tmp_path: Path) -> None:
    for number, raw in enumerate((b"not a database", bytes(5000), b"SQLite format 3\x00" + b"\xff" * 9000)):
        path = tmp_path / str(number) / "spool.db"
        path.parent.mkdir()
        path.write_bytes(raw)
        spool = started(path)
        spool.append(event(detail="new"))
        kept = told(await waiting(spool))
        assert sorted(one.type for one in kept) == [EventType.GAP, EventType.READY]
        spool.close()


async def test_a_row_that_rotted_unseen_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = started(path)
    for n in range(5):
        spool.append(event(detail=str(n)))
    assert spool.flush(PATIENCE_SECONDS)
    spool.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE event SET body = CAST(replace(CAST(body AS TEXT), '\"3\"', '\"8\"') AS BLOB)")
    db.close()
    again = started(path)
    kept = told(await waiting(again))
    assert [one.detail for one in own(kept)] == ["0", "1", "2", "4"]
    assert [one.lost_events for one in kept if one.type is EventType.GAP] == [1]
    again.close()


async def test_a_spool_that_breaks_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = started(path)
    for n in range(200):
        spool.append(event(detail=f"{n} " + "x" * 400))
    assert spool.flush(PATIENCE_SECONDS)
    for suffix in ("", "-wal"):
        overwrite(Path(f"{path}{suffix}"))
    spool.append(event(EventType.DRAINED, "after"))
    kept = told(await waiting(spool))
    assert "after" in [one.detail for one in kept]
    assert await ends_well(spool, path)


async def ends_well(spool: Spool, path: Path) -> bool:
    spool.close()
    again = started(path)
    again.append(event(detail="last"))
    kept = told(await waiting(again))
    again.close()
    return kept[-1].detail == "last" or kept[-2].detail == "last"


def test_a_torn_write_of_the_mark_costs_one_step_at_most(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    mark = Mark(path)
    mark.prepare()
    for number in range(1, 6):
        before = path.read_bytes()
        mark.write(number)
        after = path.read_bytes()
        assert Mark(path).read() == number
        for torn in range(len(after)):
            path.write_bytes(after[:torn] + before[torn:])
            assert Mark(path).read() in (number - 1, number)
        path.write_bytes(after)
    path.write_bytes(b"\xff" * 10)
    assert Mark(path).read() == 0
