"""Signing in to the cloud, and what happens when a token ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlparse

import openstack
import pytest
from keystoneauth1.exceptions import Unauthorized

from lab.cloud.errors import CloudError
from lab.cloud.estate import REGIONS
from lab.cloud.identity import USER_NAME, Identity, Secrets
from lab.cloud.server import CloudHandle
from tests.lab.cloud_support import manual_cloud


@pytest.fixture(scope="module")
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


@pytest.mark.parametrize("region", REGIONS)
def test_the_catalog_leads_to_each_region_of_its_own(cloud: CloudHandle, region: str) -> None:
    connection = cloud.connect(region)

    for service in ("compute", "placement", "reservation", "rates"):
        endpoint = connection.session.get_endpoint(service_type=service, region_name=region)
        assert urlparse(str(endpoint)).path.startswith(f"/{region}/{service}")
    assert {zone.name for zone in connection.compute.availability_zones()} == {
        f"{region}-h{number}" for number in range(1, 5)
    }


def test_an_application_credential_signs_in(cloud: CloudHandle) -> None:
    connection = openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        auth_type="v3applicationcredential",
        auth=cloud.credentials.application_credential_auth(),
        region_name="eu-west",
    )

    assert list(connection.compute.servers()) == []
    assert connection.current_project_id == cloud.credentials.project_id


@pytest.mark.parametrize(
    "wrong",
    [
        {"password": "guess"},
        {"username": "nobody"},
        {"project_name": "other"},
        {"user_domain_id": "elsewhere"},
    ],
)
def test_wrong_credentials_are_refused(cloud: CloudHandle, wrong: dict[str, str]) -> None:
    connection = openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        auth={**cloud.credentials.password_auth(), **wrong},
        region_name="eu-north",
    )

    with pytest.raises(Unauthorized):
        list(connection.compute.servers())


def test_after_its_token_ended_the_client_signs_in_again(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    token = connection.session.get_token()
    assert cloud.admin.expire_tokens() >= 1

    stale = connection.session.get(
        f"{cloud.base_url}/eu-north/compute/v2.1/servers",
        headers={"X-Auth-Token": token},
        authenticated=False,
        raise_exc=False,
    )
    listed = list(connection.compute.servers())

    assert stale.status_code == 401
    assert stale.headers["WWW-Authenticate"].startswith("Keystone uri=")
    assert listed == []
    assert connection.session.get_token() != token


def test_a_token_holds_for_its_time_and_not_longer() -> None:
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    identity = Identity(Secrets("right", "secret", "admin"), 60, lambda: now[0])
    token = identity.with_password(USER_NAME, "right", scoped=True)

    now[0] += timedelta(seconds=59)
    assert identity.check(token.id) is token
    renewed = identity.with_token(token.id, scoped=True)
    assert renewed.expires_at == token.expires_at

    now[0] += timedelta(seconds=1)
    with pytest.raises(CloudError) as ended:
        identity.check(token.id)
    assert ended.value.status == 401


def test_a_made_up_token_is_refused(cloud: CloudHandle) -> None:
    made_up = f"{random.Random(1).getrandbits(256):x}"
    answer = cloud.connect().session.get(
        f"{cloud.base_url}/eu-north/placement/resource_providers",
        headers={"X-Auth-Token": made_up},
        authenticated=False,
        raise_exc=False,
    )

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == 401


def test_secrets_do_not_show_when_printed(cloud: CloudHandle) -> None:
    secrets = cloud.call(lambda inside: inside.secrets)
    printed = f"{secrets!r} {cloud.credentials!r}"

    assert secrets.password not in printed
    assert secrets.admin_token not in printed
    assert secrets.application_credential_secret not in printed


def test_the_admin_api_needs_its_own_token(cloud: CloudHandle) -> None:
    connection = cloud.connect()
    answer = connection.session.get(f"{cloud.base_url}/admin/servers", raise_exc=False)

    assert answer.status_code == 401
    assert "X-Admin-Token" in answer.json()["error"]
