"""How long a workload stays out of a pool that failed it: longer each time, and never for good."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from domain.model import Frozen

Seconds = Annotated[int, Field(ge=1)]


class BackoffTerms(Frozen):
    """`backoff_seconds` after the first failure, twice as long after each further one, at most
    `backoff_most_seconds`; after `backoff_reset_seconds` without one the count starts again.

    A loss within `thrash_seconds` of a launch counts as a failure of the pool: launching there again at
    once would lose the next one too.
    """

    backoff_seconds: Seconds = 300
    backoff_most_seconds: Seconds = 7_200
    backoff_reset_seconds: Seconds = 86_400
    thrash_seconds: Seconds = 900

    def backoff_seconds_after(self, failures: int) -> int:
        """How long to stay away after so many failures in a row."""
        doublings = min(failures - 1, self.backoff_most_seconds.bit_length())
        return min(self.backoff_most_seconds, self.backoff_seconds << doublings)

    def failures_so_far(self, failures: int, until: datetime, now: datetime) -> int:
        """Failures that still count: none once the last back-off has been over for long enough."""
        return 0 if now - until > timedelta(seconds=self.backoff_reset_seconds) else failures

    def is_thrash(self, active_at: datetime | None, lost_at: datetime) -> bool:
        """Whether an instance was lost so soon after its launch that the pool is to be avoided."""
        return active_at is None or lost_at - active_at <= timedelta(seconds=self.thrash_seconds)
