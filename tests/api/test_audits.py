"""Audits over REST and on screens: started once, listed newest first, told in full."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from api.paging import listing_key, page_token
from api.web.forms import ROWS
from domain.audit import MAX_FINDINGS, AuditCounts, AuditReport, Finding, FindingKind, failed, merged
from store import audits
from tests.api.door import Door, problem
from tests.api.html_reader import read
from tests.estates import PARTITION, TENANT

AUDITS = "/factory/audits"
KEY = {"Idempotency-Key": "k-1"}
HOSTILE = "<script>alert(1)</script>"
LOST = Finding(
    kind=FindingKind.LOST,
    subject="b-1-001",
    problem="slot b-1-001 is active, its server s-1 does not exist",
    what_to_do="Look whether reconcile runs.",
    region="eu-north",
    workload_id="orders-daily",
    pool_id="eu-north-h1-gp-m",
    server_ids=("s-1",),
)
STRANGER = LOST.model_copy(
    update={"kind": FindingKind.STRANGER, "subject": "s-9", "workload_id": HOSTILE, "problem": HOSTILE}
)
REPORT = AuditReport(
    regions=("eu-north",),
    counts=AuditCounts(servers=21, slots=22, workloads=1, foreign=None, servers_in_flight=1, gaps=2),
    findings=(LOST, STRANGER),
    findings_by_kind={FindingKind.LOST: 1, FindingKind.STRANGER: 1},
    notes=("k8s-eu-north in eu-north: nobody looked for a while",),
)


async def start(door: Door, body: Any = None, **options: Any) -> dict[str, Any]:
    answer = await door.post(AUDITS, body, **options)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def ended(door: Door, report: AuditReport, **body: Any) -> str:
    audit_id = str((await start(door, body or None))["auditId"])
    door.estate.clock.move(60)
    async with door.estate.engine.begin() as connection:
        await audits.end_audit(connection, TENANT, UUID(audit_id), report, door.estate.clock())
    return audit_id


async def test_an_audit_is_started_and_can_be_read(door: Door) -> None:
    await door.open_estate()
    answer = await door.post(AUDITS)
    told = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{AUDITS}/{told['auditId']}"
    assert (told["status"], told["finishedAt"], told["partitionId"]) == ("running", None, None)
    assert told["workflowId"] == f"audit/{told['auditId']}"
    assert told["temporalUrl"].endswith(f"audit%2F{told['auditId']}")
    assert door.starter.audits == [(TENANT, UUID(told["auditId"]), None, PARTITION)]
    assert (await door.get(answer.headers["location"])).json() == told | {"findings": []}


async def test_one_partition_can_be_audited(door: Door) -> None:
    await door.open_estate()
    told = await start(door, {"partitionId": PARTITION})
    assert told["partitionId"] == PARTITION
    assert door.starter.audits[0][2:] == (PARTITION, PARTITION)


async def test_everything_is_audited_by_a_worker_that_was_seen_to_work(door: Door) -> None:
    """The partition that was ranked last; the other one may have no worker."""
    await door.open_estate()
    await door.put("/partitions/a-new-one", {"region": "eu-north", "scheduler": "slurm"})
    await start(door)
    assert door.starter.audits[0][3] == PARTITION


async def test_a_repeated_request_starts_one_audit(door: Door) -> None:
    await door.open_estate()
    first, again = [await door.post(AUDITS, {}, headers=KEY) for _ in range(2)]
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert len(door.starter.audits) == 1
    problem(await door.post(AUDITS, {"partitionId": PARTITION}, headers=KEY), 422, "idempotency_key_reused")


async def test_without_temporal_nothing_is_started_and_the_request_may_be_repeated(door: Door) -> None:
    await door.open_estate()
    door.starter.down = True
    told = problem(await door.post(AUDITS, {}, headers=KEY), 503, "not_ready")
    assert told["detail"] == "Temporal cannot be reached, so no audit was started"
    assert await door.estate.value("SELECT count(*) FROM audits") == 0
    door.starter.down = False
    assert (await door.post(AUDITS, {}, headers=KEY)).status_code == 202


async def test_an_unknown_partition_is_refused_with_those_there_are(door: Door) -> None:
    await door.open_estate()
    told = problem(await door.post(AUDITS, {"partitionId": "moon"}), 422, "unknown_partition")
    assert told["detail"] == f"no partition 'moon': there are {PARTITION}"
    assert door.starter.audits == []


async def test_before_there_is_a_partition_nothing_can_be_audited(door: Door) -> None:
    problem(await door.post(AUDITS), 422, "unknown_partition")


@pytest.mark.parametrize("body", [{"partition": PARTITION}, {"partitionId": "Moon Base"}, [PARTITION]])
async def test_another_body_is_refused(door: Door, body: Any) -> None:
    problem(await door.post(AUDITS, body), 422, "invalid_request")


async def test_a_report_is_told_in_full(door: Door) -> None:
    await door.open_estate()
    audit_id = await ended(door, REPORT)
    told = (await door.get(f"{AUDITS}/{audit_id}")).json()
    assert (told["status"], told["findingsTotal"]) == ("findings", 2)
    assert told["findingsByKind"] == {"lost": 1, "stranger": 1}
    assert told["findings"][0] == {
        "kind": "lost",
        "subject": "b-1-001",
        "problem": LOST.problem,
        "whatToDo": LOST.what_to_do,
        "region": "eu-north",
        "workloadId": "orders-daily",
        "poolId": "eu-north-h1-gp-m",
        "serverIds": ["s-1"],
    }
    assert told["counts"] == {
        "servers": 21,
        "slots": 22,
        "workloads": 1,
        "foreign": None,
        "serversInFlight": 1,
        "workloadsInFlight": 0,
        "gaps": 2,
    }
    assert told["notes"] == list(REPORT.notes)
    assert told["finishedAt"] > told["startedAt"]


async def test_a_failed_audit_says_what_was_not_seen(door: Door) -> None:
    await door.open_estate()
    audit_id = await ended(door, merged([REPORT, failed("eu-west", "HTTP 503")]))
    told = (await door.get(f"{AUDITS}/{audit_id}")).json()
    assert (told["status"], told["findingsTotal"]) == ("failed", 2)
    assert told["failures"] == [{"region": "eu-west", "reason": "HTTP 503"}]


async def test_an_unknown_audit_is_told_where_they_are_listed(door: Door) -> None:
    told = problem(await door.get(f"{AUDITS}/{uuid4()}"), 404, "unknown_audit")
    assert told["whatToDo"] == "List audits with GET /factory/audits."
    problem(await door.get(f"{AUDITS}/7"), 422, "invalid_request")


async def test_audits_are_listed_newest_first_a_page_at_a_time(door: Door) -> None:
    await door.open_estate()
    ids = []
    for _ in range(5):
        ids.append((await start(door))["auditId"])
        door.estate.clock.move(1)
    seen: list[str] = []
    query: dict[str, Any] = {"pageSize": 2}
    while True:
        page = (await door.get(AUDITS, **query)).json()
        seen += [one["auditId"] for one in page["items"]]
        assert all("findings" not in one for one in page["items"])
        if page["nextPageToken"] is None:
            break
        query["pageToken"] = page["nextPageToken"]
    assert seen == ids[::-1]


@pytest.mark.parametrize("after", ["nothing", "2030-01-01 x", "9999-99-99T00:00:00+00:00 x"])
async def test_a_page_token_that_is_not_ours_is_refused(door: Door, after: str) -> None:
    token = page_token(listing_key("audits"), after)
    problem(await door.get(AUDITS, pageToken=token), 422, "bad_page_token")


async def test_the_screen_lists_audits(door: Door) -> None:
    await door.open_estate()
    assert "sco audit" in (await door.get("/ui/audits")).text
    audit_id = await ended(door, REPORT)
    door.estate.clock.move(timedelta(hours=2).total_seconds())
    text = (await door.get("/ui/audits")).text
    links = [one.attributes.get("href") for one in read(text).all("a")]
    assert f"/ui/audits/{audit_id}" in links
    assert "everything" in text
    assert "2 h ago" in text
    assert "/ui/audits" in links


async def test_the_screen_of_a_report_says_what_to_do_and_is_safe(door: Door) -> None:
    await door.open_estate()
    audit_id = await ended(door, merged([REPORT, failed("eu-west", HOSTILE)]))
    answer = await door.get(f"/ui/audits/{audit_id}")
    assert answer.status_code == 200
    page = read(answer.text)
    assert page.all("script") == []
    for text in (
        LOST.problem,
        LOST.what_to_do,
        "Not seen: eu-west",
        "nobody looked for a while",
        "not counted",
    ):
        assert text in answer.text
    links = {one.attributes.get("href") for one in page.all("a")}
    assert {"/ui/workloads/orders-daily", "/ui/pools/eu-north-h1-gp-m", "/ui/audits"} <= links
    assert not any(HOSTILE in (link or "") for link in links)
    assert len(page.all("h1")) == 1


async def test_a_long_report_has_pages_and_says_how_much_is_missing(door: Door) -> None:
    await door.open_estate()
    many = tuple(LOST.model_copy(update={"subject": f"b-1-{number:04d}"}) for number in range(MAX_FINDINGS))
    report = REPORT.model_copy(update={"findings": many, "findings_by_kind": {FindingKind.LOST: 1_234}})
    audit_id = await ended(door, report)
    first = (await door.get(f"/ui/audits/{audit_id}")).text
    last = (await door.get(f"/ui/audits/{audit_id}", page=MAX_FINDINGS // ROWS)).text
    assert "b-1-0000" in first
    assert "b-1-0999" not in first
    assert "b-1-0999" in last
    assert "The first 1000 of 1234 findings were kept." in first


async def test_a_clean_and_a_running_audit_have_screens_too(door: Door) -> None:
    await door.open_estate()
    clean = await ended(door, AuditReport(regions=("eu-north",)))
    assert "Nothing is wrong." in (await door.get(f"/ui/audits/{clean}")).text
    running = (await start(door))["auditId"]
    text = (await door.get(f"/ui/audits/{running}")).text
    assert "reload this page" in text
    assert "Nothing is wrong." not in text
    missing = await door.get(f"/ui/audits/{uuid4()}")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
