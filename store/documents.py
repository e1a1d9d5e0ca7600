"""JSON columns: exact decimals as strings, aware times, enums by value; loaded as plain data."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
from pydantic import BaseModel


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no place in a stored document")


def dumps(value: object) -> str:
    return orjson.dumps(value, default=_plain).decode()


def loads(text: str | bytes) -> Any:
    return orjson.loads(text)
