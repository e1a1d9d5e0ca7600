"""What the hands reach, seen from inside: small ports that a provider or a laboratory fills.

All calls are blocking and run in a thread. Every provider failure is a `ProviderError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from domain.acquisition import ServerStatus
from domain.circuit import Outcome


class ProviderErrorKind(StrEnum):
    """What a provider's refusal means for the next step."""

    QUOTA = "quota"
    NO_VALID_HOST = "no_valid_host"
    BAD_REQUEST = "bad_request"
    CONFLICT = "conflict"
    NOT_FOUND = "not_found"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


class ProviderError(Exception):
    """A provider call that failed. `in_doubt` means that it may have had its effect all the same."""

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        in_doubt: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.in_doubt = in_doubt
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Server:
    """One server as the provider lists it. `batch_key` is read from its metadata."""

    server_id: str
    batch_key: str | None
    pool_id: str | None
    workload_id: str | None
    status: ServerStatus
    created_at: datetime
    fault: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    name: str | None = None


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """Equal servers to create in one call. `metadata` and `tags` are written before any server id exists.

    With `reservation_id` they run on that reservation of a lease, or not at all; `flavor` is its pool's.
    """

    batch_key: str
    region: str
    hall: str
    flavor: str
    name_prefix: str
    metadata: dict[str, str]
    tags: tuple[str, ...]
    user_data: str
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """What the provider says of one pool now. None means that it said nothing."""

    region: str
    hall: str
    flavor: str
    purchase_model: str
    total_instances: int
    free_instances: int
    free_24h_instances: int
    price_per_hour_usd: str
    guaranteed_price_per_hour_usd: str


@dataclass(frozen=True, slots=True)
class QuotaState:
    """Quota of our project in one region: limits and what is used. A limit of None is unlimited."""

    cores_limit: int | None
    cores_used: int
    ram_mib_limit: int | None
    ram_mib_used: int
    instances_limit: int | None
    instances_used: int


@dataclass(frozen=True, slots=True)
class FlavorFacts:
    """The size and features of one flavor, from its extra specs."""

    name: str
    vcpus: int
    ram_mib: int
    extra_specs: dict[str, str]


@dataclass(frozen=True, slots=True)
class RegionCatalog:
    """What one region offers: flavors, halls, and the correlation group of each (hall, SKU family)."""

    region: str
    flavors: tuple[FlavorFacts, ...]
    halls: tuple[str, ...]
    group_of: dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class LeasedCapacity:
    """One reservation of a lease. `hall` and `flavor` are None where no one hall or flavor is named."""

    reservation_id: str
    status: str
    hall: str | None
    flavor: str | None
    amount: int


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease of our project, with the provider's own word for its status. `ends_at` is a whole minute."""

    lease_id: str
    name: str
    status: str
    ends_at: datetime
    reservations: tuple[LeasedCapacity, ...]


class Compute(Protocol):
    """Servers of the orchestrator's project, one region at a time."""

    def create_batch(self, spec: BatchSpec, count: int) -> None:
        """Ask for `count` servers in one call; returns when the provider accepted. Not idempotent.

        BAD_REQUEST, and nothing is sent, when they could not be on their reservation.
        """

    def list_workload(self, region: str, workload_id: str) -> Sequence[Server]:
        """Every server of one workload that is not deleted; a failed page fails the whole list."""

    def list_managed(self, region: str) -> Sequence[Server]:
        """Every server that carries our tag and is not deleted; a failed page fails the whole list."""

    def deleted_since(self, region: str, since: datetime) -> frozenset[str]:
        """Ids of every server whose deletion since then the provider confirms; every page or none."""

    def find(self, region: str, server_id: str) -> Server | None:
        """One server by its id, whatever its tags; None when the provider says that it is gone."""

    def set_tags(self, region: str, server_id: str, tags: Sequence[str]) -> None:
        """Replace the tags of one server."""

    def delete(self, region: str, server_id: str) -> None:
        """Ask for the deletion of one server; a server that is gone already is no error."""


class Catalog(Protocol):
    """What the provider offers, promises and charges in one region."""

    def catalog(self, region: str) -> RegionCatalog: ...

    def observe(self, region: str) -> Sequence[PoolObservation]: ...

    def quota(self, region: str) -> QuotaState: ...

    def lost_halls(self, region: str) -> frozenset[str]: ...

    def committed_reservations(self, region: str) -> dict[tuple[str, str], str]:
        """Blazar reservation ids by (hall, flavor) of active leases."""

    def leases(self, region: str) -> Sequence[Lease]:
        """Every lease of our project that the provider keeps, ended ones included, by id."""

    def extend_lease(self, region: str, lease_id: str, ends_at: datetime) -> None:
        """Let a lease end at `ends_at`, a whole minute; one that ends then or later is left as it is.

        Safe to repeat. NO_VALID_HOST when the hosts are promised to others then, NOT_FOUND when it is gone.
        """


# The monotonic time until which what this context asks of the provider may still be sent. A create is
# written down before it is sent, and asked for again some time after that: it must not go out later.
SEND_UNTIL: ContextVar[float | None] = ContextVar("send_until", default=None)


class TokenBudget(Protocol):
    """The right to make one call to the provider of a region, and what the call showed of it.

    A call takes, is sent, and is reported, all in one thread.
    """

    def take(self, region: str) -> None:
        """Block until a call may go. When none may in bounded time, or none at all now, a ProviderError.

        THROTTLED: no token came in time, `SEND_UNTIL` at the latest, or a pause lasts too long. UNAVAILABLE:
        the region's circuit is open, or the budget cannot be used. Nothing was sent, so it is never in doubt.
        """

    def report(self, region: str, outcome: Outcome, retry_after_seconds: float | None) -> None:
        """How the call ended, and how long the provider asked to wait. It raises nothing."""
