"""Placement: one resource provider for each host group, with what it holds and what is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.capacity import HostGroup
from lab.cloud.errors import CloudError
from lab.cloud.estate import stable_id
from lab.cloud.region import Region
from lab.cloud.web.respond import SIGNED_IN_KEY, Handler, json, placement_error, route

MICROVERSION = "1.39"


@dataclass(frozen=True, slots=True)
class PlacementApi:
    """The resource providers of one region. `url` is the address of the service."""

    region: Region
    url: str

    def routes(self) -> list[BaseRoute]:
        one = "/resource_providers/{provider_id}"
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/", self.versions, "GET"),
            ("/resource_providers", self.list_providers, "GET"),
            (one, self.show, "GET"),
            (f"{one}/inventories", self.inventories, "GET"),
            (f"{one}/inventories/{{resource_class}}", self.inventory, "GET"),
            (f"{one}/usages", self.provider_usages, "GET"),
            (f"{one}/aggregates", self.aggregates, "GET"),
            ("/usages", self.usages, "GET"),
        )
        return [route(path, handler, method, placement_error) for path, handler, method in table]

    def versions(self, request: Request) -> Response:
        version = {
            "id": "v1.0",
            "status": "CURRENT",
            "min_version": "1.0",
            "max_version": MICROVERSION,
            "links": [{"rel": "self", "href": ""}],
        }
        return json({"versions": [version]})

    def list_providers(self, request: Request) -> Response:
        shown = [self._provider(each) for each in self._filtered(request.query_params)]
        return self._answer({"resource_providers": shown})

    def show(self, request: Request) -> Response:
        return self._answer(self._provider(self._group(request)))

    def inventories(self, request: Request) -> Response:
        group = self._group(request)
        return self._answer(
            {"resource_provider_generation": group.generation, "inventories": _inventories(group)}
        )

    def inventory(self, request: Request) -> Response:
        group, wanted = self._group(request), request.path_params["resource_class"]
        inventories = _inventories(group)
        if wanted not in inventories:
            raise CloudError(404, f"No inventory of class {wanted} for {group.id}")
        return self._answer({"resource_provider_generation": group.generation, **inventories[wanted]})

    def provider_usages(self, request: Request) -> Response:
        group = self._group(request)
        return self._answer(
            {"resource_provider_generation": group.generation, "usages": _amounts(group, group.used)}
        )

    def aggregates(self, request: Request) -> Response:
        group = self._group(request)
        return self._answer(
            {
                "resource_provider_generation": group.generation,
                "aggregates": [stable_id("aggregate", group.plan.aggregate)],
            }
        )

    def usages(self, request: Request) -> Response:
        project_id = request.query_params.get("project_id")
        if project_id is None:
            raise CloudError(400, "Missing required query parameter: 'project_id' is a required property")
        totals = {"VCPU": 0, "MEMORY_MB": 0, "CUSTOM_INSTANCES": 0}
        if project_id == request.scope[SIGNED_IN_KEY].project_id:
            for group in self.region.groups.values():
                for name, amount in _amounts(group, group.used).items():
                    totals[name] += amount
        return self._answer({"usages": totals})

    def _filtered(self, params: QueryParams) -> list[HostGroup]:
        chosen = list(self.region.groups.values())
        if "name" in params:
            chosen = [each for each in chosen if each.name == params["name"]]
        for name in ("uuid", "in_tree"):
            if name in params:
                chosen = [each for each in chosen if each.id == params[name]]
        if "member_of" in params:
            wanted = params["member_of"].removeprefix("in:").split(",")
            chosen = [each for each in chosen if stable_id("aggregate", each.plan.aggregate) in wanted]
        if "resources" in params:
            needs = _needs(params["resources"])
            chosen = [each for each in chosen if _has(_amounts(each, each.free), needs)]
        return chosen

    def _group(self, request: Request) -> HostGroup:
        wanted = request.path_params["provider_id"]
        for group in self.region.groups.values():
            if group.id == wanted:
                return group
        raise CloudError(404, f"No resource provider with uuid {wanted} found")

    def _provider(self, group: HostGroup) -> dict[str, Any]:
        path = f"/resource_providers/{group.id}"
        names = ("inventories", "usages", "aggregates")
        return {
            "uuid": group.id,
            "name": group.name,
            "generation": group.generation,
            "parent_provider_uuid": None,
            "root_provider_uuid": group.id,
            "links": [{"rel": "self", "href": path}]
            + [{"rel": name, "href": f"{path}/{name}"} for name in names],
        }

    def _answer(self, data: dict[str, Any]) -> Response:
        headers = {"OpenStack-API-Version": f"placement {MICROVERSION}", "Vary": "OpenStack-API-Version"}
        return json(data, headers=headers)


def _amounts(group: HostGroup, instances: int) -> dict[str, int]:
    return {
        "VCPU": instances * group.flavor.vcpus,
        "MEMORY_MB": instances * group.flavor.ram_mib,
        "CUSTOM_INSTANCES": instances,
    }


def _inventories(group: HostGroup) -> dict[str, dict[str, Any]]:
    """Placement keeps no inventory of nothing: a group without capacity has none."""
    return {
        name: {
            "total": total,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": total,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }
        for name, total in _amounts(group, group.total).items()
        if total > 0
    }


def _needs(text: str) -> dict[str, int]:
    try:
        return {name: int(amount) for name, amount in (part.split(":") for part in text.split(","))}
    except ValueError as error:
        raise CloudError(
            400, f"Badly formed resources parameter. Expected RC:amount. Got: {text}."
        ) from error


def _has(free: dict[str, int], needs: dict[str, int]) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in needs.items())
