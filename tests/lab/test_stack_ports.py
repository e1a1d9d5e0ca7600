"""Which port a server gets, and what is said when it cannot have the one asked for."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

from lab.stack import Ports, Stack, StackError, ports
from lab.stack.errors import PortTakenError
from lab.stack.ports import OPTIONS, PORT_NAMES, any_free, choose, is_free

ROOT = Path(__file__).parents[2]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_every_server_gets_a_free_port_of_its_own() -> None:
    chosen = astuple(choose(Ports(), Ports(), frozenset()))
    assert len(set(chosen)) == len(PORT_NAMES)
    assert all(is_free(port) for port in chosen)


def test_free_ports_lie_below_the_range_clients_connect_from() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert max(astuple(choose(Ports(), Ports(), frozenset()))) < max(lowest, 21_000)


def test_a_port_that_one_process_was_given_is_given_to_no_other() -> None:
    given = any_free({})
    assert is_free(given)
    program = (
        "import sys; from lab.stack import ports\n"
        "draws = iter([int(sys.argv[1]), 7]); ports.LOWEST_FREE_PORT = 0\n"
        "ports.secrets.randbelow = lambda _: next(draws); ports.is_free = lambda _: True\n"
        "print(ports.any_free({}))"
    )
    command = [sys.executable, "-c", program, str(given)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "7"


def test_claims_of_ports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "MOST_CLAIMS", 2)
    monkeypatch.setattr(ports, "_claims", deque[socket.socket]())
    given = [any_free({}) for _ in range(5)]
    assert [one.getsockname() for one in ports._claims] == [
        f"\0sco-lab-port-{port}".encode() for port in given[3:]
    ]
    for claim in ports._claims:
        claim.close()


def test_the_ports_of_last_time_are_used_again() -> None:
    first = choose(Ports(), Ports(), frozenset())
    assert choose(Ports(), first, frozenset()) == first


def test_a_remembered_port_that_another_program_took_is_replaced(taken: int) -> None:
    chosen = choose(Ports(), Ports(nats=taken), frozenset())
    assert chosen.nats != taken


def test_a_running_server_keeps_its_port(taken: int) -> None:
    chosen = choose(Ports(), Ports(nats=taken), frozenset({"nats"}))
    assert chosen.nats == taken


def test_a_running_server_is_not_moved(taken: int) -> None:
    with pytest.raises(PortTakenError, match=rf"--nats-port asks for 4222.*already runs on port {taken}"):
        choose(Ports(nats=4222), Ports(nats=taken), frozenset({"nats"}))


@pytest.mark.parametrize("name", PORT_NAMES)
def test_a_taken_port_is_named_with_the_option_that_changes_it(name: str, taken: int) -> None:
    with pytest.raises(PortTakenError, match=rf"Port {taken} .*needed for {name}, .*{OPTIONS[name]}\."):
        choose(Ports(**{name: taken}), Ports(), frozenset())


def test_one_port_for_two_servers_is_refused() -> None:
    free = choose(Ports(), Ports(), frozenset()).nats
    with pytest.raises(PortTakenError, match="asked for by --nats-port and already given to temporal"):
        choose(Ports(temporal=free, nats=free), Ports(), frozenset())


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(StackError, match=f"--temporal-port is {port}, which is no TCP port"):
        Ports(temporal=port)


def test_a_stack_asked_for_a_taken_port_starts_nothing(folder: Path, taken: int) -> None:
    with pytest.raises(PortTakenError, match=f"Port {taken} "):
        Stack.start(folder / "lab", ports=Ports(postgres=taken))
    assert not (folder / "lab/logs").exists()


def test_a_stack_runs_on_the_ports_asked_for(folder: Path) -> None:
    wanted = choose(Ports(), Ports(), frozenset())
    stack = Stack.start(folder / "lab", ports=wanted)
    try:
        assert stack.ports == wanted
        assert stack.web_ui_url.endswith(f":{wanted.web_ui}")
        assert not is_free(wanted.postgres)
    finally:
        stack.stop()
