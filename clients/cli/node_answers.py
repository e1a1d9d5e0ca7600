"""The server's answers about nodes and their drains."""

from __future__ import annotations

from datetime import datetime

from clients.cli.answers import Answer


class LastEvent(Answer):
    type: str
    occurred_at: datetime


class LastDrain(Answer):
    outcome: str
    at: datetime


class Node(Answer):
    """A live node. Without a bundle version it has only the copy that it was launched with."""

    instance_id: str
    state: str
    hall: str
    pool_id: str
    workload_id: str
    bundle_version: int | None = None
    bundle_age_seconds: int | None = None
    last_event: LastEvent | None = None
    drain: LastDrain | None = None


class Drain(Answer):
    """One drain of a node, or its end without a notice."""

    drain_id: str
    instance_id: str
    outcome: str
    cause: str
    hall: str
    workload_id: str
    at: datetime
    signalled_after_seconds: float | None = None
    seconds_to_spare: float | None = None


class DrainLine(Answer):
    seconds: float | None = None
    at: datetime
    text: str


class DrainStory(Drain):
    """A drain explained; `gaps` say what is not known."""

    counts_in_ledger: bool
    deadline: datetime | None = None
    path: str | None = None
    sentence: str
    lines: tuple[DrainLine, ...] = ()
    gaps: tuple[str, ...] = ()
