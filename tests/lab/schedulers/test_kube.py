"""The stand-in for a Kubernetes API answers as the real one is documented to, seen through a real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from lightkube import ApiError, AsyncClient, SingleConfig
from lightkube.config.models import Cluster as Address
from lightkube.config.models import Context, User
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Node, Pod, PodEviction
from lightkube.types import PatchType

from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_server import serve
from lab.schedulers.kube_store import Problem


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(0.002)
    made.add_node("n1")
    return made


@pytest_asyncio.fixture
async def address(cluster: Cluster) -> AsyncIterator[str]:
    async with serve(cluster) as served:
        yield served


@pytest_asyncio.fixture
async def client(address: str) -> AsyncIterator[AsyncClient]:
    config = SingleConfig("lab", Context(cluster="lab"), Address(server=address), User())
    opened = AsyncClient(config, trust_env=False)
    yield opened
    await opened.close()


def meta(found: Any) -> Any:
    return found.metadata


def eviction(name: str, **options: Any) -> PodEviction:
    return PodEviction(
        metadata=ObjectMeta(name=name, namespace="default"), deleteOptions=DeleteOptions(**options)
    )


async def refused(call: Any) -> int:
    with pytest.raises(ApiError) as refusal:
        await call
    assert refusal.value.status.status == "Failure"
    return refusal.value.status.code or 0


async def test_a_list_is_of_what_was_asked_for(cluster: Cluster, client: AsyncClient) -> None:
    cluster.add_pod("a", "n1", labels={"app": "x"})
    cluster.add_pod("b", "n2")
    cluster.add_pod("c", "n1", namespace="other")
    names = [meta(pod).name async for pod in client.list(Pod, namespace="*", fields={"spec.nodeName": "n1"})]
    assert names == ["a", "c"]
    assert [meta(pod).name async for pod in client.list(Pod, namespace="other")] == ["c"]
    assert [meta(pod).name async for pod in client.list(Pod, namespace="*", labels={"app": "x"})] == ["a"]


async def test_a_watch_tells_what_happens_after_a_version(cluster: Cluster, client: AsyncClient) -> None:
    cluster.add_pod("before", "n1")
    version = str(cluster.store.version)

    async def happen() -> None:
        cluster.add_pod("a", "n1")
        cluster.add_pod("elsewhere", "n2")
        cluster.delete(("default", "a"), 1)

    seen = []
    happening = asyncio.create_task(happen())
    watch = client.watch(Pod, namespace="*", fields={"spec.nodeName": "n1"}, resource_version=version)
    async with asyncio.timeout(20):
        async for kind, pod in watch:
            seen.append((kind, meta(pod).name, meta(pod).deletionGracePeriodSeconds))
            if kind == "DELETED":
                break
    await happening
    assert seen == [("ADDED", "a", None), ("MODIFIED", "a", 1), ("DELETED", "a", 1)]


async def test_a_watch_from_a_version_that_is_forgotten_is_told_so(
    cluster: Cluster, client: AsyncClient
) -> None:
    version = str(cluster.store.version)
    cluster.add_pod("a", "n1")
    cluster.store.forget_changes()
    with pytest.raises(ApiError) as refusal:
        async for _ in client.watch(Pod, namespace="*", resource_version=version):
            pass
    assert (refusal.value.status.code, refusal.value.status.reason) == (410, "Expired")


async def test_a_patch_of_an_older_version_conflicts_and_lists_are_replaced(
    cluster: Cluster, client: AsyncClient
) -> None:
    node = await client.get(Node, "n1")
    old = {"resourceVersion": meta(node).resourceVersion}
    taints = [{"key": "a", "effect": "NoSchedule"}]
    await client.patch(Node, "n1", {"metadata": old, "spec": {"taints": taints}}, patch_type=PatchType.MERGE)
    assert await refused(client.patch(Node, "n1", {"metadata": old}, patch_type=PatchType.MERGE)) == 409
    emptied = await client.patch(Node, "n1", {"spec": {"taints": None}}, patch_type=PatchType.MERGE)
    assert emptied.spec is not None
    assert not emptied.spec.taints
    assert await refused(client.patch(Node, "n1", {}, patch_type=PatchType.JSON)) == 415


async def test_a_budget_refuses_evictions_of_what_runs_and_never_deletions(
    cluster: Cluster, client: AsyncClient
) -> None:
    cluster.budgets["x"] = 0
    for name, phase in (("a", "Running"), ("waiting", "Pending")):
        cluster.add_pod(name, "n1", labels={"app": "x"}, phase=phase)
    assert await refused(client.create(eviction("a"), "a")) == 429
    await client.create(eviction("waiting", gracePeriodSeconds=5), "waiting")
    await client.delete(Pod, "a", namespace="default", grace_period=7)
    assert cluster.asked == [("evict", "waiting", 5), ("delete", "a", 7)]


async def test_a_grace_is_the_pods_own_unless_given_and_can_only_become_shorter(
    cluster: Cluster, client: AsyncClient
) -> None:
    cluster.ends_after["a"] = 1e6
    cluster.add_pod("a", "n1", grace_seconds=900)
    graces = []
    for wanted in (None, 800, 850):
        await client.delete(Pod, "a", namespace="default", grace_period=wanted)
        graces.append(meta(await client.get(Pod, "a", namespace="default")).deletionGracePeriodSeconds)
    assert graces == [900, 800, 800]
    await client.delete(Pod, "a", namespace="default", grace_period=0)
    assert await refused(client.get(Pod, "a", namespace="default")) == 404


async def test_an_eviction_means_the_pod_of_that_uid(cluster: Cluster, client: AsyncClient) -> None:
    cluster.add_pod("a", "n1")
    assert await refused(client.create(eviction("a", preconditions=Preconditions(uid="other")), "a")) == 409
    assert await refused(client.create(eviction("b"), "b")) == 404
    assert await refused(client.create(eviction("a", gracePeriodSeconds=-1), "a")) == 422
    assert cluster.asked == []


async def test_what_it_does_not_know_is_not_found(address: str) -> None:
    async with httpx2.AsyncClient(base_url=address) as http:
        assert (await http.get("/api/v1/secrets")).status_code == 404
        assert (await http.post("/api/v1/namespaces/default/pods/a/eviction", json={})).status_code == 400


def test_a_second_pod_of_a_name_is_refused() -> None:
    cluster = Cluster()
    cluster.add_pod("a", "n1")
    with pytest.raises(Problem, match="already exists"):
        cluster.add_pod("a", "n1")
