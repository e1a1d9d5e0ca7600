"""Filling a fresh cloud: catalog, project, user, flavors, halls and rates, through its own API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lab.cloud.estate import guaranteed_price
from lab.openstack import config, site
from lab.openstack.config import Addresses
from lab.openstack.site import HOST_GROUPS, PROJECT, REGION, USER

if TYPE_CHECKING:
    from openstack.connection import Connection
    from openstack.identity.v3._proxy import Proxy as Identity

SERVICES = {
    "compute": ("nova", "nova", "/v2.1"),
    "placement": ("placement", "placement", ""),
    "image": ("glance", "stub", "/image"),
    "network": ("neutron", "stub", "/network"),
    "rates": ("provider-rates", "stub", "/rates/v1"),
}
"""Service type to (name, address, path)."""
ROLES = ("member", "reader")
SHARE = "0.350000"


def administrator(auth_url: str, password: str) -> Connection:
    """A connection that may do everything."""
    return _connect(auth_url, config.ADMIN, password, config.ADMIN_PROJECT)


def orchestrator(auth_url: str, password: str) -> Connection:
    """A connection of the project's own user."""
    return _connect(auth_url, USER, password, PROJECT)


def identity_of(connection: Connection) -> Identity:
    """Keystone as its only version here, which the SDK cannot know."""
    return cast("Identity", connection.identity)


def furnish_identity(admin: Connection, at: Addresses, password: str) -> None:
    """The catalog, and the orchestrator's project with its user."""
    identity = identity_of(admin)
    for kind, (name, address, path) in SERVICES.items():
        service = identity.create_service(type=kind, name=name)
        identity.create_endpoint(
            service_id=service.id, interface="public", url=at.url(address, path), region_id=REGION
        )
    project = identity.create_project(name=PROJECT, domain_id="default")
    user = identity.create_user(
        name=USER, password=password, domain_id="default", default_project_id=project.id
    )
    for role in identity.roles():
        if role.name in ROLES:
            identity.assign_project_role_to_user(project, user, role)


def furnish_compute(admin: Connection) -> None:
    """Flavors, and an aggregate for each correlation group, whose zone is its hall."""
    for flavor in site.offered_flavors():
        made = admin.compute.create_flavor(
            id=flavor.id,
            name=flavor.name,
            vcpus=flavor.vcpus,
            ram=flavor.ram_mib,
            disk=flavor.disk_gib,
            ephemeral=flavor.ephemeral_gib,
        )
        admin.compute.create_flavor_extra_specs(made, flavor.extra_specs)
    for name, hall in sorted({(group.aggregate, group.hall) for group in HOST_GROUPS}):
        aggregate = admin.compute.create_aggregate(name=name, availability_zone=hall)
        admin.compute.set_aggregate_metadata(aggregate, {"sco:hall": hall, "sco:group": name})
        for group in HOST_GROUPS:
            if group.aggregate == name:
                admin.compute.add_host_to_aggregate(aggregate, group.name)


def write_rates(folder: Path) -> None:
    """What the provider's own service says of each host group."""
    flavors = {flavor.name: flavor for flavor in site.offered_flavors()}
    places: dict[str, dict[str, Any]] = {
        group.name: {
            "hall": group.hall,
            "flavor": group.flavor,
            "purchase_model": str(group.purchase_model),
            "host_group": group.name,
            "aggregate": group.aggregate,
        }
        for group in HOST_GROUPS
    }
    rates, capacity = [], []
    for group in HOST_GROUPS:
        flavor = flavors[group.flavor]
        guaranteed = str(guaranteed_price(REGION, flavor.sku, flavor.size))
        fits = group.vcpus // flavor.vcpus
        price = {"price_per_hour": SHARE, "guaranteed_price_per_hour": guaranteed}
        rates.append({**places[group.name], **price})
        capacity.append({**places[group.name], "total": fits, "used": 0, "free": fits, "min_free": fits})
    halls = [{"hall": hall, "status": "up"} for hall in sorted({group.hall for group in HOST_GROUPS})]
    answers: dict[str, dict[str, Any]] = {
        "rate-card": {"currency": "USD", "rates": rates},
        "forward-capacity": {"hours": 24, "capacity": capacity},
        "halls": {"halls": halls},
    }
    for name, answer in answers.items():
        (folder / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")


def _connect(auth_url: str, username: str, password: str, project: str) -> Connection:
    import openstack  # noqa: PLC0415 - loading the SDK takes a second

    return openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        auth={
            "auth_url": auth_url,
            "username": username,
            "password": password,
            "project_name": project,
            "user_domain_id": "default",
            "project_domain_id": "default",
        },
        region_name=REGION,
        app_name="sco-lab",
    )
