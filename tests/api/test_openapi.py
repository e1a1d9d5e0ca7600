"""The committed description is the one of the code, and describes every path with its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api import openapi
from tests.api.door import Door
from tests.api.test_pools import FACTS

POOLS = "/factory/compute-pools"
POOL = f"{POOLS}/{FACTS['poolId']}"
TOLD = ("ETag", "Location", "Idempotency-Replayed", "Retry-After")
COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_the_committed_description_is_that_of_the_code() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == openapi.document(), (
        "run: python -m api.openapi docs/reference/openapi.json"
    )


def test_every_operation_has_words_and_problems() -> None:
    for path, operations in json.loads(openapi.document())["paths"].items():
        for method, operation in operations.items():
            assert operation["description"].endswith("."), (method, path)
            for refused in ("422", "4XX", "5XX"):
                assert list(operation["responses"][refused]["content"]) == ["application/problem+json"]
            assert "default" not in operation["responses"]


def test_the_program_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "deep" / "openapi.json"
    assert openapi.main([str(target)]) == 0
    assert target.read_text(encoding="utf-8") == openapi.document()
    assert openapi.main([]) == 2
    assert "usage" in capsys.readouterr().err


async def test_the_headers_of_answers_are_described(door: Door) -> None:
    described = json.loads(openapi.document())["paths"]
    profile = {"models": [{"model": "qwen", "vramGb": 4}]}
    keyed, any_version = {"Idempotency-Key": "one"}, {"If-Match": "*"}
    asked: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("post", POOLS, POOLS, {"json": FACTS, "headers": keyed}),
        ("post", POOLS, POOLS, {"json": FACTS, "headers": keyed}),
        ("get", f"{POOLS}/{{poolId}}", POOL, {}),
        ("patch", f"{POOLS}/{{poolId}}", POOL, {"json": {"coldStartSeconds": 9}, "headers": any_version}),
        ("post", f"{POOLS}/{{poolId}}/activate", f"{POOL}/activate", {}),
        ("post", f"{POOLS}/{{poolId}}/activate", f"{POOL}/activate", {"headers": any_version}),
        ("put", "/factory/warm-profiles/{profileId}", "/factory/warm-profiles/chat", {"json": profile}),
        ("post", "/factory/audits", "/factory/audits", {"json": {}}),
    )
    told = set()
    for method, template, path, request in asked:
        answer = await door.http.request(method.upper(), path, **request)
        responses = described[template][method]["responses"]
        known = responses.get(str(answer.status_code)) or responses[f"{answer.status_code // 100}XX"]
        sent = {name for name in TOLD if name in answer.headers}
        assert sent <= set(known.get("headers", ())), (method, path, answer.status_code)
        told |= sent
    assert told == {"ETag", "Location", "Idempotency-Replayed"}


def test_whoever_may_repeat_a_request_is_told_when() -> None:
    for operations in json.loads(openapi.document())["paths"].values():
        for operation in operations.values():
            for refused in ("4XX", "5XX"):
                assert "Retry-After" in operation["responses"][refused]["headers"]


async def test_what_is_served_is_what_is_committed(read_door: Door) -> None:
    assert (await read_door.get("/openapi.json")).json() == json.loads(openapi.document())
