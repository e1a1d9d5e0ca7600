"""Nova's manners: refusals in its shapes, microversions and headers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud.server import CloudHandle
from lab.cloud.web.create_body import NO_IMAGE
from tests.lab.cloud_support import FLAVOR, LATEST, body_for, create, flavor_id, manual_cloud, post_server


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"availability_zone": "nowhere"}, "The requested availability zone is not available"),
        ({"flavorRef": "42"}, "Flavor 42 could not be found."),
        ({"tags": ["a/b"]}, "without '/' and ','"),
        ({"tags": ["t" * 61]}, "1 to 60 characters"),
        ({"tags": [f"t{number}" for number in range(51)]}, "too long"),
        ({"metadata": {"k": 1}}, "is not of type 'string'"),
        ({"metadata": {"k": "v" * 256}}, "Invalid input for field/attribute"),
        ({"user_data": "A" * 65_536}, "too long"),
        ({"user_data": "abc"}, "is not a 'base64'"),
        ({"min_count": 3, "max_count": 2}, "min_count must be <= max_count"),
        ({"min_count": 0}, "positive integer"),
        ({"name": ""}, "Invalid input for field/attribute name"),
        ({"imageRef": "none"}, "is not valid under any of the given schemas"),
        ({"imageRef": ""}, "Missing imageRef attribute"),
        ({"imageRef": str(NO_IMAGE)}, "Can not find requested image"),
        ({"surprise": True}, "Additional properties are not allowed"),
    ],
)
def test_a_bad_create_is_refused_and_creates_nothing(
    cloud: CloudHandle, wanted: dict[str, Any], message: str
) -> None:
    before = len(cloud.admin.servers())
    answer = post_server(cloud.connect(), **wanted)

    assert answer.status_code == 400
    assert set(answer.json()) == {"badRequest"}
    assert answer.json()["badRequest"]["code"] == 400
    assert message in answer.json()["badRequest"]["message"]
    assert len(cloud.admin.servers()) == before


def test_a_body_that_is_no_json_is_refused(cloud: CloudHandle) -> None:
    headers = {"Content-Type": "application/json"}
    answer = cloud.connect().compute.post("/servers", data="{", headers=headers)

    assert answer.status_code == 400
    assert answer.json()["badRequest"]["message"] == "Malformed request body"


def test_networks_must_be_named_since_2_37(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    body = body_for(connection)
    del body["server"]["networks"]
    new = connection.compute.post("/servers", json=body, microversion="2.37")
    old = connection.compute.post("/servers", json=body, microversion="2.36")

    assert (new.status_code, old.status_code) == (400, 202)
    assert "'networks' is a required property" in new.json()["badRequest"]["message"]


def test_tags_at_create_came_with_2_52(cloud: CloudHandle) -> None:
    connection = cloud.connect()

    assert post_server(connection, "2.51", tags=["a"]).status_code == 400
    assert post_server(connection, "2.52", tags=["a"]).status_code == 202


@pytest.mark.parametrize(
    ("microversion", "present", "absent"),
    [
        ("2.1", {"flavor", "OS-EXT-AZ:availability_zone"}, {"tags", "locked", "description"}),
        ("2.26", {"tags", "locked", "description"}, {"pinned_availability_zone", "host_status"}),
        ("2.96", {"tags", "server_groups", "pinned_availability_zone"}, {"scheduler_hints"}),
        ("2.100", {"scheduler_hints"}, {"OS-EXT-SRV-ATTR:host"}),
    ],
)
def test_a_server_looks_as_its_microversion_says(
    cloud: CloudHandle, microversion: str, present: set[str], absent: set[str]
) -> None:
    connection = cloud.connect()
    server = create(connection)
    answer = connection.compute.get(f"/servers/{server.id}", microversion=microversion)

    shown = set(answer.json()["server"])
    assert present <= shown
    assert not absent & shown
    assert answer.headers["OpenStack-API-Version"] == f"compute {microversion}"
    assert answer.headers["Vary"].startswith("OpenStack-API-Version")
    assert answer.headers["x-openstack-request-id"].startswith("req-")


def test_the_flavor_of_a_server_is_a_link_before_2_47_and_embedded_after(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    server = create(connection)
    old = connection.compute.get(f"/servers/{server.id}", microversion="2.46").json()["server"]["flavor"]
    new = connection.compute.get(f"/servers/{server.id}", microversion="2.47").json()["server"]["flavor"]

    assert old["id"] == flavor_id(connection)
    assert new["original_name"] == FLAVOR
    assert "id" not in new


@pytest.mark.parametrize(("asked", "status"), [("2.999", 406), ("3.1", 406), ("two", 400)])
def test_a_microversion_out_of_range_is_refused(cloud: CloudHandle, asked: str, status: int) -> None:
    headers = {"OpenStack-API-Version": f"compute {asked}"}
    answer = cloud.connect().compute.get("/servers", headers=headers)

    assert answer.status_code == status
    assert asked in next(iter(answer.json().values()))["message"]


@pytest.mark.parametrize(
    ("query", "microversion", "status"),
    [
        ("metadata={}", LATEST, 200),
        ("all_tenants=1", LATEST, 403),
        ("surprise=1", LATEST, 400),
        ("surprise=1", "2.74", 200),
        ("limit=-1", LATEST, 400),
        ("marker=nobody", LATEST, 400),
        ("status=NONSENSE", LATEST, 400),
        ("status=NONSENSE", "2.37", 200),
        ("status=DELETED", LATEST, 403),
        ("status=RESCUE", LATEST, 200),
        ("changes-since=yesterday", LATEST, 400),
        ("name=(", LATEST, 400),
    ],
)
def test_odd_list_questions_get_novas_answers(
    cloud: CloudHandle, query: str, microversion: str, status: int
) -> None:
    answer = cloud.connect().compute.get(f"/servers?{query}", microversion=microversion)

    assert answer.status_code == status


def test_a_missing_server_is_not_found_in_novas_words(cloud: CloudHandle) -> None:
    answer = cloud.connect().compute.get("/servers/nobody", microversion=LATEST)

    assert answer.status_code == 404
    assert answer.json() == {"itemNotFound": {"code": 404, "message": "Instance nobody could not be found."}}
