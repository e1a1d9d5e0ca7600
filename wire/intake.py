"""The text of a claim: JSON or YAML bytes in, plain documents out, or an error with line and column.

Text that starts with { or [ is JSON, several values one after another included; anything else is YAML,
several documents included. YAML follows the core schema of version 1.2: no dates, no sexagesimal
numbers, `no` and `on` are texts. Numbers that are not whole come as `Decimal`, so that nothing is lost.
"""

from __future__ import annotations

import codecs
import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, NoReturn

import yaml

MAX_BYTES = 64 * 1024 * 1024
MAX_YAML_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 200
_MAX_NUMBER = 64

_SMALLER = (
    "list only what waits (kubectl get pods --field-selector=status.phase=Pending -o json,"
    " squeue --states=PENDING --json), or one namespace or partition at a time"
)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LAST_WORD = re.compile(r"[\w.+-]*\s*")
_SPACE = re.compile(r"[ \t\r\n]*")
_YAML_BASE: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnreadableInput(ValueError):
    """Text that is not JSON or YAML, or beyond a limit. `line` and `column` count from 1, if known."""

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        place = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(f"{place}{problem}")
        self.line = line
        self.column = column


def parse_documents(
    body: bytes, *, max_bytes: int = MAX_BYTES, max_yaml_bytes: int = MAX_YAML_BYTES
) -> list[object]:
    """The documents of a body, null ones left out; raises `UnreadableInput` and nothing else.

    `max_bytes` holds for any body, `max_yaml_bytes` for YAML, which takes far longer to read.
    """
    if len(body) > max_bytes:
        raise UnreadableInput(f"the input has {len(body):,} bytes, the limit is {max_bytes:,}: {_SMALLER}")
    text = _decoded(body)
    start = _skip_space(text, 0)
    if start == len(text):
        raise UnreadableInput("the input is empty; JSON or YAML is expected")
    if text[start] in "{[":
        with _collection_paused():
            documents = _json_documents(text, start)
    elif len(body) > max_yaml_bytes:
        raise UnreadableInput(
            f"the input is YAML of {len(body):,} bytes, the limit for YAML is {max_yaml_bytes:,}:"
            f" give JSON (-o json), or {_SMALLER}"
        )
    else:
        documents = _yaml_documents(text)
    return [document for document in documents if document is not None]


@contextmanager
def _collection_paused() -> Iterator[None]:
    """JSON holds no cycles, and looking for some among millions of new objects takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decoded(body: bytes) -> str:
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if body.startswith(mark)), "utf-8")
    try:
        return body.decode(encoding)
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        column = error.start - body.rfind(b"\n", 0, error.start)
        raise UnreadableInput(f"the bytes are not {encoding} text: {error.reason}", line, column) from None


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


class _BadNumber(ValueError):
    def __init__(self, literal: str, problem: str) -> None:
        super().__init__(problem)
        self.literal = literal


def _checked(literal: str) -> str:
    if len(literal) > _MAX_NUMBER:
        raise _BadNumber(literal, f"a number has {len(literal)} characters, the limit is {_MAX_NUMBER}")
    return literal


def _whole(literal: str) -> int:
    return int(_checked(literal))


def _number(literal: str) -> Decimal:
    try:
        return Decimal(_checked(literal))
    except InvalidOperation:
        raise _BadNumber(literal, f"number {literal} is out of range") from None


def _constant(literal: str) -> NoReturn:
    raise _BadNumber(literal, f"{literal} is not a number in JSON")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_whole, parse_constant=_constant)


def _json_documents(text: str, position: int) -> list[object]:
    documents = []
    while position < len(text):
        try:
            document, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise _json_error(text, error) from None
        except _BadNumber as error:
            place = _place(text, _find(text, error.literal, position))
            raise UnreadableInput(f"not JSON: {error}", *place) from None
        except RecursionError:
            raise UnreadableInput("the JSON is nested too deeply to be a list of pods or jobs") from None
        documents.append(document)
        position = _skip_space(text, end)
    return documents


def _find(text: str, literal: str, position: int) -> int:
    """Where the literal stands first outside a string."""
    tokens = re.compile(r'"(?:[^"\\]|\\.)*"|' + re.escape(literal))
    return next((m.start() for m in tokens.finditer(text, position) if m[0] == literal), position)


def _json_error(text: str, error: json.JSONDecodeError) -> UnreadableInput:
    what = error.msg[0].lower() + error.msg[1:]
    ends = "nterminated" in error.msg or _LAST_WORD.fullmatch(text, error.pos) is not None
    hint = ". The input ends before the JSON is complete: was it cut short?" if ends else ""
    return UnreadableInput(f"not JSON: {what}{hint}", *_place(text, error.pos))


def _place(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _yaml_documents(text: str) -> list[object]:
    try:
        _check_yaml(text)
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else ()
        raise UnreadableInput(f"not YAML: {error.problem or error.context}", *place) from None
    except yaml.reader.ReaderError as error:
        position = error.position if isinstance(error.position, int) else 0
        raise UnreadableInput(f"not YAML: {error.reason}", *_place(text, position)) from None
    except yaml.YAMLError as error:
        raise UnreadableInput(f"not YAML: {error}") from None
    except RecursionError:
        raise UnreadableInput("the YAML is nested too deeply") from None


def _check_yaml(text: str) -> None:
    """Depth is bounded and aliases are refused before anything is built: a few can stand for gigabytes."""
    depth = 0
    for event in yaml.parse(text, Loader=_YAML_BASE):
        mark = event.start_mark
        place = (mark.line + 1, mark.column + 1) if mark else ()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise UnreadableInput(
                "anchors and aliases (& and *) are not accepted: write the value out", *place
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise UnreadableInput(f"the YAML is nested deeper than {MAX_DEPTH} levels", *place)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Loader(_YAML_BASE):  # type: ignore[misc,valid-type]
    """Builds plain values only; keys are texts and occur once."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}
    yaml_multi_constructors: ClassVar[dict[str, Any]] = {}


def _refuse(problem: str, node: yaml.Node) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, object]:
    found: dict[str, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            _refuse("a key must be a text", key_node)
        if key in found:
            _refuse("a key occurs twice", key_node)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _sequence(loader: _Loader, node: yaml.SequenceNode) -> list[object]:
    return [loader.construct_object(item, deep=True) for item in node.value]


def _scalar(_: _Loader, node: yaml.ScalarNode) -> object:
    literal = str(node.value)
    kind = node.tag.rpartition(":")[2]
    if kind in ("int", "float"):
        try:
            return _whole(literal) if kind == "int" else _number(literal)
        except ValueError as error:
            _refuse(str(error) if isinstance(error, _BadNumber) else f"'{literal}' is not a number", node)
    if kind == "bool":
        return literal.lower() == "true"
    return None if kind == "null" else literal


def _unknown(_: _Loader, node: yaml.Node) -> NoReturn:
    _refuse(f"tag {node.tag} is not accepted: write a plain value", node)


_TAG = "tag:yaml.org,2002:"
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"^(?:{_pattern})$"), _first)
    _Loader.add_constructor(f"{_TAG}{_kind}", _scalar)
_Loader.add_constructor(f"{_TAG}str", _scalar)
_Loader.add_constructor(f"{_TAG}map", _mapping)
_Loader.add_constructor(f"{_TAG}seq", _sequence)
_Loader.add_constructor(None, _unknown)
