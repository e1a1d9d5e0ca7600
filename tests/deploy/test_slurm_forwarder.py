"""The forwarder beside slurmctld: who is let in, what a node may ask, and which commands come of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.agent.rig import until
from tests.deploy.forwarder_session import SAYING, Session, entry, forwarding, run_forwarder

UNTIL = {"owner": "sco-1", "until": "2026-11-03T09:05:00+01:00"}
PLACES = 256
DRAINED = "n2|idle|none\nn1|drained|sco:i-n1/sco-1 until 2026-11-03T08:05:00Z\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with forwarding(tmp_path_factory.mktemp("forwarder")) as session:
        yield session


@pytest.fixture
def session(running: Session) -> Session:
    running.forget_calls()
    for name in SAYING:
        running.says(name, "")
    running.says("sinfo", DRAINED)
    return running


def test_a_node_is_closed_with_owner_and_expiry_in_the_reason(session: Session) -> None:
    session.says("sinfo", "n1|idle|none\nn1|idle|none\n")
    answer = session.order("n1", "drain", UNTIL)
    reason = "sco:i-n1/sco-1 until 2026-11-03T08:05:00Z"
    assert (answer.status, answer.body) == (200, {"closed": True, "ours": True, "reason": reason})
    wanted = ["scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={reason}"]
    assert session.calls()[-1] == wanted


@pytest.mark.parametrize(
    "state", ["drained|broken fan", "down*|Not responding", "drained|sco:i-n2/sco-1 until x"]
)
def test_a_node_that_others_closed_is_neither_renamed_nor_opened(session: Session, state: str) -> None:
    session.says("sinfo", f"n1|{state}\n")
    assert session.order("n1", "drain", UNTIL).body["ours"] is False
    assert session.order("n1", "resume", {"owner": "sco-1"}).body["resumed"] is False
    assert {call[0] for call in session.calls()} == {"sinfo"}


def test_a_node_is_opened_by_its_owner_alone(session: Session) -> None:
    assert session.order("n1", "resume", {"owner": "sco"}).body["resumed"] is False
    assert session.order("n1", "resume", {"owner": "sco-1"}).body["resumed"] is True
    assert session.calls()[-1] == ["scontrol", "update", "NodeName=n1", "State=RESUME"]
    session.says("sinfo", "n1|idle|sco:i-n1/sco-1 until 2026-11-03T08:05:00Z\n")
    assert session.order("n1", "resume", {"owner": "sco-1"}).body["resumed"] is False


def test_steps_are_signalled_without_their_script_and_scripts_that_have_none_themselves(
    session: Session,
) -> None:
    session.says(
        "squeue",
        "7|7|RUNNING|n1\n9|9|RUNNING|m2,n[1-2]\n12|10+2|RUNNING|n1\n14|13_1|SUSPENDED|n1\n8|8|RUNNING|n2\n",
    )
    session.says("squeue-steps", "7.batch\n7.0\n9.batch\n9.extern\n14.interactive\n")
    answer = session.order("n1", "signal", {"signal": "USR1"})
    assert answer.body == {"jobs": dict.fromkeys(("7", "9", "10", "14"), "signalled")}
    assert session.calls()[-2:] == [
        ["scancel", "--signal=USR1", "14", "7"],
        ["scancel", "--signal=USR1", "--batch", "10", "9"],
    ]


@pytest.mark.parametrize(
    ("order", "body"),
    [("signal", {"signal": "USR1", "jobs": ["77"]}), ("requeue", {"jobs": ["77"]})],
)
def test_a_job_elsewhere_is_refused(session: Session, order: str, body: dict[str, Any]) -> None:
    answer = session.order("n1", order, body)
    assert (answer.status, answer.reason) == (403, "foreign_job")
    assert {call[0] for call in session.calls()} <= {"sinfo", "squeue"}


@pytest.mark.parametrize("order", ["signal", "requeue"])
def test_jobs_are_moved_off_a_closed_node_only(session: Session, order: str) -> None:
    session.says("sinfo", "n1|mixed|none\n")
    answer = session.order("n1", order, {"signal": "USR1", "jobs": []})
    assert (answer.status, answer.reason) == (409, "not_drained")


@pytest.mark.parametrize(
    ("order", "body"),
    [
        ("drain", {}),
        ("drain", {"owner": "a b", "until": "2026-11-03T09:05:00Z"}),
        ("drain", {"owner": "x State=IDLE", "until": "2026-11-03T09:05:00Z"}),
        ("drain", {"owner": "a", "until": "soon"}),
        ("drain", {"owner": "a", "until": "2026-11-03T09:05:00"}),
        ("resume", {"owner": ["a"]}),
        ("signal", {"signal": "HUP"}),
        ("signal", {"signal": "USR1 --full"}),
        ("signal", {"signal": "USR1", "jobs": "1"}),
        ("signal", {"signal": "USR1", "jobs": ["--user=root"]}),
        ("requeue", {"jobs": ["1,2"]}),
        ("requeue", {"jobs": ["0"]}),
        ("requeue", {"jobs": [1]}),
        ("requeue", {"jobs": ["1"] * 300}),
        ("requeue", {}),
        ("endings", {"jobs": "7"}),
        ("endings", {"jobs": ["all"]}),
        ("jobs", []),
        ("jobs", b"{"),
        ("jobs", b"[" * 5000),
    ],
)
def test_what_is_not_an_order_never_reaches_slurm(session: Session, order: str, body: Any) -> None:
    answer = session.order("n1", order, body)
    assert (answer.status, answer.reason) == (400, "malformed")
    assert {call[0] for call in session.calls()} <= {"sinfo"}


def test_a_drain_that_is_over_moves_no_job_that_it_had_told(session: Session) -> None:
    session.says("squeue", "7|7|RUNNING|n1\n")
    session.order("n1", "signal", {"signal": "USR1"})
    session.says("squeue", "7|7|FAILED|n1\n")
    assert session.order("n1", "requeue", {"jobs": [], "signalled": True}).body["jobs"]["7"] == "requeued"
    assert session.order("n1", "resume", {"owner": "sco-1"}).body["resumed"] is True
    assert session.order("n1", "requeue", {"jobs": [], "signalled": True}).body["jobs"] == {}
    # The forwarder goes on asking for the job until it waits, also while the next test runs.
    session.says("squeue", "7|7|PENDING|n1\n")
    until(lambda: session.calls()[-1] == ["scontrol", "update", "JobId=7", "StartTime=now"])


def test_an_order_that_there_is_not_is_named(session: Session) -> None:
    answer = session.order("n1", "reboot")
    assert (answer.status, answer.reason) == (404, "unknown_order")
    assert "/v1/drain" in answer.body["detail"]


def test_a_request_counts_once(session: Session) -> None:
    request = session.signed("n1", "jobs", {})
    assert session.send(*request).status == 200
    again = session.send(*request)
    assert (again.status, again.reason) == (401, "replayed")


def test_a_request_of_another_time_is_stale_and_the_answer_tells_the_time(session: Session) -> None:
    for minutes in (-2, 2):
        at = datetime.now(UTC) + timedelta(minutes=minutes)
        answer = session.order("n1", "jobs", at=at)
        assert (answer.status, answer.reason) == (401, "stale")
    target, raw, headers = session.signed("n1", "jobs", {}, at=datetime(2000, 1, 1, tzinfo=UTC))
    response = httpx2.post(f"{session.url}{target}", content=raw, headers=headers)
    assert (
        abs((datetime.fromisoformat(response.headers["sco-time"]) - datetime.now(UTC)).total_seconds()) < 30
    )


def test_the_key_of_another_node_does_not_open(session: Session) -> None:
    answer = session.order("n1", "jobs", key="n2")
    assert (answer.status, answer.reason) == (401, "bad_signature")
    assert session.calls() == []


@pytest.mark.parametrize("change", ["target", "body", "instance", "nonce", "signature", "time"])
def test_whatever_is_changed_on_the_way_is_noticed(session: Session, change: str) -> None:
    target, raw, headers = session.signed("n1", "jobs", {})
    changed = {
        "target": ("/v1/drain", raw, headers),
        "body": (target, b'{"jobs": []}', headers),
        "instance": (target, raw, headers | {"sco-instance": "i-n2"}),
        "nonce": (target, raw, headers | {"sco-nonce": "A" * 24}),
        "signature": (target, raw, headers | {"sco-signature": "no base64"}),
        "time": (target, raw, headers | {"sco-time": "2026-11-03T09:05:00.000000Z"}),
    }
    answer = session.send(*changed[change])
    assert (answer.status, answer.reason) == (401, "bad_signature")


@pytest.mark.parametrize("missing", ["sco-instance", "sco-time", "sco-nonce", "sco-signature"])
def test_a_request_without_one_of_its_headers_is_refused(session: Session, missing: str) -> None:
    target, raw, headers = session.signed("n1", "jobs", {})
    headers.pop(missing)
    assert session.send(target, raw, headers).status == 401


def test_a_long_body_is_not_read_and_other_methods_are_not_known(session: Session) -> None:
    assert session.send("/v1/jobs", b"x" * 20_000, {}).status == 413
    assert httpx2.get(f"{session.url}/v1/jobs").status_code == 404
    assert httpx2.get(f"{session.url}/health").status_code == 200
    assert httpx2.put(f"{session.url}/v1/jobs").status_code == 501


def test_noise_on_the_line_ends_a_connection_and_nothing_else(session: Session) -> None:
    host, port = session.url.removeprefix("http://").split(":")
    for noise in (b"\x00\xff" * 500, b"POST", b"POST /v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(noise)
    assert session.order("n1", "jobs").status == 200


def test_who_takes_every_place_keeps_nobody_at_another_address_out(session: Session) -> None:
    """As a compromised workload on one node would, without any key."""
    with contextlib.ExitStack() as held:
        for _ in range(PLACES + 40):
            line = socket.create_connection(_address(session), 10, source_address=("127.0.0.2", 0))
            held.callback(line.close)
            with contextlib.suppress(OSError):
                line.sendall(b"POST /v1/drain HTTP/1.1\r\nx-slow: ")
        for _ in range(20):
            assert session.client.get(f"{session.url}/health").status_code == 200


def test_a_request_that_comes_byte_by_byte_is_given_up(session: Session) -> None:
    with socket.create_connection(_address(session), 10) as line:
        line.sendall(b"POST /v1/drain HTTP/1.1\r\nx-slow: ")
        line.settimeout(0.2)
        for _ in range(300):
            try:
                line.sendall(b"a")
                if line.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    raise AssertionError("it waits for ever for a request that never ends")


def _address(session: Session) -> tuple[str, int]:
    url = httpx2.URL(session.url)
    return url.host, url.port or 0


def test_every_order_leaves_one_audit_line(session: Session) -> None:
    before = len(session.audit())
    session.order("n1", "drain", UNTIL)
    session.order("n1", "drain", UNTIL, key="n2")
    done, refused = session.audit()[before:]
    assert (done["instance"], done["node"], done["order"], done["status"]) == ("i-n1", "n1", "/v1/drain", 200)
    assert done["asks"] == UNTIL
    assert (refused["status"], refused["answer"]["reason"]) == (401, "bad_signature")


def test_nodes_are_registered_and_struck_off_while_it_runs(session: Session) -> None:
    both = {f"i-{node}": entry(key, node) for node, key in session.keys.items()}
    session.register({"i-n1": both["i-n1"]})
    assert session.order("n2", "jobs").reason == "unknown"
    session.register({"i-n1": {"node": "n1,n2", "publicKey": both["i-n1"]["publicKey"]}})
    assert session.order("n1", "jobs").status == 200
    assert "is not used" in (session.folder / "log").read_text()
    session.register(both)
    assert session.order("n2", "jobs").status == 200


def test_what_came_before_the_start_is_stale_and_one_node_that_asks_too_often_waits_alone(
    tmp_path: Path,
) -> None:
    with forwarding(tmp_path) as session:
        before_its_start = session.order("n1", "jobs", at=datetime.now(UTC) - timedelta(seconds=50))
        assert (before_its_start.status, before_its_start.reason) == (401, "stale")
        answers = (session.order("n1", "drain", {}).status for _ in range(5000))
        assert next(status for status in answers if status != 400) == 429
        assert session.order("n2", "jobs").status == 200


def test_a_slurm_that_hangs_is_told_of_in_time(tmp_path: Path) -> None:
    with forwarding(tmp_path, "--command-seconds", "0.3") as session:
        (session.folder / "hangs").touch()
        answer = session.order("n1", "jobs")
        assert (answer.status, answer.reason) == (504, "slurm_hangs")
        assert session.audit()[-1]["ms"] < 5_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "an object of nodes"),
        ('{"i 1": {}}', "no id of an instance"),
        ('{"i-1": {"node": "n[1-3]"}}', "`node` must be"),
        ('{"i-1": {"node": "n1", "publicKey": "short"}}', "no Ed25519 key"),
        ('{"i-1": 7}', "`node` must be"),
    ],
)
def test_it_does_not_start_with_nodes_that_cannot_be_read(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "nodes.json").write_text(text)
    process = run_forwarder(tmp_path, "--nodes", str(tmp_path / "nodes.json"))
    assert process.wait(30) == 2
    assert said in (tmp_path / "log").read_text()


def test_two_instances_cannot_be_one_node(tmp_path: Path, session: Session) -> None:
    key = session.keys["n1"]
    session.register({"i-1": entry(key, "n1"), "i-2": entry(key, "n1")})
    assert session.order("n1", "jobs").status == 200
    assert "more than one instance" in (session.folder / "log").read_text()
    session.register({f"i-{node}": entry(key, node) for node, key in session.keys.items()})


def test_many_nodes_at_once_ask_slurm_a_few_times_only(session: Session) -> None:
    requests = [session.signed("n1", "jobs", {}) for _ in range(30)]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda request: session.send(*request), requests))
    assert {answer.status for answer in answers} == {200}
    assert 1 <= len(session.calls()) < len(requests)


@pytest.mark.parametrize("nodes", ["n[1-", "n[a-b]", "n[1-9999999]"])
def test_a_list_of_nodes_that_makes_no_sense_is_an_error_and_no_empty_answer(
    session: Session, nodes: str
) -> None:
    session.says("squeue", f"7|7|RUNNING|{nodes}\n")
    answer = session.order("n1", "jobs")
    assert (answer.status, answer.reason) == (502, "slurm")
    assert session.order("n1", "resume", {"owner": "x"}).status == 200


@pytest.mark.parametrize(
    ("nodes", "found"),
    [("n1", True), ("n[1-3]", True), ("m[01-10],n[1,5]", True), ("n[01-03]", False), ("n[2-9]", False)],
)
def test_jobs_on_many_nodes_are_those_of_each(session: Session, nodes: str, found: bool) -> None:
    session.says("squeue", f"7|7|RUNNING|{nodes}\n")
    assert bool(session.order("n1", "jobs").body["jobs"]) is found
