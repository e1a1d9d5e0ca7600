"""Nova's servers: create, list, show, change, delete, tags, metadata and their action log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.identity import USER_ID
from lab.cloud.launch import launch
from lab.cloud.records import Action, Server, Status
from lab.cloud.region import Region
from lab.cloud.web.create_body import read_create
from lab.cloud.web.list_query import ListQuery, read_list_query
from lab.cloud.web.microversion import Since, asked_for, stamp
from lab.cloud.web.respond import (
    REQUEST_ID_KEY,
    RULE_KEY,
    SIGNED_IN_KEY,
    Handler,
    body_of,
    json,
    nova_error,
    route,
)
from lab.cloud.web.server_view import ServerView, usage_time

_POWER_ACTIONS: dict[str, tuple[str, Status, Status]] = {
    "os-stop": ("stop", Status.ACTIVE, Status.SHUTOFF),
    "os-start": ("start", Status.SHUTOFF, Status.ACTIVE),
}


def nova_route(path: str, handler: Handler, method: str) -> BaseRoute:
    """A compute route: checks the microversion first and names it in every answer."""

    def versioned(request: Request) -> Response:
        minor = asked_for(request.headers)
        try:
            response = handler(request)
        except CloudError as error:
            response = nova_error(error)
        stamp(response, minor)
        return response

    return route(path, versioned, method, nova_error)


@dataclass(frozen=True, slots=True)
class ServersApi:
    """The servers of one region."""

    cloud: Cloud
    region: Region
    view: ServerView

    def routes(self) -> list[BaseRoute]:
        one = "/servers/{server_id}"
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/servers", self.create, "POST"),
            ("/servers", self.list_brief, "GET"),
            ("/servers/detail", self.list_detail, "GET"),
            (one, self.show, "GET"),
            (one, self.update, "PUT"),
            (one, self.delete, "DELETE"),
            (f"{one}/action", self.act, "POST"),
            (f"{one}/os-instance-actions", self.actions, "GET"),
            (f"{one}/os-instance-actions/{{request_id}}", self.action, "GET"),
        )
        return [nova_route(*row) for row in table]

    def create(self, request: Request) -> Response:
        body = body_of(request)
        owner = (project_of(request), USER_ID, str(request.scope[REQUEST_ID_KEY]))
        order = read_create(body, self.region, asked_for(request.headers), owner)
        reservation_id, servers = launch(self.region, order, request.scope[RULE_KEY])
        if body["server"].get("return_reservation_id") is True:
            return json({"reservation_id": reservation_id}, 202)
        if not servers:
            raise CloudError(500, "Unexpected API Error.")
        links = self.view.links(servers[0].id)
        first = {
            "id": servers[0].id,
            "links": links,
            "OS-DCF:diskConfig": "MANUAL",
            "security_groups": [{"name": "default"}],
            "adminPass": self.region.new_id()[:12],
        }
        return json({"server": first}, 202, {"Location": links[0]["href"]})

    def list_brief(self, request: Request) -> Response:
        return self._list(request, "servers", self.view.brief)

    def list_detail(self, request: Request) -> Response:
        minor = asked_for(request.headers)
        return self._list(request, "servers/detail", lambda server: self.view.detail(server, minor))

    def show(self, request: Request) -> Response:
        server = self._server(request)
        return _one(self.view.show(server, asked_for(request.headers)))

    def update(self, request: Request) -> Response:
        server = self._server(request)
        asked = body_of(request).get("server")
        if not isinstance(asked, dict):
            raise CloudError(400, "Invalid input for field/attribute server. 'server' is a required property")
        if isinstance(asked.get("name"), str) and asked["name"].strip():
            server.name = asked["name"].strip()[:255]
        if "description" in asked and asked_for(request.headers) >= Since.DESCRIPTION:
            server.description = asked["description"]
        self.region.touch(server)
        return _one(self.view.show(server, asked_for(request.headers)))

    def delete(self, request: Request) -> Response:
        self.region.delete(self._server(request), str(request.scope[REQUEST_ID_KEY]))
        return Response(status_code=204)

    def act(self, request: Request) -> Response:
        server = self._server(request)
        name = next(iter(body_of(request)), "")
        if name not in _POWER_ACTIONS:
            raise CloudError(400, f"There is no such action: {name}. Available: {', '.join(_POWER_ACTIONS)}")
        verb, needed, becomes = _POWER_ACTIONS[name]
        if server.status is not needed:
            raise CloudError(
                409,
                f"Cannot '{verb}' instance {server.id} while it is in vm_state {str(server.status).lower()}",
            )
        action = Action(verb, str(request.scope[REQUEST_ID_KEY]), server.user_id, self.region.now())
        self.region.set_power(server, becomes, action)
        return Response(status_code=202)

    def actions(self, request: Request) -> Response:
        server = self._server(request, deleted=asked_for(request.headers) >= Since.ACTIONS_OF_DELETED)
        return json({"instanceActions": [_action(server, each) for each in reversed(server.actions)]})

    def action(self, request: Request) -> Response:
        server = self._server(request, deleted=asked_for(request.headers) >= Since.ACTIONS_OF_DELETED)
        wanted = request.path_params["request_id"]
        for each in server.actions:
            if each.request_id == wanted:
                return json({"instanceAction": {**_action(server, each), "events": _events(each)}})
        raise CloudError(404, f"Action for request_id {wanted} on instance {server.id} not found.")

    def _list(self, request: Request, path: str, render: Any) -> Response:
        asked = read_list_query(request.query_params, project_of(request), asked_for(request.headers))
        page = self.region.servers.page(asked.query, asked.limit, self._marker(asked))
        parts = [b'{"servers":[', b",".join(render(server) for server in page.servers), b"]"]
        if page.servers and len(page.servers) == asked.limit:
            parts.append(b',"servers_links":' + self._next_link(request, path, page.servers[-1].id))
        return Response(b"".join([*parts, b"}"]), media_type="application/json")

    def _marker(self, asked: ListQuery) -> Server | None:
        if asked.marker is None:
            return None
        marker = self.region.servers.get(asked.marker) or self.region.servers.deleted(asked.marker)
        if marker is None:
            raise CloudError(400, f"marker [{asked.marker}] not found")
        return marker

    def _next_link(self, request: Request, path: str, marker: str) -> bytes:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "marker"]
        href = f"{self.view.url}/{path}?{urlencode([*kept, ('marker', marker)])}"
        return bytes(json([{"rel": "next", "href": href}]).body)

    def _server(self, request: Request, *, deleted: bool = False) -> Server:
        return server_of(self.region, request, deleted=deleted)


def project_of(request: Request) -> str:
    return str(request.scope[SIGNED_IN_KEY].project_id)


def server_of(region: Region, request: Request, *, deleted: bool = False) -> Server:
    """The server named in the path; 404 when the project has no such server."""
    server_id = str(request.path_params["server_id"])
    gone = region.servers.deleted(server_id) if deleted else None
    if gone is not None and gone.project_id == project_of(request):
        return gone
    return region.server(server_id, project_of(request))


def _one(rendered: bytes) -> Response:
    return Response(b'{"server":' + rendered + b"}", media_type="application/json")


def _action(server: Server, action: Action) -> dict[str, Any]:
    return {
        "action": action.action,
        "instance_uuid": server.id,
        "message": "Error" if action.result == "Error" else None,
        "project_id": server.project_id,
        "request_id": action.request_id,
        "start_time": usage_time(action.started_at),
        "updated_at": usage_time(action.finished_at or action.started_at),
        "user_id": action.user_id,
    }


def _events(action: Action) -> list[dict[str, Any]]:
    names = {"create": "compute__do_build_and_run_instance", "delete": "compute_terminate_instance"}
    return [
        {
            "event": names.get(action.action, f"compute_{action.action}_instance"),
            "start_time": usage_time(action.started_at),
            "finish_time": usage_time(action.finished_at),
            "result": action.result,
            "details": None,
        }
    ]
