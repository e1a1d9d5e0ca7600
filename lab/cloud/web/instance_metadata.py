"""The metadata service that an instance asks about itself, in OpenStack's format."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.errors import CloudError
from lab.cloud.records import Server
from lab.cloud.region import Region
from lab.cloud.web.respond import Handler, json, plain_error, route

INSTANCE_HEADER = "X-Instance-ID"


@dataclass(frozen=True, slots=True)
class InstanceMetadataApi:
    """Metadata of the instances of one region.

    A real cloud knows the instance by its address; here it says who it is in a header.
    """

    region: Region

    def routes(self) -> list[BaseRoute]:
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/openstack/latest/meta_data.json", self.meta_data, "GET"),
            ("/openstack/latest/user_data", self.user_data, "GET"),
        )
        return [route(path, handler, method, plain_error) for path, handler, method in table]

    def meta_data(self, request: Request) -> Response:
        server = self._server(request)
        return json(
            {
                "uuid": server.id,
                "name": server.name,
                "hostname": server.hostname,
                "project_id": server.project_id,
                "launch_index": server.launch_index,
                "availability_zone": server.availability_zone,
                "meta": server.metadata,
                "devices": [],
            }
        )

    def user_data(self, request: Request) -> Response:
        server = self._server(request)
        if server.user_data is None:
            raise CloudError(404, f"instance {server.id} was launched without user data")
        return Response(base64.b64decode(server.user_data), media_type="application/octet-stream")

    def _server(self, request: Request) -> Server:
        instance_id = request.headers.get(INSTANCE_HEADER, "")
        server = self.region.servers.get(instance_id)
        if server is None:
            raise CloudError(
                404,
                f"no instance {instance_id!r} in {self.region.name}: name a live one in {INSTANCE_HEADER}",
            )
        return server
