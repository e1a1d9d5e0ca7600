"""A session is what this service gave, for as long as it said, and changes things from its own pages only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api.sign_in.principal import Principal
from api.sign_in.session import Seal
from lab.issuer import IssuerHandle
from lab.issuer.issuer import TOKEN_SECONDS
from tests.api.door import client_of, problem
from tests.api.sign_in.bare import PATH, bare
from tests.api.sign_in.person import PAGE, SOMEWHERE, Person
from tests.api.sign_in.sessions import COOKIE, SESSION_KEY, session_until, sign_in_at
from tests.estates import Clock

OWN = {"Origin": "http://localhost:8080"}


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
