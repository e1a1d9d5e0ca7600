"""The few calls that a drain makes to a Kubernetes API, each bounded, each answered in words of ours."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from agent.drain.kube_pods import Pod, read_pod
from agent.drain.ports import SchedulerUnreachable

if TYPE_CHECKING:
    from lightkube import AsyncClient

CALL_SECONDS = 0.8
# A watch ends by itself soon after any drain has.
WATCH_SECONDS = 180
LIST_CHUNK = 250
MAX_DETAIL = 200


class Missing(Exception):
    """The object is not there (any more)."""


class Changed(Exception):
    """The object is no longer what it was when it was read."""


class Blocked(Exception):
    """A disruption budget, or the API's own throttle, says not yet."""


class NodeMarks(NamedTuple):
    """What a node carries, and the version of it that was read."""

    version: str
    taints: tuple[Mapping[str, Any], ...]
    annotations: Mapping[str, str]


class KubeAccess(NamedTuple):
    """Where the API is and what lets us in. `token_file` is read again once the API refuses its token."""

    server: str
    token_file: Path | None = None
    ca_file: Path | None = None


class KubeApi:
    """One node's view of the API. Raises SchedulerUnreachable for whatever does not answer usably."""

    def __init__(self, access: KubeAccess, call_seconds: float = CALL_SECONDS) -> None:
        """Connects at the first call. The client is loaded now, since a drain has no time for it."""
        load_client()
        self._access = access
        self._seconds = call_seconds
        self._opened: AsyncClient | None = None

    async def node(self, name: str) -> NodeMarks:
        from lightkube.resources.core_v1 import Node  # noqa: PLC0415 - only nodes of Kubernetes have it

        async with self._bounded():
            found = await self._client().get(Node, name)
        return _marks_of(found)

    async def patch_node(
        self,
        name: str,
        read: NodeMarks,
        taints: list[Mapping[str, Any]],
        annotations: Mapping[str, str | None],
    ) -> None:
        """Replace the taints of the version that was read; Changed when the node is another by now."""
        from lightkube.resources.core_v1 import Node  # noqa: PLC0415
        from lightkube.types import PatchType  # noqa: PLC0415

        body = {
            "metadata": {"resourceVersion": read.version, "annotations": dict(annotations)},
            "spec": {"taints": list(taints) or None},
        }
        async with self._bounded():
            await self._client().patch(Node, name, body, patch_type=PatchType.MERGE)

    async def pods(self, node: str) -> tuple[str, tuple[Pod, ...]]:
        """The version of the list and every pod that is bound to the node."""
        from lightkube.resources.core_v1 import Pod as Resource  # noqa: PLC0415

        async with self._bounded():
            listed = self._client().list(
                Resource, namespace="*", fields={"spec.nodeName": node}, chunk_size=LIST_CHUNK
            )
            found = tuple([read_pod(raw) async for raw in listed])
            return listed.resourceVersion, found

    async def pod(self, namespace: str, name: str) -> Pod:
        from lightkube.resources.core_v1 import Pod as Resource  # noqa: PLC0415

        async with self._bounded():
            return read_pod(await self._client().get(Resource, name, namespace=namespace))

    async def changes(self, node: str, version: str) -> AsyncIterator[tuple[str, Pod]]:
        """What happens to the node's pods from a version on: ADDED, MODIFIED or DELETED, and the pod."""
        from lightkube.resources.core_v1 import Pod as Resource  # noqa: PLC0415

        with understood():
            watched = self._client().watch(
                Resource,
                namespace="*",
                fields={"spec.nodeName": node},
                resource_version=version,
                server_timeout=WATCH_SECONDS,
            )
            async for kind, raw in watched:
                yield kind, read_pod(raw)

    async def evict(self, pod: Pod, grace_seconds: int) -> None:
        """Ask for an eviction of this very pod; Blocked when a disruption budget does not allow it yet."""
        from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions  # noqa: PLC0415
        from lightkube.resources.core_v1 import PodEviction  # noqa: PLC0415

        eviction = PodEviction(
            metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
            deleteOptions=DeleteOptions(
                gracePeriodSeconds=grace_seconds, preconditions=Preconditions(uid=pod.uid)
            ),
        )
        async with self._bounded():
            await self._client().create(eviction, pod.name)

    async def delete(self, pod: Pod, grace_seconds: int) -> None:
        """Delete a pod, whatever a budget says. Missing when another took its name and place meanwhile."""
        from lightkube.resources.core_v1 import Pod as Resource  # noqa: PLC0415

        found = await self.pod(pod.namespace, pod.name)
        if found.uid != pod.uid:
            raise Missing(pod.full_name)
        async with self._bounded():
            await self._client().delete(
                Resource, pod.name, namespace=pod.namespace, grace_period=grace_seconds
            )

    async def close(self) -> None:
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    def _client(self) -> AsyncClient:
        if self._opened is None:
            self._opened = _connect(self._access)
        return self._opened

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        with understood():
            async with asyncio.timeout(self._seconds):
                yield


@contextmanager
def understood() -> Iterator[None]:
    """Turn whatever a client may raise into Missing, Changed, Blocked or SchedulerUnreachable."""
    from lightkube.core.exceptions import ConfigError  # noqa: PLC0415

    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise _meaning(error) from error
    except (httpx2.HTTPError, TimeoutError, OSError, ValueError, ConfigError) as error:
        text = str(error) or "no answer in time"
        raise SchedulerUnreachable(f"{type(error).__name__}: {text}"[:MAX_DETAIL]) from error


def _meaning(error: httpx2.HTTPStatusError) -> Exception:
    # An error within a watch has a status and no answer; a proxy's error has an answer and no status.
    code = getattr(getattr(error, "status", None), "code", None)
    if code is None and error.response is not None:
        code = error.response.status_code
    text = f"{code}: {error}"[:MAX_DETAIL]
    meanings: dict[int, type[Exception]] = {
        HTTPStatus.NOT_FOUND: Missing,
        HTTPStatus.GONE: Changed,
        HTTPStatus.CONFLICT: Changed,
        HTTPStatus.TOO_MANY_REQUESTS: Blocked,
    }
    return meanings.get(code or 0, SchedulerUnreachable)(text)


def load_client() -> None:
    """Load the optional client. RuntimeError says what to install where it is missing."""
    try:
        importlib.import_module("lightkube.resources.core_v1")
    except ImportError as error:
        raise RuntimeError(
            "Draining a node of Kubernetes needs lightkube. Install spot-capacity-orchestrator[kubernetes]."
        ) from error


def _marks_of(node: Any) -> NodeMarks:
    taints = (node.spec.taints if node.spec else None) or ()
    annotations = node.metadata.annotations or {}
    return NodeMarks(node.metadata.resourceVersion, tuple(taint.to_dict() for taint in taints), annotations)


def _connect(access: KubeAccess) -> AsyncClient:
    from lightkube import AsyncClient, SingleConfig  # noqa: PLC0415
    from lightkube.config.models import Cluster, Context, User  # noqa: PLC0415

    cluster = Cluster(
        server=access.server, certificate_auth=None if access.ca_file is None else str(access.ca_file)
    )
    user = User(token_file=None if access.token_file is None else str(access.token_file))
    config = SingleConfig(
        context_name="node", context=Context(cluster="cluster", user="node"), cluster=cluster, user=user
    )
    # The environment may hold a proxy for people; the way to one's own API server never goes through it.
    return AsyncClient(config, trust_env=False)
