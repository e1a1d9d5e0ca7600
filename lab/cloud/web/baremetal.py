"""Ironic v1: the list of nodes, their maintenance, and the provisioning verbs that need no deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.baremetal import VERBS, Node
from lab.cloud.errors import CloudError
from lab.cloud.region import Region
from lab.cloud.web.respond import BODY_KEY, Handler, body_of, ironic_error, json, route

MINIMUM, MAXIMUM = "1.1", "1.109"
MAX_LIMIT = 1_000
_VERSIONS = {
    "X-OpenStack-Ironic-API-Minimum-Version": MINIMUM,
    "X-OpenStack-Ironic-API-Maximum-Version": MAXIMUM,
}


@dataclass(frozen=True, slots=True)
class BareMetalApi:
    """The nodes of one region. `url` is the address without a version."""

    region: Region
    url: str

    def routes(self) -> list[BaseRoute]:
        one = "/v1/nodes/{node}"
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/", self.versions, "GET"),
            ("/v1", self.version, "GET"),
            ("/v1/", self.version, "GET"),
            ("/v1/nodes", self.list_nodes, "GET"),
            ("/v1/nodes/detail", self.list_nodes, "GET"),
            (one, self.show, "GET"),
            (f"{one}/maintenance", self.set_maintenance, "PUT"),
            (f"{one}/maintenance", self.clear_maintenance, "DELETE"),
            (f"{one}/states/provision", self.provision, "PUT"),
        )
        return [route(path, handler, method, ironic_error) for path, handler, method in table]

    def versions(self, request: Request) -> Response:
        known = self._version()
        body = {"name": "OpenStack Ironic API", "default_version": known, "versions": [known]}
        return json(body, headers=_VERSIONS)

    def version(self, request: Request) -> Response:
        return json({**self._version(), "version": self._version()}, headers=_VERSIONS)

    def list_nodes(self, request: Request) -> Response:
        """A page of nodes after the marker, with the fields that are asked for."""
        nodes = self.region.nodes.all()
        marker, limit = request.query_params.get("marker"), request.query_params.get("limit", str(MAX_LIMIT))
        if not limit.isdigit():
            raise CloudError(400, f"Limit must be a number, not {limit}")
        if marker is not None:
            after = self.region.nodes.get(marker)
            nodes = nodes[[node.id for node in nodes].index(after.id) + 1 :]
        size = min(int(limit) or MAX_LIMIT, MAX_LIMIT)
        fields = request.query_params.get("fields")
        page = [_shown(node, fields.split(",") if fields else None) for node in nodes[:size]]
        body: dict[str, Any] = {"nodes": page}
        if len(nodes) > size:
            body["next"] = f"{self.url}/v1/nodes?limit={size}&marker={nodes[size - 1].id}"
        return json(body)

    def show(self, request: Request) -> Response:
        return json(_shown(self._node(request)))

    def set_maintenance(self, request: Request) -> Response:
        reason = body_of(request).get("reason") if request.scope[BODY_KEY] else None
        return self._maintain(request, on=True, reason=reason)

    def clear_maintenance(self, request: Request) -> Response:
        return self._maintain(request, on=False, reason=None)

    def provision(self, request: Request) -> Response:
        node, verb = self._node(request), body_of(request).get("target")
        after = VERBS.get((str(verb), node.provision_state))
        if after is None:
            raise CloudError(
                400,
                f'The requested action "{verb}" can not be performed on node "{node.id}"'
                f' while it is in state "{node.provision_state}".',
            )
        node.provision_state, node.updated_at = after, self.region.now()
        return Response(status_code=202)

    def _maintain(self, request: Request, *, on: bool, reason: str | None) -> Response:
        node = self._node(request)
        node.maintenance, node.maintenance_reason, node.updated_at = on, reason, self.region.now()
        return Response(status_code=202)

    def _node(self, request: Request) -> Node:
        return self.region.nodes.get(str(request.path_params["node"]))

    def _version(self) -> dict[str, Any]:
        return {
            "id": "v1",
            "links": [{"href": f"{self.url}/v1/", "rel": "self"}],
            "status": "CURRENT",
            "min_version": MINIMUM,
            "version": MAXIMUM,
        }


def _shown(node: Node, fields: list[str] | None = None) -> dict[str, Any]:
    every = {
        "uuid": node.id,
        "name": node.name,
        "driver": "fake-hardware",
        "resource_class": node.resource_class,
        "provision_state": str(node.provision_state),
        "target_provision_state": None,
        "power_state": "power on" if node.instance_id is not None else "power off",
        "maintenance": node.maintenance,
        "maintenance_reason": node.maintenance_reason,
        "instance_uuid": node.instance_id,
        "conductor_group": "",
        "extra": {"availability_zone": node.hall},
        "properties": {"cpu_arch": "x86_64"},
        "created_at": node.created_at.isoformat(),
        "updated_at": node.updated_at.isoformat() if node.updated_at is not None else None,
    }
    return every if fields is None else {name: every[name] for name in fields if name in every}
