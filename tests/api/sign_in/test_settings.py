"""What a process is told of sign-in: refused with a sentence that names the value and what to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from api.main import sign_in_of
from api.settings import ApiSettings
from api.sign_in.addresses import is_loopback

ISSUER = "https://issuer.example"
KEY = "k" * 32


def told(**changed: Any) -> ApiSettings:
    given = {"database_url": "postgresql://x", "oidc_issuer": ISSUER, "oidc_audience": "sco-api"}
    return ApiSettings(**(given | changed))


def refusal(**changed: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        told(**changed)
    return str(refused.value)


def test_what_is_left_out_has_its_default() -> None:
    settings = told()
    assert settings.trust.issuer == ISSUER
    assert settings.trust.tenant_claim == "tenant_id"
    assert settings.trust.leeway == timedelta(seconds=60)
    assert settings.names == {"localhost", "127.0.0.1", "::1"}
    assert sign_in_of(settings).screens is None


def test_people_sign_in_where_a_client_is_set() -> None:
    sign_in = sign_in_of(told(oidc_client_id="sco", oidc_client_secret="s", session_key=KEY))
    assert sign_in.screens is not None
    assert sign_in.doorkeeper.sessions is sign_in.screens.sessions


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"oidc_issuer": "http://issuer.example"}, "in plain text"),
        ({"oidc_issuer": "https://issuer.example?a=b"}, "? or # part"),
        ({"oidc_issuer": "https://issuer.example#x"}, "? or # part"),
        ({"oidc_issuer": "https://user:password@issuer.example"}, "user name or password"),
        ({"oidc_issuer": "issuer.example"}, "no https address"),
        ({"oidc_issuer": ""}, "no https address"),
        ({"oidc_audience": ""}, "oidc_audience"),
        ({"oidc_leeway_seconds": -1}, "oidc_leeway_seconds"),
        ({"oidc_leeway_seconds": 301}, "oidc_leeway_seconds"),
        ({"session_key": "k" * 31}, "shorter than 32 bytes"),
        ({"oidc_client_id": "sco"}, "SCO_SESSION_KEY is not set"),
        ({"api_host": "0.0.0.0"}, "SCO_API_NAMES is not set"),
        ({"api_host": "192.0.2.7"}, "SCO_API_NAMES is not set"),
    ],
)
def test_what_would_not_be_safe_is_refused(changed: dict[str, Any], word: str) -> None:
    assert word in refusal(**changed)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("sco.example", {"sco.example"}),
        ("SCO.example, sco ,,", {"sco.example", "sco"}),
        ("[2001:db8::7]", {"2001:db8::7"}),
    ],
)
def test_names_are_listed_with_commas(monkeypatch: pytest.MonkeyPatch, given: str, names: set[str]) -> None:
    monkeypatch.setenv("SCO_API_NAMES", given)
    settings = told(api_host="0.0.0.0")
    assert settings.names == names


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_has_several_names(host: str) -> None:
    assert is_loopback(host)
    assert told(api_host=host).api_host == host


@pytest.mark.parametrize("host", ["", "0.0.0.0", "example.com", "localhost.example", "1", "::2"])
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)
