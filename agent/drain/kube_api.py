"""The few calls that a drain makes to a Kubernetes API, each bounded, each answered in words of ours."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from agent.channel import Channel
from agent.drain.kube_answers import (
    Change,
    Changed,
    Missing,
    NodeMarks,
    lines,
    read_body,
    read_change,
    read_marks,
    refusal,
    said_in,
    understood,
)
from agent.drain.kube_list import ListReader
from agent.drain.kube_pods import Pod, read_pod
from agent.files import read_bounded

CALL_SECONDS = 0.8
# A watch ends by itself soon after any drain has.
WATCH_SECONDS = 180
# The API says something every minute, and ends the watch; who says nothing for longer is not there.
SILENT_SECONDS = WATCH_SECONDS + 20
# A watch that ends sooner is not taken up again from where it was.
LEAST_WATCH_SECONDS = 1.0
MAX_ANSWER = 4 * 1024 * 1024
TOKEN = re.compile(rb"[!-~]+")
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
T = TypeVar("T")


class KubeAccess(NamedTuple):
    """Where the API is and what lets us in. Both files are read anew when others were laid in their place."""

    server: str
    token_file: Path | None = None
    ca_file: Path | None = None


class KubeApi:
    """One node's view of the API. Raises SchedulerUnreachable for whatever does not answer usably."""

    def __init__(self, access: KubeAccess, call_seconds: float = CALL_SECONDS) -> None:
        """Connects at the first call. ValueError when `access.server` is no address."""
        self._channel = Channel(access.server, access.ca_file, most_bytes=MAX_ANSWER)
        self._token_file = access.token_file
        self._seconds = call_seconds

    async def node(self, name: str) -> NodeMarks:
        return await self._call("GET", _node_path(name), read_marks)

    async def patch_node(
        self,
        name: str,
        read: NodeMarks,
        taints: list[Mapping[str, Any]],
        annotations: Mapping[str, str | None],
    ) -> None:
        """Replace the taints of the version that was read; Changed when the node is another by now."""
        body = {
            "metadata": {"resourceVersion": read.version, "annotations": dict(annotations)},
            "spec": {"taints": list(taints) or None},
        }
        await self._call("PATCH", _node_path(name), _nothing, body, MERGE_PATCH)

    async def pods(self, node: str) -> tuple[str, tuple[Pod, ...]]:
        """The version of the list and every pod that is bound to the node."""
        reader = ListReader()
        with understood():
            async with asyncio.timeout(self._seconds):
                # Not in pages: for those the API reads all of the cluster's pods from its disk.
                async with self._opened(_of_node(node), (self._seconds, self._seconds)) as parts:
                    async for part in parts:
                        reader.feed(part)
            return reader.end()

    async def pod(self, namespace: str, name: str) -> Pod:
        return await self._call("GET", _pod_path(namespace, name), read_pod)

    async def changes(self, node: str, version: str) -> AsyncIterator[tuple[str, Pod]]:
        """What happens to the node's pods from a version on: ADDED, MODIFIED or DELETED, and the pod.

        Goes on when the API ends a watch in its time. It ends, or raises, when there is to be listed again.
        """
        loop = asyncio.get_running_loop()
        began = loop.time() - LEAST_WATCH_SECONDS
        while loop.time() - began >= LEAST_WATCH_SECONDS:
            began = loop.time()
            async for change in self._watch(node, version):
                version = change.version
                if change.pod is not None:
                    yield change.kind, change.pod

    async def evict(self, pod: Pod, grace_seconds: int) -> None:
        """Ask for an eviction of this very pod; Blocked when a disruption budget does not allow it yet."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": _options(pod, grace_seconds),
        }
        await self._call("POST", f"{_pod_path(pod.namespace, pod.name)}/eviction", _nothing, body)

    async def delete(self, pod: Pod, grace_seconds: int) -> None:
        """Delete this very pod, whatever a budget says. Missing when another has its name by now."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions"} | _options(pod, grace_seconds)
        try:
            await self._call("DELETE", _pod_path(pod.namespace, pod.name), _nothing, body)
        except Changed as error:
            raise Missing(pod.full_name) from error

    async def close(self) -> None:
        """Let go of connections; a later call makes new ones."""
        self._channel.close()

    async def _call(
        self,
        method: str,
        target: str,
        read: Callable[[Any], T],
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
    ) -> T:
        sent = b"" if body is None else json.dumps(body).encode()
        with understood():
            headers = self._headers() | ({"Content-Type": content_type} if sent else {})
            async with asyncio.timeout(self._seconds):
                answer = await self._channel.ask(method, target, headers, sent)
            if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise refusal(answer.status, said_in(answer.body))
            return read_body(answer.body, read)

    async def _watch(self, node: str, version: str) -> AsyncIterator[Change]:
        asked = _of_node(node) | {
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
            "allowWatchBookmarks": "true",
        }
        with understood():
            async with self._opened(asked, (self._seconds, SILENT_SECONDS)) as parts:
                async for line in lines(parts):
                    yield read_body(line, read_change)

    @asynccontextmanager
    async def _opened(
        self, asked: Mapping[str, str], limits: tuple[float, float]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """What the API answers about pods, as it comes."""
        async with self._channel.open(f"/api/v1/pods?{urlencode(asked)}", self._headers(), limits) as stream:
            if stream.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise refusal(stream.status, said_in(await anext(stream.parts, b"")))
            yield stream.parts

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": JSON}
        if self._token_file is not None:
            token = (read_bounded(self._token_file) or b"").strip()
            # What is no token is not shown: it may be one, with something beside it.
            if TOKEN.fullmatch(token) is None:
                raise ValueError(f"{self._token_file} holds no token")
            headers["Authorization"] = f"Bearer {token.decode()}"
        return headers


def _options(pod: Pod, grace_seconds: int) -> dict[str, Any]:
    return {"gracePeriodSeconds": grace_seconds, "preconditions": {"uid": pod.uid}}


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _of_node(node: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node}"}


def _nothing(raw: Any) -> None:
    """What was done is seen in lists and watches."""
