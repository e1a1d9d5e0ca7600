"""Foreign values in our sentences, and the two ways in which an entry can fall out.

What a scheduler prints may hold any JSON value. Here it is narrowed, or shown in a message: short,
printable, and never nested, so that no value can break or flood a report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from domain.claim import LeftOutReason

MAX_SHOWN = 80
MAX_NAME = 512
_HUGE_BITS = 256


class Unclear(ValueError):
    """Raised deep inside one entry that cannot be understood; becomes an `Unreadable` at its edge."""


class Skip(ValueError):
    """Raised inside one entry that was understood and is not ours; becomes a `LeftOut` at its edge."""

    def __init__(self, reason: LeftOutReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def clean(text: str, limit: int = MAX_NAME) -> str:
    """Printable text of at most `limit` characters; what is not printable is written as an escape."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def shown(value: object) -> str:
    """A foreign value for a message: scalars as they are, containers by their kind alone."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"'{clean(value, MAX_SHOWN)}'"
    if isinstance(value, int) and value.bit_length() > _HUGE_BITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "a list"
    return clean(str(value), MAX_SHOWN)


def is_mapping(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def mapping(value: object, where: str) -> dict[str, object]:
    """An object, or an empty one for null."""
    if value is None:
        return {}
    if not is_mapping(value):
        raise Unclear(f"{where} is {shown(value)}; an object is expected")
    return value


def listing(value: object, where: str) -> list[object]:
    """A list, or an empty one for null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unclear(f"{where} is {shown(value)}; a list is expected")
    return value


def text_of(value: object, where: str) -> str:
    """A text, or an empty one for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unclear(f"{where} is {shown(value)}; a text is expected")
    return value


def mappings(value: object, where: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The objects of a list, each with its place: `where[0]`, `where[1]`, ..."""
    for index, item in enumerate(listing(value, where)):
        place = f"{where}[{index}]"
        if item is None:
            raise Unclear(f"{place} is null; an object is expected")
        yield place, mapping(item, place)


def some(names: list[str], total: int | None = None, limit: int = 3) -> str:
    """`a, b, c and 4 more`."""
    total = len(names) if total is None else total
    head = ", ".join(names[:limit])
    return f"{head} and {total - limit:,} more" if total > limit else head
