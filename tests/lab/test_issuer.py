"""The development issuer: what it gives to whom, and that it stays on this machine."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from lab.issuer import Issuer, IssuerHandle
from lab.issuer.accounts import PEOPLE, SCREENS, SERVICES, secret_file
from lab.issuer.app import WARNING
from lab.issuer.issuer import CODE_SECONDS, Asked
from lab.issuer.keyring import ALGORITHMS, KEPT_ROTATIONS, Keyring
from lab.issuer.server import RunningIssuer

CALLBACK = "http://127.0.0.1:8080/sign-in/callback"
# The example of RFC 7636, appendix B.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab") / "issuer"


@pytest.fixture(scope="module")
def handle(data_dir: Path) -> Iterator[IssuerHandle]:
    with IssuerHandle.start_in_thread(data_dir) as running:
        yield running


@pytest.fixture
def http(handle: IssuerHandle) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=handle.url, trust_env=False) as client:
        yield client


def claims_of(token: str, issuer: Issuer) -> dict[str, Any]:
    keys = KeySet.import_key_set(issuer.keyring.public())  # type: ignore[arg-type]
    return jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims


def asked(**changed: str) -> dict[str, str]:
    return {
        "client_id": SCREENS,
        "redirect_uri": CALLBACK,
        "response_type": "code",
        "state": "s",
        "nonce": "n",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    } | changed


def picked(http: httpx2.Client, person: str, **changed: str) -> httpx2.Response:
    """What a browser is answered once a person was picked."""
    page = http.get("/authorize", params=asked(**changed))
    assert page.status_code == 200, page.text
    hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
    return http.post("/authorize", data=hidden | {"person": person})


def exchange(http: httpx2.Client, handle: IssuerHandle, **changed: str) -> httpx2.Response:
    secret = handle.issuer.clients[SCREENS].secret
    form = {"grant_type": "authorization_code", "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    return http.post("/token", data=form | changed, auth=httpx2.BasicAuth(SCREENS, secret))


def test_it_describes_itself(http: httpx2.Client, handle: IssuerHandle) -> None:
    said = http.get("/.well-known/openid-configuration").json()
    assert said["issuer"] == handle.url
    listed = httpx2.get(said["jwks_uri"], trust_env=False).json()["keys"]
    assert [one["alg"] for one in listed] == list(ALGORITHMS)
    assert not {"d", "p", "q"} & {name for one in listed for name in one}


@pytest.mark.parametrize("account", SERVICES, ids=lambda one: one.name)
def test_a_client_gets_a_token_of_its_own(
    http: httpx2.Client, handle: IssuerHandle, data_dir: Path, account: Any
) -> None:
    secret = secret_file(data_dir, account.name).read_text()
    form = {"grant_type": "client_credentials"}
    basic = http.post("/token", data=form, auth=httpx2.BasicAuth(account.name, secret))
    posted = http.post("/token", data=form | {"client_id": account.name, "client_secret": secret})
    for answer in (basic, posted):
        assert answer.headers["cache-control"] == "no-store"
        said = claims_of(answer.json()["access_token"], handle.issuer)
        assert (said["sub"], said["tenant_id"]) == (account.name, account.tenant_id)
        assert (tuple(said["roles"]), tuple(said["scope"].split())) == (account.roles, account.scopes)
        assert said["exp"] - said["iat"] == answer.json()["expires_in"]


ITSELF = {"grant_type": "client_credentials"}


@pytest.mark.parametrize(
    ("client", "secret", "form", "error"),
    [
        ("sco-cli", "wrong", ITSELF, "invalid_client"),
        ("nobody", "any", ITSELF, "invalid_client"),
        ("", "", ITSELF, "invalid_client"),
        ("sco-cli", None, {"grant_type": "password"}, "unsupported_grant_type"),
        ("sco-cli", None, {}, "unsupported_grant_type"),
        ("model-router", None, ITSELF | {"scope": "factory.compute.admin"}, "invalid_scope"),
        (SCREENS, None, ITSELF, "unauthorized_client"),
        (SCREENS, None, {"grant_type": "authorization_code", "code": "made-up"}, "invalid_grant"),
    ],
)
def test_what_it_refuses_to_give(
    handle: IssuerHandle, client: str, secret: str | None, form: dict[str, str], error: str
) -> None:
    given = handle.issuer.clients[client].secret if secret is None else secret
    url = f"{handle.url}/token"
    answer = httpx2.post(url, data=form, auth=httpx2.BasicAuth(client, given), trust_env=False)
    assert answer.status_code in (400, 401)
    assert answer.json()["error"] == error


@pytest.mark.parametrize("person", PEOPLE, ids=lambda one: one.name)
def test_a_person_is_picked_by_a_click(http: httpx2.Client, handle: IssuerHandle, person: Any) -> None:
    sent = httpx2.URL(picked(http, person.name).headers["location"])
    assert str(sent).startswith(f"{CALLBACK}?")
    assert (sent.params["state"], sent.params["iss"]) == ("s", handle.url)
    tokens = exchange(http, handle, code=sent.params["code"]).json()
    access, identity = (claims_of(tokens[name], handle.issuer) for name in ("access_token", "id_token"))
    assert (access["sub"], access["tenant_id"], access["aud"]) == (person.name, person.tenant_id, "sco-api")
    assert (identity["sub"], identity["aud"], identity["nonce"]) == (person.name, SCREENS, "n")


@pytest.mark.parametrize(
    "changed",
    [
        {"code_verifier": "x" * 43},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:9999/sign-in/callback"},
        {"code": "made-up"},
    ],
)
def test_a_code_is_for_who_asked_and_good_once(
    http: httpx2.Client, handle: IssuerHandle, changed: dict[str, str]
) -> None:
    code = httpx2.URL(picked(http, "ada").headers["location"]).params["code"]
    assert exchange(http, handle, **({"code": code} | changed)).json()["error"] == "invalid_grant"
    spent = "code" not in changed
    assert (exchange(http, handle, code=code).status_code == 400) is spent
    assert exchange(http, handle, code=code).status_code == 400


def test_a_code_is_over_after_a_minute() -> None:
    now = [1000.0]
    issuer = Issuer("http://127.0.0.1:1", now=lambda: now[0])
    client = issuer.clients[SCREENS]
    given = Asked(SCREENS, CALLBACK, CHALLENGE, None, PEOPLE[0], issuer.code_end())
    late, timely = issuer.code_for(given), issuer.code_for(given)
    now[0] += CODE_SECONDS - 1
    assert issuer.redeem(timely, client, CALLBACK, VERIFIER) == given
    now[0] += 1
    assert issuer.redeem(late, client, CALLBACK, VERIFIER) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "nobody"},
        {"client_id": "sco-cli"},
        {"redirect_uri": "https://evil.example/sign-in/callback"},
        {"redirect_uri": "http://127.0.0.1.evil.example/sign-in/callback"},
        {"redirect_uri": "http://127.0.0.1:8080/other"},
        {"redirect_uri": "http://u:p@127.0.0.1/sign-in/callback"},
        {"redirect_uri": "http://127.0.0.1/sign-in/callback?a=b"},
        {"redirect_uri": ""},
        {"response_type": "token"},
        {"code_challenge": ""},
        {"code_challenge_method": "plain"},
    ],
)
def test_nobody_is_sent_anywhere_else(http: httpx2.Client, changed: dict[str, str]) -> None:
    page = http.get("/authorize", params=asked(**changed))
    assert page.status_code in (400, 401)
    assert "location" not in page.headers


def test_the_page_warns_and_keeps_what_came_as_text(http: httpx2.Client) -> None:
    page = http.get("/authorize", params=asked(state='"><script>alert(1)</script>'))
    assert WARNING in page.text
    assert "<script>" not in page.text
    for person in PEOPLE:
        assert f">{person.name}</button>" in page.text
    assert picked(http, "nobody").status_code == 403


def test_it_answers_to_names_of_loopback_only(http: httpx2.Client) -> None:
    assert http.get("/jwks", headers={"Host": "evil.example"}).status_code == 400
    assert http.get("/jwks", headers={"Host": "localhost:1"}).status_code == 200


def test_a_form_without_end_is_refused(http: httpx2.Client) -> None:
    assert http.post("/token", content=b"a=" + b"b" * 100_000).status_code == 413


def test_secrets_are_random_private_and_kept(data_dir: Path, handle: IssuerHandle) -> None:
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"clients.json", "keys.json", "sco-cli"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    again = Issuer(handle.url, data_dir)
    assert again.clients == handle.issuer.clients
    assert again.keyring.public() == handle.issuer.keyring.public()
    assert Issuer(handle.url).clients["sco-cli"].secret != again.clients["sco-cli"].secret
    assert again.clients["sco-cli"].secret not in repr(again.clients)


def test_a_client_that_was_added_by_hand_is_known(tmp_path: Path) -> None:
    Issuer("http://127.0.0.1:1", tmp_path)
    path = tmp_path / "clients.json"
    account = {"name": "extra", "tenant_id": "tenant-c", "roles": ["Observer"], "scopes": ["x"]}
    listed = [*json.loads(path.read_text()), {"client_id": "extra", "secret": "s", "account": account}]
    path.write_text(json.dumps(listed))
    issuer = Issuer("http://127.0.0.1:1", tmp_path)
    assert issuer.client_of("extra", "s") is not None
    assert claims_of(issuer.token_for("extra"), issuer)["tenant_id"] == "tenant-c"


def test_keys_rotate_and_the_oldest_are_forgotten() -> None:
    keyring = Keyring()
    seen = [keyring.signing("RS256").kid]
    for _ in range(KEPT_ROTATIONS + 1):
        keyring.rotate()
        seen.append(keyring.signing("RS256").kid)
    listed = [one["kid"] for one in keyring.public()["keys"] if one["alg"] == "RS256"]
    assert listed == list(reversed(seen))[: KEPT_ROTATIONS + 1]
    assert seen[0] not in listed


# The library would rather have the name Ed25519 for it, which few issuers use yet.
@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tests_mint_tokens_directly(algorithm: str) -> None:
    issuer = Issuer("http://127.0.0.1:1")
    said = claims_of(issuer.token_for("ada", algorithm=algorithm, tenant_id="other"), issuer)
    assert (said["sub"], said["tenant_id"]) == ("ada", "other")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::"])
def test_it_serves_this_machine_alone(host: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no loopback address"):
        RunningIssuer(0, host=host)
    ended = subprocess.run(
        [sys.executable, "-m", "lab.issuer", "--data-dir", str(tmp_path), "--host", host],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"lab.issuer: {host} is no loopback address")


def test_a_port_that_is_taken_is_told(handle: IssuerHandle) -> None:
    with pytest.raises(OSError, match="choose another"):
        RunningIssuer(int(handle.url.rpartition(":")[2]))
