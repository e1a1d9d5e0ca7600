"""Nova beside its servers: versions, flavors, aggregates, zones, limits and quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.errors import CloudError
from lab.cloud.estate import Flavor, stable_id
from lab.cloud.region import Region
from lab.cloud.reserved import is_offered
from lab.cloud.web.microversion import MAXIMUM, MINIMUM, Since, asked_for
from lab.cloud.web.respond import Handler, json, nova_error, route
from lab.cloud.web.server_view import ServerView
from lab.cloud.web.servers import nova_route, project_of

_OTHER_QUOTAS = {"key_pairs": 100, "metadata_items": 128, "server_groups": 10, "server_group_members": 10}
_CREATED = "2026-01-05T08:00:00.000000"


@dataclass(frozen=True, slots=True)
class ComputeApi:
    """What the compute service of one region tells about itself."""

    region: Region
    view: ServerView

    def routes(self) -> list[BaseRoute]:
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/flavors", self.list_flavors, "GET"),
            ("/flavors/detail", self.list_flavor_details, "GET"),
            ("/flavors/{flavor_id}", self.show_flavor, "GET"),
            ("/flavors/{flavor_id}/os-extra_specs", self.extra_specs, "GET"),
            ("/os-aggregates", self.aggregates, "GET"),
            ("/os-availability-zone", self.zones, "GET"),
            ("/os-availability-zone/detail", self.zone_details, "GET"),
            ("/limits", self.limits, "GET"),
            ("/os-quota-sets/{project_id}", self.quota, "GET"),
            ("/os-quota-sets/{project_id}/detail", self.quota_detail, "GET"),
        )
        return [nova_route(*row) for row in table]

    def version_routes(self) -> list[BaseRoute]:
        return [
            route("/", self.versions, "GET", nova_error),
            route("/v2.1", self.version, "GET", nova_error),
            route("/v2.1/", self.version, "GET", nova_error),
        ]

    def versions(self, request: Request) -> Response:
        return json({"versions": [self._version()]})

    def version(self, request: Request) -> Response:
        media = {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
        return json({"version": {**self._version(), "media-types": [media]}})

    def list_flavors(self, request: Request) -> Response:
        shown = [
            {"id": each.id, "name": each.name, "links": self._flavor_links(each)}
            for each in self._flavor_page(request)
        ]
        return json({"flavors": shown})

    def list_flavor_details(self, request: Request) -> Response:
        minor = asked_for(request.headers)
        return json({"flavors": [self._flavor(each, minor) for each in self._flavor_page(request)]})

    def show_flavor(self, request: Request) -> Response:
        return json({"flavor": self._flavor(self._wanted_flavor(request), asked_for(request.headers))})

    def extra_specs(self, request: Request) -> Response:
        return json({"extra_specs": self._wanted_flavor(request).extra_specs})

    def aggregates(self, request: Request) -> Response:
        names = sorted({group.plan.aggregate for group in self.region.groups.values()})
        return json({"aggregates": [self._aggregate(number, name) for number, name in enumerate(names, 1)]})

    def zones(self, request: Request) -> Response:
        return json(
            {"availabilityZoneInfo": [{**self._zone(hall), "hosts": None} for hall in self.region.halls]}
        )

    def zone_details(self, request: Request) -> Response:
        raise CloudError(
            403, "Policy doesn't allow os_compute_api:os-availability-zone:detail to be performed."
        )

    def limits(self, request: Request) -> Response:
        limits, used = self.region.quota.limits, self.region.quota.used(project_of(request))
        absolute = {
            "maxServerMeta": 128,
            "maxTotalInstances": limits["instances"],
            "maxTotalCores": limits["cores"],
            "maxTotalRAMSize": limits["ram"],
            "maxTotalKeypairs": 100,
            "maxServerGroups": 10,
            "maxServerGroupMembers": 10,
            "totalInstancesUsed": used["instances"],
            "totalCoresUsed": used["cores"],
            "totalRAMUsed": used["ram"],
            "totalServerGroupsUsed": 0,
        }
        return json({"limits": {"absolute": absolute, "rate": []}})

    def quota(self, request: Request) -> Response:
        self._own_project(request)
        values = {**self.region.quota.limits, **_OTHER_QUOTAS}
        return json({"quota_set": {"id": project_of(request), **values}})

    def quota_detail(self, request: Request) -> Response:
        self._own_project(request)
        used = self.region.quota.used(project_of(request))
        limits = {**self.region.quota.limits, **_OTHER_QUOTAS}
        values = {
            name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0}
            for name, limit in limits.items()
        }
        return json({"quota_set": {"id": project_of(request), **values}})

    def _version(self) -> dict[str, Any]:
        return {
            "id": "v2.1",
            "status": "CURRENT",
            "version": f"2.{MAXIMUM}",
            "min_version": f"2.{MINIMUM}",
            "updated": "2013-07-23T11:33:21Z",
            "links": [{"rel": "self", "href": f"{self.view.url}/"}],
        }

    def _flavor_page(self, request: Request) -> list[Flavor]:
        """Flavors after the marker, by id, as Nova pages them."""
        marker = request.query_params.get("marker", "")
        limit = request.query_params.get("limit", "1000")
        if not limit.isdigit():
            raise CloudError(400, f"Invalid input for query parameters limit. Value: {limit}.")
        offered = self._offered(request)
        if marker and marker not in offered:
            raise CloudError(400, f"marker [{marker}] not found")
        return [offered[each] for each in sorted(offered) if each > marker][: int(limit)]

    def _offered(self, request: Request) -> dict[str, Flavor]:
        return {
            each.id: each
            for each in self.region.flavors.values()
            if is_offered(self.region.leases, each, project_of(request))
        }

    def _wanted_flavor(self, request: Request) -> Flavor:
        flavor_id = str(request.path_params["flavor_id"])
        offered = self._offered(request)
        if flavor_id not in offered:
            raise CloudError(404, f"Flavor {flavor_id} could not be found.")
        return offered[flavor_id]

    def _flavor(self, flavor: Flavor, minor: int) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": flavor.id,
            "name": flavor.name,
            "ram": flavor.ram_mib,
            "disk": flavor.disk_gib,
            "vcpus": flavor.vcpus,
            "swap": 0 if minor >= Since.UNKNOWN_REFUSED else "",
            "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gib,
            "OS-FLV-DISABLED:disabled": False,
            "os-flavor-access:is_public": flavor.reservation_id is None,
            "rxtx_factor": 1.0,
            "links": self._flavor_links(flavor),
        }
        if minor >= Since.FLAVOR_DESCRIPTION:
            shown["description"] = None
        if minor >= Since.FLAVOR_EXTRA_SPECS:
            shown["extra_specs"] = flavor.extra_specs
        return shown

    def _flavor_links(self, flavor: Flavor) -> list[dict[str, str]]:
        return [{"rel": "self", "href": f"{self.view.url}/flavors/{flavor.id}"}]

    def _aggregate(self, number: int, name: str) -> dict[str, Any]:
        groups = [group for group in self.region.groups.values() if group.plan.aggregate == name]
        hall = groups[0].plan.hall
        return {
            "id": number,
            "uuid": stable_id("aggregate", name),
            "name": name,
            "availability_zone": hall,
            "hosts": [group.name for group in groups],
            "metadata": {"availability_zone": hall, "sco:hall": hall, "sco:group": name},
            "created_at": _CREATED,
            "updated_at": None,
            "deleted": False,
            "deleted_at": None,
        }

    def _zone(self, hall: str) -> dict[str, Any]:
        return {"zoneName": hall, "zoneState": {"available": hall not in self.region.lost_halls}}

    def _own_project(self, request: Request) -> None:
        if request.path_params["project_id"] != project_of(request):
            raise CloudError(403, "Policy doesn't allow os_compute_api:os-quota-sets:show to be performed.")
