"""A stand-in for a Kubernetes API: the paths, answers and refusals that a drain meets, on loopback.

It holds nodes and pods, lists and watches them by selector, patches nodes with optimistic concurrency, evicts
under disruption budgets and deletes with grace. Answers are worded as the real API words them. It knows no
other resource, and no scheduler: a pod is where it was put.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lab.schedulers.kube_access import may
from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_faults import Lie
from lab.schedulers.kube_select import selector_of
from lab.schedulers.kube_store import Object, Problem

MERGE_PATCH = "application/merge-patch+json"
KINDS = {"nodes": "Node", "pods": "Pod"}
DEFAULT_WATCH_SECONDS = 300.0
BOOKMARK_SECONDS = 1.0
Answer = Callable[[Request], Awaitable[Response]]


def build_app(cluster: Cluster) -> Starlette:
    paths = _Paths(cluster)
    pod = "/api/v1/namespaces/{namespace}/pods/{name}"
    return Starlette(
        routes=[
            Route("/api/v1/{resource:str}", paths.guarded(paths.list_or_watch)),
            Route("/api/v1/nodes/{name}", paths.guarded(paths.get_node)),
            Route("/api/v1/nodes/{name}", paths.guarded(paths.patch_node), methods=["PATCH"]),
            Route("/api/v1/namespaces/{namespace}/pods", paths.guarded(paths.list_or_watch)),
            Route(pod, paths.guarded(paths.get_pod)),
            Route(pod, paths.guarded(paths.delete_pod), methods=["DELETE"]),
            Route(f"{pod}/eviction", paths.guarded(paths.evict), methods=["POST"]),
        ]
    )


class _Paths:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._store = cluster.store

    def guarded(self, answer: Answer) -> Answer:
        """The answer after faults and access rules, with problems as the API words them."""

        async def guarded(request: Request) -> Response:
            try:
                await self._cluster.faults.meet(request.method, str(request.url.path))
                may(self._cluster, request)
                return await answer(request)
            except Problem as problem:
                return answer_json(problem.body(), problem.code)

        return guarded

    async def get_node(self, request: Request) -> Response:
        return answer_json(self._store.find("nodes", ("", request.path_params["name"])))

    async def get_pod(self, request: Request) -> Response:
        return answer_json(self._store.find("pods", pod_key(request)))

    async def patch_node(self, request: Request) -> Response:
        if request.headers.get("content-type") != MERGE_PATCH:
            raise Problem(415, "UnsupportedMediaType", f"this stand-in understands {MERGE_PATCH}")
        key = ("", request.path_params["name"])
        patched = merge(self._store.find("nodes", key), await body_of(request))
        return answer_json(self._store.replace("nodes", key, patched))

    async def delete_pod(self, request: Request) -> Response:
        options = await body_of(request)
        asked = request.query_params.get("gracePeriodSeconds") or options.get("gracePeriodSeconds")
        grace = None if asked is None else int(asked)
        if grace is not None and grace < 0:
            raise Problem(422, "Invalid", "gracePeriodSeconds must be non-negative")
        return answer_json(self._cluster.delete(pod_key(request), grace, options))

    async def evict(self, request: Request) -> Response:
        eviction = await body_of(request)
        if eviction.get("kind") != "Eviction" or eviction.get("apiVersion") != "policy/v1":
            raise Problem(400, "BadRequest", "the body is no Eviction of policy/v1")
        grace = (eviction.get("deleteOptions") or {}).get("gracePeriodSeconds", 0)
        if grace < 0:
            raise Problem(422, "Invalid", "gracePeriodSeconds must be non-negative")
        self._cluster.evict(pod_key(request), eviction)
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return answer_json(done, 201)

    async def list_or_watch(self, request: Request) -> Response:
        resource = request.path_params.get("resource", "pods")
        if resource not in KINDS:
            raise Problem(404, "NotFound", "the server could not find the requested resource")
        if request.query_params.get("watch") in ("true", "1"):
            return StreamingResponse(self._watch(request, resource), media_type="application/json")
        chosen = selector_of(request)
        items = [found for found in self._store.all(resource) if chosen(found)]
        if Lie.LIST in self._cluster.faults.lies:
            items = []
        meta = {"resourceVersion": str(self._store.version)}
        listed = {"kind": f"{KINDS[resource]}List", "apiVersion": "v1", "metadata": meta, "items": items}
        return answer_json(listed)

    async def _watch(self, request: Request, resource: str) -> AsyncIterator[bytes]:
        chosen = selector_of(request)
        ends_at = time.monotonic() + float(request.query_params.get("timeoutSeconds", DEFAULT_WATCH_SECONDS))
        asked = request.query_params.get("resourceVersion") or "0"
        version = int(asked)
        if asked == "0":
            version = self._store.version
            for found in self._store.all(resource):
                if chosen(found):
                    yield line("ADDED", found)
        while (seconds := ends_at - time.monotonic()) > 0:
            try:
                changes = self._store.since(resource, version)
            except Problem as problem:
                yield line("ERROR", problem.body())
                return
            for change in changes:
                if chosen(change.object):
                    yield line(change.kind, change.object)
            version = self._store.version
            await self._store.wait(min(seconds, BOOKMARK_SECONDS))


def pod_key(request: Request) -> tuple[str, str]:
    return request.path_params["namespace"], request.path_params["name"]


async def body_of(request: Request) -> Object:
    raw = await request.body()
    body = json.loads(raw) if raw else {}
    if not isinstance(body, dict):
        raise Problem(400, "BadRequest", "the body is no object")
    return body


def answer_json(body: Object, code: int = 200) -> Response:
    """Exactly this type, without a character set: clients compare it as text."""
    return Response(json.dumps(body), code, {"Content-Type": "application/json"})


def line(kind: str, body: Object) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def merge(into: Any, patch: Any) -> Any:
    """RFC 7396: objects are merged, null takes away, anything else (a list of taints, too) replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(into) if isinstance(into, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
