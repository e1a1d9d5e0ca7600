"""One folder is one stack: started once, found again by anyone, its data kept."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import nats
import psycopg
import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from lab.stack import Stack, StackError, process
from lab.stack.ports import PORT_NAMES
from lab.stack.stack import SERVER_NAMES
from lab.stack.state import PASSWORD_FILE
from tests.stack_fixtures import fresh_database

COMMAND_SECONDS = 120
LISTENING = "0A"  # in /proc/net/tcp
STARTER = "import sys; from pathlib import Path; from lab.stack import Stack; Stack.start(Path(sys.argv[1]))"


def pids(stack: Stack) -> dict[str, int | None]:
    return {server.name: server.pid for server in stack.status()}


async def start_unattended_workflow(stack: Stack, workflow_id: str) -> WorkflowHandle[object, object]:
    client = await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace)
    return await client.start_workflow(
        "Unattended",
        id=workflow_id,
        task_queue="nobody-polls-this",
        search_attributes=TypedSearchAttributes(
            [SearchAttributePair(SearchAttributeKey.for_keyword("ScoPartition"), "k8s-eu-north")]
        ),
    )


def test_starting_twice_gives_the_same_servers(own_stack: Stack) -> None:
    before = pids(own_stack)
    lines: list[str] = []

    again = Stack.start(own_stack.data_dir, progress=lines.append)

    assert pids(again) == before
    assert None not in before.values()
    assert len(lines) == len(SERVER_NAMES)
    assert all("already runs" in line for line in lines)


def test_two_simultaneous_starts_make_one_stack(folder: Path) -> None:
    data_dir = folder / "lab"
    starters = [subprocess.Popen([sys.executable, "-c", STARTER, str(data_dir)]) for _ in range(2)]
    codes = [starter.wait(COMMAND_SECONDS) for starter in starters]
    stack = Stack.load(data_dir)
    try:
        assert codes == [0, 0]
        assert {server.state for server in stack.status()} == {"running"}
        # Each server writes its start once: nobody started a second one that lost the race for the port.
        assert server_starts(data_dir) == 1
    finally:
        stack.stop()


def server_starts(data_dir: Path) -> int:
    return (data_dir / "logs/nats.log").read_text(encoding="utf-8").count("Server is ready")


def test_servers_outlive_their_starter_and_another_process_stops_them(folder: Path) -> None:
    data_dir = folder / "lab"
    subprocess.run([sys.executable, "-c", STARTER, str(data_dir)], check=True, timeout=COMMAND_SECONDS)

    stack = Stack.load(data_dir)
    running = pids(stack)
    stack.stop()

    assert None not in running.values()
    assert [pid for pid in running.values() if pid is not None and process.identify(pid)] == []
    assert {server.state for server in stack.status()} == {"stopped"}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(stack.postgres_dsn, connect_timeout=5)


async def test_data_and_ports_are_kept_when_the_stack_is_stopped_and_started(own_stack: Stack) -> None:
    ports = own_stack.ports
    with psycopg.connect(own_stack.postgres_dsn) as connection:
        connection.execute("CREATE TABLE kept (note text)")
        connection.execute("INSERT INTO kept VALUES ('still here')")
    await start_unattended_workflow(own_stack, "kept")
    client = await nats.connect(own_stack.nats_url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await client.jetstream().publish("kept", b"still here")
    await client.close()

    own_stack.stop()
    again = Stack.start(own_stack.data_dir)

    assert again.ports == ports
    with psycopg.connect(again.postgres_dsn) as connection:
        assert connection.execute("SELECT note FROM kept").fetchall() == [("still here",)]
    temporal = await Client.connect(again.temporal_address, namespace=again.temporal_namespace)
    description = await temporal.get_workflow_handle("kept").describe()
    partition = SearchAttributeKey.for_keyword("ScoPartition")
    assert description.typed_search_attributes[partition] == "k8s-eu-north"
    client = await nats.connect(again.nats_url)
    assert (await client.jetstream().stream_info("KEPT")).state.messages == 1
    await client.close()


def test_stopping_a_stopped_stack_is_fine(own_stack: Stack) -> None:
    own_stack.stop()
    own_stack.stop()
    assert {server.state for server in own_stack.status()} == {"stopped"}


def test_a_folder_without_a_stack_says_so(folder: Path) -> None:
    with pytest.raises(StackError, match="No stack was started in"):
        Stack.load(folder)


def test_a_damaged_record_says_what_to_do(folder: Path) -> None:
    (folder / "stack.json").write_text("{", encoding="utf-8")
    with pytest.raises(StackError, match=r"is damaged.*Remove it and start again"):
        Stack.load(folder)


def test_the_database_is_durable_and_roomy(stack: Stack) -> None:
    wanted = {"fsync": "on", "synchronous_commit": "on", "max_connections": "200", "server_encoding": "UTF8"}
    with psycopg.connect(stack.postgres_dsn) as connection:
        for name, value in wanted.items():
            assert connection.execute(f"SHOW {name}").fetchone() == (value,)
        assert connection.execute("SELECT current_user, current_database()").fetchone() == (
            "sco_owner",
            "sco",
        )


def test_the_password_is_nowhere_but_in_its_private_file(stack: Stack) -> None:
    secret = stack.data_dir / PASSWORD_FILE
    password = secret.read_text(encoding="ascii")
    assert len(password) >= 32
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert password in stack.postgres_dsn

    for log in (stack.data_dir / "logs").iterdir():
        assert password not in log.read_text(encoding="utf-8")
    assert password not in (stack.data_dir / "stack.json").read_text(encoding="utf-8")
    for pid in pids(stack).values():
        assert password.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert password.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_wrong_password_is_refused(stack: Stack) -> None:
    wrong = stack.postgres_dsn.replace((stack.data_dir / PASSWORD_FILE).read_text(encoding="ascii"), "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong, connect_timeout=5)


def test_every_server_listens_on_loopback_only(stack: Stack) -> None:
    owners = [pid for pid in pids(stack).values() if pid is not None]
    addresses = [address for pid in owners for address in listening_addresses(pid)]
    assert len(addresses) >= len(PORT_NAMES)
    assert set(addresses) == {"127.0.0.1"}


def listening_addresses(pid: int) -> list[str]:
    """The local address of every TCP socket on which the process listens, from the kernel's tables."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    mine = {os.readlink(descriptor) for descriptor in descriptors if descriptor.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = row.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in mine:
                found.append(readable(fields[1].partition(":")[0]))
    return found


def readable(kernel_address: str) -> str:
    if len(kernel_address) != 8:
        return f"IPv6 {kernel_address}"
    return str(ipaddress.IPv4Address(int(kernel_address, 16).to_bytes(4, sys.byteorder)))


def test_logs_are_readable_by_their_owner(stack: Stack) -> None:
    for server in stack.status():
        assert server.log.stat().st_size > 0
        assert server.log.stat().st_uid == os.getuid()
        assert server.log.read_text(encoding="utf-8")


def test_the_record_names_ports_and_urls_for_other_tools(stack: Stack) -> None:
    record = json.loads((stack.data_dir / "stack.json").read_text(encoding="utf-8"))
    assert record["urls"]["web_ui"] == stack.web_ui_url == f"http://127.0.0.1:{record['ports']['web_ui']}"
    assert record["urls"]["nats"] == stack.nats_url
    assert set(record["servers"]) == set(SERVER_NAMES)


def test_a_fresh_database_is_empty_or_a_copy_of_its_template(stack: Stack) -> None:
    template = fresh_database(stack, "stack_test_template")
    with psycopg.connect(template) as connection:
        connection.execute("CREATE TABLE marker (id int)")
    copy = fresh_database(stack, "stack_test_copy", template="stack_test_template")
    with psycopg.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM marker").fetchone() == (0,)
    empty = fresh_database(stack, "stack_test_copy")
    with psycopg.connect(empty) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT count(*) FROM marker")
