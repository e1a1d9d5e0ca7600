"""The calls to a Kubernetes API: who is let in, what is understood, and how a watch goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.drain import kube_api
from agent.drain.kube_answers import Blocked, Changed, Missing, lines
from agent.drain.kube_api import KubeAccess, KubeApi
from agent.drain.kube_list import ListReader
from agent.drain.ports import SchedulerUnreachable
from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_server import serve
from tests.agent.certificates import Authority
from tests.agent.drain.cluster import NODE, draining
from tests.agent.scripted import answer, chunked, scripted


def pod(name: str, version: str = "5", **meta: Any) -> dict[str, Any]:
    known = {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": version}
    return {"metadata": known | meta, "spec": {"nodeName": NODE, "containers": []}, "status": {}}


def line(kind: str, told: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": told}).encode() + b"\n"


def listed(*pods: dict[str, Any]) -> bytes:
    meta = {"resourceVersion": "9"}
    return json.dumps({"kind": "PodList", "metadata": meta, "items": list(pods)}).encode()


async def followed(api: KubeApi, version: str = "1") -> list[tuple[str, str]]:
    return [(kind, found.name) async for kind, found in api.changes(NODE, version)]


async def test_the_api_is_asked_over_tls_with_the_token_that_is_there_now(tmp_path: Path) -> None:
    authority, cluster, token = Authority(tmp_path), Cluster(), tmp_path / "token"
    cluster.add_node(NODE)
    cluster.tokens |= {"first": NODE}
    async with serve(cluster, authority.server_file) as address:
        api = KubeApi(KubeAccess(address, token, authority.ca_file), 20.0)
        with pytest.raises(SchedulerUnreachable, match="holds no token"):
            await api.node(NODE)
        token.write_text("first\n")
        assert (await api.node(NODE)).taints == ()
        cluster.tokens = {"second": NODE}
        with pytest.raises(SchedulerUnreachable, match="401"):
            await api.node(NODE)
        token.write_text("second")
        assert (await api.pods(NODE))[1] == ()
        stranger = Authority(tmp_path / "other").ca_file
        with pytest.raises(SchedulerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await KubeApi(KubeAccess(address, token, stranger), 20.0).node(NODE)
        await api.close()


async def test_what_is_no_token_is_not_told_to_anyone(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"secret\nsecret")
    async with scripted(answer(b"{}")) as (server, address):
        with pytest.raises(SchedulerUnreachable) as refusal:
            await KubeApi(KubeAccess(address, token)).node(NODE)
    assert "secret" not in str(refusal.value)
    assert server.heard == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"7",
        b"{}",
        b"[" * 100_000,
        b'{"items": [], "metadata": {}}',
        b'{"items": [7], "metadata": {"resourceVersion": "9"}}',
        b'{"items": {"a": 1}, "metadata": {"resourceVersion": "9"}}',
        b'{"items": [{}], "metadata": {"resourceVersion": "9"}}',
        b'{"items": [{"a": ' + b"[" * 100_000,
        listed(pod("a", deletionTimestamp="x", deletionGracePeriodSeconds="soon")),
        listed(pod("a"))[:-1],
        listed(pod("a"))[:-40],
        listed(pod("a")) + b"}",
        b'{"items": [], "metadata": {"resourceVersion": "\xff"}}',
    ],
)
async def test_an_answer_of_another_shape_is_no_answer(body: bytes) -> None:
    async with scripted(*[answer(body)] * 2) as (_, address):
        api = KubeApi(KubeAccess(address), 20.0)
        with pytest.raises(SchedulerUnreachable):
            await api.pods(NODE)
        with pytest.raises(SchedulerUnreachable):
            await api.pod("default", "a")


@pytest.mark.parametrize(
    ("status", "meaning"),
    [("404 Not Found", Missing), ("409 Conflict", Changed), ("410 Gone", Changed), ("429 Wait", Blocked)],
)
async def test_a_refusal_has_a_meaning_wherever_it_is_said(status: str, meaning: type[Exception]) -> None:
    body = json.dumps({"kind": "Status", "message": "because", "code": int(status[:3])}).encode()
    error = chunked(line("ERROR", json.loads(body)))
    async with scripted(*[answer(body, status)] * 3, error) as (_, address):
        api = KubeApi(KubeAccess(address), 20.0)
        for asking in (api.node(NODE), api.pods(NODE), followed(api), followed(api)):
            with pytest.raises(meaning, match=r"\d: because"):
                await asking


async def test_a_proxy_that_answers_for_the_api_is_quoted() -> None:
    async with scripted(answer(b"<p>\nno\n upstream", "502 Bad Gateway")) as (_, address):
        with pytest.raises(SchedulerUnreachable, match="502: <p> no upstream"):
            await KubeApi(KubeAccess(address), 20.0).node(NODE)


async def test_a_watch_goes_on_from_the_last_version_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "LEAST_WATCH_SECONDS", 0.0)
    mark = {"metadata": {"resourceVersion": "8"}}
    says = (
        chunked(line("ADDED", pod("a"))[:30], line("ADDED", pod("a"))[30:] + line("SOME", pod("b", "6"))),
        chunked(line("DELETED", pod("c", "7")), line("BOOKMARK", mark)),
        chunked(line("ERROR", {"code": 410, "message": "too old"})),
    )
    async with scripted(*says) as (server, address):
        seen: list[tuple[str, str]] = []

        async def follow() -> None:
            async for kind, found in KubeApi(KubeAccess(address), 20.0).changes(NODE, "1"):
                seen.append((kind, found.name))

        with pytest.raises(Changed, match="too old"):
            await follow()
        assert seen == [("ADDED", "a"), ("DELETED", "c")]
        versions = [b"resourceVersion=%d&" % number for number in (1, 6, 8)]
        assert all(version in head for version, head in zip(versions, server.heard, strict=True))


async def test_a_watch_that_ends_at_once_is_not_taken_up_again() -> None:
    async with scripted(*[chunked(line("ADDED", pod("a")))] * 2) as (server, address):
        assert await followed(KubeApi(KubeAccess(address), 20.0)) == [("ADDED", "a")]
        assert len(server.heard) == 1


async def test_a_watch_over_a_connection_that_died_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "SILENT_SECONDS", 0.2)
    async with scripted(chunked(line("ADDED", pod("a")), ends=False)) as (server, address):
        with pytest.raises(SchedulerUnreachable, match="no answer in time"):
            await followed(KubeApi(KubeAccess(address), 20.0))
        await server.until_open()


async def test_a_deletion_means_the_pod_of_that_uid() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("web-0", NODE)
        before = await drain.api.pod("default", "web-0")
        drain.cluster.finish_pod("default", "web-0")
        with pytest.raises(Missing):
            await drain.api.delete(before, 1)
        drain.cluster.add_pod("web-0", NODE)
        with pytest.raises(Missing):
            await drain.api.delete(before, 1)
        assert drain.asked() == []


texts = st.text(max_size=8)
listings = st.lists(st.builds(lambda name, label: pod(name, labels={"l": label}), texts, texts), max_size=4)


@given(listings, st.booleans(), st.lists(st.integers(0, 2000), max_size=6))
def test_a_list_is_read_whole_in_whatever_parts_it_comes(
    pods: list[dict[str, Any]], spaced: bool, cuts: list[int]
) -> None:
    told = {"metadata": {"resourceVersion": "9"}, "items": pods, "kind": "PodList"}
    body = json.dumps(told, ensure_ascii=False, indent=2 if spaced else None).encode(errors="replace")
    reader = ListReader()
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(body)], strict=True):
        reader.feed(body[begin:end])
    version, found = reader.end()
    assert version == "9"
    assert [(one.name, one.labels["l"]) for one in found] == [
        (one["metadata"]["name"], one["metadata"]["labels"]["l"]) for one in pods
    ]


@pytest.mark.parametrize(
    ("begins", "goes_on", "said"),
    [
        (b"", b" ", "a pod of more"),
        (b'{"items": [{"a": "', b"x", "a pod of more"),
        (b'{"items": [', b" ", "a list of more"),
    ],
)
def test_a_list_without_end_is_given_up(begins: bytes, goes_on: bytes, said: str) -> None:
    def feed() -> None:
        reader = ListReader()
        reader.feed(begins)
        for _ in range(100):
            reader.feed(goes_on * 1024 * 1024)

    with pytest.raises(ValueError, match=said):
        feed()


@given(st.lists(st.binary(max_size=20)))
async def test_lines_are_whole_in_whatever_parts_they_come(parts: list[bytes]) -> None:
    async def coming() -> Any:
        for part in parts:
            yield part

    found = [one async for one in lines(coming())]
    assert found == [one for one in b"".join(parts).split(b"\n")[:-1] if one]


async def test_a_line_without_end_is_given_up() -> None:
    async def coming() -> Any:
        while True:
            yield b"x" * 100

    with pytest.raises(ValueError, match="more than 1000 bytes"):
        async for _ in lines(coming(), 1000):
            pass
