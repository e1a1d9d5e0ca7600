"""What an audit is told: the records of one moment, and the servers that exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from domain.acquisition import LIVE_STATES, ServerStatus, SlotState
from domain.tags import MANAGED_TAG

SETTLED_PHASES = ("placed", "shortfall")


class SlotFact(NamedTuple):
    """A slot as the records have it. `asked_at` is when a server was last asked for."""

    slot_key: str
    batch_key: str
    workload_id: str
    partition_id: str
    pool_id: str
    region: str
    purchase_model: str
    state: SlotState
    server_id: str | None = None
    asked_at: datetime | None = None

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES

    def was_asked_since(self, moment: datetime) -> bool:
        return self.asked_at is not None and self.asked_at > moment


class ServerFact(NamedTuple):
    """A server as the provider has it; whom it is for stands in its metadata."""

    server_id: str
    region: str
    status: ServerStatus
    tags: frozenset[str]
    batch_key: str | None = None
    pool_id: str | None = None
    workload_id: str | None = None
    partition_id: str | None = None
    fault: str | None = None

    @property
    def is_managed(self) -> bool:
        return MANAGED_TAG in self.tags

    @property
    def is_leaving(self) -> bool:
        return self.status is ServerStatus.DELETING


class CountFact(NamedTuple):
    """Instances that a pool or a reservation has booked, and its live slots, counted one by one.

    `workload_id` is None for a pool as a whole, which alone has a capacity.
    """

    pool_id: str
    booked: int
    live: int
    workload_id: str | None = None
    shape_key: str | None = None
    capacity: int | None = None


class PlanFact(NamedTuple):
    """How far the plan of a workload's claim came. Units claimed, placed and missing; instances meant,
    running, and on their way. `lost_at` is when a server of it was last taken away."""

    workload_id: str
    region: str
    phase: str
    newer_claim: bool
    claimed: int
    placed: int
    missing: int
    why_missing: str | None
    meant: int
    active: int
    open: int
    lost_at: datetime | None = None

    @property
    def is_settled(self) -> bool:
        return self.phase in SETTLED_PHASES

    def was_lost_since(self, moment: datetime) -> bool:
        return self.lost_at is not None and self.lost_at > moment


class EndFact(NamedTuple):
    """A slot that ended and had a server, with what the audit log says was done about that server."""

    slot_key: str
    workload_id: str
    pool_id: str
    region: str
    state: SlotState
    server_id: str
    actions: frozenset[str]


class GapFact(NamedTuple):
    """A span in which nobody compared the records with the provider."""

    partition_id: str
    region: str
    since: datetime
    until: datetime
    why: str


class LicenceFact(NamedTuple):
    """The right to act in a region: its phase, until when, and what went wrong last."""

    partition_id: str
    region: str
    phase: str
    acting_until: datetime | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One moment of the records, and a list of servers.

    `slots` are the live ones and those ended ones whose servers are listed. `workloads` and
    `batch_slots` (slots of a batch in any state) hold what is known of whatever the servers name, and
    `launched` the batches whose launch or adoption is in the audit log. `ends` may leave out slots
    whose end is logged. `foreign` is how many servers without our tag there are; None where only ours
    were listed.
    """

    at: datetime
    slots: tuple[SlotFact, ...] = ()
    servers: tuple[ServerFact, ...] = ()
    workloads: frozenset[str] = frozenset()
    batch_slots: Mapping[str, int] = field(default_factory=dict)
    launched: frozenset[str] = frozenset()
    counts: tuple[CountFact, ...] = ()
    plans: tuple[PlanFact, ...] = ()
    ends: tuple[EndFact, ...] = ()
    gaps: tuple[GapFact, ...] = ()
    licences: tuple[LicenceFact, ...] = ()
    foreign: int | None = None

    def ago(self, seconds: float) -> datetime:
        return self.at - timedelta(seconds=seconds)
