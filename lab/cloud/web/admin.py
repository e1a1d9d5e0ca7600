"""The lab's own controls, behind a token of their own: faults, capacity, halls, clock and truth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from domain.pool import PurchaseModel
from lab.cloud.baremetal import NodeState
from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.faults import FaultRule
from lab.cloud.notifications import Herald, NotificationFaults
from lab.cloud.quota import RESOURCES
from lab.cloud.records import Server, label_keys
from lab.cloud.region import Region
from lab.cloud.web.respond import Handler, body_of, json, plain_error, route

ADMIN_HEADER = "X-Admin-Token"
_SERVER = TypeAdapter(Server)
_NOT_SHOWN = {"keys", "rendered"}


@dataclass(frozen=True, slots=True)
class AdminApi:
    """What a test or a scenario may do to the cloud, and what it may know."""

    cloud: Cloud
    herald: Herald | None = None

    def routes(self) -> list[BaseRoute]:
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/faults", self.list_faults, "GET"),
            ("/faults", self.add_fault, "POST"),
            ("/faults", self.clear_faults, "DELETE"),
            ("/faults/{rule_id:int}", self.remove_fault, "DELETE"),
            ("/requests", self.requests, "GET"),
            ("/requests", self.clear_requests, "DELETE"),
            ("/servers", self.servers, "GET"),
            ("/servers/{server_id}", self.terminate, "DELETE"),
            ("/load", self.load, "POST"),
            ("/capacity", self.capacity, "GET"),
            ("/capacity", self.set_capacity, "POST"),
            ("/quota", self.set_quota, "POST"),
            ("/hall", self.set_hall, "POST"),
            ("/leases", self.set_leases, "POST"),
            ("/notifications", self.set_notification_faults, "POST"),
            ("/nodes", self.enroll, "POST"),
            ("/nodes/{node}", self.set_node, "POST"),
            ("/clock", self.clock, "GET"),
            ("/clock", self.set_clock, "POST"),
            ("/tokens", self.expire_tokens, "DELETE"),
        )
        return [route(path, self._guarded(handler), method, plain_error) for path, handler, method in table]

    def list_faults(self, request: Request) -> Response:
        rules = [
            {
                "rule_id": armed.rule_id,
                "matched": armed.matched,
                "fired": armed.fired,
                "rule": armed.rule.model_dump(mode="json", exclude_none=True),
            }
            for armed in self.cloud.faults.rules()
        ]
        return json({"faults": rules})

    def add_fault(self, request: Request) -> Response:
        try:
            rule = FaultRule.model_validate(body_of(request))
        except ValidationError as error:
            raise CloudError(400, str(error)) from error
        return json({"rule_id": self.cloud.faults.add(rule)}, 201)

    def clear_faults(self, request: Request) -> Response:
        self.cloud.faults.clear()
        return Response(status_code=204)

    def remove_fault(self, request: Request) -> Response:
        rule_id = int(request.path_params["rule_id"])
        if not self.cloud.faults.remove(rule_id):
            raise CloudError(404, f"there is no fault rule {rule_id}: GET /admin/faults lists them")
        return Response(status_code=204)

    def requests(self, request: Request) -> Response:
        try:
            window = float(request.query_params.get("window_seconds", "1"))
            recent = self.cloud.requests.recent(int(request.query_params.get("recent", "0")))
        except ValueError as error:
            raise CloudError(400, f"window_seconds and recent must be numbers: {error}") from error
        summary = self.cloud.requests.summary(window)
        return json({**summary, "recent": [asdict(each) for each in recent]})

    def clear_requests(self, request: Request) -> Response:
        self.cloud.requests.clear()
        return Response(status_code=204)

    def servers(self, request: Request) -> Response:
        """Every server that ever was, deleted ones included; `metadata=key=value` narrows it."""
        wanted = {("metadata", text) for text in request.query_params.getlist("metadata")}
        wanted |= {("tag", text) for text in request.query_params.getlist("tag")}
        shown = [
            {"region": region.name, **_SERVER.dump_python(server, mode="json", exclude=_NOT_SHOWN)}
            for region in self._regions(request)
            for server in region.servers.all()
            if wanted <= label_keys(server)
        ]
        return json({"servers": shown})

    def terminate(self, request: Request) -> Response:
        """Take a server away at once, as the provider may; its owner sees it gone."""
        server_id = str(request.path_params["server_id"])
        for region in self.cloud.regions.values():
            server = region.servers.get(server_id)
            if server is not None:
                region.gone(server, region.now())
                return Response(status_code=204)
        raise CloudError(404, f"there is no live server {server_id}")

    def load(self, request: Request) -> Response:
        asked = body_of(request)
        region = self._region_named(asked.get("region"))
        tags, metadata = tuple(asked.get("tags", ())), dict(asked.get("metadata", {}))
        return json({"loaded": self.cloud.load(region.name, _whole(asked, "count", 1), tags, metadata)}, 201)

    def capacity(self, request: Request) -> Response:
        shown = [
            {
                "region": region.name,
                "pool": group.name,
                "total": group.total,
                "used": group.used,
                "reservable": group.reservable,
            }
            for region in self._regions(request)
            for group in region.groups.values()
        ]
        return json({"capacity": shown})

    def set_capacity(self, request: Request) -> Response:
        asked = body_of(request)
        pool, total = str(asked.get("pool")), _whole(asked, "total", 0)
        group = self.cloud.region_of_group(pool).groups[pool]
        if group.plan.purchase_model is PurchaseModel.COMMITTED:
            raise CloudError(
                409, f"pool {pool} is committed, its capacity follows the leases: change a lease instead"
            )
        group.resize(total)
        return json({"pool": pool, "total": group.total, "used": group.used})

    def set_quota(self, request: Request) -> Response:
        asked = body_of(request)
        region = self._region_named(asked.get("region"))
        for resource in RESOURCES:
            if resource in asked:
                region.quota.limits[resource] = _whole(asked, resource, -1)
        return json({"region": region.name, **region.quota.limits})

    def set_hall(self, request: Request) -> Response:
        asked = body_of(request)
        status = asked.get("status")
        if status not in ("lost", "up"):
            raise CloudError(400, f"hall status {status!r} is unknown: give lost or up")
        self.cloud.set_hall(str(asked.get("hall")), lost=status == "lost")
        return json({"hall": asked["hall"], "status": status})

    def set_leases(self, request: Request) -> Response:
        """Let no lease of a region be prolonged while its calendar is `full`."""
        asked = body_of(request)
        region = self._region_named(asked.get("region"))
        if not isinstance(asked.get("full"), bool):
            raise CloudError(400, f"full {asked.get('full')!r} is not allowed: give true or false")
        region.leases.full = asked["full"]
        return json({"region": region.name, "full": region.leases.full})

    def set_notification_faults(self, request: Request) -> Response:
        """From now on: which share of the notifications is lost, repeated, late or out of order."""
        if self.herald is None:
            raise CloudError(409, "this cloud sends no notifications: start it with --nats-url")
        try:
            self.herald.faults = NotificationFaults.model_validate(body_of(request))
        except ValidationError as error:
            raise CloudError(400, str(error)) from error
        return json(self.herald.faults.model_dump(mode="json"))

    def enroll(self, request: Request) -> Response:
        """Add bare-metal nodes of a family to a hall; the pool that they make is offered from then on."""
        asked = body_of(request)
        hall, count = str(asked.get("hall")), _whole(asked, "count", 1)
        region = self.cloud.region_of_hall(hall)
        made = region.nodes.enroll(hall, str(asked.get("sku")), count, region.now())
        region.add_nodes(made)
        return json({"nodes": [node.id for node in made]}, 201)

    def set_node(self, request: Request) -> Response:
        """Put a node into a provision state, as a failure of its hardware would."""
        wanted = body_of(request).get("provision_state")
        if wanted not in [*NodeState]:
            known = ", ".join(NodeState)
            raise CloudError(400, f"provision state {wanted!r} is unknown: give one of {known}")
        for region in self.cloud.regions.values():
            for node in region.nodes.all():
                if node.id == request.path_params["node"]:
                    node.provision_state = NodeState(str(wanted))
                    region.settle()
                    return json({"node": node.id, "provision_state": wanted})
        raise CloudError(404, f"there is no node {request.path_params['node']}")

    def clock(self, request: Request) -> Response:
        return json({"now": self.cloud.clock.now().isoformat(), "speed": self.cloud.clock.speed})

    def set_clock(self, request: Request) -> Response:
        asked = body_of(request)
        try:
            if "speed" in asked:
                self.cloud.clock.set_speed(float(asked["speed"]))
            if "advance_seconds" in asked:
                self.cloud.clock.advance(float(asked["advance_seconds"]))
        except (TypeError, ValueError) as error:
            raise CloudError(400, str(error)) from error
        self.cloud.settle()
        return self.clock(request)

    def expire_tokens(self, request: Request) -> Response:
        return json({"expired": self.cloud.identity.expire_all()})

    def _regions(self, request: Request) -> list[Region]:
        named = request.query_params.get("region")
        return [self._region_named(named)] if named else list(self.cloud.regions.values())

    def _region_named(self, name: object) -> Region:
        region = self.cloud.regions.get(str(name))
        if region is None:
            known = ", ".join(self.cloud.regions)
            raise CloudError(404, f"region {name!r} does not exist: give one of {known}")
        return region

    def _guarded(self, handler: Handler) -> Handler:
        def checked(request: Request) -> Response:
            if not self.cloud.identity.is_admin(request.headers.get(ADMIN_HEADER)):
                raise CloudError(401, f"the header {ADMIN_HEADER} is missing or wrong")
            return handler(request)

        return checked


def _whole(asked: dict[str, Any], name: str, least: int) -> int:
    value = asked.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CloudError(400, f"{name} {value!r} is not allowed: give a whole number of at least {least}")
    return value
