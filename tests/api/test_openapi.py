"""The committed description is the one of the code, and describes every path with its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api import openapi
from tests.api.door import Door

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


async def test_what_is_served_is_what_is_committed(read_door: Door) -> None:
    assert (await read_door.get("/openapi.json")).json() == json.loads(openapi.document())
