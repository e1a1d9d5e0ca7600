"""Model servers of the laboratory, and the adapter that speaks to them on loopback."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

from pydantic import SecretStr

from activities.serving.http import HttpServing
from activities.serving.ports import Endpoint
from domain.serving.endpoint import EndpointTerms
from lab.models.memory import ModelSettings
from lab.models.server import ModelsHandle

TOKEN = "t0ken-of-the-endpoint"
DIALECTS = ("ollama", "openai")
ADMIN_SECONDS = 10


def terms_for(*ports: int, **changes: Any) -> EndpointTerms:
    """Terms that allow endpoints on loopback at these ports, over http too."""
    known: dict[str, Any] = {
        "networks": (ip_network("127.0.0.0/8"),),
        "ports": ports,
        "plain_http": True,
        "answer_seconds": 5.0,
        "load_seconds": 20.0,
    }
    return EndpointTerms(**(known | changes))


class Served:
    """One model server with the adapter, an endpoint in one dialect, and its admin calls."""

    def __init__(self, handle: ModelsHandle, dialect: str, **terms: Any) -> None:
        self.handle = handle
        self.url = f"{dialect}+{handle.base_url}"
        self.endpoint = Endpoint(url=self.url, credential=SecretStr(TOKEN))
        self.serving = HttpServing(terms_for(handle.port, **terms))

    async def names(self) -> list[str]:
        return [one.model for one in await self.serving.list_models(self.endpoint)]

    def admin(self, path: str, body: object = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.handle.base_url}/admin/{path}", data=None if body is None else json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=ADMIN_SECONDS) as answer:
            read: dict[str, Any] = json.loads(answer.read())
        return read

    @property
    def state(self) -> dict[str, Any]:
        return self.admin("state")


@contextmanager
def served(dialect: str, *, terms: dict[str, Any] | None = None, **settings: Any) -> Iterator[Served]:
    """A model server that loads at once unless the settings say otherwise."""
    known: dict[str, Any] = {"vram_gb": 80, "seconds_per_gb": 0, "token": SecretStr(TOKEN)}
    with ModelsHandle(ModelSettings(**(known | settings))) as handle:
        yield Served(handle, dialect, **(terms or {}))


class Answers:
    """A resolver that gives these addresses and counts how often it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]
