"""A person signs in at the screens with an issuer over real HTTP, and stays who they are until the end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from api.sign_in.code_flow import CodeFlow, SignInFailed, own_page
from api.sign_in.principal import Principal
from api.sign_in.session import Seal
from api.sign_in.setup import Screens
from lab.issuer import IssuerHandle
from lab.issuer.issuer import TOKEN_SECONDS
from tests.api.door import client_of, problem
from tests.api.sign_in.bare import PATH, Bare, bare
from tests.api.sign_in.sessions import COOKIE, SESSION_KEY, session_until, sign_in_at
from tests.estates import Clock

PAGE = {"Accept": "text/html"}
OWN = {"Origin": "http://localhost:8080"}
CALLBACK = "http://localhost:8080/sign-in/callback"
# A page that says who is signed in, and needs no database.
SOMEWHERE = "/ui/nothing"


@dataclass
class Person:
    """Somebody with a browser: what it keeps, and how it gets from the service to the issuer and back."""

    service: Bare
    issuer: IssuerHandle
    clock: Clock

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.service.http

    async def begin(self, page: str = SOMEWHERE) -> httpx2.URL:
        """As far as the issuer's page; returns its address."""
        first = await self.http.get(page, headers=PAGE)
        assert first.status_code == 303, first.text
        second = await self.http.get(first.headers["location"], headers=PAGE)
        assert second.status_code == 303, second.text
        return httpx2.URL(second.headers["location"])

    async def pick(self, address: httpx2.URL, name: str) -> str:
        """Choose who to be; returns the address that the issuer sends the browser to."""
        async with httpx2.AsyncClient(trust_env=False) as browser:
            page = await browser.get(address)
            assert page.status_code == 200, page.text
            hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
            answer = await browser.post(f"{self.issuer.url}/authorize", data=hidden | {"person": name})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    async def sign_in(self, name: str, page: str = SOMEWHERE) -> httpx2.Response:
        return await self.http.get(await self.pick(await self.begin(page), name), headers=PAGE)


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerHandle]:
    with capture_logs(), IssuerHandle.start_in_thread() as running:
        yield running


@asynccontextmanager
async def somebody(issuer: IssuerHandle, names: frozenset[str] | None = None) -> AsyncIterator[Person]:
    clock = Clock(datetime.now(UTC))
    sign_in = sign_in_at(issuer, clock)
    async with bare(clock, replace(sign_in, names=names) if names else sign_in) as service:
        yield Person(service, issuer, clock)


@pytest_asyncio.fixture
async def person(issuer: IssuerHandle) -> AsyncIterator[Person]:
    async with somebody(issuer) as own:
        yield own


@pytest.mark.parametrize(
    ("name", "tenant"),
    [("ada", "platform"), ("omar", "platform"), ("olivia", "platform"), ("tara", "tenant-a")],
)
async def test_a_person_signs_in_and_out(person: Person, name: str, tenant: str) -> None:
    back = await person.sign_in(name)
    assert (back.status_code, back.headers["location"]) == (303, SOMEWHERE)
    page = await person.http.get(SOMEWHERE, headers=PAGE)
    assert page.status_code == 404
    assert f"<span>{name} " in page.text
    assert f"of {tenant}</span>" in page.text
    assert 'action="/sign-out"' in page.text

    out = await person.http.post("/sign-out", headers=OWN)
    assert out.status_code == 200
    assert "You are signed out" in out.text
    assert dict(person.http.cookies) == {}
    assert (await person.http.get(SOMEWHERE, headers=PAGE)).status_code == 303


async def test_a_session_counts_for_the_api_too_with_the_role_of_its_person(person: Person) -> None:
    await person.sign_in("olivia")
    assert (await person.http.get(PATH)).status_code == 200
    refused = await person.http.post("/factory/audits", headers=OWN)
    assert "the roles Observer" in problem(refused, 403, "not_allowed")["detail"]


async def test_the_cookie_is_for_this_service_alone_and_says_nothing(person: Person) -> None:
    back = await person.sign_in("ada")
    kept = {one.split("=")[0]: one for one in back.headers.get_list("set-cookie")}
    assert set(kept) == {"sco-session", "sco-sign-in"}
    for flag in ("HttpOnly", "Path=/", "SameSite=lax"):
        assert flag in kept["sco-session"]
    assert "Secure" not in kept["sco-session"]
    assert "ada" not in kept["sco-session"]
    assert "Max-Age=0" in kept["sco-sign-in"]


async def test_elsewhere_than_on_loopback_it_travels_over_tls_only(issuer: IssuerHandle) -> None:
    async with somebody(issuer, frozenset({"sco.example"})) as person:
        begun = await person.http.get("https://sco.example/sign-in", headers=PAGE)
        asked = httpx2.URL(begun.headers["location"]).params
        assert asked["redirect_uri"] == "https://sco.example/sign-in/callback"
        assert begun.headers["set-cookie"].startswith("__Host-sco-sign-in=")
        assert "Secure" in begun.headers["set-cookie"]
        assert (await person.http.get("/healthz")).status_code == 421


async def test_what_is_asked_of_the_issuer(person: Person) -> None:
    first, second = (await person.begin(), await person.begin())
    asked, again = first.params, second.params
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert asked["scope"] == "openid factory.compute.read factory.compute.admin"
    assert asked["redirect_uri"] == CALLBACK
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name]) >= 43
        assert asked[name] != again[name]


async def test_a_session_ends_with_its_token(person: Person) -> None:
    await person.sign_in("ada")
    person.clock.move(TOKEN_SECONDS - 10)
    assert (await person.http.get(PATH)).status_code == 200
    person.clock.move(11)
    assert (await person.http.get(SOMEWHERE, headers=PAGE)).status_code == 303
    answer = await person.http.get(PATH)
    problem(answer, 401, "invalid_token")


async def test_a_sign_in_is_ended_by_the_browser_that_began_it(issuer: IssuerHandle, person: Person) -> None:
    async with somebody(issuer) as victim:
        back = await person.pick(await person.begin(), "theo")
        problem_page(await victim.http.get(back, headers=PAGE), "this browser has begun no sign-in")
        await victim.begin()
        problem_page(await victim.http.get(back, headers=PAGE), "another sign-in")
        assert "sco-session" not in victim.http.cookies


def problem_page(answer: httpx2.Response, told: str) -> None:
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert told in answer.text
    assert "/sign-in" in answer.text


async def test_a_sign_in_is_ended_once(person: Person) -> None:
    back = await person.pick(await person.begin(), "ada")
    kept = dict(person.http.cookies)
    assert (await person.http.get(back, headers=PAGE)).status_code == 303
    problem_page(await person.http.get(back, headers=PAGE), "this browser has begun no sign-in")
    again = await person.http.get(back, headers=PAGE | {"Cookie": f"sco-sign-in={kept['sco-sign-in']}"})
    problem_page(again, "the issuer gave no token")


async def test_a_sign_in_is_over_after_ten_minutes(person: Person) -> None:
    back = await person.pick(await person.begin(), "ada")
    person.clock.move(601)
    problem_page(await person.http.get(back, headers=PAGE), "too long ago")


async def test_what_the_issuer_says_no_with_is_not_repeated(person: Person) -> None:
    state = (await person.begin()).params["state"]
    answer = await person.http.get(
        "/sign-in/callback",
        params={"error": "<script>", "error_description": "<script>alert(1)</script>", "state": state},
        headers=PAGE,
    )
    problem_page(answer, "the issuer did not let you in")
    assert "script" not in answer.text


async def test_an_answer_of_another_issuer_is_refused(person: Person) -> None:
    back = await person.pick(await person.begin(), "ada")
    mixed = str(httpx2.URL(back).copy_set_param("iss", "https://evil.example"))
    problem_page(await person.http.get(mixed, headers=PAGE), "another issuer answered")


@pytest.mark.parametrize("part", ["nonce", "verifier"])
async def test_a_code_is_bound_to_the_sign_in_it_was_made_for(person: Person, part: str) -> None:
    flow = screens_in(person).flow
    begun = await flow.begin(CALLBACK, "/")
    said = httpx2.URL(await person.pick(httpx2.URL(begun.url), "ada")).params
    with pytest.raises(SignInFailed):
        await flow.complete(said, begun.kept | {part: "x" * 43}, CALLBACK)


async def test_a_code_is_bound_to_where_it_was_sent(person: Person) -> None:
    flow = screens_in(person).flow
    begun = await flow.begin(CALLBACK, "/")
    said = httpx2.URL(await person.pick(httpx2.URL(begun.url), "ada")).params
    with pytest.raises(SignInFailed):
        await flow.complete(said, begun.kept, "http://localhost:9999/sign-in/callback")


async def test_whom_the_flow_lets_in(person: Person) -> None:
    flow: CodeFlow = screens_in(person).flow
    begun = await flow.begin(CALLBACK, "/ui/pools?page=2")
    assert begun.kept["next"] == "/ui/pools?page=2"
    said = httpx2.URL(await person.pick(httpx2.URL(begun.url), "tara")).params
    found = await flow.complete(said, begun.kept, CALLBACK)
    assert (found.subject, found.tenant_id) == ("tara", "tenant-a")


def screens_in(person: Person) -> Screens:
    screens = sign_in_at(person.issuer, person.clock).screens
    assert screens is not None
    return screens


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/%5cevil.example/..",
        "/ui/\\evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "/sign-out",
        "/openapi.json",
        "/sign-in?next=/",
        "http:/ui/pools",
        "ui/pools",
        " /ui/pools",
        "\t//evil.example",
        "/ui/pools\r\nSet-Cookie: a=b",
        "/ui/pools\x00",
        "//[::1",
        "",
        "//localhost:8080@evil.example/ui/pools",
    ],
)
async def test_nobody_is_sent_elsewhere_after_the_sign_in(person: Person, wanted: str) -> None:
    assert own_page(wanted) == "/"
    begun = await person.http.get("/sign-in", params={"next": wanted}, headers=PAGE)
    back = await person.pick(httpx2.URL(begun.headers["location"]), "ada")
    ended = await person.http.get(back, headers=PAGE)
    assert (ended.status_code, ended.headers["location"]) == (303, "/")


@pytest.mark.parametrize("wanted", ["/", "/ui/pools", "/ui/pools?search=a%26b&page=2", "/ui/pools/x#top"])
async def test_pages_of_ours_are_found_again(person: Person, wanted: str) -> None:
    assert own_page(wanted) == wanted


def forged_sessions(clock: Clock) -> dict[str, str]:
    later = clock() + timedelta(hours=1)
    good = session_until(later)
    said = Seal(SESSION_KEY.encode(), COOKIE).open(good)
    assert said is not None
    return {
        "another key": Seal(b"another key of thirty-two bytes!", COOKIE).close(said),
        "another purpose": Seal(SESSION_KEY.encode(), "sco-sign-in").close(said),
        "over": session_until(clock() - timedelta(seconds=1)),
        "no cookie": "x",
        "plain": '{"sub": "ada"}',
        "five dots": "a.b.c.d.e",
        "large": "a" * 5000,
        "changed": f"{good[:-2]}AA",
        "not encrypted": "eyJhbGciOiJub25lIn0.e30.",
    }


@pytest.mark.parametrize("name", forged_sessions(Clock()))
async def test_a_session_that_we_did_not_give_is_none(person: Person, name: str) -> None:
    forged = forged_sessions(person.clock)[name]
    answer = await person.http.get(PATH, headers={"Cookie": f"sco-session={forged}"})
    problem(answer, 401, "invalid_token")


async def test_a_session_that_we_gave_is_one(person: Person) -> None:
    sealed = session_until(person.clock() + timedelta(hours=1))
    assert (await person.http.get(PATH, headers={"Cookie": f"{COOKIE}={sealed}"})).status_code == 200


async def test_a_session_changes_something_from_our_own_pages_only(person: Person) -> None:
    await person.sign_in("ada")
    for headers in (
        {},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        problem(await person.http.post("/factory/audits", headers=headers), 403, "foreign_origin")
    for headers in (OWN, {"Sec-Fetch-Site": "same-origin"}):
        assert (await person.http.post("/factory/audits", headers=headers)).status_code != 403
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await person.http.post("/sign-out", headers=headers)).status_code == 403
    assert "sco-session" in person.http.cookies


async def test_a_token_counts_whatever_the_cookie_says(person: Person) -> None:
    await person.sign_in("ada")
    answer = await person.http.get(PATH, headers={"Authorization": "Bearer a.b.c"})
    problem(answer, 401, "invalid_token")
    token = person.issuer.issuer.token_for("olivia")
    refused = await person.http.post("/factory/audits", headers={"Authorization": f"Bearer {token}"})
    assert "the roles Observer" in problem(refused, 403, "not_allowed")["detail"]


async def test_names_of_people_stay_text(person: Person) -> None:
    person.issuer.issuer.people["<b>eve</b>"] = person.issuer.issuer.people["ada"]
    token = person.issuer.issuer.token_for("ada", sub="<img src=x onerror=alert(1)>")
    page = await person.http.get(SOMEWHERE, headers=PAGE | {"Authorization": f"Bearer {token}"})
    assert "<img" not in page.text
    assert "&lt;img src=x onerror=alert(1)&gt;" in page.text


async def test_a_server_that_knows_tokens_only_says_so() -> None:
    async with bare(Clock()) as service:
        page = await service.http.get("/sign-in", headers=PAGE)
        assert page.status_code == 404
        assert "SCO_OIDC_CLIENT_ID" in page.text


async def test_an_issuer_that_is_away_is_told_to_a_person() -> None:
    clock = Clock(datetime.now(UTC))
    with IssuerHandle.start_in_thread() as gone:
        sign_in = sign_in_at(gone, clock)
    async with bare(clock, sign_in) as service:
        page = await service.http.get("/sign-in", headers=PAGE)
    assert page.status_code == 503
    assert "the issuer of tokens cannot be reached" in page.text


async def test_a_session_holds_who_it_is_and_nothing_else(person: Person) -> None:
    await person.sign_in("omar")
    held = Seal(SESSION_KEY.encode(), "sco-session").open(person.http.cookies["sco-session"])
    assert held is not None
    assert set(held) == {"sub", "tenant", "scopes", "roles", "exp"}
    assert held["exp"] <= person.clock().timestamp() + TOKEN_SECONDS + 60


async def test_a_bearer_of_the_issuer_needs_no_session(person: Person) -> None:
    async with client_of(person.service.app) as client:
        for name in ("sco-cli", "tenant-a-router", "ada"):
            token = person.issuer.issuer.token_for(name)
            answer = await client.get(PATH, headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200


def test_a_principal_cannot_be_changed() -> None:
    principal = Principal("ada", "platform", frozenset(), frozenset(), datetime.now(UTC))
    with pytest.raises(AttributeError):
        principal.tenant_id = "tenant-a"  # type: ignore[misc]


async def test_another_key_ends_every_session(issuer: IssuerHandle, person: Person) -> None:
    await person.sign_in("ada")
    sealed = person.http.cookies["sco-session"]
    async with bare(person.clock, sign_in_at(issuer, person.clock, key="f" * 32)) as other:
        answer = await other.http.get(PATH, headers={"Cookie": f"sco-session={sealed}"})
    assert answer.status_code == 401
