"""What the gRPC door reaches behind it, seen from inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from activities.model_placing import Placed
from activities.model_placing import Refused as NotPlaced
from api.grpc.batches import Verdict
from api.grpc.reading import EndpointProblem
from api.sign_in.principal import Principal
from domain.serving.requirements import ModelRequirements
from domain.serving.utilization import UtilizationReport
from store.model_placements import StoredPlacement


class Verifier(Protocol):
    """Knows good tokens from bad ones."""

    async def verify(self, token: str) -> Principal:
        """Whom the token names; raises `TokenRefused` for one that proves nobody."""


class Placing(Protocol):
    """Places models for a tenant."""

    async def place(
        self, tenant_id: str, wanted: ModelRequirements, *, placement_id: UUID
    ) -> Placed | NotPlaced:
        """Choose a pool; the same id is answered the same."""

    async def renew(self, tenant_id: str, placement_id: UUID) -> StoredPlacement | None:
        """Hold a placement for another while; None where the tenant has none of this id."""

    async def release(self, tenant_id: str, placement_id: UUID) -> StoredPlacement | None:
        """Give back what a placement keeps; None where the tenant has none of this id."""


class EndpointReported(NamedTuple):
    """Whether the report is new, and how long the tenant is kept from the pool after the one that counts."""

    kept: bool
    avoided_seconds: int


class Reporting(Protocol):
    """Takes what others say of pools."""

    async def utilization(self, tenant_id: str, reports: Sequence[UtilizationReport]) -> Sequence[Verdict]:
        """Take reports about a tenant's pools; says of each why it was refused, or None. Raises nothing."""

    async def endpoint(self, tenant_id: str, seen: EndpointProblem) -> EndpointReported:
        """Keep a tenant from a pool for a while. LookupError where it sees no such pool."""
