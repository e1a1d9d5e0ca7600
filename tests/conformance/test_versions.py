"""Microversions: what each adds that the adapter needs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from domain.pool import Arch
from tests.conformance.provider import FLAVOR, HALL, IMAGES, Provider


def _create(provider: Provider, microversion: str, **wanted: Any) -> Any:
    with provider.connect() as connection:
        flavor = connection.compute.find_flavor(FLAVOR, ignore_missing=False)
    body = {"name": "x", "flavorRef": flavor.id, "imageRef": str(IMAGES[Arch.X86_64]), **wanted}
    return provider.ask("POST", "/servers", {"server": {"availability_zone": HALL, **body}}, microversion)


def test_networks_must_be_named_from_2_37(provider: Provider) -> None:
    answer = _create(provider, "2.75")
    assert answer.status_code == 400
    assert "'networks' is a required property" in answer.json()["badRequest"]["message"]


def test_tags_at_create_need_2_52(provider: Provider) -> None:
    answer = _create(provider, "2.51", networks="none", tags=["sco:managed"])
    assert answer.status_code == 400
    assert "('tags' was unexpected)" in answer.json()["badRequest"]["message"]


def test_tags_are_shown_from_2_26_and_flavors_embedded_from_2_47(provider: Provider) -> None:
    accepted = _create(provider, "2.75", networks="none", tags=["version-test"])
    assert accepted.status_code == 202
    server_id = accepted.json()["server"]["id"]
    assert accepted.headers["Location"].endswith(f"/servers/{server_id}")
    old = provider.ask("GET", f"/servers/{server_id}", microversion="2.25").json()["server"]
    new = provider.ask("GET", f"/servers/{server_id}", microversion="2.75").json()["server"]
    assert "tags" not in old
    assert set(old["flavor"]) == {"id", "links"}
    assert new["tags"] == ["version-test"]
    assert new["flavor"]["extra_specs"]["sco:sku"] == "gp"


@pytest.mark.parametrize(("asked", "status"), [("2.999", 406), ("3.1", 406), ("two", 400)])
def test_a_version_out_of_range_is_refused(provider: Provider, asked: str, status: int) -> None:
    answer = provider.ask(
        "GET", "/servers", microversion=None, headers={"OpenStack-API-Version": f"compute {asked}"}
    )
    assert answer.status_code == status
    [said] = answer.json().values()
    assert asked in said["message"]


@pytest.mark.parametrize(
    ("asked", "status", "name", "said"),
    [
        (("GET", "/servers/nobody", None), 404, "itemNotFound", "Instance nobody could not be found."),
        (("DELETE", "/servers/nobody", None), 404, "itemNotFound", "Instance nobody could not be found."),
        (("GET", "/servers/detail?status=DELETED", None), 403, "forbidden", "Only administrators"),
        (("GET", "/servers/detail?all_tenants=1", None), 403, "forbidden", "Policy doesn't allow"),
        (("GET", "/servers/detail?marker=nobody", None), 400, "badRequest", "marker [nobody] not found"),
        (("GET", "/servers/detail?limit=-1", None), 400, "badRequest", "does not match '^[0-9]*$'"),
        (("GET", "/servers/detail?changes-since=x", None), 400, "badRequest", "'x' is not a 'date-time'"),
        (("GET", "/servers/detail?status=NONSENSE", None), 400, "badRequest", "Invalid status value"),
        (("GET", "/flavors/nothing", None), 404, "itemNotFound", "Flavor nothing could not be found."),
        (("POST", "/servers", {"server": {"name": "x"}}), 400, "badRequest", "is a required property"),
    ],
)
def test_refusals_have_novas_words(
    provider: Provider, asked: tuple[str, str, Any], status: int, name: str, said: str
) -> None:
    answer = provider.ask(*asked)
    assert answer.status_code == status
    assert set(answer.json()) == {name}
    assert answer.json()[name]["code"] == status
    assert said in answer.json()[name]["message"]
    assert answer.headers["x-openstack-request-id"].startswith("req-")


def test_a_server_has_the_same_fields_at_both_providers(provider: Provider) -> None:
    accepted = _create(provider, "2.75", networks="none", min_count=2, max_count=2)
    assert set(accepted.json()["server"]) == {
        "id",
        "links",
        "OS-DCF:diskConfig",
        "security_groups",
        "adminPass",
    }
    server_id = accepted.json()["server"]["id"]
    shown = provider.ask("GET", f"/servers/{server_id}").json()["server"]
    assert set(shown) == SHOWN
    assert shown["status"] == "BUILD"
    assert (shown["OS-EXT-STS:vm_state"], shown["OS-EXT-STS:power_state"]) == ("building", 0)
    assert shown["hostId"] == "" or len(shown["hostId"]) == 56


SHOWN = {
    "id",
    "name",
    "status",
    "tenant_id",
    "user_id",
    "metadata",
    "hostId",
    "image",
    "flavor",
    "created",
    "updated",
    "addresses",
    "accessIPv4",
    "accessIPv6",
    "links",
    "OS-DCF:diskConfig",
    "progress",
    "OS-EXT-AZ:availability_zone",
    "config_drive",
    "key_name",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
    "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state",
    "OS-EXT-STS:power_state",
    "os-extended-volumes:volumes_attached",
    "locked",
    "locked_reason",
    "description",
    "tags",
    "trusted_image_certificates",
    "server_groups",
}
"""What 2.75 shows of one server."""
