"""No route is forgotten: nobody unknown gets past, and every route says what it needs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import product

import httpx2
import pytest
import pytest_asyncio
from fastapi import FastAPI
from starlette.types import Message
from structlog.testing import capture_logs

from api.app import routes
from api.sign_in.keys import KeysUnavailable
from api.sign_in.needs import (
    CALLERS,
    NEEDS,
    OPEN_PATHS,
    Caller,
    caller_at,
    is_open,
    need_of,
    require_needs,
    routes_of,
)
from api.sign_in.principal import ADMINISTER, OPERATE, PLACE, READ, Need, Principal, Role, Scope
from api.sign_in.refusal import Reason
from api.sign_in.setup import SignIn
from api.sign_in.tokens import TokenVerifier
from tests.api.door import Bearer, Door, client_of, problem
from tests.api.sign_in.bare import PATH, Bare, bare
from tests.api.sign_in.minting import TRUST
from tests.estates import Clock

ROUTES = sorted(routes_of(routes()))
GUARDED = [
    (method, path)
    for method, path in ROUTES
    if not is_open(path) and method != "ANY" and (method, path) not in CALLERS
]
OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/sign-in"),
    ("GET", "/sign-in/callback"),
    ("POST", "/sign-out"),
    ("ANY", "/static"),
}
ANYONE = {"scope": "factory.compute.read factory.compute.admin", "roles": [role.value for role in Role]}
PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest_asyncio.fixture(scope="module")
async def service() -> AsyncIterator[Bare]:
    async with bare(Clock()) as own:
        yield own


def filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "x", path)


def test_what_is_open_is_this_short_list() -> None:
    assert {(method, path) for method, path in ROUTES if (method, path) not in GUARDED} == OPEN | set(CALLERS)
    assert len(GUARDED) > 30


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_every_route_refuses_who_is_unknown(service: Bare, method: str, path: str) -> None:
    answer = await service.http.request(method, filled(path))
    problem(answer, 401, "not_signed_in")
    assert answer.headers["www-authenticate"] == "Bearer"
    bad = await service.http.request(method, filled(path), headers={"Authorization": "Bearer a.b.c"})
    assert bad.status_code == 401
    assert bad.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "said",
    [
        {"scope": None, "roles": ["PlatformAdmin"]},
        {"scope": "openid", "roles": ["PlatformAdmin"]},
        {"roles": None},
        {"roles": ["platformadmin", "Admin"]},
    ],
    ids=["no scope", "other scopes", "no role", "other roles"],
)
async def test_every_route_refuses_who_may_nothing(
    service: Bare, method: str, path: str, said: dict[str, object]
) -> None:
    async with client_of(service.app, Bearer(Clock(), **said)) as client:
        answer = await client.request(method, filled(path))
    assert answer.status_code == 403
    assert answer.headers["www-authenticate"].startswith('Bearer error="insufficient_scope"')
    assert "the caller has" in answer.text


@pytest.mark.parametrize(("method", "path"), [one for one in GUARDED if one[0] not in ("GET", "HEAD")])
async def test_every_write_asks_for_just_what_it_needs(service: Bare, method: str, path: str) -> None:
    """Whoever has it gets past the guard, to be refused by the route itself or by the missing database."""
    need = NEEDS[method, path]
    for scope, role in product(Scope, Role):
        enough = scope in need.scopes and role in need.roles
        async with client_of(service.app, Bearer(Clock(), scope=scope, roles=[role])) as client:
            answer = await client.request(method, filled(path))
        assert (answer.status_code != 403) is enough, (scope, role, answer.text)


def test_a_route_of_nodes_is_told_by_its_whole_path() -> None:
    assert caller_at("GET", "/nodes/x/bundle") == (Caller.NODE, "x")
    assert caller_at("POST", "/nodes/x/bus-credentials") == (Caller.NODE, "x")
    assert caller_at("POST", "/nodes/vendordata") == (Caller.PROVIDER, None)
    assert caller_at("POST", "/nodes/identity") == (Caller.NEWCOMER, None)
    others = (
        "/nodes",
        "/nodes/x",
        "/nodes/x/bundle/",
        "/nodes/x/y/bundle",
        "/nodes//bundle",
        "/x/nodes/x/bundle",
    )
    for method, path in (
        *product(("GET", "POST"), others),
        ("POST", "/nodes/x/bundle"),
        ("HEAD", "/nodes/x/bundle"),
    ):
        assert caller_at(method, path) == (Caller.TOKEN, None), (method, path)


@pytest.mark.parametrize(("method", "path"), sorted(CALLERS))
async def test_no_token_of_the_issuer_opens_a_route_of_nodes(door: Door, method: str, path: str) -> None:
    answer = await door.http.request(method, filled(path), json={} if method == "POST" else None)
    if CALLERS[method, path] is Caller.NEWCOMER:
        problem(answer, 422, "invalid_request")
    else:
        assert answer.status_code == 401, answer.text
        assert not answer.headers["www-authenticate"].startswith("Bearer")


def test_what_each_need_lets_through() -> None:
    allowed = {
        name: {(scope.name, role.name) for scope, role in product(Scope, Role) if _has(need, scope, role)}
        for name, need in (("read", READ), ("place", PLACE), ("operate", OPERATE), ("administer", ADMINISTER))
    }
    assert allowed == {
        "read": set(product(("READ", "ADMIN"), ("OBSERVER", "OPERATOR", "PLATFORM_ADMIN"))),
        "place": set(product(("READ", "ADMIN"), ("OPERATOR", "PLATFORM_ADMIN"))),
        "operate": {("ADMIN", "OPERATOR"), ("ADMIN", "PLATFORM_ADMIN")},
        "administer": {("ADMIN", "PLATFORM_ADMIN")},
    }


def _has(need: Need, scope: Scope, role: Role) -> bool:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    return Principal("ada", "platform", frozenset({scope}), frozenset({role}), until).allows(need)


async def test_a_403_says_what_is_needed_and_what_the_caller_has(service: Bare) -> None:
    async with client_of(service.app, Bearer(Clock(), scope=Scope.READ, roles=["Operator"])) as client:
        told = problem(await client.put("/contracts/x", json={}), 403, "not_allowed")
    assert told["detail"] == (
        "PUT /contracts/{contractId} is not for this caller: it needs the scope factory.compute.admin and the"
        " role PlatformAdmin; the caller has the scopes factory.compute.read and the roles Operator"
    )
    assert service.counted(Reason.NOT_ALLOWED) > 0


async def test_every_path_that_does_not_exist_needs_a_token_too(service: Bare) -> None:
    for path in ("/nothing/here", "/static", "/staticky", "/healthz/", "/sign-in/other", "/metrics/x", "//"):
        assert (await service.http.get(path)).status_code == 401, path
    async with client_of(service.app, Bearer(Clock())) as client:
        problem(await client.get("/nothing/here"), 404, "no_such_route")
        problem(await client.delete("/workloads/x"), 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/static/../workloads", "/static/%2e%2e/workloads", "/static//workloads"])
async def test_the_open_folder_leads_nowhere_else(service: Bare, path: str) -> None:
    answers = (await ask_raw(service, path))[0]
    assert answers["status"] in (401, 404)


async def ask_raw(service: Bare, path: str, kind: str = "http") -> list[Message]:
    """As a client asks that does not tidy its paths."""
    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        told.append(message)

    scope = {
        "type": kind,
        "method": "GET",
        "path": path.replace("%2e", "."),
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await service.app(scope, receive, send)
    return told


async def test_a_socket_is_closed_before_it_is_open(service: Bare) -> None:
    assert await ask_raw(service, "/", "websocket") == [{"type": "websocket.close", "code": 1008}]


def test_an_application_with_a_route_of_which_nothing_is_said_does_not_start() -> None:
    app = routes()
    require_needs(app)

    @app.post("/forgotten")
    async def forgotten() -> None: ...

    with pytest.raises(RuntimeError, match="POST /forgotten"):
        require_needs(app)


def test_an_application_with_another_one_in_it_does_not_start() -> None:
    app = routes()
    app.mount("/inside", FastAPI())
    with pytest.raises(RuntimeError, match="ANY /inside"):
        require_needs(app)


def test_no_line_of_the_table_is_left_over() -> None:
    assert set(NEEDS) | set(CALLERS) <= set(ROUTES)
    assert not set(NEEDS) & set(CALLERS)
    assert {path for _, path in OPEN} - {"/static"} <= OPEN_PATHS
    assert need_of("DELETE", "/contracts/{contractId}") is None


async def test_a_body_is_not_read_for_nobody(service: Bare) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 65_536

    answer = await service.http.put(
        "/contracts/x", content=body(), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, sent) == (401, 0)


async def test_a_page_leads_a_person_to_the_sign_in_and_a_program_to_a_401(service: Bare) -> None:
    asked = await service.http.get("/ui/pools?region=eu-north&search=a%26b", headers=PAGE)
    assert asked.status_code == 303
    wanted = "/ui/pools?region=eu-north&search=a%26b"
    assert httpx2.URL(asked.headers["location"]).params["next"] == wanted
    assert asked.headers["cache-control"] == "no-store"
    for headers in ({}, {"Accept": "application/json"}, PAGE | {"Authorization": "Bearer a.b.c"}):
        assert (await service.http.get("/ui/pools", headers=headers)).status_code == 401
    posted = await service.http.post("/factory/audits", headers=PAGE)
    assert posted.status_code == 401


async def test_an_issuer_that_is_away_is_no_fault_of_the_caller() -> None:
    class Away:
        async def named(self, _: str | None) -> tuple[()]:
            raise KeysUnavailable

    clock = Clock()
    async with bare(clock, SignIn(TokenVerifier(TRUST, Away(), clock))) as service:
        token = Bearer(clock).token
        answer = await service.http.get(PATH, headers={"Authorization": f"Bearer {token}"})
        problem(answer, 503, "not_ready")
        assert answer.headers["retry-after"] == "2"
        problem(await service.http.get(PATH, headers={"Authorization": "Bearer x"}), 401, "invalid_token")


async def test_a_tenant_sees_its_own_rows_and_no_others(door: Door) -> None:
    await door.open_estate()
    async with door.as_(tenant_id="tenant-a", sub="tara") as tara:
        assert (await tara.get("/workloads")).json()["items"] == []
        assert (await tara.get("/workloads/orders-daily")).status_code == 404
        made = await tara.put("/contracts/own", json={"tier": "T5", "floorShare": "0"})
        assert made.status_code == 201, made.text
        assert [one["contractId"] for one in (await tara.get("/contracts")).json()["items"]] == ["own"]
    own = (await door.get("/contracts")).json()["items"]
    assert [one["contractId"] for one in own] == ["orders-daily"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of refusals are no news."""
    with capture_logs():
        yield
