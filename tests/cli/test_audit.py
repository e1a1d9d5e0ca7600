"""`sco audit`: it waits, tells what was found and what to do, and ends with a code of its own."""

from __future__ import annotations

import json

import pytest

from tests.cli import answers
from tests.cli.conftest import FakeClock, Ran, Sco
from tests.cli.fake_api import FakeApi, Reply, document, problem
from tests.cli.test_waiting import on_a_terminal

AUDITS = "/factory/audits"
ONE = f"{AUDITS}/7b0e8a34-0000-4000-8000-000000000003"
RUNNING = document(answers.audit("running"))
LOST = answers.finding("lost", "b-1-001")
GONE = answers.finding("lost", "b-1-002")
TAGS = answers.finding("wrong_tags", "b-2-001", problem="server s-7 lacks the tags sco:managed")
FAILED = [{"region": "eu-west", "reason": "HTTP 503"}]


def auditing(api: FakeApi, *states: Reply) -> None:
    api.on("POST", AUDITS, document(answers.audit("running"), 202))
    api.on("GET", ONE, *states)


def audited(sco: Sco, api: FakeApi, *findings: dict[str, object], status: str = "findings") -> Ran:
    auditing(api, document(answers.audit(status, *findings)))
    return sco("audit")


def test_a_clean_audit_ends_with_0(sco: Sco, api: FakeApi, passing_time: FakeClock) -> None:
    auditing(api, RUNNING, RUNNING, document(answers.audit()))
    ran = sco("audit")
    assert ran.code == 0
    assert ran.err.splitlines() == ["  0:00  audit 7b0e8a34-0000-4000-8000-000000000003 is running"]
    assert passing_time.slept == [1.0, 1.0]
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines == [
        "audit of everything: clean",
        "report 7b0e8a34-0000-4000-8000-000000000003",
        "ended 2026-11-29 14:00:20Z",
        "regions eu-north, eu-west",
        "looked at 21 servers, 22 slots, 1 workload",
        "of others not counted, not judged",
        "in flight 1 server, 0 workloads, not judged",
        "gaps 2 in the last 30 days",
    ]
    (asked,) = api.asked("POST", AUDITS)
    assert asked.document == {}
    assert asked.headers["idempotency-key"]


def test_findings_end_with_1_and_say_what_to_do_once_per_kind(sco: Sco, api: FakeApi) -> None:
    ran = audited(sco, api, LOST, GONE, TAGS)
    assert ran.code == 1
    assert (
        ran.out.splitlines()[-8:]
        == [
            "",
            "lost: 2 findings",
            "What to do about lost.",
            "  slot b-1-001 is active, its server s-1 does not exist",
            "  slot b-1-002 is active, its server s-1 does not exist",
            "",
            "wrong tags: 1 finding",
            "What to do about wrong_tags.",
            "  server s-7 lacks the tags sco:managed",
        ][1:]
    )
    assert "error: 3 findings" in ran.err
    assert "docs/runbooks/audit-findings.md" in ran.err


def test_a_long_report_says_how_much_is_left_out(sco: Sco, api: FakeApi) -> None:
    long = answers.audit("findings", LOST, findingsTotal=1234, findingsByKind={"lost": 1234})
    auditing(api, document(long))
    ran = sco("audit")
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "  and 1,233 more"
    assert "error: 1,234 findings" in ran.err


@pytest.mark.parametrize("findings", [(), (LOST,)])
def test_a_failed_audit_ends_with_7_whatever_it_found(
    sco: Sco, api: FakeApi, findings: tuple[dict[str, object], ...]
) -> None:
    auditing(api, document(answers.audit("failed", *findings, failures=FAILED)))
    ran = sco("audit")
    assert ran.code == 7
    assert "error: not everything could be looked at (eu-west: HTTP 503)" in ran.err
    assert ("1 finding in what was seen" in ran.err) is bool(findings)
    assert "eu-west failed" in ran.out


def test_notes_are_told_and_change_nothing(sco: Sco, api: FakeApi) -> None:
    auditing(api, document(answers.audit(notes=["k8s-eu-north in eu-north is read-only"])))
    ran = sco("audit")
    assert ran.code == 0
    assert "k8s-eu-north in eu-north is read-only" in ran.out


@pytest.mark.parametrize("options", [("--json",), ("-o", "json")])
def test_the_document_is_printed_as_it_came(sco: Sco, api: FakeApi, options: tuple[str, ...]) -> None:
    told = answers.audit("findings", LOST)
    auditing(api, document(told))
    ran = sco("audit", *options)
    assert (ran.code, json.loads(ran.out)) == (1, told)


def test_one_partition_is_audited(sco: Sco, api: FakeApi) -> None:
    auditing(api, document(answers.audit(partitionId="k8s-eu-north")))
    ran = sco("audit", "--partition", "k8s-eu-north")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "audit of k8s-eu-north: clean")
    assert api.asked("POST", AUDITS)[0].document == {"partitionId": "k8s-eu-north"}


def test_an_unknown_partition_is_wrong_usage_and_no_finding(sco: Sco, api: FakeApi) -> None:
    api.on("POST", AUDITS, problem(422, "no partition 'moon': there are k8s-eu-north"))
    ran = sco("audit", "--partition", "moon")
    assert ran.code == 2
    assert "no partition 'moon': there are k8s-eu-north" in ran.err
    assert sco("audit", "--partition", "Moon Base").code == 2
    assert len(api.asked("POST", AUDITS)) == 1


def test_without_temporal_there_is_no_usable_answer(sco: Sco, api: FakeApi) -> None:
    api.on("POST", AUDITS, problem(503, "Temporal cannot be reached, so no audit was started"))
    ran = sco("audit")
    assert ran.code == 3
    assert "no audit was started" in ran.err


def test_waiting_ends_and_says_where_the_report_will_be(sco: Sco, api: FakeApi) -> None:
    auditing(api, RUNNING)
    ran = sco("audit", "--timeout", "5")
    assert ran.code == 4
    assert "is running after 5 seconds" in ran.err
    assert f"{api.url}/ui/audits/7b0e8a34-0000-4000-8000-000000000003" in ran.err


def test_a_server_that_is_away_for_a_moment_is_asked_again(sco: Sco, api: FakeApi) -> None:
    lost = problem(503, "the database cannot be reached")
    auditing(api, RUNNING, lost, lost, document(answers.audit()))
    assert sco("audit").code == 0
    auditing(api, RUNNING, lost)
    assert sco("audit").code == 3


def test_an_answer_without_status_is_not_understood(sco: Sco, api: FakeApi) -> None:
    auditing(api, document({"auditId": "7"}))
    assert sco("audit").code == 3


def test_on_a_terminal_a_clock_runs(api: FakeApi) -> None:
    auditing(api, RUNNING, document(answers.audit()))
    seen = on_a_terminal(api, "audit")
    assert "audit 7b0e8a34-0000-4000-8000-000000000003 is running" in seen
    assert "0:00:0" in seen
    assert "audit of everything: clean" in seen
