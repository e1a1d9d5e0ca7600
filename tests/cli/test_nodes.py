"""`sco nodes`, `sco drains`, `sco explain-drain`: what the server says of nodes, as people read it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from clients.cli.failures import Exit
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document, problem
from tests.cli.test_reading import page, row

AT = "2030-01-31T23:59:30Z"
NODE: dict[str, Any] = {
    "instanceId": "n1",
    "state": "active",
    "region": "eu-north",
    "hall": "eu-north-h1",
    "poolId": "eu-north-h1-gp-m",
    "partitionId": "k8s-eu-north",
    "workloadId": "orders",
    "activeAt": AT,
    "registeredAt": AT,
    "bundleVersion": 7,
    "bundleIssuedAt": AT,
    "bundleAgeSeconds": 95,
    "bundleHeld": 6,
    "bundleHeldReportedAt": AT,
    "lastEvent": {"type": "signalled", "occurredAt": AT},
    "drain": {"drainId": "d1", "outcome": "open", "at": AT, "deadline": AT},
}
DRAIN: dict[str, Any] = {
    "drainId": "9c1f2b34-7d5e-4f60-8a1b-2c3d4e5f6a7b",
    "instanceId": "n1",
    "outcome": "drained",
    "cause": "reclaim",
    "countsInLedger": True,
    "hall": "eu-north-h1",
    "workloadId": "orders",
    "at": AT,
    "deadline": "2030-02-01T00:01:30Z",
    "signalledAfterSeconds": 0.12,
    "secondsToSpare": 83.1,
    "path": "slurm",
}
STORY: dict[str, Any] = DRAIN | {
    "fault": "nobody",
    "sentence": "Nobody's fault: it went well.",
    "lines": [
        {"seconds": 0.0, "at": AT, "type": "notice", "text": "Notice by push"},
        {"seconds": 36.9, "at": AT, "type": "drained", "text": "Nothing was left"},
    ],
    "gaps": ["Event 3 of the node has not come."],
}


def test_nodes_are_listed(sco: Sco, api: FakeApi) -> None:
    nothing = (
        "bundleVersion",
        "bundleAgeSeconds",
        "bundleHeld",
        "bundleHeldReportedAt",
        "lastEvent",
        "drain",
    )
    fresh = NODE | dict.fromkeys(nothing)
    api.on("GET", "/nodes", document(page(NODE, fresh | {"instanceId": "n2"})))
    ran = sco("nodes")
    assert ran.code == Exit.OK
    assert row(ran.out, "n1")[:6] == ["n1", "active", "open", "7", "6", "1:35"]
    assert "at launch" in ran.out


def test_a_revoked_node_is_shown_as_one(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/nodes", document(page(NODE | {"revokedAt": AT})))
    assert "active, revoked" in sco("nodes").out


REVOKED = {"instanceId": "n1", "revokedAt": AT, "revokedBy": "ada", "busCredentialsEndBy": AT}
WHERE = "/nodes/n1/revoke"


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "asked"), [("y\n", 1), ("n\n", 0), ("\n", 0)])
def test_a_node_is_revoked_once_a_person_says_so(
    sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch, typed: str, asked: int
) -> None:
    api.on("POST", WHERE, document(REVOKED))
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    ran = sco("revoke-node", "n1")
    assert "Revoke node n1 for good? [y/N]" in ran.err
    assert len(api.asked("POST", WHERE)) == asked
    assert ran.code == (Exit.OK if asked else Exit.USAGE)
    assert ("nothing was changed" in ran.err) is not bool(asked)


def test_a_program_that_revokes_a_node_says_yes(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WHERE, document(REVOKED))
    ran = sco("revoke-node", "n1")
    assert (ran.code, api.calls) == (Exit.USAGE, [])
    assert "repeat it with --yes" in ran.err
    ran = sco("revoke-node", "n1", "--yes")
    assert ran.out == "node n1 revoked at 2030-01-31 23:59:30Z by ada\n"
    assert "it ends by 2030-01-31 23:59:30Z" in ran.err
    assert json.loads(sco("revoke-node", "n1", "--yes", "-o", "json").out) == REVOKED
    nobody = REVOKED | {"revokedBy": None, "busCredentialsEndBy": None}
    api.on("POST", WHERE, document(nobody))
    ran = sco("revoke-node", "n1", "--yes")
    assert (ran.out, ran.err) == ("node n1 revoked at 2030-01-31 23:59:30Z\n", "")


def test_a_node_that_cannot_be_revoked_is_named(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WHERE, problem(404, "no instance 'n1'"))
    ran = sco("revoke-node", "n1", "--yes")
    assert ran.code == Exit.REFUSED
    assert "no instance 'n1'" in ran.err
    assert sco("revoke-node", "a b", "--yes").code == Exit.USAGE


def test_drains_are_listed(sco: Sco, api: FakeApi) -> None:
    lost = {"instanceId": "n2", "outcome": "no_notice", "signalledAfterSeconds": None, "secondsToSpare": None}
    api.on("GET", "/drains", document(page(DRAIN, DRAIN | lost)))
    ran = sco("drains")
    assert row(ran.out, "n1")[:3] == ["n1", "drained", "reclaim"]
    assert {"0.12", "83.1"} <= set(row(ran.out, "n1"))
    assert row(ran.out, "n2")[1] == "no_notice"


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (("nodes", "--draining", "--hall", "h1"), {"draining": "true", "hall": "h1"}),
        (("nodes", "--workload", "orders"), {"workloadId": "orders"}),
        (("drains", "--outcome", "no_notice"), {"outcome": "no_notice"}),
        (("drains", "--cause", "drill", "--hall", "h1"), {"cause": "drill", "hall": "h1"}),
        (("drains", "--node", "n1", "--since", AT), {"instanceId": "n1", "since": AT}),
    ],
)
def test_filters_are_sent(sco: Sco, api: FakeApi, arguments: tuple[str, ...], query: dict[str, str]) -> None:
    api.on("GET", f"/{arguments[0]}", document(page()))
    ran = sco(*arguments)
    assert (ran.code, ran.out) == (Exit.OK, "")
    assert "found" in ran.err
    (asked,) = api.asked("GET", f"/{arguments[0]}")
    assert asked.query == query | {"pageSize": "200"}


def test_a_drain_is_told_second_by_second(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/drains/n1", document(STORY))
    ran = sco("explain-drain", "n1")
    assert ran.code == Exit.OK
    lines = ran.out.splitlines()
    assert lines[:5] == [
        "n1: drained",
        "Nobody's fault: it went well.",
        "",
        "T+0.00   Notice by push",
        "T+36.90  Nothing was left",
    ]
    assert "  Event 3 of the node has not come." in lines
    assert "reclaim" in row(ran.out, "cause")


def test_what_has_no_cause_is_said_to_be_out_of_the_ledger(sco: Sco, api: FakeApi) -> None:
    line = {"seconds": None, "at": AT, "type": "no_notice", "text": "The node was gone without a notice"}
    lost = {"outcome": "no_notice", "cause": "unknown", "countsInLedger": False, "lines": [line], "gaps": []}
    api.on("GET", "/drains/n1", document(STORY | lost))
    ran = sco("explain-drain", "n1")
    assert "unknown, so nothing counts in the ledger" in ran.out
    assert "2030-01-31 23:59:30Z  The node was gone" in ran.out


def test_another_drain_is_asked_for_by_its_id(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/drains/n1", document(STORY))
    assert sco("explain-drain", "n1", "--drain", DRAIN["drainId"]).code == Exit.OK
    (asked,) = api.asked("GET", "/drains/n1")
    assert asked.query == {"drainId": DRAIN["drainId"]}


@pytest.mark.parametrize(("command", "answer"), [("nodes", NODE), ("drains", DRAIN)])
def test_json_is_what_the_server_said(sco: Sco, api: FakeApi, command: str, answer: dict[str, Any]) -> None:
    api.on("GET", f"/{command}", document(page(answer)))
    assert json.loads(sco(command, "-o", "json").out) == [answer]
    api.on("GET", "/drains/n1", document(STORY))
    assert json.loads(sco("explain-drain", "n1", "-o", "json").out) == STORY


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("explain-drain", "a/b"), "no node name; allowed are up to 63 of A-Z"),
        (("drains", "--node", ".."), "no node name"),
        (("nodes", "--hall", "Hall 1"), "no hall name"),
        (("drains", "--outcome", "asleep"), "--outcome"),
        (("explain-drain", "n1", "--drain", "x"), "--drain"),
        (("explain-drain",), "NODE"),
    ],
)
def test_wrong_usage_asks_nobody(sco: Sco, api: FakeApi, arguments: tuple[str, ...], told: str) -> None:
    ran = sco(*arguments)
    assert ran.code == Exit.USAGE
    assert told in ran.err
    assert api.calls == []


def test_a_node_without_a_drain_is_refused_in_words(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/drains/n1", problem(404, "no drain of node 'n1' is known"))
    ran = sco("explain-drain", "n1")
    assert ran.code == Exit.REFUSED
    assert "no drain of node 'n1' is known" in ran.err


def test_an_answer_that_is_none_is_told(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/drains/n1", document({"instanceId": "n1"}))
    assert sco("explain-drain", "n1").code == Exit.UNREACHABLE


def test_what_a_node_says_cannot_move_the_cursor(sco: Sco, api: FakeApi) -> None:
    line = {"seconds": 1.0, "at": AT, "type": "signalled", "text": "\x1b[2J[bold]gone"}
    api.on("GET", "/drains/n1", document(STORY | {"lines": [line]}))
    out = sco("explain-drain", "n1").out
    assert "\x1b" not in out
    assert "[bold]gone" in out
