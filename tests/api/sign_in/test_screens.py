"""A person signs in at the screens with an issuer over real HTTP, and stays who they are until the end."""

from __future__ import annotations

import httpx2
import pytest

from api.sign_in.code_flow import CodeFlow, SignInFailed, own_page
from api.sign_in.setup import Screens
from lab.issuer import IssuerHandle
from lab.issuer.issuer import TOKEN_SECONDS
from tests.api.door import problem
from tests.api.sign_in.bare import PATH
from tests.api.sign_in.person import PAGE, SOMEWHERE, Person, somebody
from tests.api.sign_in.sessions import sign_in_at

OWN = {"Origin": "http://localhost:8080"}
CALLBACK = "http://localhost:8080/sign-in/callback"


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


async def test_a_form_after_the_end_of_a_session_is_told_that_nothing_was_done(person: Person) -> None:
    await person.sign_in("ada")
    person.clock.move(TOKEN_SECONDS + 1)
    page = await person.http.post("/ui/pools/cloud-a/drain", headers=PAGE | OWN)
    assert page.status_code == 401
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "you are not signed in any more, and nothing was done" in page.text
    assert "Sign in again, and then do it once more." in page.text
    problem(await person.http.post("/factory/audits", headers=PAGE | OWN), 401, "invalid_token")
    problem(await person.http.post("/ui/pools/cloud-a/drain", headers=OWN), 401, "invalid_token")


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
