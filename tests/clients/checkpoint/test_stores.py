"""Every store keeps the promises of the port: a folder, S3 servers of four makers, and one that fails."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from clients.checkpoint import (
    LocalStore,
    MissingError,
    Retry,
    S3Credentials,
    S3Store,
    Store,
    StoreDownError,
    StoreRefusedError,
)
from clients.checkpoint.s3_signing import sign
from lab.objects import ObjectStore, StoreFault
from tests.clients.checkpoint.servers import S3Server
from tests.clients.checkpoint.stores import MemoryStore, checkpoints

# These have no types of their own.
boto3: Any = importlib.import_module("boto3")
auth: Any = importlib.import_module("botocore.auth")
awsrequest: Any = importlib.import_module("botocore.awsrequest")
credentials: Any = importlib.import_module("botocore.credentials")

KEY, SECRET = "test-access", "test-secret"
CREDENTIALS = S3Credentials(KEY, SECRET)
HASTY = Retry(attempts=4, attempt_seconds=0.4, pause_seconds=0.01, total_seconds=5)


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    client.create_bucket(Bucket="bucket")
    yield url
    server.stop()


@pytest.fixture(params=["folder", "moto", "seaweedfs", "rclone", "faulty", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "folder":
        yield LocalStore(tmp_path / "a store")
    elif request.param == "moto":
        yield S3Store(request.getfixturevalue("moto"), "bucket", credentials=CREDENTIALS)
    elif request.param in ("seaweedfs", "rclone"):
        server: S3Server = request.getfixturevalue(request.param)
        yield server.store()
    elif request.param == "memory":
        yield MemoryStore()
    else:
        with ObjectStore() as faulty:
            yield S3Store(faulty.url, "bucket", credentials=CREDENTIALS)


def unique(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").replace("]", "")


def test_an_object_is_there_whole_until_it_is_removed(store: Store, request: pytest.FixtureRequest) -> None:
    top = unique(request)
    for body in (b"", b"one", os.urandom(3 * 1024 * 1024), b"after"):
        store.put(f"{top}/a/key.json", body)
        assert store.get(f"{top}/a/key.json") == body
        assert store.size(f"{top}/a/key.json") == len(body)
    store.delete(f"{top}/a/key.json")
    store.delete(f"{top}/a/key.json")
    assert store.size(f"{top}/a/key.json") is None
    with pytest.raises(MissingError, match=r"a/key.json"):
        store.get(f"{top}/a/key.json")
    store.put(f"{top}/a", b"now an object of its own")
    assert store.size(f"{top}/a/below") is None
    store.delete(f"{top}/a")


def test_a_listing_has_all_keys_below_a_prefix_in_order(store: Store, request: pytest.FixtureRequest) -> None:
    top = unique(request)
    keys = sorted(f"{top}/parts/{n:04d}-x/{m}" for n in range(45) for m in range(3))
    for key in reversed(keys):
        store.put(key, b"x")
    store.put(f"{top}/other", b"x")
    assert store.list(f"{top}/parts/") == keys
    assert store.list(f"{top}/parts/0004") == [key for key in keys if "/0004" in key]
    assert store.list(f"{top}/none/") == []


def test_a_new_object_does_not_replace_an_older_one(store: Store, request: pytest.FixtureRequest) -> None:
    key = f"{unique(request)}/once"
    if isinstance(store, S3Store) and "rclone" in unique(request):
        # It takes the condition and no notice of it: nobody is told.
        assert store.put_new(key, b"first")
        assert store.put_new(key, b"second")
        assert store.get(key) == b"second"
        return
    assert store.put_new(key, b"first")
    assert not store.put_new(key, b"second")
    assert store.get(key) == b"first"


def test_checkpoints_are_written_found_and_published(store: Store, request: pytest.FixtureRequest) -> None:
    workload = unique(request)
    with checkpoints(store, workload=workload, part_bytes=1000) as writer:
        for number in range(5):
            writer.save({"weights": bytes(2500), "step": b"%d" % number})
        found = writer.latest()
        writer.stage("r", b"result")
        assert writer.publish().read("r") == b"result"
    assert found is not None
    assert (found.generation, found.read("step"), found.read("weights")) == (5, b"4", bytes(2500))
    assert len(store.list(f"checkpoints/{workload}/manifests/")) == 3


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "ä", "a" * 1000])
def test_a_key_that_no_store_should_take_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key"):
        LocalStore(tmp_path).put(key, b"")
    with pytest.raises(ValueError, match="no key"):
        S3Store("http://127.0.0.1:9", "bucket", credentials=CREDENTIALS).put(key, b"")


PASSING = [
    StoreFault.UNAVAILABLE,
    StoreFault.TIMED_OUT,
    StoreFault.TAKEN_THEN_UNAVAILABLE,
    StoreFault.TORN,
    StoreFault.HANG_UP,
]


@pytest.mark.parametrize("fault", [*PASSING, StoreFault.SLOW])
def test_what_passes_is_tried_again(fault: StoreFault) -> None:
    with ObjectStore(slow_seconds=1.0) as faulty:
        store = S3Store(faulty.url, "bucket", credentials=CREDENTIALS, retry=HASTY)
        for work in (
            lambda: store.put("key", b"a body"),
            lambda: store.get("key"),
            lambda: store.list(""),
            lambda: store.delete("other"),
        ):
            faulty.faults.append(fault)
            work()
        assert store.get("key") == b"a body"
        faulty.faults.append(fault)
        # The first attempt may have been taken: then it is this very object that stands in the way.
        store.put_new("once", b"mine")
        assert store.get("once") == b"mine"
        assert faulty.requests >= 10 or fault is StoreFault.TORN


def test_a_store_that_stays_down_is_given_up_within_limits() -> None:
    with ObjectStore() as faulty:
        store = S3Store(faulty.url, "bucket", credentials=CREDENTIALS, retry=HASTY)
        faulty.faults.extend([StoreFault.UNAVAILABLE] * 100)
        with pytest.raises(StoreDownError, match="last with status 503 SlowDown"):
            store.put("key", b"")
        assert faulty.requests == HASTY.attempts
        faulty.faults.clear()
        store.put("key", b"a body")
        faulty.faults.extend([StoreFault.TORN] * HASTY.attempts)
        with pytest.raises(StoreDownError, match=r"IncompleteRead\(3 bytes read, 3 more expected\)"):
            store.get("key")
    with pytest.raises(StoreDownError, match="ConnectionRefused"):
        store.get("key")


@pytest.mark.parametrize("fault", PASSING)
def test_a_failure_that_passes_is_not_taken_for_a_store_without_conditions(fault: StoreFault) -> None:
    with ObjectStore() as faulty:
        store = S3Store(faulty.url, "bucket", credentials=CREDENTIALS, retry=HASTY)
        store.put("once", b"first")
        faulty.faults.append(fault)
        assert not store.put_new("once", b"second")
        assert store.get("once") == b"first"


def test_only_a_store_that_refuses_the_condition_is_written_to_without_one() -> None:
    with ObjectStore() as faulty:
        store = S3Store(faulty.url, "bucket", credentials=CREDENTIALS, retry=HASTY)
        store.put("once", b"first")
        faulty.faults.append(StoreFault.BAD_DIGEST)
        with pytest.raises(StoreRefusedError, match="status 400 BadDigest"):
            store.put_new("once", b"second")
        assert store.get("once") == b"first"
        faulty.faults.append(StoreFault.NO_CONDITIONS)
        assert store.put_new("once", b"third")
        assert store.get("once") == b"third"


def test_checkpoints_survive_a_store_that_fails_every_other_time() -> None:
    with ObjectStore() as faulty:
        store = S3Store(faulty.url, "bucket", credentials=CREDENTIALS, retry=HASTY)
        with checkpoints(store) as writer:
            for number in range(6):
                faulty.faults.extend(fault for _ in range(2) for fault in (*PASSING, StoreFault.NONE))
                with suppress(StoreDownError):
                    writer.save(b"%d" % number)
            faulty.faults.clear()
            writer.save(b"last")
            found = writer.latest()
        assert found is not None
        assert found.read() == b"last"


def test_what_is_not_allowed_is_said_and_not_tried_again(moto: str) -> None:
    with pytest.raises(StoreRefusedError, match="bucket does not exist"):
        S3Store(moto, "no-such-bucket", credentials=CREDENTIALS).get("key")
    with pytest.raises(StoreRefusedError, match="NoSuchBucket"):
        S3Store(moto, "no-such-bucket", credentials=CREDENTIALS).put("key", b"")
    with pytest.raises(ValueError, match="no bucket"):
        S3Store(moto, "UPPER", credentials=CREDENTIALS)
    with pytest.raises(ValueError, match="no endpoint"):
        S3Store("ftp://host", "bucket", credentials=CREDENTIALS)


def test_objects_are_encrypted_under_the_workloads_own_key(moto: str) -> None:
    store = S3Store(moto, "bucket", credentials=CREDENTIALS, kms_key_id="alias/team-a")
    store.put("sealed", b"x")
    client = boto3.client(
        "s3", endpoint_url=moto, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
    )
    head = client.head_object(Bucket="bucket", Key="sealed")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "alias/team-a")


def test_credentials_come_from_the_environment_when_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with ObjectStore() as faulty:
        store = S3Store(faulty.url, "bucket")
        with pytest.raises(StoreRefusedError, match="set AWS_ACCESS_KEY_ID"):
            store.put("key", b"")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store.put("key", b"")
    assert SECRET not in repr(CREDENTIALS)


@pytest.mark.parametrize("token", [None, "a session"])
@pytest.mark.parametrize(
    ("path", "query"),
    [("/bucket/a/b-c_d.json", {}), ("/bucket", {"list-type": "2", "prefix": "a b/ü&", "x": "~*'()"})],
)
def test_a_signature_is_the_one_that_the_official_library_makes(
    path: str, query: dict[str, str], token: str | None
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    mine = sign(
        "PUT",
        "store.example:9000",
        path,
        query=query,
        headers={"X-Amz-Server-Side-Encryption": "aws:kms"},
        body=b"body",
        region="eu-west-1",
        credentials=S3Credentials(KEY, SECRET, token),
        now=now,
    )
    official = awsrequest.AWSRequest("PUT", f"http://store.example:9000{mine.target}", data=b"body")
    official.headers["x-amz-server-side-encryption"] = "aws:kms"
    official.headers["x-amz-content-sha256"] = mine.headers["x-amz-content-sha256"]
    signer = auth.S3SigV4Auth(credentials.Credentials(KEY, SECRET, token), "s3", "eu-west-1")
    official.context["timestamp"] = mine.headers["x-amz-date"]
    official.headers["X-Amz-Date"] = mine.headers["x-amz-date"]
    if token is not None:
        official.headers["X-Amz-Security-Token"] = token
    request = signer.canonical_request(official)
    signature = signer.signature(signer.string_to_sign(official, request), official)
    assert mine.headers["authorization"].endswith(f"Signature={signature}")


def test_many_threads_write_into_one_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    taken: list[int] = []

    def work(number: int) -> None:
        for step in range(20):
            store.put(f"shared/{step % 3}", b"%d" % number)
            store.delete(f"shared/{step % 3}")
        if store.put_new("once", b"%d" % number):
            taken.append(number)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result()
    assert store.get("once") == b"%d" % taken[0]
    assert len(taken) == 1
    assert list((tmp_path / ".aside").iterdir()) == []


def test_a_folder_that_cannot_be_used_is_a_store_that_is_down(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreDownError, match="cannot be used"):
        LocalStore(tmp_path / "file")
    store = LocalStore(tmp_path / "store")
    (tmp_path / "store/taken").mkdir()
    with pytest.raises(StoreDownError, match="taken cannot be written"):
        store.put("taken", b"")
    with pytest.raises(StoreDownError, match="taken cannot be read"):
        store.get("taken")


def test_what_a_killed_writer_left_aside_goes_after_a_day(tmp_path: Path) -> None:
    LocalStore(tmp_path)
    for name, age in (("old", 2 * 24 * 3600), ("new", 0)):
        file = tmp_path / ".aside" / name
        file.write_bytes(b"")
        moment = file.stat().st_mtime - age
        os.utime(file, (moment, moment))
    assert LocalStore(tmp_path).list("") == []
    assert [file.name for file in (tmp_path / ".aside").iterdir()] == ["new"]
