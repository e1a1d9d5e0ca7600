"""Work in another thread's loop: what it is told, what it tells, and how it ends."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from api.grpc.workroom import Workroom, workroom

PATIENCE_SECONDS = 20
Result = TypeVar("Result")
ASKED_BY: ContextVar[str] = ContextVar("asked_by", default="nobody")


@pytest_asyncio.fixture
async def room() -> AsyncIterator[Workroom]:
    async with workroom() as opened:
        yield opened


class Long:
    """Work that lasts until it is cancelled, and then takes a moment to end."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = False

    async def last(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.ended = True


async def too_late(work: Coroutine[Any, Any, Result], began: threading.Event) -> Result:
    """Ask for work whose deadline passes as soon as it has begun."""
    async with asyncio.timeout(None) as limit:
        asking = asyncio.ensure_future(work)
        await asyncio.to_thread(began.wait)
        limit.reschedule(asyncio.get_running_loop().time())
        return await asking


async def test_it_is_done_in_another_thread_for_whoever_asked(room: Workroom) -> None:
    async def where() -> tuple[int, str]:
        return threading.get_ident(), ASKED_BY.get()

    ASKED_BY.set("somebody")
    thread, asked_by = await room(where())
    assert thread != threading.get_ident()
    assert asked_by == "somebody"


async def test_this_loop_turns_while_the_work_computes(room: Workroom) -> None:
    begun, turned = threading.Event(), threading.Event()

    async def until_turned() -> bool:
        begun.set()
        return turned.wait(PATIENCE_SECONDS)

    asking = asyncio.ensure_future(room(until_turned()))
    await asyncio.to_thread(begun.wait)
    turned.set()
    assert await asking


async def test_what_it_raises_is_raised_to_whoever_asked(room: Workroom) -> None:
    async def fail() -> None:
        raise LookupError("no such pool")

    with pytest.raises(LookupError, match="no such pool"):
        await room(fail())


async def test_who_is_cancelled_waits_for_the_end_of_the_work(room: Workroom) -> None:
    long = Long()
    asking = asyncio.ensure_future(room(long.last()))
    await asyncio.to_thread(long.began.wait)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert long.ended


async def test_a_deadline_ends_the_work_as_a_time_out(room: Workroom) -> None:
    long = Long()
    with pytest.raises(TimeoutError):
        await too_late(room(long.last()), long.began)
    assert long.ended


async def test_work_that_was_done_in_spite_of_a_deadline_is_not_lost(room: Workroom) -> None:
    began = threading.Event()

    async def stubborn() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return "never"

    assert await too_late(room(stubborn()), began) == "done"


async def test_what_is_not_done_when_the_room_closes_is_cancelled() -> None:
    before = sys.getswitchinterval()
    long = Long()
    async with asyncio.timeout(PATIENCE_SECONDS), workroom() as room:
        assert sys.getswitchinterval() < before
        asking = asyncio.ensure_future(room(long.last()))
        await asyncio.to_thread(long.began.wait)
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert long.ended
    assert sys.getswitchinterval() == before
