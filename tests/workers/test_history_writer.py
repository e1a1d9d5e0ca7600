"""Nothing that a node tells is lost or kept twice, whatever is repeated, late, broken or killed."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
import pytest_asyncio
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import NoStreamResponseError
from prometheus_client import REGISTRY

from domain.lifecycle import EventType
from lab.relay.bus import NodeBus
from store import lifecycle
from store.engine import Engine
from tests.domain.drains import AT, happened, honest
from tests.stack_fixtures import new_folder
from tests.store.histories import books, own, run
from tests.workers.node_post import HALL, NodePost, letter
from tests.workers.post_office import until
from wire.node import lifecycle_subject
from workers import history_writer, stream_reading


@pytest.fixture
def bus() -> Iterator[NodeBus]:
    folder = new_folder()
    with NodeBus(folder / "bus") as running:
        yield running
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def post(
    engine: Engine, service_engine: Engine, bus: NodeBus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NodePost]:
    """A writer that loses no time."""
    monkeypatch.setattr(stream_reading, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(stream_reading, "TROUBLE_SECONDS", 0.1)
    monkeypatch.setattr(history_writer, "ACK_WAIT_SECONDS", 1.0)
    monkeypatch.setattr(history_writer, "UNKNOWN_SECONDS", 0.1)
    await own(engine, "n1", "n2")
    yield NodePost(engine, service_engine, bus, bus.admission.folder.parent)


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_what_a_node_tells_is_kept_and_the_node_is_told(post: NodePost) -> None:
    before = counted("sco_event_to_history_seconds_count")
    async with post.writer(), post.node("n1") as node:
        await node.events(honest())
        await node.has_receipts(honest())
    assert await post.outcomes() == ["drained"]
    assert await post.value("SELECT array_agg(DISTINCT tenant_id) FROM lifecycle_events") == ["acme"]
    assert counted("sco_event_to_history_seconds_count") == before + 5
    topics = await post.value("SELECT array_agg(topic ORDER BY sequence) FROM outbox")
    assert topics == ["lifecycle.nodes.v1.notice", "lifecycle.nodes.v1.drained"]


async def test_repetitions_in_any_order_change_nothing_and_get_receipts(post: NodePost) -> None:
    events = random.Random(5).sample(honest() * 3, 15)
    async with post.writer(), post.writer(), post.node("n1") as node:
        await node.events(events)
        await node.has_receipts(honest())
        await post.emptied()
    found = await books(post.engine)
    assert (len(found.events), len(found.drains), len(found.told)) == (5, 1, 2)


async def test_a_writer_that_dies_between_commit_and_confirmation_leaves_no_trace(
    post: NodePost, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = asyncio.Event()

    async def never(message: Msg, *_: object, **__: object) -> None:
        dying.set()
        await asyncio.sleep(3600)

    async with post.node("n1") as node:
        with monkeypatch.context() as death:
            death.setattr(Msg, "ack", never)
            death.setattr(Msg, "nak", never)
            async with post.writer() as task:
                await node.events(honest())
                await asyncio.wait_for(dying.wait(), 40)
                task.cancel()
                await asyncio.wait([task])
        assert node.receipts == []
        before = await books(post.engine)
        assert len(before.events) > 0
        async with post.writer():
            await node.has_receipts(honest())
    after = await books(post.engine)
    assert (len(after.events), len(after.drains), len(after.told)) == (5, 1, 2)
    assert set(before.told) <= set(after.told)


async def test_a_message_that_can_never_be_used_is_counted_and_holds_up_nothing(post: NodePost) -> None:
    bad = {
        "body": [
            b"",
            b"[]",
            b"\xff" * 9,
            b"{" * 30_000,
            letter("n1", honest()[0]).replace(b"2030-", b"0001-"),
        ],
        "foreign": [letter("n2", honest()[0]), letter("n1", honest()[0], hall="eu-north-h2")],
    }
    before = {name: counted("sco_lifecycle_events_refused_total", reason=name) for name in bad}
    async with post.writer(), post.node("n1") as node:
        await node.tell(*bad["body"], *bad["foreign"])
        await node.events(honest())
        await node.has_receipts(honest())
        await post.emptied()
    assert len((await books(post.engine)).events) == 5
    for name, bodies in bad.items():
        assert counted("sco_lifecycle_events_refused_total", reason=name) == before[name] + len(bodies)


async def test_what_the_database_does_not_take_is_found_alone(
    post: NodePost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exit code that the column has no room for stands for whatever was not foreseen."""
    from workers import lifecycle_letters

    read = lifecycle_letters._event
    monkeypatch.setattr(
        lifecycle_letters,
        "_event",
        lambda said: read(said)._replace(exit_code=2**40 if said.exit_code == 77 else None),
    )
    poison = happened(EventType.WORK_ENDED, -5, 9, of=None, exit_code=77)
    async with post.writer(), post.node("n1") as node:
        await node.events([poison, *honest()])
        await node.has_receipts(honest())
        await post.emptied()
    assert len((await books(post.engine)).events) == 5


async def test_a_node_can_tell_of_itself_alone(post: NodePost) -> None:
    """The bus keeps it off another's subject; what it says of another on its own is refused."""
    async with post.writer(), post.node("n1") as node:
        with pytest.raises((NoStreamResponseError, NatsTimeoutError)):
            await node.client.jetstream(timeout=0.5).publish(
                lifecycle_subject(HALL, "n2"), letter("n2", honest()[0])
            )
        await node.tell(letter("n2", honest()[0]))
        await post.emptied()
    assert (await books(post.engine)).events == []


async def test_a_server_that_speaks_before_it_is_recorded_is_waited_for(post: NodePost) -> None:
    before = counted("sco_lifecycle_events_postponed_total")
    async with post.writer(), post.node("n3") as node:
        await node.events(honest())

        async def postponed() -> bool:
            return counted("sco_lifecycle_events_postponed_total") > before

        await until(postponed)
        await run(post.engine, "n3")
        await node.has_receipts(honest())
    assert await post.outcomes() == ["drained"]


async def test_a_server_that_nobody_knows_is_given_up(
    post: NodePost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_writer, "UNKNOWN_TRIES", 2)
    before = counted("sco_lifecycle_events_refused_total", reason="unknown_instance")
    async with post.writer(), post.node("n3") as node:
        await node.events(honest())
        await post.emptied()
        assert node.receipts == []
    assert counted("sco_lifecycle_events_refused_total", reason="unknown_instance") == before + 5


async def test_one_node_that_floods_is_stopped(post: NodePost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MOST_EVENTS", 3)
    before = counted("sco_lifecycle_events_refused_total", reason="too_many")
    async with post.writer(), post.node("n1") as node:
        await node.events(honest())
        await post.emptied()
    assert counted("sco_lifecycle_events_refused_total", reason="too_many") == before + 2
    assert len((await books(post.engine)).events) == 3


async def test_what_comes_after_days_completes_the_picture(post: NodePost) -> None:
    """The notice and the end came at once; the rest lay on a spool, and some of it comes twice."""
    late = [one._replace(occurred_at=one.occurred_at - timedelta(days=9)) for one in honest()]
    late = [one._replace(deadline=AT - timedelta(days=9) + timedelta(seconds=120)) for one in late]
    async with post.writer(), post.node("n1") as node:
        await node.events([late[0]])
        await node.has_receipts([late[0]])
        assert await post.outcomes() == ["open"]
        await node.events([late[4], late[1], late[0], late[3], late[4], late[2]])
        await node.has_receipts(late)
        await post.emptied()
    assert await post.outcomes() == ["drained"]
    assert len((await books(post.engine)).events) == 5


async def test_a_deleted_stream_is_made_anew_and_nodes_send_again(post: NodePost) -> None:
    async with post.writer(), post.node("n1") as node:
        await node.events(honest()[:2])
        await node.has_receipts(honest()[:2])
        await post.forget_stream()
        await until(post.has_stream)
        await node.events(honest())
        await node.has_receipts(honest())
    found = await books(post.engine)
    assert (len(found.events), len(found.drains), len(found.told)) == (5, 1, 2)


async def test_a_lost_store_of_the_bus_loses_nothing(post: NodePost) -> None:
    """What JetStream had acknowledged is gone with its disk; the node has no receipt and sends again."""
    async with post.node("n1") as node:
        async with post.writer():
            pass
        await node.events(honest())
        post.lose_store()
        async with post.writer():
            await until(lambda: _connected(node.client.is_connected))
            await node.events(honest())
            await node.has_receipts(honest())
    assert await post.outcomes() == ["drained"]
    assert len((await books(post.engine)).events) == 5


async def _connected(is_connected: bool) -> bool:
    return is_connected


async def test_without_a_database_messages_wait(post: NodePost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = counted("sco_history_writer_failures_total")
    real = lifecycle.owners

    async def away(*_: object) -> dict[str, object]:
        raise OSError("the database is away")

    monkeypatch.setattr(lifecycle, "owners", away)
    async with post.writer(), post.node("n1") as node:
        await node.events(honest())

        async def failed() -> bool:
            return counted("sco_history_writer_failures_total") > before

        await until(failed)
        monkeypatch.setattr(lifecycle, "owners", real)
        await node.has_receipts(honest())
    assert await post.outcomes() == ["drained"]
