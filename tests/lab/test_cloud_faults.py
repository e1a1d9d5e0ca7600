"""Every way the cloud can misbehave, as the SDK meets it and as it really was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from keystoneauth1.exceptions import ConnectTimeout
from openstack import exceptions

from lab.cloud.faults import FaultKind, FaultPlan, FaultRule, RequestFacts
from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import BUILT, FLAVOR, HALL, LATEST, create, manual_cloud, names, post_server

SILENT_SECONDS = 30.0
PATIENCE_SECONDS = 0.3


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


def truth(cloud: CloudHandle) -> Counter[str]:
    """How many servers there really are, by status, whatever the client was told."""
    return Counter(server["status"] for server in cloud.admin.servers())


def fired(cloud: CloudHandle) -> int:
    return sum(armed.fired for armed in cloud.admin.faults())


def test_a_rate_limit_answers_429_with_its_wait_and_creates_nothing(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.add_fault(FaultRule(kind=FaultKind.RATE_LIMITED, method="POST", retry_after_seconds=7))
    with pytest.raises(exceptions.HttpException) as refused:
        create(connection)

    assert refused.value.status_code == 429
    assert refused.value.response is not None
    assert refused.value.response.headers["Retry-After"] == "7"
    assert refused.value.response.json()["overLimit"]["retryAfter"] == "7"
    assert truth(cloud) == {}
    create(connection)
    assert (truth(cloud), fired(cloud)) == ({"BUILD": 1}, 1)


@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize(
    ("kind", "really"), [(FaultKind.ERROR_BEFORE, {}), (FaultKind.ERROR_AFTER, {"BUILD": 1})]
)
def test_an_error_may_hide_a_server_that_was_created(
    cloud: CloudHandle, kind: FaultKind, really: dict[str, int], status: int
) -> None:
    connection = cloud.connect()
    cloud.admin.add_fault(FaultRule(kind=kind, path="/servers$", method="POST", status=status))
    with pytest.raises(exceptions.HttpException) as refused:
        create(connection, tags=["sco:managed"])

    assert refused.value.status_code == status
    assert truth(cloud) == really
    assert len(names(connection, tags="sco:managed")) == sum(really.values())


@pytest.mark.parametrize(
    ("kind", "really"), [(FaultKind.TIMEOUT_BEFORE, {}), (FaultKind.TIMEOUT_AFTER, {"BUILD": 1})]
)
def test_a_timeout_may_hide_a_server_that_was_created(
    cloud: CloudHandle, kind: FaultKind, really: dict[str, int]
) -> None:
    connection = cloud.connect(api_timeout=PATIENCE_SECONDS)
    rule = FaultRule(kind=kind, path="/servers$", method="POST", delay_seconds=SILENT_SECONDS)
    cloud.admin.add_fault(rule)
    with pytest.raises(ConnectTimeout):
        create(connection)

    assert truth(cloud) == really
    assert fired(cloud) == 1


def test_a_timeout_that_the_client_outwaits_ends_as_504(cloud: CloudHandle) -> None:
    cloud.admin.add_fault(FaultRule(kind=FaultKind.TIMEOUT_AFTER, method="POST", delay_seconds=0))

    assert post_server(cloud.connect()).status_code == 504
    assert truth(cloud) == {"BUILD": 1}


def test_a_lost_answer_to_a_delete_still_deletes(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = create(connection)
    cloud.admin.advance(BUILT)
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_AFTER, method="DELETE", status=504))
    with pytest.raises(exceptions.HttpException):
        connection.compute.delete_server(server)
    cloud.admin.advance(BUILT)

    assert truth(cloud) == {"DELETED": 1}


def test_a_refused_request_is_never_reported_as_a_lost_answer(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_AFTER, method="POST"))

    assert post_server(connection, availability_zone="nowhere").status_code == 400


def test_quota_exceeded_looks_like_the_real_one(cloud: CloudHandle) -> None:
    cloud.admin.add_fault(FaultRule(kind=FaultKind.QUOTA_EXCEEDED))
    with pytest.raises(exceptions.ForbiddenException, match="Quota exceeded for instances: Requested 1"):
        create(cloud.connect())

    assert truth(cloud) == {}


@pytest.mark.parametrize(
    ("kind", "count", "really", "message"),
    [
        (FaultKind.NO_VALID_HOST, None, {"ERROR": 4}, "No valid host was found."),
        (FaultKind.BUILD_ERROR, None, {"ERROR": 4}, "Exceeded maximum number of retries."),
        (FaultKind.BUILD_ERROR, 3, {"ACTIVE": 1, "ERROR": 3}, "Exceeded maximum number of retries."),
        (FaultKind.STUCK_BUILD, 1, {"ACTIVE": 3, "BUILD": 1}, None),
        (FaultKind.NOT_CREATED, 2, {"ACTIVE": 2}, None),
    ],
)
def test_some_of_a_multi_create_fail(
    cloud: CloudHandle, kind: FaultKind, count: int | None, really: dict[str, int], message: str | None
) -> None:
    connection = cloud.connect()
    cloud.admin.add_fault(FaultRule(kind=kind, count=count))
    answer = post_server(connection, min_count=4, max_count=4, return_reservation_id=True)
    cloud.admin.advance(10 * BUILT)
    listed = list(connection.compute.servers(reservation_id=answer.json()["reservation_id"]))

    assert answer.status_code == 202
    assert truth(cloud) == really
    assert Counter(server.status for server in listed) == really
    faults = [server.fault["message"] for server in listed if server.status == "ERROR"]
    assert all(text.startswith(str(message)) for text in faults)
    assert len(faults) == really.get("ERROR", 0)


def test_a_stuck_server_can_be_deleted_and_frees_its_place(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    cloud.admin.add_fault(FaultRule(kind=FaultKind.STUCK_BUILD))
    server = create(connection)
    cloud.admin.advance(10 * BUILT)
    connection.compute.delete_server(server)
    cloud.admin.advance(BUILT)

    assert truth(cloud) == {"DELETED": 1}
    assert sum(entry["used"] for entry in cloud.admin.capacity().values()) == 0


def test_a_later_page_of_a_list_fails_but_not_the_first(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    post_server(connection, name="n", min_count=5, max_count=5)
    cloud.admin.add_fault(FaultRule(kind=FaultKind.LIST_PAGE_ERROR, after=1))
    pages = connection.compute.servers(limit=2)
    seen = [next(pages).name for _ in range(4)]
    with pytest.raises(exceptions.HttpException) as broken:
        next(pages)

    assert broken.value.status_code == 503
    assert len(set(seen)) == 4
    assert len(names(connection, limit=2)) == 5


@pytest.mark.parametrize(
    ("matcher", "hit"),
    [
        ({"flavor": FLAVOR}, True),
        ({"flavor": "gp.s.reclaimable"}, False),
        ({"hall": HALL}, True),
        ({"hall": "eu-north-h2"}, False),
        ({"region": "eu-north"}, True),
        ({"region": "eu-west"}, False),
        ({"method": "GET"}, False),
        ({"path": "/servers$"}, True),
    ],
)
def test_a_rule_hits_what_it_matches(cloud: CloudHandle, matcher: dict[str, str], hit: bool) -> None:
    connection = cloud.connect()
    connection.compute.get("/servers", microversion=LATEST)
    body = {"availability_zone": HALL}
    cloud.admin.add_fault(FaultRule(kind=FaultKind.QUOTA_EXCEEDED, times=None, **matcher))

    assert (post_server(connection, **body).status_code == 403) == hit


def test_signing_in_fails_only_when_a_path_says_so(cloud: CloudHandle) -> None:
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, method="POST"))
    cloud.connect().authorize()
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path="/auth/tokens", times=None))

    with pytest.raises(exceptions.SDKException):
        cloud.connect().authorize()


def test_cleared_rules_hit_nothing(cloud: CloudHandle) -> None:
    cloud.admin.add_fault(FaultRule(kind=FaultKind.QUOTA_EXCEEDED, times=None))
    cloud.admin.clear_faults()

    assert post_server(cloud.connect()).status_code == 202
    assert cloud.admin.faults() == []


def test_a_rule_skips_then_fires_then_is_spent() -> None:
    plan = FaultPlan(random.Random(1))
    plan.add(FaultRule(kind=FaultKind.RATE_LIMITED, after=2, times=2))
    facts = RequestFacts("GET", "/eu-north/compute/v2.1/servers", "eu-north")

    assert [plan.fire(facts) is not None for _ in range(6)] == [False, False, True, True, False, False]


def test_a_probability_is_kept_and_repeats_with_its_seed() -> None:
    def run(seed: int) -> list[bool]:
        plan = FaultPlan(random.Random(seed))
        plan.add(FaultRule(kind=FaultKind.ERROR_BEFORE, times=None, probability=0.25))
        facts = RequestFacts("GET", "/", "eu-north")
        return [plan.fire(facts) is not None for _ in range(2_000)]

    assert run(7) == run(7)
    assert 400 < sum(run(7)) < 600


def test_a_rule_that_makes_no_sense_is_refused_with_the_reason(cloud: CloudHandle) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        FaultRule(kind=FaultKind.RATE_LIMITED, path="(")
    with pytest.raises(ValueError, match="does not exist"):
        cloud.admin.set_capacity("eu-moon-h1-gp-m", 3)
    with pytest.raises(ValueError, match="give lost or up"):
        cloud.admin.set_hall(HALL, "burning")
