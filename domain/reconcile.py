"""Reconcile: what differs between what was decided and what exists, and what may be done about it."""

from __future__ import annotations

from enum import StrEnum


class FleetPhase(StrEnum):
    """The right to act in one region: none, in small steps after an outage, or as usual."""

    READ_ONLY = "read_only"
    PACING = "pacing"
    NORMAL = "normal"


class DriftKind(StrEnum):
    """How a server and the records differ.

    lost: a running slot whose server is not there. unserving: it is there and runs no work.
    orphan: a server of a batch that has no slot left for it. ended: the server of a slot that has
    ended. unrecorded: a server of a known workload whose batch nobody remembers. stranger: one of a
    workload nobody knows. wrong_tags: our server, labelled wrongly. mismatch: a slot's server was
    made for another slot.
    """

    LOST = "lost"
    UNSERVING = "unserving"
    ORPHAN = "orphan"
    ENDED = "ended"
    UNRECORDED = "unrecorded"
    STRANGER = "stranger"
    WRONG_TAGS = "wrong_tags"
    MISMATCH = "mismatch"
