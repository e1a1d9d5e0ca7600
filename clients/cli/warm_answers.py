"""Warm requests and profiles, as far as people are shown them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from clients.cli.answers import Answer


class WarmRequest(Answer):
    """A model that was asked for on a pool."""

    request_id: UUID
    pool_id: str
    model: str
    vram_gb: int
    status: str
    problem: str | None = None
    finished_at: datetime | None = None


class WarmModel(Answer):
    model: str
    vram_gb: int


class WarmWindow(Answer):
    days: tuple[str, ...] = ()
    start: str
    until: str


class WarmProfile(Answer):
    """Which models are kept loaded. `in_force` says whether they are at this moment."""

    profile_id: str
    models: tuple[WarmModel, ...]
    copies: int
    windows: tuple[WarmWindow, ...] = ()
    enabled: bool
    in_force: bool
    version: int


class Versioned(Answer):
    """Whatever has a version."""

    version: int
