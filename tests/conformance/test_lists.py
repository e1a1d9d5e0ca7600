"""Lists: complete or refused, by tag alone, and what one server says of itself."""

from __future__ import annotations

from activities.ports import ProviderErrorKind
from domain.acquisition import ServerStatus
from domain.tags import MANAGED_TAG, workload_tag
from tests.conformance.hands import Hands, caught, spec, until
from tests.conformance.provider import REGION, Provider

MANY = 1_050
LIST = r"/servers/detail$"


def test_lists_show_one_workload_or_all_of_ours(hands: Hands, workload: str) -> None:
    other = f"{workload}-preview"
    hands.compute.create_batch(spec(workload), 2)
    hands.compute.create_batch(spec(other), 1)
    assert len(hands.compute.list_workload(REGION, workload)) == 2
    assert {each.workload_id for each in hands.compute.list_workload(REGION, other)} == {other}
    ours = hands.compute.list_managed(REGION)
    assert {workload, other} <= {server.workload_id for server in ours}
    assert hands.compute.list_workload(REGION, f"{workload}-none") == []
    hands.settled(workload)
    hands.settled(other)


def test_a_list_of_many_pages_is_whole_and_a_failed_page_fails_it(
    provider: Provider, hands: Hands, workload: str
) -> None:
    metadata = {"sco_batch": "many", "sco_workload": workload}
    with provider.many(MANY, (MANAGED_TAG, workload_tag(workload)), metadata):
        listed = hands.compute.list_workload(REGION, workload)
        assert len({server.server_id for server in listed}) == MANY == len(listed)
        assert {server.batch_key for server in listed} == {"many"}

        first = provider.ask("GET", f"/servers/detail?tags={workload_tag(workload)}").json()
        assert first["servers_links"][0]["rel"] == "next"
        provider.fails("GET", LIST, 503, after=1)
        error = caught(hands.compute.list_workload, REGION, workload)
        assert (error.kind, error.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)


def test_pages_follow_each_other_without_gap_or_repeat(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """Page by page with the marker, as the adapter walks; the link of the provider says the same."""
    hands.running(workload, 3)
    query = f"tags={workload_tag(workload)}&limit=2"
    first = provider.ask("GET", f"/servers/detail?{query}").json()
    [link] = first["servers_links"]
    marker = first["servers"][-1]["id"]
    assert link["rel"] == "next"
    assert f"marker={marker}" in link["href"]
    second = provider.ask("GET", f"/servers/detail?{query}&marker={marker}").json()
    assert "servers_links" not in second
    ids = [server["id"] for page in (first, second) for server in page["servers"]]
    assert sorted(ids) == sorted(each.server_id for each in hands.compute.list_workload(REGION, workload))
    created = [server["created"] for page in (first, second) for server in page["servers"]]
    assert created == sorted(created, reverse=True)


def test_a_server_is_found_by_its_id_with_its_tags(hands: Hands, workload: str) -> None:
    [server_id] = hands.running(workload, 1)
    [listed] = hands.compute.list_workload(REGION, workload)
    assert hands.compute.find(REGION, server_id) == listed
    assert hands.compute.find(REGION, "00000000-0000-0000-0000-000000000001") is None


def test_tags_are_replaced_and_lists_follow(hands: Hands, workload: str) -> None:
    [server_id] = hands.running(workload, 1)
    hands.compute.set_tags(REGION, server_id, [])
    assert hands.compute.list_workload(REGION, workload) == []
    found = hands.compute.find(REGION, server_id)
    assert found is not None
    assert (found.tags, found.workload_id) == ((), workload)

    hands.compute.set_tags(REGION, server_id, [workload_tag(workload), MANAGED_TAG, MANAGED_TAG])
    [listed] = hands.compute.list_workload(REGION, workload)
    assert listed.tags == tuple(sorted({MANAGED_TAG, workload_tag(workload)}))


def test_tags_wait_until_a_server_is_built(provider: Provider, hands: Hands, workload: str) -> None:
    hands.compute.create_batch(spec(workload, metadata=provider.slow_build()), 1)
    [server] = hands.compute.list_workload(REGION, workload)
    error = caught(hands.compute.set_tags, REGION, server.server_id, [MANAGED_TAG])
    assert error.kind is ProviderErrorKind.CONFLICT
    assert "while it is in vm_state building" in str(error)
    gone = caught(hands.compute.set_tags, REGION, "00000000-0000-0000-0000-000000000001", [MANAGED_TAG])
    assert gone.kind is ProviderErrorKind.NOT_FOUND
    assert caught(hands.compute.set_tags, REGION, server.server_id, ["a/b"]).kind is (
        ProviderErrorKind.BAD_REQUEST
    )


def test_tags_of_a_server_in_error_stay_as_they_are(provider: Provider, hands: Hands, workload: str) -> None:
    hands.compute.create_batch(spec(workload, metadata=provider.failing_build()), 1)
    [server] = hands.settled(workload)
    error = caught(hands.compute.set_tags, REGION, server.server_id, [])
    assert error.kind is ProviderErrorKind.CONFLICT
    assert "while it is in vm_state error" in str(error)
    assert len(hands.compute.list_workload(REGION, workload)) == 1


def test_a_stopped_server_is_listed_and_runs_no_work(provider: Provider, hands: Hands, workload: str) -> None:
    [server_id] = hands.running(workload, 1)
    provider.stop_server(server_id)
    [server] = until(
        lambda: hands.compute.list_workload(REGION, workload),
        lambda listed: listed[0].status is not ServerStatus.ACTIVE,
    )
    assert server.status is ServerStatus.ERROR
    assert "SHUTOFF" in str(server.fault)


def test_an_unknown_filter_is_refused_from_2_75_and_ignored_before(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """Why the adapter speaks 2.75: before it, a mistyped filter lists servers of others."""
    hands.running(workload, 1)
    refused = provider.ask("GET", "/servers/detail?tag=nobody")
    assert refused.status_code == 400
    assert "does not match any of the regexes" in refused.json()["badRequest"]["message"]
    ignored = provider.ask("GET", "/servers/detail?tag=nobody", microversion="2.74")
    assert ignored.status_code == 200
    assert ignored.json()["servers"]


def test_a_filter_for_administrators_is_ignored_in_silence(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """Why lists are asked for by tag: a member's filter by zone or metadata lists everything."""
    [server_id] = hands.running(workload, 1)
    for ignored in ("host=nowhere", "availability_zone=nowhere", "metadata=%7B%22sco_batch%22%3A%22x%22%7D"):
        answer = provider.ask("GET", f"/servers/detail?{ignored}")
        assert answer.status_code == 200
        assert server_id in {server["id"] for server in answer.json()["servers"]}
    assert provider.ask("GET", "/servers/detail?tags=nowhere").json()["servers"] == []
