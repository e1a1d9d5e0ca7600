"""What is refused at the gate, and that every refusal is a problem document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from starlette.types import Message
from structlog.testing import capture_logs

from api.gate import MIB
from store import workloads
from tests.api.door import T1, Bearer, Door, pods, problem

CLAIMS = "/workloads/orders-daily/claims"
JSON = {"Content-Type": "application/json"}


async def test_unknown_paths_and_methods_are_problems(read_door: Door) -> None:
    nowhere = problem(await read_door.get("/nothing/here"), 404, "no_such_route")
    assert nowhere["detail"] == "GET /nothing/here is no route"
    problem(await read_door.get("/workloads/"), 404, "no_such_route")
    answer = await read_door.http.delete("/workloads/orders-daily")
    told = problem(answer, 405, "method_not_allowed")
    assert told["detail"] == "DELETE /workloads/orders-daily is no route"
    assert answer.headers["allow"] == "GET, PUT"
    problem(await read_door.post("/static/sco.css"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/factory/compute-pools/eu-north-h1-gp-m?tenantid=acme"),
        ("GET", "/factory/compute-pools/eu-north-h1-gp-m/history?limit=3"),
        ("POST", "/factory/compute-pools/eu-north-h1-gp-m/drain?dryRun=true"),
        ("GET", "/factory/compute-pools?regoin=eu-north"),
        ("POST", f"{CLAIMS}?dryrun=true"),
        ("GET", "/status?verbose=1"),
        ("GET", "/nodes/forwarder?partitionId=x&partition=y"),
    ],
)
async def test_a_query_that_names_what_there_is_not_does_nothing(
    read_door: Door, method: str, path: str
) -> None:
    """A typing error would otherwise be answered for another pool, or act where a dry run was meant."""
    body = None if method == "GET" or "/drain" in path else pods(1)
    answer = await read_door.http.request(method, path, json=body, headers={"If-Match": "*"})
    told = problem(answer, 422, "invalid_request")
    (error,) = told["errors"]
    assert (error["where"], error["allowed"].split(";")[0]) == ("query", "no such field")
    assert f"query {error['field']} is " in told["detail"]


@pytest.mark.parametrize(
    "path", ["/factory/compute-pools?state=active&state=draft", f"{CLAIMS}?dryRun=false&dryRun=true"]
)
async def test_a_query_says_everything_once(read_door: Door, path: str) -> None:
    """Of two values one alone would be taken, and nobody would be told which."""
    method, body = ("POST", pods(1)) if path.startswith(CLAIMS) else ("GET", None)
    told = problem(await read_door.http.request(method, path, json=body), 422, "invalid_request")
    (error,) = told["errors"]
    assert error["allowed"] == "one value"
    assert told["detail"] == f"query {error['field']} is {error['value']}; allowed is one value"
    assert ", " in error["value"]


@pytest.mark.parametrize("path", ["/healthz?from=balancer", "/readyz?x=1", "/ui/pools?utm=mail"])
async def test_whoever_watches_or_browses_may_add_to_a_query(read_door: Door, path: str) -> None:
    answer = await read_door.http.get(path, headers={"Accept": "text/html,*/*"})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/factory/compute-pools", "GET, POST"),
        ("/factory/compute-pools/eu-north-h1-gp-m", "GET, PATCH"),
        ("/factory/warm-profiles/chat", "DELETE, GET, PUT"),
    ],
)
async def test_a_wrong_method_is_told_all_that_the_path_has(read_door: Door, path: str, allowed: str) -> None:
    answer = await read_door.http.options(path)
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("drainBudgetSeconds", True),
        ("drainBudgetSeconds", "60"),
        ("drainBudgetSeconds", 60.0),
        ("floorShare", "3e-1"),
        ("floorShare", "0_1"),
        ("floorShare", " 0.3"),
        ("floorShare", "+0.3"),
        ("floorShare", True),
    ],
)
async def test_a_value_of_another_type_is_not_taken_for_one(
    read_door: Door, field: str, value: object
) -> None:
    answer = await read_door.put("/contracts/typed", T1 | {field: value})
    (told,) = problem(answer, 422, "invalid_request")["errors"]
    assert told["field"] == field


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{", 400, "unreadable_body"),
        (b"\xff\xfe\xff", 400, "unreadable_body"),
        (b"[" * 50_000, 400, "unreadable_body"),
        (b"1" * 10_000, 400, "unreadable_body"),
        (b"[]", 422, "invalid_request"),
        (b"null", 422, "invalid_request"),
        (b'{"tier": NaN, "floorShare": Infinity}', 422, "invalid_request"),
        (b'{"tier": "\\ud800", "floorShare": "0.3"}', 422, "invalid_request"),
        (b'{"\\ud800": 1, "tier": "T1", "floorShare": "0.3"}', 422, "invalid_request"),
    ],
)
async def test_bodies_that_are_no_contract_are_problems(
    read_door: Door, body: bytes, status: int, reason: str
) -> None:
    answer = await read_door.http.put("/contracts/x", content=body, headers=JSON)
    problem(answer, status, reason)


@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", "application/yaml", ""])
async def test_another_media_type_is_refused(read_door: Door, given: str) -> None:
    content = json.dumps(T1).encode()
    answer = await read_door.http.put("/contracts/x", content=content, headers={"Content-Type": given})
    told = problem(answer, 415, "unsupported_media_type")
    assert told["detail"].endswith("allowed here are application/json")


async def test_the_screens_take_what_forms_send_and_nothing_else(read_door: Door) -> None:
    where = "/ui/pools/eu-north-h1-gp-m/resume"
    typed = {"Content-Type": "application/json", "Accept": "text/html"}
    refused = await read_door.http.post(where, content=b"{}", headers=typed)
    assert (refused.status_code, refused.headers["content-type"]) == (415, "text/html; charset=utf-8")
    assert "application/x-www-form-urlencoded" in refused.text
    too_much = b"version=" + b"1" * (MIB // 16)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await read_door.http.post(where, content=too_much, headers=form)).status_code == 413
    for broken in (b"version=%ff", b"a=1&" * 3000, b"version=1&version=2"):
        assert (await read_door.http.post(where, content=broken, headers=form)).status_code == 400


async def test_a_body_beyond_the_limit_is_refused_by_its_declared_size(read_door: Door) -> None:
    too_much = b'{"tier": "' + b"x" * MIB + b'"}'
    told = problem(
        await read_door.http.put("/contracts/x", content=too_much, headers=JSON), 413, "body_too_large"
    )
    assert "1,048,576" in told["detail"]


async def test_a_body_without_a_declared_size_is_counted_while_it_is_read(read_door: Door) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b" " * 65_536

    answer = await read_door.http.put("/contracts/x", content=endless(), headers=JSON)
    problem(answer, 413, "body_too_large")
    assert sent <= 17


async def test_lists_may_be_larger_than_other_bodies_up_to_their_own_limit(door: Door) -> None:
    await door.open_estate()
    listed = json.dumps(pods(2) | {"padding": "x" * 2 * MIB}).encode()
    assert (await door.http.post(CLAIMS, content=listed, headers=JSON)).status_code == 202

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"padding": "'
        for _ in range(65):
            yield b"x" * MIB

    problem(await door.http.post(CLAIMS, content=endless(), headers=JSON), 413, "body_too_large")


@pytest.mark.parametrize("length", ["minus one", "-1", "1e3", "²"])
async def test_a_length_that_is_no_number_is_refused(read_door: Door, length: str) -> None:
    headers = [(b"content-length", length.encode()), (b"content-type", b"application/json")]
    problem(await read_door.http.put("/contracts/x", content=b"{}", headers=headers), 400, "unreadable_body")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::2]", "127.0.0.1.nip.io"])
async def test_another_host_is_refused(read_door: Door, host: str) -> None:
    problem(await read_door.http.get("/workloads", headers={"Host": host}), 421, "foreign_host")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "[::1]:8080", "LOCALHOST:1"])
async def test_loopback_names_are_served(read_door: Door, host: str) -> None:
    assert (await read_door.http.get("/workloads", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(read_door: Door, headers: dict[str, str]) -> None:
    where = "/factory/compute-pools/eu-north-h1-gp-m/activate"
    problem(await read_door.post(where, headers=headers), 403, "foreign_origin")
    own = {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}
    problem(await read_door.post(where, headers=own), 428, "version_required")


async def test_every_answer_has_its_request_id_and_guards(read_door: Door) -> None:
    given = await read_door.http.get("/workloads", headers={"X-Request-Id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    hostile = await read_door.http.get("/nothing", headers={"X-Request-Id": "a b\t<script>"})
    told = problem(hostile, 404, "no_such_route")
    assert told["requestId"] == hostile.headers["x-request-id"]
    assert len(told["requestId"]) == 32
    assert "default-src 'none'" in hostile.headers["content-security-policy"]
    assert hostile.headers["x-content-type-options"] == "nosniff"


async def test_an_error_of_ours_is_one_line_of_log_and_tells_nothing(
    read_door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret of the insides")

    monkeypatch.setattr(workloads, "find_workload", broken)
    with capture_logs() as lines:
        answer = await read_door.get("/workloads/orders-daily")
    told = problem(answer, 500, "internal_error")
    assert "secret" not in answer.text
    (line,) = [line for line in lines if line["event"] == "request_failed"]
    assert (line["error"], line["request_id"]) == ("ZeroDivisionError", told["requestId"])
    assert line["where"][-1].endswith(" broken")
    assert "secret" not in json.dumps(lines)


async def test_a_request_is_logged_without_its_body_and_query(door: Door) -> None:
    await door.open_estate()
    with capture_logs() as lines:
        await door.post(f"{CLAIMS}?dryRun=true", pods(3), headers={"Idempotency-Key": "hidden-key"})
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["route"], line["status"], line["path"]) == ("/workloads/{workloadId}/claims", 200, CLAIMS)
    text = json.dumps(line)
    assert "orders-0" not in text
    assert "hidden-key" not in text
    assert "dryRun" not in text


@pytest.mark.parametrize("path", [CLAIMS, "/contracts/x"])
async def test_a_client_that_leaves_while_it_sends_is_no_error_of_ours(read_door: Door, path: str) -> None:
    arriving: Iterator[Message] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> Message:
        return next(arriving)

    async def send(_: Message) -> None:
        """Nobody listens any more."""

    scope = {
        "type": "http",
        "method": "POST" if path == CLAIMS else "PUT",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {Bearer(read_door.estate.clock).token}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"99"),
        ],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
    }
    with capture_logs() as lines:
        await read_door.app(scope, receive, send)
    assert [(line["event"], line["status"]) for line in lines] == [("request", 400)]
