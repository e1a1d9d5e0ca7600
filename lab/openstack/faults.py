"""Telling the shim in front of Nova's API what to do to requests."""

from __future__ import annotations

from typing import Annotated, Any

import httpx2
from pydantic import Field

from domain.model import Frozen

FAULTS_PATH = "/lab/faults"
TIMEOUT_SECONDS = 10.0


class Fault(Frozen):
    """Which requests to hit, and how. `path` is a regular expression, `method` None means any.

    With `works` Nova does what was asked first. Then the client waits `delay_seconds`, and gets
    `status`, or loses its connection with `drop`, or gets Nova's own answer.
    """

    path: str
    method: str | None = None
    times: Annotated[int, Field(ge=1)] = 1
    works: bool = False
    delay_seconds: Annotated[float, Field(ge=0, le=600)] = 0
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    drop: bool = False


class FaultControl:
    """The shim's control at `url`, which is Nova's address."""

    def __init__(self, url: str) -> None:
        self._http = httpx2.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False)

    def arm(self, *faults: Fault) -> None:
        """Put these faults in place of those before."""
        self._http.put(FAULTS_PATH, json=[fault.model_dump() for fault in faults]).raise_for_status()

    def left(self) -> list[dict[str, Any]]:
        """The faults in force, with how often each may still hit."""
        return list(self._http.get(FAULTS_PATH).raise_for_status().json())

    def close(self) -> None:
        self._http.close()
