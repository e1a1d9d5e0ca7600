"""The spool keeps what the node has to tell, whatever becomes of the process and the disk."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent.spool import MAX_ASKS, Spool, SpoolBusyError
from agent.spool_policy import WORTH, Loss, to_give_up, worth
from agent.spool_policy import spooled as as_spooled
from tests.agent.spooling import PATIENCE_SECONDS, bytes_in, event, gap, own, started, told, until, waiting
from wire.lifecycle import EventType, LifecycleEvent

LIMIT = 1024 * 1024
BIG = "x" * 500


async def test_events_wait_in_order_until_the_history_keeps_them(tmp_path: Path) -> None:
    spool = started(tmp_path / "spool.db")
    given = [event(detail=str(n)) for n in range(20)]
    for one in given:
        spool.append(one)
    kept = await waiting(spool)
    assert [one.event_id for one in kept] == [one.event_id for one in given]
    assert [one.sequence for one in kept] == list(range(1, 21))
    assert [one.sequence for one in told(kept)] == list(range(1, 21))
    await spool.confirmed([one.event_id for one in given[:15]])
    assert [one.sequence for one in await spool.pending(3)] == [16, 17, 18]
    assert [one.sequence for one in await spool.pending(3, after=18)] == [19, 20]
    await until(lambda: spool.stats().events == 5, "five left")
    assert spool.size_on_disk() > 0
    assert spool.stats().on_disk
    spool.close()


async def test_the_sequence_goes_on_after_a_restart_even_when_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    for start in (1, 4, 7):
        spool = started(path)
        for _ in range(3):
            spool.append(event())
        kept = await waiting(spool)
        assert [one.sequence for one in kept] == [start, start + 1, start + 2]
        await spool.confirmed([one.event_id for one in kept])
        spool.close()


async def test_a_kill_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    program = (
        "import sys, time; from pathlib import Path; from tests.agent.spooling import event, started\n"
        "spool = started(Path(sys.argv[1]))\n"
        "for n in range(50): spool.append(event(detail=str(n)))\n"
        "assert spool.flush(20); print('flushed', flush=True); time.sleep(60)"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await asyncio.wait_for(child.stdout.readline(), PATIENCE_SECONDS) == b"flushed\n"
    child.kill()
    await asyncio.wait_for(child.wait(), PATIENCE_SECONDS)
    spool = started(path)
    spool.append(event(detail="after"))
    kept = told(await waiting(spool))
    assert [one.detail for one in kept] == [*(str(n) for n in range(50)), "after"]
    assert [one.sequence for one in kept] == list(range(1, 52))
    assert os.stat(path).st_mode & 0o777 == 0o600
    spool.close()


async def test_a_full_spool_gives_up_the_oldest_of_what_matters_least_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = started(path, limit_bytes=LIMIT, memory_events=10_000)
    vital = [event(kind, BIG) for kind in (EventType.NOTICE, EventType.DRAINED, EventType.OVERRUN)]
    for one in vital:
        spool.append(one)
    ordinary = [event(EventType.CHECKPOINTED, BIG) for _ in range(2500)]
    for one in ordinary:
        spool.append(one)
    kept = told(await waiting(spool))
    assert bytes_in(tmp_path) <= LIMIT
    assert [one.event_id for one in kept[:3]] == [one.event_id for one in vital]
    left = [one.event_id for one in kept if one.type is EventType.CHECKPOINTED]
    assert left == [one.event_id for one in ordinary[-len(left) :]]
    [marked] = [one for one in kept if one.type is EventType.GAP]
    assert marked.lost_events == len(ordinary) - len(left) > 0
    assert spool.stats().lost == marked.lost_events
    spool.close()
    again = started(path, limit_bytes=LIMIT)
    assert [one.event_id for one in await waiting(again)] == [one.event_id for one in kept]
    again.close()


async def test_only_vital_events_left_the_oldest_of_them_go(tmp_path: Path) -> None:
    spool = started(tmp_path / "spool.db", limit_bytes=LIMIT, memory_events=10_000)
    given = [event(EventType.DRAINED, BIG) for _ in range(2500)]
    for one in given:
        spool.append(one)
    kept = own(told(await waiting(spool)))
    assert 0 < len(kept) < len(given)
    assert [one.event_id for one in kept] == [one.event_id for one in given[-len(kept) :]]
    spool.close()


async def test_a_gap_that_could_not_be_told_before_a_restart_is_told_after_it(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    silent = Spool(path, lambda _: None, limit_bytes=LIMIT, memory_events=10_000)
    silent.start()
    for _ in range(2500):
        silent.append(event(detail=BIG))
    lost = 2500 - len(await waiting(silent))
    silent.close()
    spool = started(path, limit_bytes=LIMIT)
    kept = told(await waiting(spool))
    assert [one.lost_events for one in kept if one.type is EventType.GAP] == [lost]
    assert [one.type for one in told(await waiting(spool))].count(EventType.GAP) == 1
    spool.close()


async def test_without_a_disk_events_wait_in_memory_within_a_bound_and_are_still_sent(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "spool.db"
    spool = started(path, memory_events=10)
    vital = event(EventType.DRAINED)
    spool.append(vital)
    for _ in range(30):
        spool.append(event())
    kept = told(await waiting(spool))
    assert kept[0].event_id == vital.event_id
    [marked] = [one for one in kept if one.type is EventType.GAP]
    assert marked.lost_events
    # The gap took the place of one more: that is told once this one is kept.
    assert len(kept) + marked.lost_events == 31
    assert told(await waiting(spool)) == kept
    assert not spool.stats().on_disk
    assert not spool.flush(0.1)
    await spool.confirmed([one.event_id for one in kept])
    [last] = told(await waiting(spool))
    assert (last.type, last.lost_events) == (EventType.GAP, 1)
    await spool.confirmed([last.event_id])
    assert await waiting(spool) == []
    spool.close()


async def test_what_waited_in_memory_goes_to_disk_once_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    clock = [0.0]
    spool = Spool(folder / "spool.db", gap, steady=lambda: clock[0])
    spool.start()
    spool.append(event(detail="early"))
    assert [one.sequence for one in await waiting(spool)] == [1]
    folder.mkdir()
    clock[0] += 100
    assert spool.flush(PATIENCE_SECONDS)
    spool.close()
    again = started(folder / "spool.db")
    assert [one.detail for one in told(await waiting(again))] == ["early"]
    again.close()


async def test_numbers_given_before_the_file_could_be_read_are_never_those_in_it(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool = started(path)
    for _ in range(5):
        spool.append(event())
    assert spool.flush(PATIENCE_SECONDS)
    spool.close()
    (tmp_path / "spool.db.mark").unlink()
    path.rename(tmp_path / "away.db")
    path.mkdir()
    clock = [0.0]
    spool = Spool(path, gap, steady=lambda: clock[0])
    spool.start()
    spool.append(event(detail="meanwhile"))
    assert len(await waiting(spool)) == 1
    path.rmdir()
    (tmp_path / "away.db").rename(path)
    clock[0] += 100
    assert spool.flush(PATIENCE_SECONDS)
    kept = await waiting(spool)
    assert [one.sequence for one in kept] == [1, 2, 3, 4, 5, 6]
    assert told(kept)[5].detail == "meanwhile"
    spool.close()


def test_a_disk_that_fills_up_neither_ends_the_process_nor_loses_what_is_vital(tmp_path: Path) -> None:
    program = (
        "import asyncio, resource, signal, sys; from pathlib import Path\n"
        "from tests.agent.spooling import event, started, told, waiting\n"
        "from wire.lifecycle import EventType\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))\n"
        "spool = started(Path(sys.argv[1]), memory_events=50)\n"
        "vital = event(EventType.DRAINED)\n"
        "for n in range(600):\n"
        "    spool.append(event(detail='x' * 500))\n"
        "    if n % 40 == 0: spool.flush(1)\n"
        "spool.append(vital)\n"
        "kept = told(asyncio.run(waiting(spool)))\n"
        "assert vital.event_id in [one.event_id for one in kept]\n"
        "assert any(one.type is EventType.GAP and one.lost_events for one in kept)\n"
        "assert not spool.stats().on_disk\n"
        "spool.close(); print('done')"
    )
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert soft == resource.RLIM_INFINITY or soft > 200_000
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "spool.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout == "done\n", ran.stderr


def test_appending_never_waits_for_the_disk(tmp_path: Path) -> None:
    release = threading.Event()

    def hang(_: Loss) -> LifecycleEvent | None:
        release.wait(PATIENCE_SECONDS)
        return None

    spool = Spool(tmp_path / "none" / "spool.db", hang, memory_events=5)
    spool.start()
    for _ in range(20):
        spool.append(event())
    # The thread hangs from here on, as it does in a disk that does not answer.
    asked = [spool._ask(lambda keeper: keeper.pending(1, 0))]
    while spool._asks:
        time.sleep(0.001)
    started_at = time.monotonic()
    for _ in range(500):
        spool.append(event())
    assert time.monotonic() - started_at < PATIENCE_SECONDS / 2
    asked.extend(spool._ask(lambda keeper: keeper.saved()) for _ in range(MAX_ASKS))
    with pytest.raises(SpoolBusyError):
        asyncio.run(spool.pending(1))
    release.set()
    for answer in asked:
        answer.result(PATIENCE_SECONDS)
    spool.close()


def test_a_notice_waits_for_its_signal_and_not_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.spool.GATHER_SECONDS", 60.0)
    spool, heard = started(tmp_path / "spool.db"), threading.Event()
    spool.listen(heard.set)
    spool.append(event(EventType.NOTICE))
    assert not heard.wait(0.2)
    spool.append(event(EventType.SIGNALLED))
    assert heard.wait(PATIENCE_SECONDS)
    # Who asks, or ends, does not wait either.
    spool.append(event(EventType.NOTICE))
    assert spool.flush(PATIENCE_SECONDS)
    assert spool.stats().events == 3
    spool.append(event(EventType.NOTICE))
    spool.close(PATIENCE_SECONDS)
    assert spool.stats().events == 4


def test_closing_twice_or_before_the_start_is_harmless(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db", gap)
    spool.close()
    assert not spool.flush(0.1)
    spool.append(event())


def test_what_the_account_of_a_drain_needs_is_given_up_last() -> None:
    assert set(WORTH) == set(EventType)
    kinds = [*EventType, *EventType]
    order = to_give_up([as_spooled(event(kind), n) for n, kind in enumerate(kinds)], len(kinds))
    last = {EventType.NOTICE, EventType.DRAINED, EventType.OVERRUN, EventType.NO_NOTICE}
    assert {kinds[one.sequence] for one in order[-8:]} == last
    assert all(worth(kind) < min(worth(one) for one in last) for kind in set(EventType) - last)
    assert [one.sequence for one in order[-8:]] == sorted(one.sequence for one in order[-8:])
