"""Whatever reaches the Slurm forwarder is read or refused: requests, the file of nodes, Slurm's lists."""

from __future__ import annotations

import importlib
import json
import random
import secrets
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.agent.fuzzing import spoiled
from tests.deploy.forwarder_session import PACKAGE, entry, forwarding
from wire.node_requests import SIGNATURE_HEADER, Asked, sign_request

LISTS = (b"n[001-003,7],login", b"a1,a2,b[1-2]c[3-4]", b"n1")
REQUESTS = 200
# The server of the standard library answers what is no request line in the way of HTTP 0.9.
ANSWERS = (b"HTTP/", b"<!DOC", b"")


@pytest.fixture
def forwarder(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The modules of the program, as it loads them itself."""
    monkeypatch.syspath_prepend(str(PACKAGE.parent))
    return lambda name: importlib.import_module(f"{PACKAGE.name}.{name}")


def test_a_place_whose_thread_did_not_start_is_free_again(
    forwarder: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = forwarder("server")
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 1)

    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with module.Server(("127.0.0.1", 0), None, None) as server, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        for _ in range(3):
            ours, theirs = socket.socketpair()
            with ours, theirs, pytest.raises(RuntimeError, match="new thread"):
                server.process_request(theirs, ("10.0.0.1", 1))


def test_lists_of_hosts_are_read_or_refused(forwarder: Callable[[str], Any]) -> None:
    hosts_of = forwarder("hosts").hosts_of
    read = 0
    for seed in range(2000):
        dice = random.Random(seed)
        text = spoiled(dice, dice.choice(LISTS)).decode(errors="replace")
        try:
            read += bool(hosts_of(text))
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"{seed}: {text[:200]!r}") from error
    assert read > 200


def test_ranges_that_multiply_are_not_written_out(forwarder: Callable[[str], Any]) -> None:
    hosts_of = forwarder("hosts").hosts_of
    assert len(hosts_of("a[1-300]b[1-300]")) == 90_000
    with pytest.raises(ValueError, match="more than"):
        hosts_of("a" + "[1-90000]" * 20)


def test_the_file_of_nodes_is_read_or_refused(forwarder: Callable[[str], Any]) -> None:
    read_nodes = forwarder("gate").read_nodes
    valid = json.dumps({f"i-{n}": entry(Ed25519PrivateKey.generate(), f"n{n}") for n in range(3)}).encode()
    assert len(read_nodes(valid.decode())) == 3
    for seed in range(5000):
        text = spoiled(random.Random(seed), valid).decode(errors="replace")
        try:
            read_nodes(text)
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"{seed}: {text[:200]!r}") from error


def test_a_request_is_let_in_or_refused_and_only_as_it_was_signed(
    forwarder: Callable[[str], Any], tmp_path: Path
) -> None:
    gate = forwarder("gate")
    key = Ed25519PrivateKey.generate()
    (tmp_path / "nodes.json").write_text(json.dumps({"i-n1": entry(key, "n1")}))
    door = gate.Gate(gate.Nodes(tmp_path / "nodes.json"))
    refused = 0
    for seed in range(1000):
        dice = random.Random(seed)
        asked = Asked("POST", "/v1/jobs", b"{}")
        nonce = secrets.token_urlsafe(24)
        headers = sign_request(asked, key=key, instance_id="i-n1", at=datetime.now(UTC), nonce=nonce)
        said = dict(headers)
        name = dice.choice(sorted(said))
        said[name] = spoiled(dice, said[name].encode()).decode(errors="replace")
        try:
            door.admit(gate.Asked(*asked[:2], said, asked.body))
        except gate.Refused:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{seed}: {name} {said[name][:200]!r}") from error
        else:
            # Base64 has several texts for the same bytes.
            assert said == headers or name == SIGNATURE_HEADER, (seed, name)
    assert refused > 800


def test_the_program_answers_after_requests_of_any_bytes(tmp_path: Path) -> None:
    with forwarding(tmp_path) as session:
        session.says("sinfo", "n1|idle|none\n")
        url = urlsplit(session.url)
        for seed in range(REQUESTS):
            dice = random.Random(seed)
            target, body, headers = session.signed("n1", "jobs", {})
            lines = [f"POST {target} HTTP/1.1", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            raw = spoiled(dice, "\r\n".join([*lines, "", ""]).encode() + body)
            with socket.create_connection((url.hostname, url.port), 20) as line:
                line.sendall(raw)
                line.shutdown(socket.SHUT_WR)
                assert _rest(line)[:5] in ANSWERS, seed
        assert session.order("n1", "jobs").status == 200
        assert "Traceback" not in (tmp_path / "log").read_text()


def _rest(line: socket.socket) -> bytes:
    said = bytearray()
    try:
        while part := line.recv(4096):
            said += part
    except ConnectionResetError:
        pass
    return bytes(said)
