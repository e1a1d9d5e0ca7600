"""The client on real S3 servers: what they refuse, pages, races, wrong clocks, and servers that die."""

from __future__ import annotations

import logging
import os
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from clients.checkpoint import (
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    Retry,
    S3Credentials,
    Saved,
    StoreDownError,
    StoreRefusedError,
)
from clients.checkpoint.layout import PUBLISHED
from clients.checkpoint.s3_signing import sign
from tests.clients.checkpoint.servers import BUCKET, REGION, Rclone, S3Server
from tests.clients.checkpoint.stores import Fault, FaultyStore, ManualClock, checkpoints

PATIENT = Retry(attempts=100, attempt_seconds=20, pause_seconds=0.1, total_seconds=60)
HASTY = Retry(attempts=3, attempt_seconds=0.5, pause_seconds=0.05, total_seconds=3)
LARGE = 48 * 1024 * 1024
PATIENCE_SECONDS = 60


@pytest.fixture
def top(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").replace("]", "").replace(" ", "-")


def test_a_listing_of_more_than_one_page_is_read_to_its_end(server: S3Server, top: str) -> None:
    store = server.store()
    keys = sorted(f"{top}/parts/{number:04d}/x" for number in range(1100))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    assert store.list(f"{top}/") == keys
    assert store.list(f"{top}/parts/07") == [key for key in keys if "/parts/07" in key]


def test_a_state_of_many_parts_is_found_again(server: S3Server, top: str) -> None:
    state = {"weights": os.urandom(11 * 1024 * 1024), "step": b"7", "empty": b""}
    with checkpoints(server.store(), workload=top, part_bytes=4 * 1024 * 1024) as writer:
        writer.save(state)
        found = checkpoints(server.store(), workload=top).latest()
    assert found is not None
    assert {name: found.read(name) for name in found.files} == state
    assert [len(file.parts) for file in found.manifest.files] == [0, 1, 3]


def test_what_is_not_allowed_is_said_at_once(server: S3Server, top: str) -> None:
    for access_key in (server.credentials.access_key, "nobody"):
        word = r"SignatureDoesNotMatch|InvalidAccessKeyId"
        store = server.store(credentials=S3Credentials(access_key, "wrong-secret"))
        with pytest.raises(StoreRefusedError, match=word):
            store.put(f"{top}/key", b"")
        with pytest.raises(StoreRefusedError, match=word):
            store.get(f"{top}/key")
        with pytest.raises(StoreRefusedError, match=word):
            store.list(top)
        with pytest.raises(StoreRefusedError, match="status 403"):
            store.size(f"{top}/key")
    elsewhere = server.store("no-such-bucket")
    with pytest.raises(StoreRefusedError, match=r"NoSuchBucket|AccessDenied"):
        elsewhere.put(f"{top}/key", b"")
    with pytest.raises(StoreRefusedError, match=r"bucket does not exist|AccessDenied"):
        elsewhere.get(f"{top}/key")


@pytest.mark.parametrize("hours", [-2, -0.5, 0.5, 2])
def test_a_wrong_clock_is_put_right_by_the_stores_own(server: S3Server, top: str, hours: float) -> None:
    def wrong() -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    # Whatever a process asks first: an answer to HEAD has no body that could say what is wrong.
    assert server.store(now=wrong).size(f"{top}/none") is None
    assert server.store(now=wrong).list(f"{top}/") == []
    store = server.store(now=wrong)
    store.put(f"{top}/key", b"x")
    assert store.get(f"{top}/key") == b"x"
    wrong_secret = server.credentials._replace(secret_key="wrong-secret")
    with pytest.raises(StoreRefusedError, match="SignatureDoesNotMatch"):
        server.store(now=wrong, credentials=wrong_secret).get(f"{top}/key")


def test_of_many_that_write_a_new_object_one_is_told_so(seaweedfs: S3Server, top: str) -> None:
    store = seaweedfs.store(retry=PATIENT)
    for attempt in range(5):
        key = f"{top}/{attempt}"
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda number, key=key: store.put_new(key, b"%d" % number), range(8)))
        assert told.count(True) == 1
        assert store.get(key) == b"%d" % told.index(True)


def test_who_reads_what_is_replaced_meanwhile_gets_all_of_it(seaweedfs: S3Server, top: str) -> None:
    assert read_while_replaced(seaweedfs, top) == set()


def read_while_replaced(server: S3Server, top: str) -> set[bytes | None]:
    """What was read of an object that is replaced all the time, and was never written; None for nothing."""
    store, key = server.store(retry=PATIENT), f"{top}/replaced"
    bodies = [b"%c" % (65 + number) * (200 + 37 * number) for number in range(8)]
    store.put(key, bodies[0])

    def replace() -> None:
        for number in range(300):
            store.put(key, bodies[number % len(bodies)])

    odd: set[bytes | None] = set()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(replace)
        while not writing.done():
            try:
                odd |= {store.get(key)} - set(bodies)
            except MissingError:
                odd.add(None)
        writing.result()
    return odd


def test_writers_at_once_take_turns(server: S3Server, top: str) -> None:
    """Real clocks, real lease: every save that was confirmed is whole, and the tokens are told apart."""
    stores = [server.store(retry=PATIENT) for _ in range(3)]
    saved: list[int] = []

    def work(number: int) -> None:
        for step in range(4):
            with suppress(LeaseHeldError, LeaseLostError):
                with checkpoints(stores[number], workload=top, wait=20.0, clock=None) as writer:
                    writer.save(b"%d" % (10 * number + step))
                saved.append(10 * number + step)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, number) for number in range(3)]:
            done.result()
    found = checkpoints(stores[0], workload=top).latest()
    assert found is not None
    assert int(found.read()) in range(30)
    assert saved


def test_a_result_is_published_once(server: S3Server, top: str, caplog: pytest.LogCaptureFixture) -> None:
    with checkpoints(server.store(), workload=top) as writer:
        assert writer.publishes_once() is server.is_conditional
        writer.stage("r", b"first")
        assert writer.publish().read("r") == b"first"
    with checkpoints(server.store(), workload=top) as resumed:
        resumed.stage("r", b"second")
        assert resumed.publish().read("r") == b"first"
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert bool(told) is not server.is_conditional
    assert all("takes no conditional writes" in record.getMessage() for record in told)


def test_what_a_former_holder_publishes_late_replaces_a_result_only_without_conditions(
    server: S3Server, top: str
) -> None:
    """How far the promise goes: this one is held up between its last look at the claims and its write."""
    clock = ManualClock()
    held_up = FaultyStore(server.store())
    first = checkpoints(held_up, workload=top, clock=clock)
    second = checkpoints(server.store(), workload=top, clock=clock)
    first.stage("r", b"first")

    def take_over() -> None:
        clock.seconds += 120
        second.stage("r", b"second")
        assert second.publish().read("r") == b"second"

    held_up.arm(Fault(PUBLISHED, True, take_over))
    answered = first.publish()
    stands = checkpoints(server.store(), workload=top).published()
    assert stands is not None
    assert stands.manifest == answered.manifest
    assert answered.manifest.token == (2 if server.is_conditional else 1)


def test_a_server_that_dies_while_it_is_written_to_is_waited_for(server: S3Server, top: str) -> None:
    """The request is under way when the server is killed; it is back in the time that a store is given."""
    store = server.store(retry=PATIENT)
    state = os.urandom(LARGE)
    with checkpoints(store, workload=top, part_bytes=LARGE) as writer:
        writer.save(b"before")
        server.pause()
        with ThreadPoolExecutor(1) as pool:
            saving = pool.submit(writer.save, state)
            _let_it_hang(saving)
            server.kill()
            server.start()
            assert saving.result(timeout=PATIENCE_SECONDS).generation == 2
        found = writer.latest()
    assert found is not None
    assert found.read() == state


def test_a_server_that_stays_away_loses_nothing_that_was_saved(server: S3Server, top: str) -> None:
    store = server.store(retry=HASTY)
    writer = checkpoints(store, workload=top, part_bytes=LARGE)
    writer.save(b"before")
    server.kill()
    try:
        started = time.monotonic()
        with pytest.raises(StoreDownError, match="failed, last with"):
            writer.save(os.urandom(1024))
        with pytest.raises(StoreDownError):
            writer.latest()
        assert time.monotonic() - started < 30
    finally:
        server.start()
    found = checkpoints(server.store(), workload=top).latest()
    assert found is not None
    assert found.read() == b"before"
    # It let go as far as it could: its claim lapses, and it goes on itself.
    assert writer.save(b"after").generation >= 2
    with pytest.raises(LeaseHeldError):
        checkpoints(server.store(), workload=top, clock=None).save(b"another")


def test_half_an_upload_is_no_object_and_in_nobodys_way(server: S3Server, top: str) -> None:
    """The server dies with half of a part on its disk; what it leaves there is not ours, and harms none."""
    store = server.store()
    with checkpoints(store, workload=top) as writer:
        writer.save(b"one")
        lease = writer._lease
        assert lease is not None
        key = f"checkpoints/{top}/parts/{lease.token:016d}-{0:016d}-{lease.writer}-{'a' * 16}/00000-000000"
        with _half_sent(server, key):
            time.sleep(0.3)
            server.kill()
        server.start()
        assert store.size(key) is None
        with pytest.raises(MissingError):
            store.get(key)
        for _ in range(4):
            writer.save(b"two")
        writer.stage("r", b"result")
        assert writer.publish().read("r") == b"result"


def _half_sent(server: S3Server, key: str) -> socket.socket:
    """A connection on which the first half of an object is sent, signed as the whole."""
    body = os.urandom(8 * 1024 * 1024)
    netloc = urlsplit(server.url).netloc
    host, _, port = netloc.partition(":")
    request = sign(
        "PUT",
        netloc,
        f"/{BUCKET}/{key}",
        query={},
        headers={"content-length": str(len(body))},
        body=body,
        region=REGION,
        credentials=server.credentials,
        now=datetime.now(UTC),
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    line = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    line.sendall(f"PUT {request.target} HTTP/1.1\r\n{head}\r\n".encode() + body[: len(body) // 2])
    return line


def _let_it_hang(saving: Future[Saved]) -> None:
    """Long enough for the socket's buffers to be full: the rest of the request can go nowhere."""
    time.sleep(0.5)
    assert not saving.done()


def test_a_hanging_server_is_given_up_within_limits(top: str) -> None:
    with Rclone() as own:
        store = own.store(retry=HASTY)
        store.put(f"{top}/key", b"x")
        own.pause()
        started = time.monotonic()
        with pytest.raises(StoreDownError, match="TimeoutError"):
            store.get(f"{top}/key")
        assert time.monotonic() - started < 10
