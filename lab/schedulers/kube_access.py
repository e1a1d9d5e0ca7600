"""Who may do what at the stand-in: what the rights and the policy in `deploy/kubernetes` let an agent do."""

from __future__ import annotations

from starlette.requests import Request

from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_store import Problem


def may(cluster: Cluster, request: Request) -> None:
    """Refuse with 401 or 403 what the bearer of a token may not do: reading aside, his own node only."""
    if not cluster.tokens:
        return
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    node = cluster.tokens.get(token)
    if node is None:
        raise Problem(401, "Unauthorized", "Unauthorized")
    if request.method == "GET":
        return
    target = _node_of(cluster, request)
    if target is not None and target != node:
        raise Problem(403, "Forbidden", f"the token of node {node} may not change what is on node {target}")


def _node_of(cluster: Cluster, request: Request) -> str | None:
    """The node that a request changes something on; None where there is nothing to change."""
    path = request.path_params
    if "namespace" not in path:
        return str(path["name"])
    try:
        found = cluster.store.find("pods", (path["namespace"], path["name"]))
    except Problem:
        return None
    node: str | None = found["spec"].get("nodeName")
    return node
