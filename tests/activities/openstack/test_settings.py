"""Settings of the cloud: one credential, complete, and never shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from activities.openstack.settings import CloudSettings
from tests.activities.openstack.hands import IMAGES

PLACE: dict[str, Any] = {
    "auth_url": "https://cloud.example/identity/v3",
    "regions": ("eu-north",),
    "images": IMAGES,
}
PASSWORD: dict[str, Any] = {"username": "sco", "password": SecretStr("hunter2"), "project": "sco"}
APPLICATION: dict[str, Any] = {
    "application_credential_id": "c0ffee",
    "application_credential_secret": SecretStr("hunter2"),
}


@pytest.mark.parametrize("credential", [PASSWORD, APPLICATION])
def test_one_complete_credential_is_enough_and_stays_hidden(credential: dict[str, Any]) -> None:
    settings = CloudSettings(**PLACE, **credential)
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    "credential",
    [
        {},
        PASSWORD | APPLICATION,
        {key: value for key, value in PASSWORD.items() if key != "project"},
        {key: value for key, value in PASSWORD.items() if key != "password"},
        {"application_credential_secret": SecretStr("hunter2")},
        PASSWORD | {"application_credential_id": "c0ffee"},
    ],
)
def test_an_incomplete_or_second_credential_is_refused_without_showing_it(credential: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="give either username, password and project") as caught:
        CloudSettings(**PLACE, **{key: _plain(value) for key, value in credential.items()})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"auth_url": "cloud.example/v3"},
        {"auth_url": "https://cloud.example/identity"},
        {"regions": ()},
        {"images": {}},
        {"images": {"riscv": "6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11"}},
        {"read_timeout_seconds": 0},
        {"read_timeout_seconds": 3600},
        {"no_such_setting": 1},
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CloudSettings(**{**PLACE, **PASSWORD, **change})


def _plain(value: object) -> object:
    """A secret as it arrives from a file or the environment."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value
