"""Writes: whole or not at all, and nobody waits for a disk that hangs."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path
from threading import Event, get_native_id

import pytest

from agent.files import MAX_BYTES, WRITE_LIMIT_SECONDS, Writer, read_bounded, write_atomic


async def test_a_disk_that_hangs_costs_one_wait_and_comes_back(tmp_path: Path) -> None:
    failed: list[str] = []
    let_go, writer = Event(), Writer(failed.append)
    began = time.monotonic()
    assert not await writer.run("a", partial(let_go.wait, 30))
    for _ in range(100):
        assert not await writer.run("b", partial(write_atomic, tmp_path / "b", b"b"))
    assert time.monotonic() - began < WRITE_LIMIT_SECONDS * 3
    assert failed == ["a"] + ["b"] * 100
    let_go.set()
    for _ in range(500):
        if await writer.run("c", partial(write_atomic, tmp_path / "c", b"c")):
            break
        await asyncio.sleep(0.01)
    assert read_bounded(tmp_path / "c") == b"c"
    writer.close()


async def test_a_write_that_fails_is_counted_and_leaves_what_was_there(tmp_path: Path) -> None:
    failed: list[str] = []
    writer = Writer(failed.append)
    assert not await writer.run("x", partial(write_atomic, tmp_path / "no" / "x", b"x"))
    assert failed == ["x"]
    target = tmp_path / "kept"
    write_atomic(target, b"old", mode=0o640)
    with pytest.raises(TypeError):
        write_atomic(target, "not bytes")  # type: ignore[arg-type]
    assert target.read_bytes() == b"old"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["kept"]
    writer.close()


def test_what_lies_where_a_new_file_is_made_is_neither_in_the_way_nor_followed(tmp_path: Path) -> None:
    target, other = tmp_path / "kept", tmp_path / "other"
    other.write_bytes(b"other")
    half = tmp_path / f".kept.{get_native_id()}"
    half.write_bytes(b"half of what a killed process wrote, and more")
    write_atomic(target, b"whole")
    assert target.read_bytes() == b"whole"
    half.symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        write_atomic(target, b"elsewhere")
    write_atomic(target, b"again")
    assert (target.read_bytes(), other.read_bytes()) == (b"again", b"other")


def test_a_file_larger_than_any_of_ours_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    assert read_bounded(tmp_path / "large") is None
    assert read_bounded(tmp_path / "absent") is None
