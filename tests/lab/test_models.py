"""The laboratory's model server: what it has room for, how it fails by its seed, and how it dies."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.models.memory import (
    LoadFailed,
    LoadRefused,
    Memory,
    ModelSettings,
    NoMemory,
    Stage,
    UnknownModel,
    size_of,
)

PATIENCE_SECONDS = 30
TOKEN = "a-token-of-this-test"


def memory(**changes: Any) -> Memory:
    return Memory(ModelSettings(**({"vram_gb": 40, "seconds_per_gb": 0} | changes)))


def test_a_size_stands_in_the_name_or_in_the_catalogue() -> None:
    assert (size_of("any/thing:12gb"), size_of("any-7gb"), size_of("qwen3-8b:latest")) == (12, 7, 6)
    with pytest.raises(UnknownModel):
        size_of("nobody-knows-it")


async def test_memory_is_never_exceeded() -> None:
    own = memory()
    await own.load("a:30gb")
    with pytest.raises(NoMemory, match=r"10\.0 GiB"):
        await own.load("b:20gb")
    assert own.unload("a:30gb")
    await own.load("b:20gb")
    assert (own.used_gb, own.ledger.most_used_gb) == (20, 30)
    assert not own.unload("a:30gb")


async def test_callers_share_a_load_and_its_failure() -> None:
    own = memory(seconds_per_gb=0.001)
    own.fail_next = 1
    ended = await asyncio.gather(*(own.load("a:30gb") for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in ended] == [LoadFailed] * 3
    assert (own.used_gb, own.ledger.loads["a:30gb"]) == (0, 1)


async def test_a_load_that_is_unloaded_meanwhile_ends_without_the_model() -> None:
    own = memory(seconds_per_gb=0.002)
    loading = asyncio.create_task(own.load("a:30gb"))
    await asyncio.sleep(0.01)
    assert own.stage("a:30gb") is Stage.LOADING
    own.unload("a:30gb")
    with pytest.raises(LoadRefused):
        await loading
    assert own.used_gb == 0


async def fates(seed: int) -> list[bool]:
    own, ended = memory(failure_rate=0.5, seed=seed), []
    for _ in range(20):
        try:
            await own.load("a:1gb")
        except LoadFailed:
            ended.append(False)
        else:
            ended.append(own.unload("a:1gb"))
    return ended


async def test_loads_fail_by_the_seed() -> None:
    assert await fates(7) == await fates(7)
    assert await fates(7) != await fates(8)
    assert {True, False} == set(await fates(7))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=30))
def test_whatever_is_asked_the_memory_holds_what_it_counts(asked: list[tuple[bool, int]]) -> None:
    async def play() -> None:
        own = memory(failure_rate=0.2)
        for load, size in asked:
            if load:
                await asyncio.gather(own.load(f"m:{size}gb"), return_exceptions=True)
            else:
                own.unload(f"m:{size}gb")
            assert own.used_gb == sum(one.size_gb for one in own.held.values()) <= 40
            assert all(one.stage is Stage.LOADED for one in own.held.values())

    asyncio.run(play())


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A model server of its own, with the address that it prints."""
    command = [sys.executable, "-m", "lab.models", *arguments]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        yield running, running.stdout.readline().split()[1].rstrip(",")
    finally:
        running.kill()
        running.wait(PATIENCE_SECONDS)


def test_it_runs_as_a_process_and_wants_its_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    with process("--token-file", str(token), "--vram-gb", "24") as (running, url):
        assert url.startswith("http://127.0.0.1:")
        with httpx2.Client(base_url=url, trust_env=False) as http:
            for path in ("/api/version", "/api/ps", "/v1/models", "/health"):
                assert http.get(path).status_code == 401
                assert http.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
            assert http.get("/admin/state").json()["vram_gb"] == 24
        assert TOKEN not in Path(f"/proc/{running.pid}/cmdline").read_text()
        running.terminate()
        running.wait(PATIENCE_SECONDS)


def test_it_dies_without_a_word_when_told() -> None:
    with process() as (running, url):
        with pytest.raises(httpx2.TransportError):
            httpx2.post(f"{url}/admin/die", trust_env=False)
        assert running.wait(PATIENCE_SECONDS) == -9


@pytest.mark.parametrize(
    "arguments", [("--vram-gb", "0"), ("--failure-rate", "2"), ("--token-file", "/nowhere")]
)
def test_a_start_that_cannot_be_is_refused(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "lab.models", *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (ended.returncode, ended.stderr.startswith("lab.models: ")) == (2, True)
