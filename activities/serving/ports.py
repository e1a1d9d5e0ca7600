"""The serving port: load, unload, list and probe the models of one endpoint."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from pydantic import SecretStr

from domain.model import Frozen


class ServingProblem(StrEnum):
    """Why an endpoint did not do what was asked.

    `refused` is a forbidden address or a credential that the endpoint does not take; `failed` a load that
    the endpoint began and gave up; `protocol` an answer that is none of its dialect.
    """

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    NO_MEMORY = "no_memory"
    UNKNOWN_MODEL = "unknown_model"
    FAILED = "failed"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"


class ServingError(Exception):
    """What an endpoint did not do: `kind` to act upon, `text` for a person, without any credential."""

    def __init__(self, kind: ServingProblem, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class Endpoint(Frozen):
    """Where a pool serves models, as its `endpointRef` says, and what its requests are signed with."""

    url: str
    credential: SecretStr | None = None


class ListedModel(NamedTuple):
    """A model that an endpoint has in its memory now; `vram_gb` where it says so, rounded up."""

    model: str
    vram_gb: int | None = None


class ServingPort(Protocol):
    """Every call may raise `ServingError`, and nothing else of its own."""

    async def list_models(self, endpoint: Endpoint) -> tuple[ListedModel, ...]:
        """The models that are ready to answer, in the order of their names."""
        ...

    async def load(self, endpoint: Endpoint, model: str) -> None:
        """Load a model, or find it loaded; returns when the endpoint lists it."""
        ...

    async def unload(self, endpoint: Endpoint, model: str) -> None:
        """Free the memory of a model, or find it free; returns when the endpoint does not list it."""
        ...

    async def probe(self, endpoint: Endpoint) -> None:
        """Return when the endpoint answers as it should."""
        ...
