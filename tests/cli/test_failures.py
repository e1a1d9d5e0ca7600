"""Servers that refuse, break, dawdle or talk nonsense: an exit code and a sentence, never a traceback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clients.cli.main import main
from tests.cli import answers
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, Reply, document, problem

COMMANDS = (
    ("get", "pools"),
    ("get", "workloads"),
    ("get", "contracts"),
    ("get", "partitions"),
    ("get", "generations", "orders-daily"),
    ("get", "placements", "orders-daily"),
    ("describe", "pool", "p1"),
    ("describe", "workload", "orders-daily"),
    ("describe", "contract", "c1"),
    ("explain", "orders-daily"),
    ("explain", "orders-daily", "--pool", "p1"),
    ("explain", "orders-daily", "--reason", "cap"),
    ("explain", "orders-daily", "--replay"),
    ("scale", "orders-daily", "--units", "3"),
    ("place", "orders-daily"),
    ("activate", "pool", "p1"),
    ("change", "pool", "p1", "--price", "1"),
    ("drain", "pool", "p1"),
    ("resume", "pool", "p1"),
    ("retire", "pool", "p1"),
    ("status",),
    ("status", "-o", "yaml"),
)
SHAPES = (
    answers.workload(),
    answers.pool("p1"),
    answers.claimed(),
    answers.explanation(answers.kept("p1"), answers.candidate("p2")),
    answers.replay({"part": "a", "stored": "b", "recomputed": "c"}),
    {"items": [answers.pool("p1")], "nextPageToken": None},
    {"items": [answers.workload()], "nextPageToken": None},
    {"items": [answers.generation(1)], "nextPageToken": None},
    answers.status(),
    answers.placement("orders-daily"),
)
MEMBERS = ("items", "nextPageToken", "detail", "errors", "title", "unreadable", "units")
NASTY: tuple[object, ...] = (
    *(None, "", [], {}, -1, 0, 10**400, "1e999999999", "1e-999999999"),
    *("0001-01-01T00:00:00+14:00", "\x1b[2J"),
)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def test_a_refusal_says_what_was_wrong_what_is_allowed_and_what_to_do(sco: Sco, api: FakeApi) -> None:
    api.always(
        problem(
            422,
            "body units is -1; allowed is a number of at least 0",
            whatToDo="Correct them.",
            requestId="abc123",
            errors=[
                {
                    "field": "units",
                    "where": "body",
                    "value": "-1",
                    "allowed": "a number of at least 0",
                    "message": "m",
                },
                {"field": "ownerTeam", "where": "body", "value": None, "allowed": "a value", "message": "m"},
            ],
        )
    )
    ran = sco("scale", "orders-daily", "--units", "1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        "error: body units is -1; allowed is a number of at least 0",
        "  ownerTeam is missing; allowed is a value",
        "  what to do: Correct them.",
        "  request id: abc123",
    ]


@pytest.mark.parametrize(
    ("reason", "hints"),
    [
        ("unknown_drain", ["  what to do: `sco drains` lists the nodes that drained"]),
        ("version_conflict", ["  what to do: look at it again, and give the version that it has now"]),
        ("no_such_step", []),
        ("some_other", ["  what to do: Send GET /things."]),
    ],
)
def test_what_to_do_is_said_in_commands_where_there_are_some(
    sco: Sco, api: FakeApi, reason: str, hints: list[str]
) -> None:
    api.always(problem(409, "it is not so", reason=reason, whatToDo="Send GET /things."))
    ran = sco("get", "generations", "orders-daily")
    assert ran.err.splitlines() == ["error: it is not so", *hints]


def test_a_place_in_a_file_is_no_field_that_is_missing(sco: Sco, api: FakeApi) -> None:
    error = {"field": "line 2", "where": "body", "value": None, "allowed": "a pod list", "message": "m"}
    api.always(problem(422, "line 2: not JSON", errors=[error]))
    ran = sco("scale", "orders-daily", "--units", "1")
    assert ran.err.splitlines() == ["error: line 2: not JSON", "  allowed is a pod list"]


def test_a_refused_list_names_its_entries(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    api.always(
        problem(
            422,
            "nothing in it waits for a node",
            unreadable=[{"name": "ns/bad", "problem": "cpu is 'x'"}],
            leftOut=[{"name": "ns/run", "reason": "not_pending", "detail": "its phase is Running"}],
        )
    )
    (tmp_path / "pods.json").write_text('{"items": []}')
    ran = sco("claim", "-f", "pods.json", "--workload", "orders-daily")
    assert ran.code == 1
    assert "  unreadable: ns/bad: cpu is 'x'" in ran.err
    assert "  left out: ns/run: its phase is Running" in ran.err


@pytest.mark.parametrize(
    ("reply", "code", "told"),
    [
        (problem(404, "no workload 'x'"), 1, "no workload 'x'"),
        (problem(500, "an unexpected error"), 3, "an unexpected error"),
        (problem(503, "the database cannot be reached"), 3, "the database cannot be reached"),
        (Reply(b"<html><h1>It works!</h1></html>", 200, "text/html"), 3, "a web page where JSON is expected"),
        (Reply(b"<html>Bad Gateway</html>", 502, "text/html"), 3, "answered 502 with a web page"),
        (Reply(b"<html>Not Found</html>", 404, "text/html"), 1, "answered 404 with a web page"),
        (Reply(b"", 404, ""), 1, "answered 404 with something: nothing"),
        (Reply(b"", 302, "", {"location": "https://login.example.org/"}), 3, "sends on to https://login"),
        (Reply(b"", 200), 3, "not as expected"),
        (Reply(b'{"workloadId": NaN}', 200), 3, "where JSON is expected"),
        (Reply(b"[" * 100_000, 200), 3, "where JSON is expected"),
        (Reply(b'"\xff"', 200), 3, "where JSON is expected"),
        (document([]), 3, "not as expected"),
        (document({**answers.workload(), "claimVersion": "many"}), 3, "claimVersion is 'many'"),
        (document({**answers.workload(), "claim": {"units": 1}}), 3, "claim.vcpu"),
        (Reply(b"too many", 429, "text/plain", {"retry-after": "7"}), 1, "answered 429"),
    ],
)
def test_every_kind_of_bad_answer(sco: Sco, api: FakeApi, reply: Reply, code: int, told: str) -> None:
    api.always(reply)
    ran = sco("describe", "workload", "orders-daily")
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err
    assert ran.err.startswith("error: ")


@contextmanager
def raw_server(*answers_in_turn: list[bytes], pause: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """Answers connection after connection with these bytes, then closes it; yields what it received."""
    received: list[bytes] = []
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for chunks in answers_in_turn:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                received.append(connection.recv(65536))
                for chunk in chunks:
                    if over.wait(pause):
                        return
                    try:
                        connection.sendall(chunk)
                    except OSError:
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def key_of(request: bytes) -> bytes:
    return next(line for line in request.split(b"\r\n") if line.lower().startswith(b"idempotency-key"))


def test_a_lost_write_is_sent_once_more_with_the_same_key(sco: Sco) -> None:
    body = b'{"poolId": "p1"}'
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with raw_server([], [answer]) as (url, received):
        ran = sco("--server", url, "activate", "pool", "p1")
    assert ran.code == 0
    assert len(received) == 2
    assert key_of(received[0]) == key_of(received[1])


def test_a_server_that_keeps_breaking_off_ends_with_3(sco: Sco) -> None:
    with raw_server([], [OK + b"Content-Length: 100\r\n\r\n{"], []) as (url, received):
        ran = sco("--server", url, "status")
    assert ran.code == 3
    assert "broke off" in ran.err
    assert len(received) == 2


def test_something_that_is_no_web_server(sco: Sco) -> None:
    with raw_server([b"SSH-2.0-OpenSSH_9.2\r\n"], [b"SSH-2.0-OpenSSH_9.2\r\n"]) as (url, _):
        ran = sco("--server", url, "status")
    assert ran.code == 3
    assert "broke off" in ran.err


def test_nobody_listens(sco: Sco) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    ran = sco("--server", f"http://127.0.0.1:{port}", "status")
    assert (ran.code, ran.out) == (3, "")
    assert f"no connection to http://127.0.0.1:{port}" in ran.err
    assert "--server" in ran.err


def test_a_server_that_never_answers(sco: Sco) -> None:
    with raw_server([b""], pause=60) as (url, _):
        ran = sco("--server", url, "--request-timeout", "0.3", "status")
    assert ran.code == 3
    assert "did not answer within 0.3 seconds" in ran.err


def test_a_server_that_answers_drop_by_drop_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Every drop is in time; their sum is not."""
    drops = [OK + b"Content-Length: 100000\r\n\r\n", *[b" "] * 10_000]
    with raw_server(drops, pause=0.02) as (url, _):
        code = main(["--server", url, "--request-timeout", "0.5", "status"])
    assert code == 3
    assert "did not answer within 0.5 seconds" in capsys.readouterr().err


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(COMMANDS),
    status=st.sampled_from((200, 201, 400, 404, 422, 429, 500, 503)),
    content=st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ("items", "nextPageToken", "detail", "errors", "title", "unreadable", "units")
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=8,
        ),
    ),
)
def test_no_answer_makes_it_crash(
    sco: Sco, api: FakeApi, command: tuple[str, ...], status: int, content: object
) -> None:
    raw = content if isinstance(content, bytes) else document(content).content
    api.always(Reply(raw, status))
    ran = sco(*command)
    assert ran.code in (0, 1, 3, 6)
    assert "Traceback" not in ran.err
    assert ran.code == 0 or ran.err.startswith("error: ")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(COMMANDS),
    answer=st.sampled_from(SHAPES),
    place=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    value=st.sampled_from(NASTY),
)
def test_no_changed_value_makes_it_crash(  # noqa: PLR0917
    sco: Sco, api: FakeApi, command: tuple[str, ...], answer: object, place: list[int], value: object
) -> None:
    api.always(document(changed(answer, place, value)))
    ran = sco(*command)
    assert ran.code in (0, 1, 3, 6)
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.out + ran.err


def changed(answer: object, place: list[int], value: object) -> object:
    """`answer` with one value, found by walking along `place`, replaced."""
    if not place or not isinstance(answer, dict | list) or not answer:
        return value
    if isinstance(answer, list):
        index = place[0] % len(answer)
        return [changed(one, place[1:], value) if at == index else one for at, one in enumerate(answer)]
    name = sorted(answer)[place[0] % len(answer)]
    return answer | {name: changed(answer[name], place[1:], value)}
