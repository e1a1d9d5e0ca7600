"""What the tests of the simulated cloud share: a cloud with a manual clock, and quick creates."""

from __future__ import annotations

from typing import Any

from openstack.connection import Connection

from lab.cloud.estate import stable_id
from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings, QuotaSettings

IMAGE = "11111111-1111-1111-1111-111111111111"
REGION = "eu-north"
HALL = "eu-north-h1"
POOL = "eu-north-h1-gp-m"
FLAVOR = "gp.m.reclaimable"
LATEST = "2.100"
BUILT = 60.0
"""Seconds after which every build of the default settings has ended."""


def manual_cloud(**settings: Any) -> CloudHandle:
    """A running cloud whose clock moves only when a test moves it."""
    return CloudHandle.start_in_thread(CloudSettings(speed=0, **settings))


def small_quota(**limits: int) -> QuotaSettings:
    return QuotaSettings(**{"instances": -1, "cores": -1, "ram": -1, **limits})


def flavor_id(connection: Connection, name: str = FLAVOR) -> str:
    """The id of a flavor in the connection's region, without the cost of listing them all."""
    return stable_id("flavor", str(connection.config.region_name), name)


def create(connection: Connection, flavor: str = FLAVOR, **wanted: Any) -> Any:
    """A create through the SDK with everything a test does not care about filled in."""
    body = {
        "name": "node",
        "flavor_id": flavor_id(connection, flavor),
        "image_id": IMAGE,
        "networks": "none",
        "availability_zone": HALL,
        **wanted,
    }
    return connection.compute.create_server(**body)


def body_for(connection: Connection, **wanted: Any) -> dict[str, Any]:
    """The body of a raw create, for what the SDK has no word for."""
    return {
        "server": {
            "name": "node",
            "flavorRef": flavor_id(connection),
            "imageRef": IMAGE,
            "networks": "none",
            "availability_zone": HALL,
            **wanted,
        }
    }


def post_server(connection: Connection, microversion: str = LATEST, **wanted: Any) -> Any:
    body = body_for(connection, **wanted)
    return connection.compute.post("/servers", json=body, microversion=microversion)


def names(connection: Connection, **filters: Any) -> list[str]:
    return sorted(server.name for server in connection.compute.servers(**filters))
