"""The base of what we read in answers for which the SDK has no model."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """A part of an answer that we read; what we do not read may change."""

    model_config = ConfigDict(frozen=True, extra="ignore")
