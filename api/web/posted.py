"""What a form of the screens sends: names with their values, in the order of the page."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from api import problems
from api.problems import Problem

MAX_FIELDS = 2000


class Posted:
    """The fields of one form. A box that is not ticked sends nothing, so every name may be missing."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def one(self, name: str) -> str:
        """The only value of a field, without the blanks around it; empty where it is missing."""
        values = self.all(name)
        if len(values) > 1:
            raise Problem(problems.UNREADABLE, f"the form has {name!a} {len(values)} times; allowed is once")
        return values[0] if values else ""

    def all(self, name: str) -> list[str]:
        """Every value of a field that may be there several times, without the blanks around each."""
        return [value.strip() for key, value in self._fields if key == name]

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self._fields)


async def posted(request: Request) -> Posted:
    """The form that came with a request. The gate has seen to its type and size."""
    try:
        text = (await request.body()).decode()
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Problem(
            problems.UNREADABLE,
            f"the form cannot be read; allowed are at most {MAX_FIELDS} fields in UTF-8",
            what_to_do="Go back to the page, reload it and send its form again.",
        ) from None
    return Posted(fields)


Sent = Annotated[Posted, Depends(posted)]
