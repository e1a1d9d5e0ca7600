"""Servers on the simulated cloud: created, found, adopted, deleted; and what each failure means."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from starlette.datastructures import QueryParams
from starlette.responses import PlainTextResponse

from activities.openstack.compute import MAX_TAGS
from activities.ports import ProviderErrorKind
from domain.acquisition import ServerStatus
from domain.tags import MANAGED_TAG, workload_tag
from domain.user_data import MAX_ENCODED_BYTES
from lab.cloud.errors import CloudError
from lab.cloud.faults import FaultKind, FaultRule
from lab.cloud.server import CloudHandle
from lab.cloud.web.list_query import ListQuery, read_list_query
from lab.cloud.web.server_view import ServerView
from lab.cloud.web.servers import ServersApi
from tests.activities.openstack.hands import FLAVOR, HALL, POOL, REGION, Hands, caught, seen_by, spec

CREATE = {"method": "POST", "path": "/servers$"}


def test_a_batch_is_created_in_one_call_and_bound_by_its_metadata(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.create_batch(spec("b-1", metadata={"sco_generation": "4"}), 5)
    hands.compute.create_batch(spec("b-2"), 2)
    posts = cloud.admin.requests()["regions"][REGION]["by_method"]["POST"]
    assert posts == 2
    listed = hands.compute.list_workload(REGION, "render")
    assert [server.batch_key for server in listed].count("b-1") == 5
    assert [server.batch_key for server in listed].count("b-2") == 2
    first = next(server for server in listed if server.batch_key == "b-1")
    assert (first.pool_id, first.workload_id, first.status) == (POOL, "render", ServerStatus.BUILDING)
    assert first.metadata["sco_generation"] == "4"
    assert {server.name for server in listed if server.batch_key == "b-2"} == {
        "sco-render-g1-1",
        "sco-render-g1-2",
    }
    assert first.created_at.tzinfo is not None
    cloud.admin.advance(60)
    assert {server.status for server in hands.compute.list_workload(REGION, "render")} == {
        ServerStatus.ACTIVE
    }


def test_the_cloud_holds_what_the_spec_says(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.create_batch(spec(user_data="#cloud-config\n{}\n", tags=("sco:partition=k8s",)), 2)
    [first, second] = cloud.admin.servers(region=REGION)
    assert {first["name"], second["name"]} == {"sco-render-g1-1", "sco-render-g1-2"}
    assert base64.b64decode(first["user_data"]) == b"#cloud-config\n{}\n"
    assert first["pinned_zone"] == HALL
    assert first["networked"] is False
    assert set(first["tags"]) == {MANAGED_TAG, "sco:workload=render", "sco:partition=k8s"}
    assert first["group"] == POOL
    assert cloud.admin.capacity(REGION)[POOL]["used"] == 2


def test_lists_show_one_workload_or_all_of_ours_and_nothing_of_others(
    cloud: CloudHandle, hands: Hands
) -> None:
    hands.compute.create_batch(spec("b-1", "render"), 2)
    hands.compute.create_batch(spec("b-2", "render-preview"), 3)
    cloud.admin.load(REGION, 4, tags=("someone-else",))
    assert len(hands.compute.list_workload(REGION, "render")) == 2
    assert len(hands.compute.list_managed(REGION)) == 5
    assert hands.compute.list_workload(REGION, "unknown") == []
    assert hands.compute.list_managed("eu-west") == []


def test_a_workload_with_a_long_name_is_found_again(hands: Hands) -> None:
    long, other = "w" * 63, "w" * 62 + "x"
    hands.compute.create_batch(spec("b-1", long), 2)
    hands.compute.create_batch(spec("b-2", other), 1)
    assert {server.workload_id for server in hands.compute.list_workload(REGION, long)} == {long}


@pytest.mark.parametrize("kind", [FaultKind.ERROR_AFTER, FaultKind.ERROR_BEFORE])
def test_a_503_leaves_a_create_in_doubt_and_the_list_tells(
    cloud: CloudHandle, hands: Hands, kind: FaultKind
) -> None:
    cloud.admin.add_fault(FaultRule(kind=kind, **CREATE))
    error = caught(hands.compute.create_batch, spec("b-late"), 3)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, True)
    assert "b-late" in str(error)
    assert "req-" in str(error)
    adopted = [one for one in hands.compute.list_workload(REGION, "render") if one.batch_key == "b-late"]
    assert len(adopted) == (3 if kind is FaultKind.ERROR_AFTER else 0)


def test_silence_after_a_create_leaves_it_in_doubt_and_the_servers_are_found(cloud: CloudHandle) -> None:
    hands = Hands(cloud, read_timeout_seconds=0.5)
    hands.compute.list_managed(REGION)
    cloud.admin.add_fault(FaultRule(kind=FaultKind.TIMEOUT_AFTER, **CREATE))
    error = caught(hands.compute.create_batch, spec(), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, True)
    assert "timed out" in str(error)
    assert len(hands.compute.list_managed(REGION)) == 2
    hands.connections.close()


def test_a_login_that_fails_on_the_way_to_a_create_is_not_in_doubt(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.list_managed(REGION)
    hands.catalog.catalog(REGION)
    cloud.admin.expire_tokens()
    cloud.admin.add_fault(FaultRule(kind=FaultKind.ERROR_BEFORE, path="/auth/tokens$"))
    error = caught(hands.compute.create_batch, spec(), 2)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)
    assert cloud.admin.servers(region=REGION) == []


def test_quota_is_said_as_quota_and_nothing_is_created(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.set_quota(REGION, instances=4)
    error = caught(hands.compute.create_batch, spec(), 5)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.QUOTA, False)
    assert "Quota exceeded for instances" in str(error)
    assert cloud.admin.servers(region=REGION) == []
    hands.compute.create_batch(spec(), 4)


def test_an_unknown_hall_is_a_bad_request(hands: Hands) -> None:
    error = caught(hands.compute.create_batch, spec(hall="eu-north-h9"), 1)
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.BAD_REQUEST, False)
    assert "availability zone is not available" in str(error)


def test_an_unknown_flavor_is_a_bad_request_that_names_it(cloud: CloudHandle, hands: Hands) -> None:
    error = caught(hands.compute.create_batch, spec(flavor="gp.huge"), 1)
    assert error.kind is ProviderErrorKind.BAD_REQUEST
    assert "gp.huge" in str(error)
    assert "POST" not in cloud.admin.requests()["regions"][REGION]["by_method"]


def test_no_valid_host_shows_as_error_with_its_fault(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.set_capacity(POOL, 3)
    hands.compute.create_batch(spec(), 4)
    cloud.admin.advance(60)
    listed = hands.compute.list_workload(REGION, "render")
    assert [server.status for server in listed] == [ServerStatus.ERROR] * 4
    assert all("No valid host was found" in str(server.fault) for server in listed)


def test_429_says_when_to_come_back_and_is_not_repeated(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.list_managed(REGION)
    cloud.admin.clear_requests()
    cloud.admin.add_fault(FaultRule(kind=FaultKind.RATE_LIMITED, retry_after_seconds=7, path="/servers"))
    error = caught(hands.compute.list_managed, REGION)
    assert (error.kind, error.retry_after_seconds) == (ProviderErrorKind.THROTTLED, 7.0)
    assert seen_by(cloud) == {REGION: 1}


def test_a_failed_page_fails_the_whole_list(cloud: CloudHandle, hands: Hands) -> None:
    cloud.admin.load(REGION, 2_500, tags=(MANAGED_TAG,))
    cloud.admin.add_fault(FaultRule(kind=FaultKind.LIST_PAGE_ERROR, after=1))
    error = caught(hands.compute.list_managed, REGION)
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert error.in_doubt is False
    listed = hands.compute.list_managed(REGION)
    assert len({server.server_id for server in listed}) == 2_500


def test_a_filter_that_is_ignored_is_noticed(
    cloud: CloudHandle, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands.compute.create_batch(spec(), 1)
    cloud.admin.load(REGION, 1, tags=("someone-else",))

    def without_tags(params: QueryParams, *rest: Any) -> Any:
        return read_list_query(
            QueryParams([pair for pair in params.multi_items() if pair[0] != "tags"]), *rest
        )

    monkeypatch.setattr("lab.cloud.web.servers.read_list_query", without_tags)
    for act, args in ((hands.compute.list_managed, (REGION,)), (hands.compute.list_workload, (REGION, "x"))):
        error = caught(act, *args)
        assert error.kind is ProviderErrorKind.UNKNOWN
        assert "ignored the filter" in str(error)


def test_a_cell_that_is_down_fails_the_list(
    cloud: CloudHandle, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands.compute.create_batch(spec(), 1)
    partial = {"id": "0f2c", "status": "UNKNOWN", "tenant_id": "p", "created": "2026-01-01T00:00:00Z"}
    monkeypatch.setattr(ServerView, "detail", lambda *_: orjson.dumps(partial))
    error = caught(hands.compute.list_managed, REGION)
    assert error.kind is ProviderErrorKind.UNAVAILABLE
    assert "cell of 0f2c is down" in str(error)


def test_a_list_that_changed_between_its_pages_is_asked_for_again(
    cloud: CloudHandle, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova forgets a server that was deleted before it had a host, and refuses it as a marker."""
    cloud.admin.load(REGION, 1_001, tags=(MANAGED_TAG,))

    def gone(api: ServersApi, asked: ListQuery) -> None:
        if asked.marker is not None:
            raise CloudError(400, f"marker [{asked.marker}] not found")

    monkeypatch.setattr(ServersApi, "_marker", gone)
    for act, args in (
        (hands.compute.list_managed, (REGION,)),
        (hands.compute.deleted_since, (REGION, datetime(2026, 1, 1, tzinfo=UTC))),
    ):
        error = caught(act, *args)
        assert error.kind is ProviderErrorKind.UNAVAILABLE
        assert "which is gone: list again" in str(error)


def test_a_deleted_server_in_a_list_is_left_out_even_without_its_tags(
    cloud: CloudHandle, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova lists a server for a moment after it deleted it."""
    hands.compute.create_batch(spec(), 1)
    monkeypatch.setattr(ServerView, "detail", lambda *_: b'{"id": "0f2c", "status": "DELETED", "tags": []}')
    assert hands.compute.list_managed(REGION) == []
    assert hands.compute.deleted_since(REGION, datetime(2026, 1, 1, tzinfo=UTC)) == {"0f2c"}
    monkeypatch.setattr(ServerView, "show", lambda *_: b'{"id": "0f2c", "status": "DELETED", "tags": []}')
    [server] = cloud.admin.servers(region=REGION)
    assert hands.compute.find(REGION, server["id"]) is None


def test_a_404_that_is_not_novas_proves_nothing(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that has lost its way answers 404 for every server."""
    lost = PlainTextResponse("404 page not found", 404)
    monkeypatch.setattr("lab.cloud.web.servers.nova_error", lambda _: lost)
    for act in (hands.compute.find, hands.compute.delete):
        assert caught(act, REGION, "0f2c").kind is ProviderErrorKind.NOT_FOUND


def test_an_answer_of_another_shape_is_an_error_not_a_list(
    cloud: CloudHandle, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands.compute.create_batch(spec(), 1)
    monkeypatch.setattr(ServerView, "detail", lambda *_: b'{"id": "0f2c"}')
    assert caught(hands.compute.list_managed, REGION).kind is ProviderErrorKind.UNKNOWN


def test_a_stopped_server_runs_no_work(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.create_batch(spec(), 1)
    cloud.admin.advance(60)
    [server] = hands.compute.list_managed(REGION)
    connection = cloud.connect(REGION)
    connection.compute.stop_server(server.server_id)
    [stopped] = hands.compute.list_managed(REGION)
    assert stopped.status is ServerStatus.ERROR
    assert "SHUTOFF" in str(stopped.fault)
    connection.close()


def test_deletes_may_be_repeated(cloud: CloudHandle, hands: Hands) -> None:
    hands.compute.create_batch(spec(), 2)
    cloud.admin.advance(60)
    first, second = hands.compute.list_managed(REGION)
    for _ in range(2):
        hands.compute.delete(REGION, first.server_id)
    by_id = {server.server_id: server.status for server in hands.compute.list_managed(REGION)}
    assert by_id == {
        first.server_id: ServerStatus.DELETING,
        second.server_id: ServerStatus.ACTIVE,
    }
    cloud.admin.advance(60)
    assert [server.server_id for server in hands.compute.list_managed(REGION)] == [second.server_id]
    hands.compute.delete(REGION, first.server_id)
    hands.compute.delete(REGION, "00000000-0000-4000-8000-000000000000")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"metadata": {"sco_batch": "another"}}, "sco_batch=b-1"),
        ({"metadata": {"sco_workload": ""}}, "sco_workload="),
        ({"metadata": {"sco_workload": "another"}}, workload_tag("another")),
        ({"tags": ("x" * 61,)}, "1 to 60 characters"),
        ({"tags": ("a/b",)}, "without '/' and ','"),
        ({"tags": tuple(f"t{number}" for number in range(MAX_TAGS))}, f"at most {MAX_TAGS}"),
        ({"metadata": {"note": "x" * 256}}, "1 to 255 characters"),
        ({"user_data": "x" * MAX_ENCODED_BYTES}, "as base64, the limit is 65535"),
    ],
)
def test_what_could_not_be_found_again_is_never_sent(
    cloud: CloudHandle, hands: Hands, changes: dict[str, Any], problem: str
) -> None:
    error = caught(hands.compute.create_batch, spec(**changes), 1)
    assert error.kind is ProviderErrorKind.BAD_REQUEST
    assert problem in str(error)
    assert seen_by(cloud) == {}


def test_a_flavor_without_an_image_for_its_architecture_is_refused(cloud: CloudHandle, hands: Hands) -> None:
    one_arch = Hands(cloud, images={"x86_64": "6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11"})
    error = caught(one_arch.compute.create_batch, spec(flavor="ga.m.reclaimable"), 1)
    assert error.kind is ProviderErrorKind.BAD_REQUEST
    assert "no image is configured for arm64" in str(error)
    one_arch.compute.create_batch(spec(flavor=FLAVOR), 1)
    one_arch.connections.close()
