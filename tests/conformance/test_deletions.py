"""Deletions: asked for, seen, confirmed; at whatever moment of a server's life."""

from __future__ import annotations

from datetime import timedelta

from domain.acquisition import ServerStatus
from tests.conformance.hands import Hands, spec, until
from tests.conformance.provider import REGION, Provider


def test_a_deleted_server_leaves_the_list_and_its_deletion_is_confirmed(
    provider: Provider, hands: Hands, workload: str
) -> None:
    began = provider.now() - timedelta(seconds=2)
    goes, stays = hands.running(workload, 2)
    hands.compute.delete(REGION, goes)
    hands.compute.delete(REGION, goes)
    listed = until(lambda: hands.compute.list_workload(REGION, workload), lambda found: len(found) == 1)
    assert [server.server_id for server in listed] == [stays]
    assert until(lambda: hands.compute.find(REGION, goes), lambda found: found is None) is None

    confirmed = until(lambda: hands.compute.deleted_since(REGION, began), lambda ids: goes in ids)
    assert goes in confirmed
    assert stays not in confirmed
    assert goes not in hands.compute.deleted_since(REGION, provider.now() + timedelta(seconds=5))


def test_deleting_what_is_gone_or_never_was_is_no_error(hands: Hands, workload: str) -> None:
    [server_id] = hands.running(workload, 1)
    hands.compute.delete(REGION, server_id)
    until(lambda: hands.compute.find(REGION, server_id), lambda found: found is None)
    hands.compute.delete(REGION, server_id)
    hands.compute.delete(REGION, "00000000-0000-0000-0000-000000000001")


def test_a_deleted_server_has_lost_its_tags_and_metadata(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """Why a deletion is confirmed by id: a list by tag never shows it."""
    began = (provider.now() - timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    [server_id] = hands.running(workload, 1)
    hands.compute.delete(REGION, server_id)
    until(lambda: hands.compute.find(REGION, server_id), lambda found: found is None)

    def shown() -> list[dict[str, object]]:
        changed = provider.ask("GET", f"/servers/detail?changes-since={began}").json()["servers"]
        return [each for each in changed if each["id"] == server_id]

    [deleted] = until(shown, lambda found: bool(found) and found[0]["tags"] == [])
    assert (deleted["status"], deleted["tags"], deleted["metadata"]) == ("DELETED", [], {})
    tagged = provider.ask("GET", f"/servers/detail?changes-since={began}&tags=sco:workload={workload}")
    assert tagged.json()["servers"] == []


def test_the_provider_may_take_a_server_away(provider: Provider, hands: Hands, workload: str) -> None:
    began = provider.now() - timedelta(seconds=2)
    [server_id] = hands.running(workload, 1)
    provider.take(server_id)
    assert until(lambda: hands.compute.list_workload(REGION, workload), lambda found: not found) == []
    assert server_id in until(
        lambda: hands.compute.deleted_since(REGION, began), lambda ids: server_id in ids
    )


def test_a_server_can_be_deleted_while_it_builds(provider: Provider, hands: Hands, workload: str) -> None:
    began = provider.now() - timedelta(seconds=2)
    hands.compute.create_batch(spec(workload, metadata=provider.slow_build()), 1)
    [server] = until(
        lambda: hands.compute.list_workload(REGION, workload),
        lambda _: _task_state(provider, workload) == "spawning",
    )
    hands.compute.delete(REGION, server.server_id)
    going = hands.compute.list_workload(REGION, workload)
    assert {each.status for each in going} <= {ServerStatus.DELETING}
    assert until(lambda: hands.compute.find(REGION, server.server_id), lambda found: found is None) is None
    assert server.server_id in until(
        lambda: hands.compute.deleted_since(REGION, began), lambda ids: server.server_id in ids
    )


def test_a_server_deleted_before_it_has_a_host_goes_without_trace(
    provider: Provider, hands: Hands, workload: str
) -> None:
    """Why `find` is asked as well: no list of changes ever shows this deletion."""
    began = provider.now() - timedelta(seconds=2)
    hands.compute.create_batch(spec(workload), 10)
    early = [each.server_id for each in hands.compute.list_workload(REGION, workload)]
    for server_id in early:
        hands.compute.delete(REGION, server_id)
    assert until(lambda: hands.compute.list_workload(REGION, workload), lambda found: not found) == []
    assert [hands.compute.find(REGION, server_id) for server_id in early] == [None] * len(early)
    unconfirmed = set(early) - hands.compute.deleted_since(REGION, began)
    assert unconfirmed


def _task_state(provider: Provider, workload_id: str) -> str | None:
    shown = provider.ask("GET", f"/servers/detail?tags=sco:workload={workload_id}").json()["servers"]
    return str(shown[0]["OS-EXT-STS:task_state"]) if shown else None
