"""The serving port over HTTP: the dialect stands in the endpoint's reference."""

from __future__ import annotations

import ssl

from activities.serving.connecting import Line, Resolve, resolve_host
from activities.serving.dialects import SPEAKERS, Speaker
from activities.serving.ports import Endpoint, ListedModel
from domain.serving.endpoint import EndpointTerms


class HttpServing:
    """A `ServingPort` for endpoints as `terms` allow them.

    `tls` says whose certificates count: the system's authorities unless given.
    """

    def __init__(
        self,
        terms: EndpointTerms,
        *,
        resolve: Resolve = resolve_host,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._terms = terms
        self._resolve = resolve
        self._tls = tls or ssl.create_default_context()

    async def list_models(self, endpoint: Endpoint) -> tuple[ListedModel, ...]:
        line, speaker = self._reach(endpoint)
        return await speaker.listed(line)

    async def load(self, endpoint: Endpoint, model: str) -> None:
        line, speaker = self._reach(endpoint)
        await speaker.load(line, model)

    async def unload(self, endpoint: Endpoint, model: str) -> None:
        line, speaker = self._reach(endpoint)
        await speaker.unload(line, model)

    async def probe(self, endpoint: Endpoint) -> None:
        line, speaker = self._reach(endpoint)
        await speaker.probe(line)

    def _reach(self, endpoint: Endpoint) -> tuple[Line, Speaker]:
        line = Line(endpoint, self._terms, resolve=self._resolve, tls=self._tls)
        return line, SPEAKERS[line.address.dialect]
