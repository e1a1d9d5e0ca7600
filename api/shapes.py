"""The two bases of what travels as JSON: bodies come in closed, answers go out; both in camelCase."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, core_schema
from starlette.responses import Response

from domain.money import rounded

# One line of text for people: no control characters, which neither the store nor a screen can take.
Line = Annotated[str, StringConstraints(pattern=r"^[^\u0000-\u001f\u007f]*$")]
MAX_COUNT = 2_147_483_647
# In a body, JSON's own types: neither `true` nor "3" is a number.
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
_PLAIN_DECIMAL = r"^[0-9]+(\.[0-9]+)?$"
Generation = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class PlainDecimal:
    """Of a decimal in a body: as text it has digits and at most one point, and the description says so."""

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_plain, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        described = handler(schema)
        for form in described["anyOf"]:
            if form["type"] == "string":
                form["pattern"] = _PLAIN_DECIMAL
        return described


def _plain(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(_PLAIN_DECIMAL, value):
        raise PydanticCustomError("plain_decimal", "a plain decimal such as 0.25")
    return value


class Body(BaseModel):
    """What a caller sends: camelCase only, closed to unknown fields."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class View(BaseModel):
    """What a caller is answered."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, from_attributes=True
    )


class MoneyView(View):
    """An exact amount, as text, in one currency."""

    amount: str = Field(examples=["1.250000"])
    currency: str = Field(examples=["USD"])


def money(amount: Decimal, currency: str) -> MoneyView:
    return MoneyView(amount=str(rounded(amount)), currency=currency)


def json_answer(view: View, headers: dict[str, str] | None = None) -> Response:
    """A view that is right as it is: FastAPI would make and check all of it once more."""
    return Response(json_text(view), media_type="application/json", headers=headers)


def json_text(view: View) -> str:
    """A view as the JSON that is sent."""
    return view.model_dump_json(by_alias=True)


def plain_answer(document: Mapping[str, Any], headers: dict[str, str] | None = None) -> Response:
    """The JSON of plain values, written as that of a view is; their names are those that are sent."""
    content = orjson.dumps(document, default=_as_text, option=orjson.OPT_UTC_Z)
    return Response(content, media_type="application/json", headers=headers)


def _as_text(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no place in an answer")
