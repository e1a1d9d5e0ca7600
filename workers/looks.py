"""Telling reconcile to look at a region now instead of at its next cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum

import structlog
from prometheus_client import Counter
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.reconcile_calls import LOOK_NOW, LookNow
from domain.ids import reconcile_workflow_id

# However much happens at once, one look sees it all.
EVERY_SECONDS = 1.0
ANSWER_WITHIN = timedelta(seconds=5)

LOOKS = Counter("sco_looks_total", "Looks that were asked of reconcile at once", ["partition", "outcome"])

log = structlog.get_logger("looks")
Place = tuple[str, str]


class Outcome(StrEnum):
    """Taken by a workflow; nobody reconciles that partition; or Temporal did not take it."""

    TAKEN = "taken"
    NOBODY = "nobody"
    FAILED = "failed"


class Looks:
    """Sends at most one signal a second for each partition of a tenant and region, whatever is asked for."""

    def __init__(self, client: Client, tenant_id: str) -> None:
        self._client = client
        self._tenant_id = tenant_id
        self._wanted: set[Place] = set()
        self._untaken: set[Place] = set()
        self._asked = asyncio.Event()

    def ask(self, places: Iterable[Place]) -> None:
        """Ask for looks, each at a partition's servers in a region. Asking again changes nothing."""
        self._wanted.update(places)
        if self._wanted:
            self._asked.set()

    async def run(self) -> None:
        """Send until cancelled. What Temporal does not take is sent again a second later."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            places, self._wanted = sorted(self._wanted), set()
            outcomes = await asyncio.gather(*(self._send(*place) for place in places))
            for place, outcome in zip(places, outcomes, strict=True):
                self._note(place, outcome)
            await asyncio.sleep(EVERY_SECONDS)
            self.ask(
                place for place, outcome in zip(places, outcomes, strict=True) if outcome is Outcome.FAILED
            )

    async def _send(self, partition_id: str, region: str) -> Outcome:
        workflow = self._client.get_workflow_handle(reconcile_workflow_id(self._tenant_id, partition_id))
        try:
            await workflow.signal(LOOK_NOW, LookNow(region=region), rpc_timeout=ANSWER_WITHIN)
        except RPCError as error:
            return Outcome.NOBODY if error.status is RPCStatusCode.NOT_FOUND else Outcome.FAILED
        except Exception:
            return Outcome.FAILED
        return Outcome.TAKEN

    def _note(self, place: Place, outcome: Outcome) -> None:
        """Count every look; of those that nobody takes only the first is a warning."""
        partition_id, region = place
        LOOKS.labels(partition_id, outcome).inc()
        if outcome is Outcome.TAKEN:
            self._untaken.discard(place)
            log.info("look_asked", partition=partition_id, region=region)
        elif place not in self._untaken:
            self._untaken.add(place)
            log.warning("look_not_taken", partition=partition_id, region=region, outcome=outcome)
