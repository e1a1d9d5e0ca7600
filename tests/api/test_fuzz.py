"""Whatever is sent is answered: never a traceback, never a failure of ours, every refusal a problem."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.openapi import document
from tests.api.door import ORDERS, T1, Door, pods
from tests.api.test_pools import FACTS

MANY = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON = {"Content-Type": "application/json", "If-Match": "*"}
SHARP = [
    "",
    "\x00",
    "\ud800",
    "a" * 300,
    "../../etc/passwd",
    "'; DROP TABLE pools; --",
    "%00",
    "1e999",
    "NaN",
]
TEXT = st.one_of(st.text(max_size=40), st.sampled_from(SHARP))
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=True, allow_infinity=True))
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
VALID: dict[str, dict[str, Any]] = {
    "POST /factory/compute-pools": FACTS,
    "PATCH /factory/compute-pools/eu-north-h1-gp-m": {
        "pricePerHourUsd": "0.4",
        "guaranteedPricePerHourUsd": "1.2",
        "endpointRef": "https://pool.example/v1",
        "coldStartSeconds": 30,
    },
    "POST /factory/compute-pools/placements": {
        "deploymentId": "assistant",
        "runId": "5c0f1ee7-0000-4000-8000-000000000002",
        "model": "llama3.3:70b",
        "vramGb": 70,
        "boundary": "shared",
        "regions": ["eu-north"],
        "latencyClass": "batch",
        "maxPricePerHourUsd": "3.5",
    },
    "PUT /contracts/fuzzed": T1
    | {"poolCapShare": "0.2", "repoCommit": "abc", "drainBudgetSeconds": 60}
    | {"drainOnAdvisory": True, "checkpointMode": "final", "finalWriteSeconds": 40, "restart": "resume"},
    "PUT /workloads/fuzzed": ORDERS,
    "PUT /partitions/fuzzed": {"region": "eu-north", "scheduler": "slurm"},
    "POST /workloads/orders-daily/scale": {"units": 3},
    "POST /placements": {"workloadId": "orders-daily"},
}
OPERATIONS = [
    (method.upper(), path)
    for path, operations in json.loads(document())["paths"].items()
    for method in operations
]
SCREENS = ["/ui/pools", "/ui/pools/{id}", "/ui/workloads", "/ui/workloads/{id}", "/ui/placements/{id}/why"]
PATHS = OPERATIONS + [("GET", path) for path in (*SCREENS, "/static/{id}", "/{id}")]
QUERY_FIELDS = (
    *("pageSize", "pageToken", "generation", "reason", "poolId", "dryRun", "allowShrink", "state"),
    *("outcome", "deploymentId", "model"),
)
QUERIES = st.dictionaries(
    st.sampled_from([*QUERY_FIELDS, "search", "page", "x"]),
    st.one_of(TEXT, st.integers(-5, 2**40).map(str)),
    max_size=3,
)


@st.composite
def near_valid(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A request that is accepted, with some fields replaced, missing or added."""
    where = draw(st.sampled_from(sorted(VALID)))
    names = st.sampled_from(sorted(VALID[where]))
    body = VALID[where] | draw(st.dictionaries(names, VALUES, max_size=3))
    body |= draw(st.dictionaries(TEXT, VALUES, max_size=1))
    for name in draw(st.sets(names, max_size=2)):
        del body[name]
    return where, body


@st.composite
def near_pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod list with something else somewhere in it."""
    listed: dict[str, Any] = json.loads(json.dumps(pods(2)))
    place: Any = listed
    for _ in range(draw(st.integers(0, 6))):
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys)) if keys else None
        if key is None or not isinstance(place[key], dict | list):
            break
        place = place[key]
    if isinstance(place, dict) and place:
        place[draw(st.sampled_from(sorted(place)))] = draw(VALUES)
    return listed


def must_be_an_answer(answer: httpx2.Response) -> None:
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    if answer.status_code < 400 or answer.headers["content-type"].startswith("text/html"):
        return
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == answer.status_code
    assert told["reason"]
    assert told["detail"]
    assert told["whatToDo"]


def encoded(value: object) -> bytes:
    """JSON as careless programs write it: with NaN, and with half characters as escapes."""
    return json.dumps(value).encode()


@MANY
@given(near_valid())
async def test_bodies_near_valid_ones(read_door: Door, sent: tuple[str, dict[str, Any]]) -> None:
    method, path = sent[0].split(" ")
    answer = await read_door.http.request(method, path, content=encoded(sent[1]), headers=JSON)
    must_be_an_answer(answer)


@MANY
@given(st.sampled_from(sorted(VALID)), VALUES)
async def test_bodies_of_any_json(read_door: Door, where: str, body: object) -> None:
    method, path = where.split(" ")
    must_be_an_answer(await read_door.http.request(method, path, content=encoded(body), headers=JSON))


@MANY
@given(st.sampled_from(sorted(VALID)), st.binary(max_size=200))
async def test_bodies_of_any_bytes(read_door: Door, where: str, body: bytes) -> None:
    method, path = where.split(" ")
    must_be_an_answer(await read_door.http.request(method, path, content=body, headers=JSON))


@MANY
@given(st.one_of(near_pods().map(encoded), VALUES.map(encoded), st.binary(max_size=200)), st.booleans())
async def test_lists_of_anything(read_door: Door, body: bytes, yaml: bool) -> None:
    headers = {"Content-Type": "application/yaml"} if yaml else JSON
    path = "/workloads/orders-daily/claims?dryRun=true"
    must_be_an_answer(await read_door.http.post(path, content=body, headers=headers))


@MANY
@given(st.sampled_from(PATHS), TEXT, QUERIES)
async def test_paths_and_queries_of_anything(
    read_door: Door, where: tuple[str, str], name: str, query: dict[str, str]
) -> None:
    method, template = where
    part = quote(name.encode("utf-8", "surrogatepass"), safe="")
    path = "/".join(part if piece.startswith("{") else piece for piece in template.split("/"))
    pairs = (
        f"{quote(key)}={quote(value.encode('utf-8', 'surrogatepass'), safe='')}"
        for key, value in query.items()
    )
    must_be_an_answer(await read_door.http.request(method, f"{path}?{'&'.join(pairs)}"))


@MANY
@given(
    st.dictionaries(
        st.sampled_from(["Idempotency-Key", "If-Match", "Content-Type", "Origin", "X-Request-Id", "Accept"]),
        st.text(
            st.characters(min_codepoint=1, max_codepoint=255, exclude_characters="\r\n\x00"), max_size=60
        ),
        max_size=4,
    )
)
async def test_headers_of_anything(read_door: Door, headers: dict[str, str]) -> None:
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    for method, path in (
        ("POST", "/factory/compute-pools/eu-north-h1-gp-m/activate"),
        ("POST", "/factory/compute-pools/eu-north-h1-gp-m/retire"),
        ("PATCH", "/factory/compute-pools/eu-north-h1-gp-m"),
        ("POST", "/workloads/orders-daily/scale"),
    ):
        must_be_an_answer(await read_door.http.request(method, path, content=b'{"units": 1}', headers=sent))
