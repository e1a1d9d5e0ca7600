"""Names of models: one model may be written with its tag or without."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

DEFAULT_TAG = ":latest"

# As serving endpoints name models: `llama3.3:70b`, `ggml-org/gemma-3-4b-it-GGUF:Q4_K_M`.
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,254}$")]


def plain_name(model: str) -> str:
    """A name without the tag that is meant when none is written."""
    return model.removesuffix(DEFAULT_TAG)


def same_model(one: str, other: str) -> bool:
    return plain_name(one) == plain_name(other)
