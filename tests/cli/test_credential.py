"""Who `sco` is: a token from the environment, a file or an issuer, sent nowhere in plain text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import httpx2
import pytest

from clients.cli.credential import Credential, find_credential
from clients.cli.failures import Exit, Failure
from tests.cli import answers
from tests.cli.conftest import FakeClock, Sco
from tests.cli.fake_api import FakeApi, Reply, document, problem, serving

LOOPBACK = "http://127.0.0.1:8080"
TOKEN_PATH = "/realms/x/token"


@pytest.fixture(scope="module")
def served_issuer() -> Iterator[FakeApi]:
    with serving(FakeApi()) as own:
        yield own


@pytest.fixture
def issuer(served_issuer: FakeApi) -> FakeApi:
    served_issuer.reset()
    return served_issuer


def given(token: str, seconds: object = 3600) -> Reply:
    return document({"access_token": token, "token_type": "Bearer", "expires_in": seconds})


def found(environment: dict[str, str], server: str = LOOPBACK, clock: FakeClock | None = None) -> Credential:
    now = clock or FakeClock()
    credential = find_credential(environment, server, timeout_seconds=5, monotonic=lambda: now.now)
    assert credential is not None
    return credential


def refused(environment: dict[str, str], server: str = LOOPBACK) -> Failure:
    with pytest.raises(Failure) as failed:
        found(environment, server).token()
    assert failed.value.code is Exit.USAGE
    return failed.value


def client(issuer: FakeApi, folder: Path, secret: str = "s3 cret/+&") -> dict[str, str]:
    path = folder / "client.secret"
    path.write_text(f"{secret}\n")
    return {
        "SCO_CLIENT_ID": "model router",
        "SCO_CLIENT_SECRET_FILE": str(path),
        "SCO_TOKEN_URL": f"{issuer.url}{TOKEN_PATH}",
    }


def test_without_any_it_sends_none(sco: Sco, api: FakeApi) -> None:
    api.always(document(answers.status()))
    assert sco("status").code == 0
    assert "authorization" not in api.calls[0].headers
    empty = {"SCO_TOKEN": "", "SCO_TOKEN_FILE": ""}
    assert find_credential(empty, LOOPBACK, timeout_seconds=5, monotonic=lambda: 0.0) is None


def test_a_token_is_sent_as_it_is(sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCO_TOKEN", " a.b.c\n")
    api.always(document(answers.status()))
    assert sco("status").code == 0
    assert api.calls[0].headers["authorization"] == "Bearer a.b.c"


def test_a_file_is_read_for_each_request(tmp_path: Path) -> None:
    path = tmp_path / "token"
    credential = found({"SCO_TOKEN_FILE": str(path)})
    for token in ("one.x.y", "two.x.y"):
        path.write_text(token + "\n")
        assert credential.token() == token


def test_a_token_is_fetched_with_the_clients_secret(
    sco: Sco, api: FakeApi, issuer: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in client(issuer, tmp_path).items():
        monkeypatch.setenv(name, value)
    issuer.on("POST", TOKEN_PATH, given("fetched.x.y"))
    api.always(document(answers.status()))
    assert sco("status").code == 0
    assert api.calls[0].headers["authorization"] == "Bearer fetched.x.y"
    (asked,) = issuer.calls
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"]}
    scheme, _, encoded = asked.headers["authorization"].partition(" ")
    sent = httpx2.BasicAuth("model+router", "s3+cret%2F%2B%26")
    expected = next(sent.auth_flow(httpx2.Request("GET", "http://x"))).headers["authorization"]
    assert f"{scheme} {encoded}" == expected


def test_a_fetched_token_is_kept_until_it_is_about_to_end(issuer: FakeApi, tmp_path: Path) -> None:
    clock = FakeClock()
    credential = found(client(issuer, tmp_path), clock=clock)
    issuer.on("POST", TOKEN_PATH, given("one.x.y", 100), given("two.x.y", 100))
    assert [credential.token() for _ in range(3)] == ["one.x.y"] * 3
    clock.now += 69
    assert credential.token() == "one.x.y"
    clock.now += 1
    assert credential.token() == "two.x.y"
    assert len(issuer.calls) == 2


def test_a_token_without_an_end_is_used_once(issuer: FakeApi, tmp_path: Path) -> None:
    credential = found(client(issuer, tmp_path))
    issuer.on(
        "POST", TOKEN_PATH, document({"access_token": "one.x.y"}), document({"access_token": "two.x.y"})
    )
    assert [credential.token(), credential.token()] == ["one.x.y", "two.x.y"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"SCO_TOKEN": "a", "SCO_TOKEN_FILE": "b"}, "SCO_TOKEN and SCO_TOKEN_FILE are set"),
        ({"SCO_TOKEN": "a", "SCO_CLIENT_ID": "b"}, "it is not clear which counts"),
        ({"SCO_CLIENT_ID": "a"}, "but not SCO_CLIENT_SECRET_FILE and SCO_TOKEN_URL"),
        ({"SCO_TOKEN_URL": LOOPBACK}, "but not SCO_CLIENT_ID and SCO_CLIENT_SECRET_FILE"),
        ({"SCO_TOKEN": "a b"}, "something with spaces"),
        ({"SCO_TOKEN": "  "}, "holds nothing"),
        ({"SCO_TOKEN": "a\u00e9"}, "letters that no token has"),
        ({"SCO_TOKEN_FILE": "/nowhere/at/all"}, "cannot be read: No such file"),
        ({"SCO_TOKEN_FILE": "/"}, "cannot be read: Is a directory"),
    ],
)
def test_what_is_not_clear_is_refused_with_what_to_set(environment: dict[str, str], told: str) -> None:
    assert told in refused(environment).problem


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://issuer.example/token", "sco sends no token or secret in plain text"),
        ("ftp://issuer.example", "which is no https address"),
        ("issuer.example", "which is no https address"),
        ("http://[::1", "which is no address"),
    ],
)
def test_a_secret_is_sent_over_tls_or_on_loopback(tmp_path: Path, url: str, told: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    environment = {"SCO_CLIENT_ID": "a", "SCO_CLIENT_SECRET_FILE": str(secret), "SCO_TOKEN_URL": url}
    assert told in refused(environment).problem


def test_a_token_goes_to_a_server_over_tls_or_on_loopback() -> None:
    given_token = {"SCO_TOKEN": "a.b.c"}
    assert "in plain text" in refused(given_token, "http://sco.example:8080").problem
    for server in ("https://sco.example", "http://localhost:1", "http://[::1]:8080"):
        assert found(given_token, server).token() == "a.b.c"


@pytest.mark.parametrize(
    ("reply", "code", "told"),
    [
        (
            document({"error": "invalid_client", "error_description": "another secret"}, 401),
            Exit.USAGE,
            "gives the client model router no token (status 401): another secret",
        ),
        (document({"error": "invalid_client"}, 400), Exit.USAGE, "(status 400): invalid_client"),
        (Reply(b"<html>", 500, "text/html"), Exit.UNREACHABLE, "(status 500): no reason"),
        (Reply(b"", 302, "", {"location": "https://evil.example"}), Exit.USAGE, "(status 302)"),
        (document({"token": "a"}), Exit.UNREACHABLE, "something that is no token"),
        (document([]), Exit.UNREACHABLE, "something that is no token"),
        (given("a.b.c", "soon"), Exit.UNREACHABLE, "something that is no token"),
        (given("a b"), Exit.USAGE, "something with spaces"),
        (Reply(b"[" * 100_000), Exit.UNREACHABLE, "something that is no token"),
    ],
)
def test_an_issuer_that_gives_no_token(
    issuer: FakeApi, tmp_path: Path, reply: Reply, code: Exit, told: str
) -> None:
    issuer.always(reply)
    credential = found(client(issuer, tmp_path, "topsecret"))
    with pytest.raises(Failure) as failed:
        credential.token()
    assert (failed.value.code, told in failed.value.problem) == (code, True), failed.value.problem
    assert "topsecret" not in failed.value.problem + " ".join(failed.value.hints)


def test_an_issuer_that_is_away_is_named(tmp_path: Path, issuer: FakeApi) -> None:
    environment = client(issuer, tmp_path) | {"SCO_TOKEN_URL": "http://127.0.0.1:1/token"}
    credential = found(environment)
    with pytest.raises(Failure) as failed:
        credential.token()
    assert failed.value.code is Exit.UNREACHABLE
    assert "no token from http://127.0.0.1:1/token" in failed.value.problem
    assert "SCO_TOKEN_URL" in failed.value.hints[0]


def test_a_server_that_wants_a_token_says_what_to_set(sco: Sco, api: FakeApi) -> None:
    api.always(problem(401, "no token came with the request", whatToDo="Send a token."))
    ran = sco("status")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[:2] == [
        "error: no token came with the request",
        "  what to do: Send a token.",
    ]
    for name in ("SCO_TOKEN_FILE", "SCO_TOKEN", "SCO_CLIENT_ID", "SCO_CLIENT_SECRET_FILE", ".lab/sco.env"):
        assert name in ran.err


def test_a_token_that_is_refused_is_told_by_where_it_came_from(
    sco: Sco, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("se.cr.et")
    monkeypatch.setenv("SCO_TOKEN_FILE", str(path))
    api.always(problem(401, "what came with the request does not prove who sent it"))
    ran = sco("status")
    assert ran.code == 1
    assert f"the token came from the file {path} (SCO_TOKEN_FILE)" in ran.err
    assert "se.cr.et" not in ran.err


def test_who_may_not_do_it_is_told_what_is_missing(
    sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCO_TOKEN", "a.b.c")
    told = "POST /factory/audits is not for this caller: it needs the role Operator"
    api.always(problem(403, told, whatToDo="Ask whoever manages access."))
    ran = sco("place", "orders-daily")
    assert ran.code == 1
    assert ran.err.splitlines() == [f"error: {told}", "  what to do: Ask whoever manages access."]


def test_a_redirect_takes_no_token_along(sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCO_TOKEN", "a.b.c")
    api.always(Reply(b"", 307, "", {"location": f"{api.url}/elsewhere"}))
    assert sco("status").code == 3
    assert [call.path for call in api.calls] == ["/status"]
    assert json.dumps(api.calls[0].headers).count("a.b.c") == 1
