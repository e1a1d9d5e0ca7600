"""How Nova shows a server, by microversion, rendered once for each state the server is in."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from datetime import datetime
from typing import Any

import orjson

from lab.cloud.estate import Flavor
from lab.cloud.records import Server, Status
from lab.cloud.region import Region
from lab.cloud.web.microversion import MINIMUM, Since

_CHANGES = (MINIMUM, *sorted(Since))
"""Minor microversions between which servers look the same."""

_VM_STATE = {
    Status.BUILD: "building",
    Status.ACTIVE: "active",
    Status.SHUTOFF: "stopped",
    Status.ERROR: "error",
}
_POWER_STATE = {Status.ACTIVE: 1, Status.SHUTOFF: 4}


class ServerView:
    """Renders servers of one region. Answers are kept with the server until it changes."""

    def __init__(self, region: Region, base_url: str) -> None:
        self._region = region
        self._url = f"{base_url}/{region.name}/compute/v2.1"
        self._bookmark = f"{base_url}/{region.name}/compute"
        self._flavors: dict[str, orjson.Fragment] = {}

    @property
    def url(self) -> str:
        return self._url

    def brief(self, server: Server) -> bytes:
        return self._cached(server, "brief", 0)

    def detail(self, server: Server, minor: int) -> bytes:
        return self._cached(server, "detail", _CHANGES[bisect_right(_CHANGES, minor) - 1])

    def show(self, server: Server, minor: int) -> bytes:
        """As in a detailed list; only the answer for one server has its server groups."""
        shape = _CHANGES[bisect_right(_CHANGES, minor) - 1]
        return (
            self._cached(server, "show", shape)
            if shape >= Since.SERVER_GROUPS
            else self.detail(server, minor)
        )

    def links(self, server_id: str) -> list[dict[str, str]]:
        return [
            {"rel": "self", "href": f"{self._url}/servers/{server_id}"},
            {"rel": "bookmark", "href": f"{self._bookmark}/servers/{server_id}"},
        ]

    def _cached(self, server: Server, kind: str, shape: int) -> bytes:
        rendered = server.rendered.get((kind, shape))
        if rendered is None:
            if kind == "brief":
                view = {"id": server.id, "name": server.name, "links": self.links(server.id)}
            else:
                view = self._render(server, shape)
                if kind == "show":
                    view["server_groups"] = []
            rendered = orjson.dumps(view)
            if not self._region.is_scheduling(server):
                server.rendered[(kind, shape)] = rendered
        return rendered

    def _render(self, server: Server, shape: int) -> dict[str, Any]:
        view = self._basics(server, shape)
        scheduling = self._region.is_scheduling(server)
        view.update(_states(server, "scheduling" if scheduling else server.task_state))
        if server.status is Status.ERROR and server.fault is not None:
            view["fault"] = {
                "code": server.fault.code,
                "created": iso_time(server.fault.created_at),
                "message": server.fault.message,
            }
        if server.status in (Status.ACTIVE, Status.BUILD):
            view["progress"] = 0
        view.update(self._additions(server, shape))
        return view

    def _basics(self, server: Server, shape: int) -> dict[str, Any]:
        return {
            "id": server.id,
            "name": server.name,
            "status": str(server.status),
            "tenant_id": server.project_id,
            "user_id": server.user_id,
            "metadata": {} if server.status is Status.DELETED else server.metadata,
            "hostId": _host_id(server),
            "image": self._image(server, shape),
            "flavor": self._flavor(server, shape),
            "created": iso_time(server.created_at),
            "updated": iso_time(server.updated_at),
            "addresses": _addresses(server),
            "accessIPv4": "",
            "accessIPv6": "",
            "links": self.links(server.id),
            "OS-DCF:diskConfig": "MANUAL",
            "OS-EXT-AZ:availability_zone": server.availability_zone or "",
            "config_drive": "",
            "key_name": server.key_name,
            "OS-SRV-USG:launched_at": usage_time(server.launched_at),
            "OS-SRV-USG:terminated_at": usage_time(server.terminated_at),
            **({"security_groups": [{"name": "default"}]} if server.networked else {}),
            "os-extended-volumes:volumes_attached": [],
        }

    def _additions(self, server: Server, shape: int) -> dict[str, Any]:
        since: tuple[tuple[int, str, object], ...] = (
            (Since.LOCKED, "locked", False),
            (Since.DESCRIPTION, "description", server.description),
            (Since.TAGS, "tags", () if server.status is Status.DELETED else server.tags),
            (Since.TRUSTED_CERTIFICATES, "trusted_image_certificates", None),
            (Since.LOCKED_REASON, "locked_reason", None),
            (Since.HOSTNAME, "OS-EXT-SRV-ATTR:hostname", server.hostname),
            (Since.PINNED_ZONE, "pinned_availability_zone", server.pinned_zone),
            (Since.SCHEDULER_HINTS, "scheduler_hints", _hints(server)),
        )
        return {name: value for minor, name, value in since if shape >= minor}

    def _image(self, server: Server, shape: int) -> object:
        if not server.image_id:
            return ""
        link = {"rel": "bookmark", "href": f"{self._bookmark}/images/{server.image_id}"}
        image: dict[str, object] = {"id": server.image_id, "links": [link]}
        if shape >= Since.IMAGE_PROPERTIES:
            image["properties"] = {}
        return image

    def _flavor(self, server: Server, shape: int) -> object:
        if shape >= Since.FLAVOR_EMBEDDED:
            if server.flavor_id not in self._flavors:
                self._flavors[server.flavor_id] = _embedded(self._region.flavors[server.flavor_id])
            return self._flavors[server.flavor_id]
        link = {"rel": "bookmark", "href": f"{self._bookmark}/flavors/{server.flavor_id}"}
        return {"id": server.flavor_id, "links": [link]}


def iso_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def usage_time(moment: datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f") if moment is not None else None


def _hints(server: Server) -> dict[str, object]:
    return {name: value if isinstance(value, list) else [value] for name, value in server.hints.items()}


def _states(server: Server, task_state: str | None) -> dict[str, Any]:
    return {
        "OS-EXT-STS:task_state": task_state,
        "OS-EXT-STS:vm_state": _VM_STATE.get(server.status, "deleted"),
        "OS-EXT-STS:power_state": _POWER_STATE.get(server.status, 0),
    }


def _embedded(flavor: Flavor) -> orjson.Fragment:
    return orjson.Fragment(
        orjson.dumps(
            {
                "vcpus": flavor.vcpus,
                "ram": flavor.ram_mib,
                "disk": flavor.disk_gib,
                "ephemeral": flavor.ephemeral_gib,
                "swap": 0,
                "original_name": flavor.name,
                "extra_specs": flavor.extra_specs,
            }
        )
    )


def _host_id(server: Server) -> str:
    if server.group is None:
        return ""
    return hashlib.sha224(f"{server.project_id}{server.group}".encode()).hexdigest()


def _addresses(server: Server) -> dict[str, Any]:
    if not server.networked or server.status is Status.BUILD:
        return {}
    number = server.sequence % (1 << 24)
    address = f"10.{number >> 16}.{(number >> 8) & 255}.{number & 255}"
    mac = f"fa:16:3e:{number >> 16:02x}:{(number >> 8) & 255:02x}:{number & 255:02x}"
    return {
        "private": [
            {
                "version": 4,
                "addr": address,
                "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": mac,
            }
        ]
    }
