"""What faults of the wire do to a request, as a client meets it and as it really was."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
import pytest

from lab.cloud.server import CloudHandle
from lab.cloud.wire import Act, ArmedFault, WireFault, WireKind, act_of
from tests.lab.cloud_support import BUILT, LATEST, REGION, create, manual_cloud

PATIENCE_SECONDS = 10.0
BROKEN = (WireKind.DROPPED_BEFORE, WireKind.DROPPED_AFTER, WireKind.DROPPED_MID_BODY)


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    """A cloud with three running servers."""
    with manual_cloud() as handle:
        for name in ("one", "two", "three"):
            create(handle.connect(), name=name, tags=["team:data"])
        handle.admin.advance(BUILT)
        yield handle


def arm(cloud: CloudHandle, act: Act, kind: WireKind, **options: object) -> ArmedFault:
    fault = WireFault.model_validate({"act": act, "kind": kind, **options})
    return cloud.call(lambda _: cloud.wire.plan.arm(fault))


def ask(cloud: CloudHandle, method: str, path: str, *, timeout: float = 5.0) -> httpx2.Response:
    token = str(cloud.connect().auth_token)
    headers = {"X-Auth-Token": token, "X-OpenStack-Nova-API-Version": LATEST}
    url = f"{cloud.base_url}/{REGION}/compute/v2.1{path}"
    return httpx2.request(method, url, headers=headers, timeout=timeout)


def listed(cloud: CloudHandle, query: str = "") -> list[str]:
    return [one["name"] for one in ask(cloud, "GET", f"/servers/detail{query}").json()["servers"]]


def alive(cloud: CloudHandle) -> set[str]:
    return {one["id"] for one in cloud.admin.servers() if one["status"] != "DELETED"}


@pytest.mark.parametrize(
    ("method", "path", "query", "act"),
    [
        ("POST", "/eu-north/compute/v2.1/servers", "", Act.CREATE),
        ("GET", "/eu-north/compute/v2.1/servers/detail", "tags=a", Act.LIST),
        ("GET", "/eu-north/compute/v2.1/servers/detail", "changes-since=b", Act.DELETED_SINCE),
        ("GET", "/eu-north/compute/v2.1/servers/0a0b0c0d-0000-4000-8000-000000000000", "", Act.FIND),
        ("DELETE", "/eu-north/compute/v2.1/servers/0a0b0c0d-0000-4000-8000-000000000000", "", Act.DELETE),
        ("PUT", "/eu-north/compute/v2.1/servers/0a0b0c0d-0000-4000-8000-000000000000/tags", "", Act.TAG),
        ("POST", "/identity/v3/auth/tokens", "", Act.TOKEN),
        ("GET", "/eu-north/compute/v2.1/flavors/detail", "", None),
    ],
)
def test_requests_are_told_apart(method: str, path: str, query: str, act: Act | None) -> None:
    assert act_of(method, path, query) is act


def test_a_fault_comes_true_as_often_as_it_says_and_then_all_is_well(cloud: CloudHandle) -> None:
    armed = arm(cloud, Act.LIST, WireKind.ERROR_BEFORE, times=2, after=1, status=502)
    codes = [ask(cloud, "GET", "/servers/detail").status_code for _ in range(4)]
    assert (codes, armed.fired) == ([200, 502, 502, 200], 2)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_connection_breaks(cloud: CloudHandle, kind: WireKind) -> None:
    arm(cloud, Act.FIND, kind)
    server_id = sorted(alive(cloud))[0]
    with pytest.raises(httpx2.TransportError):
        ask(cloud, "GET", f"/servers/{server_id}")
    assert ask(cloud, "GET", f"/servers/{server_id}").status_code == 200


@pytest.mark.parametrize(("kind", "left"), [(WireKind.SILENT_BEFORE, 3), (WireKind.SILENT_AFTER, 2)])
def test_silence_hides_whether_the_work_was_done(cloud: CloudHandle, kind: WireKind, left: int) -> None:
    arm(cloud, Act.DELETE, kind)
    with pytest.raises(httpx2.TimeoutException):
        ask(cloud, "DELETE", f"/servers/{sorted(alive(cloud))[0]}", timeout=0.3)
    cloud.admin.advance(BUILT)
    assert len(alive(cloud)) == left


@pytest.mark.parametrize(("kind", "status"), [(WireKind.ERROR_BEFORE, 404), (WireKind.ERROR_AFTER, 404)])
def test_a_gateway_says_404_in_other_words_than_nova(cloud: CloudHandle, kind: WireKind, status: int) -> None:
    arm(cloud, Act.DELETE, kind, status=status)
    answer = ask(cloud, "DELETE", f"/servers/{sorted(alive(cloud))[0]}")
    assert answer.status_code == status
    assert ("itemNotFound" in answer.text) == (kind is WireKind.ERROR_AFTER)


@pytest.mark.parametrize("kind", [WireKind.MALFORMED, WireKind.TRUNCATED])
def test_a_200_is_no_json(cloud: CloudHandle, kind: WireKind) -> None:
    arm(cloud, Act.LIST, kind)
    answer = ask(cloud, "GET", "/servers/detail")
    assert answer.status_code == 200
    with pytest.raises(ValueError, match=r"\S"):
        answer.json()


def test_lists_lie(cloud: CloudHandle) -> None:
    assert len(listed(cloud, "?tags=team:data")) == 3
    arm(cloud, Act.LIST, WireKind.EMPTY_LIST)
    assert listed(cloud, "?tags=team:data") == []
    arm(cloud, Act.LIST, WireKind.PARTIAL_LIST, page=2)
    answer = ask(cloud, "GET", "/servers/detail").json()
    assert (len(answer["servers"]), "servers_links" in answer) == (2, False)
    assert listed(cloud, "?tags=another") == []
    arm(cloud, Act.LIST, WireKind.UNFILTERED)
    assert len(listed(cloud, "?tags=another")) == 3


def test_an_empty_list_is_a_lie_only_where_there_are_servers(cloud: CloudHandle) -> None:
    armed = arm(cloud, Act.LIST, WireKind.EMPTY_LIST)
    assert listed(cloud, "?tags=another") == []
    assert armed.fired == 0


def test_a_later_page_fails(cloud: CloudHandle) -> None:
    armed = arm(cloud, Act.LIST, WireKind.FAILED_PAGE, page=2)
    first = ask(cloud, "GET", "/servers/detail").json()
    assert len(first["servers"]) == 2
    marker = first["servers"][-1]["id"]
    assert ask(cloud, "GET", f"/servers/detail?marker={marker}").status_code == 503
    assert armed.fired == 1


def test_work_is_accepted_and_done_later(cloud: CloudHandle) -> None:
    arm(cloud, Act.DELETE, WireKind.CARRIED_OUT_LATE, delay_seconds=0.2)
    server_id = sorted(alive(cloud))[0]
    assert ask(cloud, "DELETE", f"/servers/{server_id}").status_code == 204
    deadline = time.monotonic() + PATIENCE_SECONDS
    assert cloud.wire.late == 1
    while cloud.wire.late and time.monotonic() < deadline:
        time.sleep(0.02)
    cloud.admin.advance(BUILT)
    assert server_id not in alive(cloud)


def test_servers_change_while_a_list_is_on_its_way(cloud: CloudHandle) -> None:
    spared = sorted(alive(cloud))[:1]
    armed = arm(cloud, Act.LIST, WireKind.TAKEN_AWAY, times=None, spared=spared)
    assert len(listed(cloud)) == 3, "it shows what was there when it was asked"
    listed(cloud)
    assert len(listed(cloud)) == 1
    assert alive(cloud) == set(spared)
    assert len(armed.struck) == armed.fired == 2


def test_what_never_reached_the_services_counts_against_the_budget_all_the_same(cloud: CloudHandle) -> None:
    listed(cloud)
    cloud.admin.clear_requests()
    arm(cloud, Act.LIST, WireKind.THROTTLED, retry_after_seconds=7)
    answer = ask(cloud, "GET", "/servers/detail")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert cloud.admin.requests()["regions"][REGION]["by_method"]["GET"] >= 1
