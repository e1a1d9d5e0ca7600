"""The base of every model in the rules."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value: equal by content, closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
