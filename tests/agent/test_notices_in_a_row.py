"""Several notices for one node: what work is told meanwhile, and what a later one means for an empty node."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.clock import ProviderClock
from agent.listener import Listener, Source
from agent.metrics import AgentMetrics
from tests.agent.rig import NOTICE_KEY, letter, notice, withdrawal
from tests.agent.test_executor import ORDERS, POD, Bench, Driver, Scheduler, bench
from wire.bundle import DrainOrders
from wire.notices import Notice, NoticeKind
from wire.signing import KeyRing

NODE = "i-1"


class Held:
    """A bundle as far as it is asked for."""

    bundle = None

    def __init__(self, *, drain_on_advisory: bool) -> None:
        self.orders: DrainOrders = ORDERS.model_copy(update={"drain_on_advisory": drain_on_advisory})

    def notice_ring(self) -> KeyRing:
        return KeyRing({NOTICE_KEY.key_id: NOTICE_KEY.public_text})


def ear(one: Bench, *, drain_on_advisory: bool = True, provider: ProviderClock | None = None) -> Listener:
    held: Any = Held(drain_on_advisory=drain_on_advisory)
    return Listener(
        instance_id=NODE,
        bundles=held,
        drains=one.drains,
        record=one.told,
        provider=provider or one.provider,
        clock=one.clock,
        metrics=AgentMetrics(),
    )


def say(to: Listener, *said: Notice) -> None:
    to.hear([letter(one) for one in said], Source.POLL)


def deadline_file(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "deadline").read_text())
    return told


@pytest.mark.parametrize("kind", [NoticeKind.HARD, NoticeKind.ADVISORY])
async def test_work_is_told_of_the_notice_that_counts_also_after_a_restart(
    tmp_path: Path, kind: NoticeKind
) -> None:
    first, sooner = notice(NODE, 600, kind=kind), notice(NODE, 60)
    async with bench(tmp_path, Driver("kubernetes", stays=True)) as one:
        listener = ear(one)
        say(listener, first)
        await one.until(lambda: "signalled" in one.told.story)
        say(listener, sooner)
        await one.until(lambda: deadline_file(tmp_path)["noticeId"] == str(sooner.notice_id))
        assert one.announced[-1] == sooner
    (tmp_path / "deadline").unlink()
    async with bench(tmp_path, Driver("kubernetes", stays=True)) as again:
        again.kept.load()
        again.drains.resume()
        assert again.announced == [sooner]
        await again.until((tmp_path / "deadline").exists)
        told = deadline_file(tmp_path)
        assert (told["noticeId"], told["kind"]) == (str(sooner.notice_id), "hard")
        assert sooner.deadline is not None
        assert abs(datetime.fromisoformat(told["deadline"]) - sooner.deadline) < timedelta(seconds=0.01)


async def test_a_hard_notice_with_a_later_deadline_hardens_and_extends_nothing(tmp_path: Path) -> None:
    advisory, hard = notice(NODE, 60, kind=NoticeKind.ADVISORY), notice(NODE, 120)
    async with bench(tmp_path, Driver("kubernetes", stays=True)) as one:
        listener = ear(one)
        say(listener, advisory)
        await one.until(lambda: "signalled" in one.told.story)
        say(listener, hard)
        told = one.announced[-1]
        assert told is not None
        assert (told.kind, told.deadline) == (NoticeKind.HARD, advisory.deadline)
        await one.until(lambda: deadline_file(tmp_path)["kind"] == "hard")


async def test_a_hard_notice_for_a_drained_node_drains_what_came_since(tmp_path: Path) -> None:
    """An advisory emptied the node; nobody keeps plain work from coming back."""
    advisory, hard = notice(NODE, 600, kind=NoticeKind.ADVISORY), notice(NODE, 120)
    driver = Driver("plain")
    async with bench(tmp_path, driver) as one:
        listener = ear(one)
        say(listener, advisory)
        await one.finished()
        driver.work = (POD,)
        say(listener, hard, hard)
        await one.until(lambda: one.told.story.count("drained") == 2)
        assert driver.calls.count("signal") == 2
        outcomes = [fields["notice_id"] for type, fields in one.told.events if type == "drained"]
        assert outcomes == [advisory.notice_id, hard.notice_id]
        assert [mark.owner for mark in one.kept.saved.to_uncordon] == [f"sco-{advisory.notice_id}"]


async def test_one_reclaim_under_two_ids_is_one_drain_also_when_nothing_is_left(tmp_path: Path) -> None:
    first = notice(NODE, 120)
    twin = notice(NODE, 120, now=first.issued_at + timedelta(seconds=0.5))
    driver = Driver("plain")
    async with bench(tmp_path, driver) as one:
        listener = ear(one)
        say(listener, first)
        await one.finished()
        say(listener, twin)
        assert one.kept.saved.drain is not None
        assert one.kept.saved.drain.notice == first
        ends_at = one.kept.saved.drain.ends_at
        # The first was long under way, which only a clock that fits it knows.
        one.drains.tighten(ends_at - 60)
        late = notice(NODE, 300)
        say(listener, late)
        await one.until(lambda: one.told.story.count("drained") == 2)
        assert one.drains.deadline is not None
        assert one.drains.deadline.ends_at <= ends_at - 60


async def test_a_node_that_outlived_one_deadline_drains_for_the_next_notice(tmp_path: Path) -> None:
    passed = notice(NODE, 5, now=datetime.now(UTC) - timedelta(seconds=6))
    driver = Driver("plain", stays=True)
    async with bench(tmp_path, driver) as one:
        one.begin(passed)
        await one.until(lambda: "force" in driver.calls)
        following = notice(NODE, 120)
        say(ear(one), following)
        await one.until(lambda: driver.calls.count("signal") == 2)
        assert one.kept.saved.drain is not None
        assert one.kept.saved.drain.notice == following
        assert one.drains.deadline is not None
        assert one.drains.deadline.remaining_seconds() > 60


@pytest.mark.parametrize(("late", "story"), [(0, "signalled"), (125, "refused")])
async def test_a_provider_whose_clock_is_ahead_makes_no_notice_stale_that_stands(
    tmp_path: Path, late: float, story: str
) -> None:
    """Only where the wall clock does not say that it is over as well."""
    async with bench(tmp_path, Driver("plain", stays=True)) as one:
        now = one.clock.boot()
        one.provider.measure(datetime.now(UTC) + timedelta(seconds=500), now, now)
        say(ear(one), notice(NODE, 120, now=datetime.now(UTC) - timedelta(seconds=late)))
        await one.until(lambda: story in one.told.story)
        assert (one.drains.deadline is None) == (story == "refused")


async def test_an_empty_node_stays_closed_until_the_last_notice_has_passed(tmp_path: Path) -> None:
    driver = Driver("plain")
    async with bench(tmp_path, driver, lives_on_seconds=0.1) as one:
        listener = ear(one)
        say(listener, notice(NODE, 3), notice(NODE, 5.5))
        await one.finished()
        assert one.drains.deadline is not None
        ends_at = one.drains.deadline.ends_at
        await one.until(lambda: one.drains.current is None)
        assert one.clock.boot() >= ends_at + 2.5


async def test_two_advisories_that_stand_are_told_once(tmp_path: Path) -> None:
    """As they lie in the metadata they are read again every few seconds."""
    later, sooner = (notice(NODE, seconds, kind=NoticeKind.ADVISORY) for seconds in (600, 300))
    async with bench(tmp_path, Driver("plain")) as one:
        listener = ear(one, drain_on_advisory=False)
        for _ in range(3):
            say(listener, later, sooner)
        assert one.announced == [later, sooner]


async def test_marks_of_an_earlier_drain_are_taken_back_after_the_later_one(tmp_path: Path) -> None:
    """The local path of the first would open the node in the middle of the second."""
    local = Driver("kubernetes", stays=True)
    driver = Scheduler(local, fails="uncordon", stays=True)
    async with bench(tmp_path, driver) as one:
        uncordoning = asyncio.ensure_future(one.drains.run_uncordoning())
        listener = ear(one)
        first, second = notice(NODE, 60), notice(NODE, 90)
        say(listener, first)
        await one.until(lambda: "signalled" in one.told.story)
        say(listener, withdrawal(first))
        await one.until(lambda: "uncordon" in driver.calls)
        say(listener, second)
        await one.until(lambda: one.told.story.count("signalled") == 2)
        driver.mend()
        await asyncio.sleep(1.5)
        assert "uncordon" not in local.calls
        say(listener, withdrawal(second))
        await one.until(lambda: not one.kept.saved.to_uncordon)
        assert local.calls.count("uncordon") == 2
        uncordoning.cancel()


@pytest.mark.parametrize("phase", ["signalled", "finished"])
async def test_work_that_a_restart_of_the_machine_brought_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    async with bench(tmp_path, Driver("plain", stays=phase == "signalled")) as one:
        one.begin(notice(NODE, 60))
        await one.until(lambda: one.kept.saved.drain and one.kept.saved.drain.phase == phase)
    monkeypatch.setattr("agent.drain_record.boot_id", lambda: "another start")
    (tmp_path / "deadline").unlink()
    driver = Driver("plain")
    async with bench(tmp_path, driver) as again:
        again.kept.load()
        again.drains.resume()
        await again.finished()
        assert driver.calls == ["cordon", "signal", "finish"]
        assert (tmp_path / "deadline").exists()


async def test_a_deadline_that_passed_before_the_machine_restarted_ends_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, Driver("plain")) as one:
        one.begin(notice(NODE, 3))
        await one.finished()
    await asyncio.sleep(3)
    monkeypatch.setattr("agent.drain_record.boot_id", lambda: "another start")
    driver = Driver("plain")
    async with bench(tmp_path, driver) as again:
        again.kept.load()
        again.drains.resume()
        await asyncio.sleep(0.5)
        assert driver.calls == []
