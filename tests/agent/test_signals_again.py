"""A restart while the work ends: who held work back by a budget is asked again, and no budget grows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.drain.ports import Deadline
from agent.drain_record import Drain, Phase, Route
from tests.agent.rig import notice
from tests.agent.test_executor import ORDERS, Bench, Driver, Scheduler, bench
from wire.bundle import DrainOrders, DrainSignal

# What a busy machine may take between the record and the signal.
PAUSES_SECONDS = 10


class Budgeted(Scheduler):
    """Takes note of each budget that it is given."""

    def __init__(self, fails: str = "") -> None:
        super().__init__(Driver("kubernetes"), fails=fails)
        self.budgets: list[int] = []

    async def signal(self, orders: DrainOrders, deadline: Deadline) -> None:
        self.budgets.append(orders.budget_seconds)
        await super().signal(orders, deadline)


def went_before(one: Bench, *, seconds: float, signal: DrainSignal = DrainSignal.USR1, by: Route) -> None:
    """The record of a drain that was signalled, so many seconds ago, by an agent that is gone."""
    boot = one.clock.boot()
    said = notice("i-1", 120, now=datetime.now(UTC))
    drain = Drain(
        notice=said,
        orders=ORDERS.model_copy(update={"signal": signal, "budget_seconds": 50}),
        owner="sco-1",
        phase=Phase.SIGNALLED,
        route=by,
        heard_at=boot - seconds,
        ends_at=boot + 120 - seconds,
    )
    one.kept.change(drain=drain)


async def test_a_driver_that_wants_it_signals_again_with_what_is_left_of_the_budget(tmp_path: Path) -> None:
    driver = Budgeted()
    async with bench(tmp_path, driver) as one:
        went_before(one, seconds=30, by=Route.DRIVER)
        one.drains.resume()
        await one.finished()
        assert driver.calls == ["signal", "finish"]
        (budget,) = driver.budgets
        assert 20 - PAUSES_SECONDS <= budget <= 20
        assert one.told.story == ["drained"]


async def test_a_signal_that_fails_after_a_restart_is_tried_until_it_succeeds(tmp_path: Path) -> None:
    driver = Budgeted(fails="signal")
    async with bench(tmp_path, driver) as one:
        went_before(one, seconds=30, by=Route.DRIVER)
        one.drains.resume()
        await one.until(lambda: len(driver.budgets) >= 2)
        driver.mend()
        await one.finished()


async def test_a_scheduler_that_was_passed_by_is_asked_to_close_the_node_after_a_restart_too(
    tmp_path: Path,
) -> None:
    local = Driver("kubernetes", stays=True)
    driver = Scheduler(local, fails="cordon left", stays=True)
    async with bench(tmp_path, driver) as one:
        went_before(one, seconds=30, by=Route.LOCAL)
        one.drains.resume()
        await one.until(lambda: driver.calls.count("cordon") >= 2)
        driver.mend()
        before = driver.calls.count("cordon")
        await one.until(lambda: driver.calls.count("cordon") > before)
        assert "signal" not in [*driver.calls, *local.calls]


@pytest.mark.parametrize(
    ("name", "signal", "by"),
    [
        ("plain", DrainSignal.USR1, Route.DRIVER),
        ("kubernetes", DrainSignal.USR1, Route.LOCAL),
        ("slurm", DrainSignal.INT, Route.DRIVER),
    ],
)
async def test_what_would_reach_the_work_twice_is_not_sent_again(
    tmp_path: Path, name: str, signal: DrainSignal, by: Route
) -> None:
    driver = Scheduler(Driver(name))
    driver.name, driver.signals_again = name, name != "plain"
    async with bench(tmp_path, driver) as one:
        went_before(one, seconds=30, signal=signal, by=by)
        one.drains.resume()
        await one.until(lambda: driver.asked or driver.local().asked)
        driver.work = driver.local().work = ()
        await one.finished()
        assert "signal" not in [*driver.calls, *driver.local().calls]
