"""What a real bus server lets an agent do with our tokens, and what not."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from lab.stack.nats import taken_in
from tests.wire.bus import Bus, running_bus
from wire.bus_credentials import (
    agent_permissions,
    agent_token,
    credentials,
    expiry_of,
    issuer_of,
    key_of,
    new_bus,
    new_key,
    relay_permissions,
    user_token,
)
from wire.node import STREAM, STREAM_SUBJECTS, lifecycle_subject, notice_subject, receipt_subject

HALL, OWN, OTHER = "eu-north-h1", "server-1", "server-2"
PATIENCE = 20.0
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    async with running_bus(tmp_path_factory.mktemp("bus")) as own:
        async with own.client(own.history(), "history") as history:
            config = StreamConfig(name=STREAM, subjects=list(STREAM_SUBJECTS))
            await history.jetstream().add_stream(config)
        yield own


class Refusals:
    """What the server told a client that it may not do."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def note(self, error: Exception) -> None:
        self.told.append(str(error))

    async def expect(self, times: int, what: str) -> None:
        await until(lambda: len(self.told) >= times, lambda: (what, self.told))
        assert all("ermissions" in one for one in self.told), self.told


async def until(holds: Callable[[], bool], told: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE * 100)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(told())


async def heard_by(client: Client, subject: str) -> list[bytes]:
    heard: list[bytes] = []

    async def note(message: Msg) -> None:
        heard.append(message.data)

    await client.subscribe(subject, cb=note)
    await taken_in(client)
    return heard


async def test_an_agent_hears_its_own_notices_and_receipts(bus: Bus) -> None:
    relay_file = bus.user("relay", relay_permissions())
    async with (
        bus.client(bus.agent(HALL, OWN), OWN) as agent,
        bus.client(relay_file, "relay") as relay,
        bus.client(bus.history(), "history") as history,
    ):
        notices = await heard_by(agent, notice_subject(HALL, OWN))
        receipts = await heard_by(agent, receipt_subject(HALL, OWN))
        await relay.publish(notice_subject(HALL, OTHER), b"for another")
        await relay.publish(notice_subject(HALL, OWN), b"taken back")
        await history.publish(receipt_subject(HALL, OWN), b"kept")
        await until(lambda: (notices, receipts) == ([b"taken back"], [b"kept"]), lambda: (notices, receipts))


async def test_an_event_is_published_with_an_acknowledgement(bus: Bus) -> None:
    async with bus.client(bus.agent(HALL, OWN), OWN) as agent:
        sent = agent.jetstream().publish(
            lifecycle_subject(HALL, OWN), b"{}", timeout=PATIENCE, headers={"Nats-Msg-Id": "once"}
        )
        first = await sent
        again = await agent.jetstream().publish(
            lifecycle_subject(HALL, OWN), b"{}", timeout=PATIENCE, headers={"Nats-Msg-Id": "once"}
        )
        assert (first.stream, again.duplicate, again.seq) == (STREAM, True, first.seq)


FOREIGN_TO_READ = (
    notice_subject(HALL, OTHER),
    notice_subject("eu-north-h2", OWN),
    receipt_subject(HALL, OTHER),
    lifecycle_subject(HALL, OWN),
    lifecycle_subject(HALL, OTHER),
    "notices.>",
    f"notices.{HALL}.*",
    "receipts.*.*",
    "lifecycle.>",
    ">",
    "_INBOX.>",
    f"_INBOX_{OTHER}.>",
    "_INBOX_history.>",
    "$JS.API.>",
    "$SYS.>",
)
FOREIGN_TO_SAY = (
    lifecycle_subject(HALL, OTHER),
    lifecycle_subject("eu-north-h2", OWN),
    notice_subject(HALL, OWN),
    notice_subject(HALL, OTHER),
    receipt_subject(HALL, OWN),
    f"_INBOX_{OTHER}.x",
    "_INBOX_history.x",
    f"$JS.API.STREAM.DELETE.{STREAM}",
    f"$JS.API.STREAM.PURGE.{STREAM}",
    f"$JS.API.CONSUMER.CREATE.{STREAM}",
    f"$JS.ACK.{STREAM}.history.1.1.1.1.1",
    "$SYS.REQ.ACCOUNT.PING",
    "anything",
)


async def test_an_agent_hears_nothing_else(bus: Bus) -> None:
    refusals = Refusals()
    async with bus.client(bus.agent(HALL, OWN), OWN, error_cb=refusals.note) as agent:
        for subject in FOREIGN_TO_READ:
            await heard_by(agent, subject)
        await refusals.expect(len(FOREIGN_TO_READ), "subscriptions")


async def test_an_agent_says_nothing_else(bus: Bus) -> None:
    refusals = Refusals()
    async with (
        bus.client(bus.agent(HALL, OWN), OWN, error_cb=refusals.note) as agent,
        bus.client(bus.agent(HALL, OTHER), OTHER) as other,
    ):
        heard = await heard_by(other, notice_subject(HALL, OTHER))
        for subject in FOREIGN_TO_SAY:
            await agent.publish(subject, b"x")
        await taken_in(agent)
        await refusals.expect(len(FOREIGN_TO_SAY), "publishing")
        assert heard == []


async def test_the_relay_may_not_write_the_history_nor_the_history_notices(bus: Bus) -> None:
    refusals = Refusals()
    relay_file = bus.user("relay", relay_permissions())
    async with (
        bus.client(relay_file, "relay", error_cb=refusals.note) as relay,
        bus.client(bus.history(), "history", error_cb=refusals.note) as history,
    ):
        for subject in (lifecycle_subject(HALL, OWN), receipt_subject(HALL, OWN), "$JS.API.INFO"):
            await relay.publish(subject, b"x")
        await history.publish(notice_subject(HALL, OWN), b"x")
        await refusals.expect(4, "publishing")


async def test_a_token_that_ended_is_refused(bus: Bus) -> None:
    await _must_not_enter(bus, bus.agent(HALL, OWN, until=datetime.now(UTC) - timedelta(seconds=1)))


async def test_a_connection_ends_with_its_token(bus: Bus) -> None:
    closed = asyncio.Event()

    async def note() -> None:
        closed.set()

    file = bus.agent(HALL, OWN, until=datetime.now(UTC) + timedelta(seconds=5))
    async with bus.client(file, OWN, disconnected_cb=note, allow_reconnect=False):
        await asyncio.wait_for(closed.wait(), PATIENCE)


async def test_nobody_enters_with_another_key_or_another_account(bus: Bus, tmp_path: Path) -> None:
    now, user, thief = datetime.now(UTC), *(new_key("U", secrets.token_bytes) for _ in range(2))
    expires_at = now + timedelta(hours=1)
    named = {"hall": HALL, "instance_id": OWN, "now": now, "expires_at": expires_at}
    jwt = agent_token(issuer_of(bus.keys), user=user.public, **named)  # type: ignore[arg-type]
    foreign = agent_token(issuer_of(new_bus(secrets.token_bytes)), user=user.public, **named)  # type: ignore[arg-type]
    head, claims, signature = jwt.split(".")
    widened = json.loads(base64.urlsafe_b64decode(claims + "=="))
    widened["nats"]["sub"]["allow"] = [">"]
    told = base64.urlsafe_b64encode(json.dumps(widened).encode()).decode().rstrip("=")
    for number, text in enumerate(
        (
            credentials(jwt, thief.seed),
            credentials(foreign, user.seed),
            credentials(f"{head}.{told}.{signature}", user.seed),
        )
    ):
        file = tmp_path / f"{number}.creds"
        file.write_text(text)
        await _must_not_enter(bus, file)
    with pytest.raises(nats.errors.Error):
        await nats.connect(bus.url, max_reconnect_attempts=1, connect_timeout=5)


async def _must_not_enter(bus: Bus, file: Path) -> None:
    with pytest.raises((nats.errors.Error, OSError)):
        async with bus.client(file, OWN, allow_reconnect=False):
            pass


def test_the_subjects_of_an_agent_are_its_own_alone() -> None:
    may = agent_permissions(HALL, OWN)
    assert may.publish == (f"lifecycle.{HALL}.{OWN}",)
    assert may.subscribe == (f"notices.{HALL}.{OWN}", f"receipts.{HALL}.{OWN}", f"_INBOX_{OWN}.>")


def test_keys_are_read_back_from_their_seeds_and_never_shown() -> None:
    for kind in ("O", "A", "U"):
        key = new_key(kind, secrets.token_bytes)
        assert key.public.startswith(kind)
        assert key_of(key.seed) == key
        assert key.seed not in repr(key)
    assert new_key("U", bytes) == new_key("U", bytes)


@pytest.mark.parametrize(
    "text", ["", "S", "SUA", "x" * 58, "SUAB" + "A" * 54, "ü" * 58, "\x00" * 58, "S" * 9999]
)
def test_what_is_no_seed_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="no seed") as caught:
        key_of(text)
    assert len(text) < 4 or text not in str(caught.value)


@pytest.mark.parametrize("user", ["", "U", "A" * 56, "U" + "a" * 55, "U" + "A" * 56, "U" + "1" * 55])
def test_no_token_is_made_for_what_is_no_user_key(user: str) -> None:
    issuer = issuer_of(new_bus(secrets.token_bytes))
    with pytest.raises(ValueError, match="user key"):
        user_token(
            issuer, user=user, name="x", may=relay_permissions(), now=NOW, expires_at=NOW + timedelta(hours=1)
        )


def test_a_token_tells_when_it_ends() -> None:
    issuer, user = issuer_of(new_bus(secrets.token_bytes)), new_key("U", secrets.token_bytes)
    named = {"user": user.public, "name": "x", "may": relay_permissions(), "now": NOW}
    until = NOW + timedelta(hours=12)
    assert expiry_of(user_token(issuer, expires_at=until, **named)) == until.timestamp()  # type: ignore[arg-type]
    assert expiry_of(user_token(issuer, expires_at=None, **named)) is None  # type: ignore[arg-type]
    for broken in ("", "a.b", "a.b.c", "..", "a." + base64.b64encode(b"[]").decode() + ".c"):
        assert expiry_of(broken) is None


def test_a_credentials_file_is_what_clients_read() -> None:
    text = credentials("a.b.c", "SUSEED")
    assert text.splitlines()[1] == "a.b.c"
    assert text.splitlines()[5] == "SUSEED"
