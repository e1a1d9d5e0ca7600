"""The hand that places models: one transaction from what pools are now to memory that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

import structlog
from psycopg.errors import CheckViolation, DeadlockDetected, UniqueViolation

from activities import model_placement_metrics as metrics
from activities.model_placement_telling import Starter, Telling
from activities.secrets.ports import Credential, NoCredential, Secrets, SecretsUnavailable
from domain.policy import Policy
from domain.serving.placing import Decision, PoolName, Question, decide
from domain.serving.record import recorded
from domain.serving.requirements import ModelRequirements
from store import model_placements, outbox
from store.engine import Connection, Driver, Engine, driver_of, of_tenant
from store.model_placements import Read, StoredPlacement
from store.tables import PlacementState
from wire.payloads import PlacementDecided

# What a decision runs into when a pool filled up, or left its active state, after it was read.
CHANGED_MEANWHILE = ("never_double_booked_check", "pool_takes_placements")
# Each lost race is a placement of somebody else, so this many callers at once still all get an answer.
ATTEMPTS_WHEN_CONTENDED = 32
log = structlog.get_logger("model_placing")


class PlaceRefusal(StrEnum):
    """Why a request is not answered with a placement."""

    PLACEMENT_DIFFERS = "placement_differs"
    SECRETS_UNAVAILABLE = "secrets_unavailable"


class Refused(NamedTuple):
    """The reason to program against, and the sentence for a person."""

    reason: PlaceRefusal
    text: str


@dataclass(frozen=True, slots=True)
class Placed:
    """The answer to a request, whatever its outcome. Endpoint and credential are given while it is held.

    `again` where the same request was answered before: nothing was decided now. `needs_load` where the
    model is not on the pool and nobody is loading it there.
    """

    record: StoredPlacement
    endpoint_ref: str | None = None
    credential: Credential | None = None
    again: bool = False
    needs_load: bool = False


class ModelPlacing:
    """Places models for tenants of one database.

    `policy` is asked for each decision, so that changed weights count from the next one on. Without
    `secrets` answers carry no credential; without `starter` the sweep starts what has to be loaded.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        policy: Callable[[], Policy],
        now: Callable[[], datetime],
        secrets: Secrets | None = None,
        starter: Starter | None = None,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._now = now
        self._secrets = secrets
        self._telling = Telling(starter)

    async def place(
        self, tenant_id: str, wanted: ModelRequirements, *, placement_id: UUID
    ) -> Placed | Refused:
        """Choose a pool and keep memory there; asked again with the same id, the same answer.

        The placement is durable when this returns. A model that has to be loaded is seen to afterwards.
        """
        async with of_tenant(self._engine, tenant_id).begin() as connection:
            answer = await self.place_in(connection, tenant_id, wanted, placement_id=placement_id)
        if isinstance(answer, Placed):
            self.committed(answer)
        return answer

    async def place_in(
        self, connection: Connection, tenant_id: str, wanted: ModelRequirements, *, placement_id: UUID
    ) -> Placed | Refused:
        """The same in the caller's transaction, who tells `committed` once it is.

        What was lost to others in the meantime is decided again on fresh data. A pool that still proves to
        be full when that was tried often enough counts as full; what holds nothing runs into nobody.
        """
        driver, lost = await driver_of(connection), 0
        with metrics.PLACE_SECONDS.time():
            while True:
                read = await self._read(driver, tenant_id, wanted, placement_id)
                if read.known is not None:
                    return await self._again(read, wanted)
                give_up = lost >= ATTEMPTS_WHEN_CONTENDED
                answer = await self._decide(tenant_id, wanted, placement_id, read, give_up=give_up)
                if isinstance(answer, Refused) or await _hold(driver, answer.record):
                    return answer
                lost += 1

    def committed(self, answer: Placed) -> None:
        """Count an answer whose transaction is committed, and see to what it needs."""
        record = answer.record
        if answer.again:
            return
        metrics.PLACEMENTS.labels(record.tenant_id, record.outcome.value).inc()
        log.info(
            "model_placed",
            tenant=record.tenant_id,
            placement=str(record.placement_id),
            outcome=record.outcome.value,
            pool=record.pool_id,
            warm=record.warm,
        )
        if answer.needs_load:
            self._telling.start(record)

    async def release(
        self, tenant_id: str, placement_id: UUID, problem: str | None = None
    ) -> StoredPlacement | None:
        """Give back what a placement keeps; None where there is no such placement. May be repeated."""
        async with of_tenant(self._engine, tenant_id).begin() as connection:
            released = await model_placements.release_placement(
                connection, tenant_id, placement_id, at=self._now(), problem=problem
            )
            if released is None:
                return await model_placements.find_placement(connection, tenant_id, placement_id)
        if not released.warm:
            self._telling.tell(released)
        return released

    async def renew(self, tenant_id: str, placement_id: UUID) -> StoredPlacement | None:
        """Hold a placement for another while; one that has ended stays so. None where there is none."""
        now = self._now()
        until = now + timedelta(seconds=self._policy().model_placement.hold_seconds)
        async with of_tenant(self._engine, tenant_id).begin() as connection:
            renewed = await model_placements.renew_placement(
                connection, tenant_id, placement_id, now=now, until=until
            )
            if renewed is not None:
                return renewed
            return await model_placements.find_placement(connection, tenant_id, placement_id)

    async def settle(self) -> None:
        """Wait until what Temporal is being told has come to its end."""
        await self._telling.settle()

    async def _read(
        self, driver: Driver, tenant_id: str, wanted: ModelRequirements, placement_id: UUID
    ) -> Read:
        policy, now = self._policy(), self._now()
        return await model_placements.read_for(
            driver,
            tenant_id,
            placement_id,
            wanted.model,
            now=now,
            reports_since=now - timedelta(seconds=policy.health.report_hold_seconds),
            failed_since=now - timedelta(seconds=policy.model_placement.failed_load_seconds),
        )

    async def _decide(
        self, tenant_id: str, wanted: ModelRequirements, placement_id: UUID, read: Read, *, give_up: bool
    ) -> Placed | Refused:
        policy, now = self._policy(), self._now()
        question = Question(
            wanted,
            policy.model_placement,
            now,
            timedelta(seconds=policy.utilization.staleness_seconds),
            full=frozenset(pool.name for pool in read.pools) if give_up else frozenset(),
        )
        decision = decide(question, read.pools)
        record = _record(tenant_id, wanted, placement_id, question, decision)
        if decision.chosen is None:
            return Placed(record)
        pool = decision.chosen.pool
        credential = await self._credential(pool.name)
        if isinstance(credential, Refused):
            return credential
        needs_load = not (pool.loaded or pool.loading)
        return Placed(record, pool.endpoint_ref, credential, needs_load=needs_load)

    async def _again(self, read: Read, wanted: ModelRequirements) -> Placed | Refused:
        """The stored answer, with a new credential while it is held."""
        known = read.known
        assert known is not None
        if ModelRequirements.model_validate(known.requirements) != wanted:
            text = (
                f"placement {known.placement_id} was decided for other requirements at"
                f" {known.decided_at:%Y-%m-%d %H:%M} UTC; use a new id for another request"
            )
            return Refused(PlaceRefusal.PLACEMENT_DIFFERS, text)
        known = _ended_by(known, self._now())
        place = (known.pool_tenant_id, known.pool_id)
        pool = next((each for each in read.pools if each.name == place), None)
        if not known.held or pool is None:
            return Placed(known, again=True)
        credential = await self._credential(pool.name)
        if isinstance(credential, Refused):
            return credential
        return Placed(known, pool.endpoint_ref, credential, again=True)

    async def _credential(self, name: PoolName) -> Credential | Refused | None:
        """What a pool's endpoint is opened with. Nothing is kept yet, so a failure leaves nothing behind.

        A pool for which none is stored takes requests without.
        """
        if self._secrets is None:
            return None
        try:
            return await self._secrets.endpoint_credential(*name)
        except NoCredential:
            return None
        except SecretsUnavailable:
            metrics.WITHOUT_SECRETS.inc()
            log.warning("secrets_unavailable", tenant=name[0], pool=name[1])
            text = "the secrets service gives no credential for the endpoint now, so nothing was placed"
            return Refused(PlaceRefusal.SECRETS_UNAVAILABLE, text)


def _ended_by(known: StoredPlacement, now: datetime) -> StoredPlacement:
    """The placement with its end where its time is over, which the collector writes within a minute."""
    if not known.held or known.expires_at is None or known.expires_at > now:
        return known
    return replace(known, state=PlacementState.EXPIRED, ended_at=known.expires_at)


async def _hold(driver: Driver, record: StoredPlacement) -> bool:
    """Store a placement with its event; False when others were faster and it has to be decided again."""
    event = PlacementDecided(
        tenant_id=record.tenant_id,
        placement_id=record.placement_id,
        deployment_id=record.deployment_id,
        chosen_pool_id=record.pool_id,
        chosen_pool_tenant_id=record.pool_tenant_id,
        outcome=record.outcome.value,
    )
    try:
        async with driver.transaction():
            await model_placements.add_placement(driver, record)
            await outbox.add_event(driver, event, once=str(record.placement_id))
    except CheckViolation as error:
        if not str(error.diag.constraint_name).endswith(CHANGED_MEANWHILE):
            raise
    except (DeadlockDetected, UniqueViolation):
        pass
    else:
        return True
    metrics.CONTENDED.inc()
    return False


def _record(
    tenant_id: str, wanted: ModelRequirements, placement_id: UUID, question: Question, decision: Decision
) -> StoredPlacement:
    chosen = decision.chosen
    terms = question.terms
    return StoredPlacement(
        tenant_id=tenant_id,
        placement_id=placement_id,
        deployment_id=wanted.deployment_id,
        run_id=wanted.run_id,
        model=wanted.model,
        requirements=wanted.model_dump(mode="json"),
        candidates=recorded(decision, tenant_id, terms.weights),
        outcome=decision.outcome,
        pool_tenant_id=chosen.pool.tenant_id if chosen else None,
        pool_id=chosen.pool.pool_id if chosen else None,
        vram_gb=wanted.vram_gb,
        warm=chosen is not None and chosen.pool.loaded,
        cold_start_seconds=chosen.cold_start_seconds if chosen else 0,
        state=PlacementState.HELD if chosen else PlacementState.NONE,
        decided_at=question.now,
        expires_at=question.now + timedelta(seconds=terms.hold_seconds) if chosen else None,
    )
