"""Whom the provider takes, with which words, and what makes them true."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from lab.reclaimer.reclaimer import Reclaimer
from lab.reclaimer.targets import Node, NothingThere, Target, TargetKind, chosen
from lab.reclaimer.terminator import Terminator
from lab.reclaimer.trace import TRACES, Trace, TraceMetadata, TraceRefused, read_trace, synthetic
from lab.relay.decisions import Decision
from wire.notices import Notice, NoticeKind

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODES = tuple(
    Node(f"i-{number}", f"eu-north-1{'ab'[number % 2]}", f"pool-{number % 4}", f"group-{number % 3}")
    for number in range(12)
)


class Relay:
    """A relay that says yes, and remembers."""

    def __init__(self) -> None:
        self.decided: list[Sequence[Decision]] = []

    def decide(self, decisions: Sequence[Decision]) -> tuple[Notice, ...]:
        self.decided.append(decisions)
        return tuple(notice_of(one) for one in decisions)

    def withdraw(self, notice_ids: Sequence[UUID], reason: str = "") -> tuple[Notice, ...]:
        return ()


def notice_of(decision: Decision, issued_at: datetime = START) -> Notice:
    return Notice(
        notice_id=uuid.uuid4(),
        instance_id=decision.instance_id,
        hall=decision.hall,
        kind=decision.kind,
        cause=decision.cause,
        issued_at=issued_at,
        deadline=issued_at + timedelta(seconds=decision.seconds),
    )


@pytest.mark.parametrize(
    ("target", "count"),
    [
        (Target(TargetKind.NODE, "i-3"), 1),
        (Target(TargetKind.POOL, "pool-1"), 3),
        (Target(TargetKind.GROUP, "group-2"), 4),
        (Target(TargetKind.HALL, "eu-north-1b"), 6),
    ],
)
def test_a_target_is_all_of_its_nodes(target: Target, count: int) -> None:
    found = chosen(NODES, target)
    assert len(found) == count
    assert list(found) == sorted(found)


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(NothingThere, match=r"pool 'pool-9'.*pool-0, pool-1, pool-2, pool-3"):
        chosen(NODES, Target(TargetKind.POOL, "pool-9"))
    with pytest.raises(NothingThere, match="and 4 more"):
        chosen(NODES, Target(TargetKind.NODE, "i-99"))
    with pytest.raises(NothingThere, match="no node runs"):
        chosen((), Target(TargetKind.HALL, "eu-north-1a"))


def test_an_advisory_comes_before_the_hard_notice_and_a_fault_before_nothing() -> None:
    relay = Relay()
    ended: list[str] = []
    reclaimer = Reclaimer(relay, ended.extend, warning_seconds=20)
    reclaimer.advise(NODES[:2])
    reclaimer.reclaim(NODES[:2])
    reclaimer.end_without_notice(NODES[2:4])
    assert [{(one.kind, one.seconds) for one in each} for each in relay.decided] == [
        {(NoticeKind.ADVISORY, 600.0)},
        {(NoticeKind.HARD, 20.0)},
    ]
    assert ended == ["i-2", "i-3"]


def follow(seed: int, slept: list[float]) -> list[list[str]]:
    relay = Relay()
    trace = Trace(metadata=TraceMetadata(gap_seconds=60), data=(12, 12, 10, 11, 10, 3, 12))
    reclaimer = Reclaimer(relay, lambda ended: None, sleep=slept.append)
    reclaimer.follow(trace, NODES, rng=random.Random(seed), speed=30)
    return [[one.instance_id for one in each] for each in relay.decided]


def test_a_trace_takes_what_it_has_no_room_for_and_a_seed_says_whom() -> None:
    slept: list[float] = []
    taken = follow(3, slept)
    assert [len(each) for each in taken] == [2, 7]
    assert len({one for each in taken for one in each}) == 9
    assert slept == [2.0] * 6
    assert follow(3, []) == taken
    assert follow(4, []) != taken


def test_the_shipped_trace_is_what_its_program_makes() -> None:
    shipped = read_trace(TRACES / "one_pool.json")
    assert shipped == synthetic(random.Random(7), instances=8, ticks=240, gap_seconds=600.0)
    assert {0, 8} <= set(shipped.data)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Invalid JSON"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 1}, "data": []}', "data"),
        ('{"metadata": {"gap_seconds": 1}, "data": [-1]}', "data.0"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_place(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(TraceRefused, match=says):
        read_trace(path)
    with pytest.raises(TraceRefused, match="cannot be read"):
        read_trace(tmp_path / "none.json")


async def test_an_instance_ends_at_its_deadline_once_and_an_advisory_ends_none() -> None:
    ended: list[str] = []
    now = START

    async def end(instance_id: str) -> None:
        ended.append(instance_id)

    hard, withdrawn = (notice_of(Decision(instance_id=name, hall="h")) for name in ("i-1", "i-2"))
    maybe = notice_of(Decision(instance_id="i-3", hall="h", kind=NoticeKind.ADVISORY, seconds=60))
    hastened = notice_of(Decision(instance_id="i-1", hall="h", seconds=150))
    standing = [hastened, hard, withdrawn, maybe]
    terminator = Terminator(lambda: standing, end, lambda: now)
    await terminator.tick()
    standing.remove(withdrawn)
    now += timedelta(seconds=119)
    await terminator.tick()
    assert ended == []
    now += timedelta(seconds=1)
    await terminator.tick()
    now += timedelta(seconds=30)
    await terminator.tick()
    assert ended == ["i-1"]
