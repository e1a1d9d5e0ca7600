"""What the workflow that watches leases may ask of its hand. No other imports."""

from __future__ import annotations

from datetime import datetime

from domain.model import Frozen

RENEW_LEASES = "renew_leases"


class RenewLeasesRequest(Frozen):
    """Look at the leases of one region, and prolong those of ours that end soon."""

    tenant_id: str
    region: str


class LeasesWatched(Frozen):
    """What a look at the leases of a region found and did.

    `leases` counts ours. `problems` are sentences, the soonest end first, and `alarms` of them are for a
    person to act on now. `next_end_at` is the soonest end of ours after the renewals.
    """

    region: str
    leases: int
    renewed: int
    alarms: int
    problems: tuple[str, ...]
    next_end_at: datetime | None
