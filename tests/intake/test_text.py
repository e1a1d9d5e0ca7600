from __future__ import annotations

import gc
import json
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.intake.support import DATA
from wire.intake import MAX_DEPTH, UnreadableInput, parse_documents


def error(body: bytes) -> UnreadableInput:
    with pytest.raises(UnreadableInput) as caught:
        parse_documents(body)
    return caught.value


@pytest.mark.parametrize("name", ["podlist-from-the-api.json", "slurmrestd-failure.json", "sacct.json"])
def test_json_cut_short_at_any_byte_is_an_error_with_its_place(name: str) -> None:
    body = (DATA / name).read_bytes().rstrip()
    for length in range(len(body)):
        problem = error(body[:length])
        if body[:length].strip():
            assert problem.line is not None
            assert "was it cut short?" in str(problem), body[:length][-30:]
    assert parse_documents(body)


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(UnreadableInput):
        assert None not in parse_documents(body)


@given(st.text("{}[]:,-?&*!|>'\"%@` \n\t#~ab01.e+<", max_size=60))
@settings(max_examples=500)
def test_any_punctuation_is_read_or_refused(text: str) -> None:
    with suppress(UnreadableInput):
        assert None not in parse_documents(text.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
)


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), min_size=1, max_size=3))
def test_json_values_one_after_another_are_documents(documents: list[object]) -> None:
    body = "\n".join(json.dumps(document) for document in documents).encode()
    assert parse_documents(body) == documents


@pytest.mark.parametrize(
    ("body", "documents"),
    [
        (b"\xef\xbb\xbf{}", [{}]),
        ("{}".encode("utf-16"), [{}]),
        ('{"a": "é"}'.encode("utf-16-be").join([b"\xfe\xff", b""]), [{"a": "é"}]),
        (b' \n {"a": 0.1} ', [{"a": Decimal("0.1")}]),
        (b"a: 1\n---\n---\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        (b"a: 0.50\nb: 1e3\nc: 010", [{"a": Decimal("0.50"), "b": Decimal(1000), "c": 10}]),
        (
            b"a: no\nb: 2026-11-29\nc: 12:30\nd: 0x10",
            [{"a": "no", "b": "2026-11-29", "c": "12:30", "d": "0x10"}],
        ),
        (b"a: ~\nb:\nc: true\nd: 'true'", [{"a": None, "b": None, "c": True, "d": "true"}]),
        (b"a: !!str 5", [{"a": "5"}]),
        (b"---\n---\n", []),
    ],
)
def test_documents_in_every_dress(body: bytes, documents: list[object]) -> None:
    assert parse_documents(body) == documents


@pytest.mark.parametrize(
    ("body", "place", "words"),
    [
        (b"", None, "empty"),
        (b" \n\t", None, "empty"),
        (b'{"a": 1,}', (1, 9), "not JSON"),
        (b'{"a": 1}\n{"b" 2}', (2, 6), "not JSON: expecting ':' delimiter"),
        (b'{"a": NaN}', (1, 7), "NaN is not a number in JSON"),
        (b'{"NaN": "Infinity",\n "b": -Infinity}', (2, 7), "-Infinity is not a number in JSON"),
        (b'{"a": 1e99999999999999999999}', (1, 7), "out of range"),
        (b"[1, 1" + b"0" * 5000 + b"]", (1, 5), "a number has 5001 characters, the limit is 64"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b"a: b: c", (1, 5), "not YAML"),
        (b"a: 'x", (1, 6), "not YAML"),
        (b"a: 1\nb: 2\na: 3", (3, 1), "a key occurs twice"),
        (b"a:\n  1: x", (2, 3), "a key must be a text"),
        (b"? [a]\n: b", (1, 3), "a key must be a text"),
        (b"a: !!python/object/apply:os.system ['true']", (1, 4), "tag tag:yaml.org,2002:python/object"),
        (b"a: !!binary aGk=", (1, 4), "is not accepted: write a plain value"),
        (b"a: !!int x", (1, 4), "'x' is not a number"),
        (b"a: &x [1]\nb: [*x, *x]", (1, 4), "anchors and aliases (& and *) are not accepted"),
        (b"a: *x", (1, 4), "anchors and aliases"),
        (b"- " * (MAX_DEPTH + 1), (1, 2 * MAX_DEPTH + 1), "nested deeper than 200 levels"),
        (b"a: \x01", (1, 4), "not YAML"),
        (b"a: b\nc: \xff", (2, 4), "the bytes are not utf-8 text"),
        (b"\xff\xfe{", (1, 3), "the bytes are not utf-16 text"),
    ],
)
def test_an_error_says_where_and_what(body: bytes, place: tuple[int, int] | None, words: str) -> None:
    problem = error(body)
    assert ((problem.line, problem.column) if problem.line else None) == place
    assert words in str(problem)
    assert len(str(problem)) < 400


def test_a_bomb_of_aliases_is_refused_before_it_is_built() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "anchors and aliases" in str(error("\n".join(levels).encode()))


def test_the_limit_of_bytes_is_exact_and_says_what_to_do() -> None:
    body = b'{"a": "' + b"x" * 91 + b'"}'
    assert parse_documents(body, max_bytes=100)
    with pytest.raises(UnreadableInput) as caught:
        parse_documents(body + b" ", max_bytes=100)
    assert "101 bytes, the limit is 100" in str(caught.value)
    assert "--field-selector=status.phase=Pending" in str(caught.value)


def test_yaml_has_a_smaller_limit_since_it_takes_longer() -> None:
    body = b"a: " + b"x" * 98
    assert parse_documents(body, max_yaml_bytes=101)
    with pytest.raises(UnreadableInput, match="YAML of 101 bytes, the limit for YAML is 100: give JSON"):
        parse_documents(body, max_yaml_bytes=100)


def test_ten_megabytes_of_junk_are_refused_at_their_first_mistake() -> None:
    for junk in (b"{" * 10_000_000, b'{"a": "' + b"x" * 10_000_000, b"[[1," * 2_500_000):
        assert "not JSON" in str(error(junk)) or "nested too deeply" in str(error(junk))
    assert "limit for YAML" in str(error(b"x" * 10_000_000))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        parse_documents(b"{}")
        error(b"{")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
