"""Tags and metadata of a server."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.errors import CloudError
from lab.cloud.records import Server, Status
from lab.cloud.region import Region
from lab.cloud.web.create_body import MAX_TAGS, check_tag, read_metadata, read_tags
from lab.cloud.web.microversion import Since, asked_for
from lab.cloud.web.respond import Handler, body_of, json
from lab.cloud.web.servers import nova_route, server_of


@dataclass(frozen=True, slots=True)
class ServerLabelsApi:
    """What an owner may write on the servers of one region."""

    region: Region

    def routes(self) -> list[BaseRoute]:
        tags, metadata = "/servers/{server_id}/tags", "/servers/{server_id}/metadata"
        table: tuple[tuple[str, Handler, str], ...] = (
            (tags, self.list_tags, "GET"),
            (tags, self.replace_tags, "PUT"),
            (tags, self.delete_tags, "DELETE"),
            (f"{tags}/{{tag}}", self.show_tag, "GET"),
            (f"{tags}/{{tag}}", self.add_tag, "PUT"),
            (f"{tags}/{{tag}}", self.delete_tag, "DELETE"),
            (metadata, self.list_metadata, "GET"),
            (metadata, self.replace_metadata, "PUT"),
            (metadata, self.update_metadata, "POST"),
            (f"{metadata}/{{key}}", self.show_item, "GET"),
            (f"{metadata}/{{key}}", self.set_item, "PUT"),
            (f"{metadata}/{{key}}", self.delete_item, "DELETE"),
        )
        return [nova_route(*row) for row in table]

    def list_tags(self, request: Request) -> Response:
        return json({"tags": self._tagged(request).tags})

    def replace_tags(self, request: Request) -> Response:
        return json({"tags": self._set_tags(request, "tags", read_tags(body_of(request).get("tags")))})

    def delete_tags(self, request: Request) -> Response:
        self._set_tags(request, "tags", ())
        return Response(status_code=204)

    def show_tag(self, request: Request) -> Response:
        self._has_tag(self._tagged(request), request.path_params["tag"])
        return Response(status_code=204)

    def add_tag(self, request: Request) -> Response:
        server, tag = self._tagged(request), str(request.path_params["tag"])
        check_tag(tag)
        if tag in server.tags:
            return Response(status_code=204)
        if len(server.tags) >= MAX_TAGS:
            raise CloudError(400, f"The number of tags exceeded the per-server limit {MAX_TAGS}")
        self._set_tags(request, "tag", (*server.tags, tag))
        return Response(status_code=201, headers={"Location": str(request.url)})

    def delete_tag(self, request: Request) -> Response:
        server, tag = self._tagged(request), str(request.path_params["tag"])
        self._has_tag(server, tag)
        self._set_tags(request, "tag", tuple(each for each in server.tags if each != tag))
        return Response(status_code=204)

    def list_metadata(self, request: Request) -> Response:
        return json({"metadata": server_of(self.region, request).metadata})

    def replace_metadata(self, request: Request) -> Response:
        return self._write(request, read_metadata(body_of(request).get("metadata")))

    def update_metadata(self, request: Request) -> Response:
        server = server_of(self.region, request)
        added = read_metadata(body_of(request).get("metadata"))
        return self._write(request, read_metadata({**server.metadata, **added}))

    def show_item(self, request: Request) -> Response:
        server, key = self._with_item(request)
        return json({"meta": {key: server.metadata[key]}})

    def set_item(self, request: Request) -> Response:
        server, key = server_of(self.region, request), str(request.path_params["key"])
        item = read_metadata(body_of(request).get("meta"))
        if list(item) != [key]:
            raise CloudError(400, "Request body and URI mismatch")
        self._write(request, read_metadata({**server.metadata, **item}))
        return json({"meta": item})

    def delete_item(self, request: Request) -> Response:
        server, key = self._with_item(request)
        self._write(request, {name: value for name, value in server.metadata.items() if name != key})
        return Response(status_code=204)

    def _write(self, request: Request, metadata: dict[str, str]) -> Response:
        server = server_of(self.region, request)
        _check_state(server, "update metadata")
        server.metadata = metadata
        self.region.touch(server)
        return json({"metadata": metadata})

    def _set_tags(self, request: Request, what: str, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Write tags, which Nova does not count as a change of the server."""
        server = self._tagged(request)
        _check_state(server, f"{'delete' if request.method == 'DELETE' else 'update'} {what}")
        server.tags = tags
        self.region.servers.relabelled(server)
        return tags

    def _with_item(self, request: Request) -> tuple[Server, str]:
        server, key = server_of(self.region, request), str(request.path_params["key"])
        if key not in server.metadata:
            raise CloudError(404, "Metadata item was not found")
        return server, key

    def _tagged(self, request: Request) -> Server:
        if asked_for(request.headers) < Since.TAGS:
            raise CloudError(404, "The resource could not be found.")
        return server_of(self.region, request)

    def _has_tag(self, server: Server, tag: str) -> None:
        if tag not in server.tags:
            raise CloudError(404, f"Server {server.id} has no tag '{tag}'")


def _check_state(server: Server, act: str) -> None:
    """Labels may be written on servers that were built."""
    if server.status not in (Status.ACTIVE, Status.SHUTOFF):
        vm_state = "building" if server.status is Status.BUILD else "error"
        raise CloudError(409, f"Cannot '{act}' instance {server.id} while it is in vm_state {vm_state}")
