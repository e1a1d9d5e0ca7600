"""What a form of the screens sends: names with their values, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from pydantic import ValidationError

from api import problems
from api.problems import FieldProblem, Problem
from api.refusals import field_problem
from api.shapes import Body

MAX_FIELDS = 2000
MAX_DIGITS = 18
RELOAD = "Go back to the page, reload it and send its form again."
CORRECT = "Correct what is marked, and send it again."
B = TypeVar("B", bound=Body)


class Posted:
    """The fields of one form. A box that is not ticked sends nothing, so every name may be missing."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields

    def one(self, name: str) -> str:
        """The only value of a field, without the blanks around it; empty where it is missing."""
        values = self.all(name)
        if len(values) > 1:
            text = f"the form has {name!a} {len(values)} times; allowed is once"
            raise Problem(problems.UNREADABLE, text, what_to_do=RELOAD)
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
            what_to_do=RELOAD,
        ) from None
    return Posted(fields)


def checked(kind: type[B], document: Mapping[str, Any]) -> B:
    """What a form says, as the API would take it; a problem that says what is wrong with each field."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        told = [field_problem(one | {"loc": ("body", *one["loc"])}) for one in error.errors()]
        count = "one value is" if len(told) == 1 else f"{len(told)} values are"
        text = f"{count} not allowed, so nothing was done"
        raise Problem(problems.INVALID, text, errors=told, what_to_do=CORRECT) from None


def whole(typed: str) -> int | str:
    """A number that was typed, as a body has it; any other text as it is, so that it is refused."""
    return int(typed) if typed.isascii() and typed.isdigit() and len(typed) <= MAX_DIGITS else typed


def wrong_value(error: FieldProblem) -> str:
    """What is wrong with one field, to stand beside it."""
    if error.value is None:
        return "a value is needed"
    return f"{error.value or 'nothing'} is refused: allowed is {error.allowed}"


Sent = Annotated[Posted, Depends(posted)]
