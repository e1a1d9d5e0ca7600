"""The hand that loads and unloads models: one at a time for each model of a pool, whoever asks.

The store's lease says whose turn it is, the endpoint does the work, and what the endpoint lists is what is
recorded. A hand that dies leaves a lease that runs out; how it ended is then asked of the endpoint, so no
memory is lost and nothing is believed that nobody saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Set
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import structlog
from prometheus_client import Counter, Histogram
from sqlalchemy.exc import SQLAlchemyError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.model_placement_calls import LOAD_MODEL, LoadModelRequest, ModelLoaded
from activities.secrets.ports import Secrets, SecretsUnavailable
from activities.serving.ports import Endpoint, ListedModel, ServingError, ServingPort, ServingProblem
from activities.serving.reaching import Endpoints
from domain.serving.models import plain_name, same_model
from domain.serving.warm_keep import WarmKeepTerms
from store import cached_models, model_leases
from store.engine import Engine
from store.model_leases import Begin, Lease, Wanted
from store.serving_pools import PoolName
from store.tables import LoadCause

RENEWALS_PER_LEASE = 3
# Somebody else's load is looked at this often while it is waited for.
WAIT_SECONDS = 0.5
LOADS = Counter("sco_model_loads_total", "Loads of models on serving pools", ["cause", "outcome"])
LOAD_SECONDS = Histogram(
    "sco_model_load_seconds",
    "How long loads of models took",
    buckets=(1, 2, 5, 10, 20, 40, 60, 120, 240, 480, 900),
)
EVICTED = Counter("sco_models_evicted_total", "Models unloaded from pools", ["reason"])
log = structlog.get_logger("models")


class LoadProblem(StrEnum):
    """Why a load did not happen, beside what the serving port says."""

    POOL_NOT_SERVING = "pool_not_serving"
    SECRETS_UNAVAILABLE = "secrets_unavailable"
    LEASE_LOST = "lease_lost"


class LoadError(Exception):
    """A load or an unloading that did not come about: `kind` to act upon, `text` for a person."""

    def __init__(self, kind: ServingProblem | LoadProblem, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


# Trying again changes nothing before somebody else has acted.
FINAL = {
    ServingProblem.NO_MEMORY,
    ServingProblem.UNKNOWN_MODEL,
    ServingProblem.REFUSED,
    LoadProblem.POOL_NOT_SERVING,
}
# What an endpoint says in so many words: the model is not loaded.
SAID = frozenset({ServingProblem.NO_MEMORY, ServingProblem.UNKNOWN_MODEL, ServingProblem.FAILED})
# After these a load that nobody had begun before has certainly left no model; after others nobody knows.
CERTAIN: Set[ServingProblem | LoadProblem] = SAID | {
    ServingProblem.REFUSED,
    LoadProblem.POOL_NOT_SERVING,
    LoadProblem.SECRETS_UNAVAILABLE,
}


class ModelLoading:
    """Loads and unloads models of one database's pools. `new_key` mints the leases."""

    def __init__(
        self,
        engine: Engine,
        serving: ServingPort,
        secrets: Secrets,
        *,
        terms: WarmKeepTerms,
        now: Callable[[], datetime],
        new_key: Callable[[], UUID],
    ) -> None:
        self._engine = engine
        self._serving = serving
        self._endpoints = Endpoints(engine, secrets)
        self._terms = terms
        self._now = now
        self._new_key = new_key

    @activity.defn(name=LOAD_MODEL)
    async def load_model(self, request: LoadModelRequest) -> ModelLoaded:
        """`load` for workflows. The type of a failure is the problem's word."""
        name = PoolName(request.tenant_id, request.pool_id)
        try:
            return await self.load(name, request.model, request.vram_gb, LoadCause(request.cause))
        except LoadError as error:
            raise ApplicationError(
                error.text, type=error.kind.value, non_retryable=error.kind in FINAL
            ) from None

    async def load(self, name: PoolName, model: str, vram_gb: int, cause: LoadCause) -> ModelLoaded:
        """Load a model, or find it loaded; returns when the endpoint lists it, else raises `LoadError`.

        A load of the same model that is under way is waited for, and its end is everybody's.
        """
        wanted = Wanted(name, plain_name(model), vram_gb, cause)
        while True:
            lease = self._lease()
            async with self._engine.begin() as connection:
                begun = await model_leases.begin_load(connection, wanted, lease)
            if begun.outcome is Begin.LOADED:
                return ModelLoaded(caused=False)
            if begun.outcome is Begin.NO_ROOM:
                raise LoadError(
                    ServingProblem.NO_MEMORY,
                    f"pool {name.pool_id} has not {vram_gb} GB left for {model}",
                )
            if begun.outcome is Begin.NOT_SERVING:
                raise LoadError(
                    LoadProblem.POOL_NOT_SERVING, f"pool {name.pool_id} is not active or has no endpoint"
                )
            if begun.outcome is Begin.BUSY:
                await self._wait_for(name, wanted.model, begun.holder)
                continue
            return await self._carry_out(wanted, lease, taken_over=begun.outcome is Begin.TAKEN_OVER)

    async def unload(
        self, name: PoolName, model: str, reason: str, *, forced: bool = False, given_up: bool = False
    ) -> bool:
        """Unload a model that nobody holds; False where it may not go or is gone. `LoadError` otherwise.

        With `forced` it goes whatever holds it, and whatever its state. An endpoint that was `given_up` is
        not waited for: what cannot be asked has let go of everything.
        """
        lease = self._lease()
        async with self._engine.begin() as connection:
            evicted = await model_leases.begin_eviction(connection, name, model, lease, forced=forced)
        if evicted is None:
            return False
        async with self._leased(name, model, lease):
            await self._unload_there(name, model, given_up=given_up)
        async with self._engine.begin() as connection:
            gone = await model_leases.finish_eviction(
                connection, name, evicted, lease.key, reason, at=self._now(), forced=forced
            )
        if gone:
            EVICTED.labels(reason).inc()
            log.info(
                "model_evicted", tenant=name.tenant_id, pool=name.pool_id, model=model, reason=str(reason)
            )
        return gone

    async def _unload_there(self, name: PoolName, model: str, *, given_up: bool) -> None:
        try:
            endpoint = await self._endpoint(name)
            if endpoint is not None:
                await self._serving.unload(endpoint, model)
        except (ServingError, LoadError) as error:
            if not given_up:
                raise
            log.warning("endpoint_given_up", pool=name.pool_id, model=model, problem=error.text)

    async def list_models(self, name: PoolName) -> tuple[ListedModel, ...]:
        """What a pool's endpoint lists; nothing where it has none. `LoadError` when it cannot be asked."""
        try:
            endpoint = await self._endpoint(name)
            return () if endpoint is None else await self._serving.list_models(endpoint)
        except ServingError as error:
            raise LoadError(error.kind, error.text) from None

    async def _endpoint(self, name: PoolName) -> Endpoint | None:
        try:
            return await self._endpoints.of(name)
        except SecretsUnavailable as error:
            raise LoadError(LoadProblem.SECRETS_UNAVAILABLE, str(error)) from None

    async def _carry_out(self, wanted: Wanted, lease: Lease, *, taken_over: bool) -> ModelLoaded:
        name, model = wanted.name, wanted.model
        try:
            async with self._leased(name, model, lease, certain=SAID if taken_over else CERTAIN):
                await self._load_there(name, model, taken_over=taken_over)
        except LoadError as error:
            LOADS.labels(wanted.cause.value, error.kind.value).inc()
            raise
        at = self._now()
        seconds = (at - lease.at).total_seconds()
        async with self._engine.begin() as connection:
            done = await model_leases.finish_load(
                connection, name, model, lease, at=at, seconds=None if taken_over else seconds
            )
        if not done:
            lost = LoadError(LoadProblem.LEASE_LOST, f"somebody else took over the load of {model}")
            await self._give_back(name, model, lease, lost, certain=False)
            raise lost
        LOADS.labels(wanted.cause.value, "loaded").inc()
        if not taken_over:
            LOAD_SECONDS.observe(seconds)
        log.info(
            "model_loaded",
            tenant=name.tenant_id,
            pool=name.pool_id,
            model=model,
            cause=wanted.cause.value,
            seconds=round(seconds, 3),
        )
        return ModelLoaded(caused=True, seconds=seconds)

    async def _load_there(self, name: PoolName, model: str, *, taken_over: bool) -> None:
        endpoint = await self._endpoint(name)
        if endpoint is None:
            raise LoadError(LoadProblem.POOL_NOT_SERVING, f"pool {name.pool_id} lost its endpoint")
        if taken_over and await self._lists(endpoint, model):
            return
        await self._serving.load(endpoint, model)

    @asynccontextmanager
    async def _leased(
        self,
        name: PoolName,
        model: str,
        lease: Lease,
        *,
        certain: Set[ServingProblem | LoadProblem] = frozenset(),
    ) -> AsyncIterator[None]:
        """Work under a lease that is renewed meanwhile. What goes wrong gives the lease back.

        After a `certain` problem the model is not loaded; after any other nobody knows.
        """
        working = asyncio.current_task()
        assert working is not None
        lost = asyncio.Event()

        def lose() -> None:
            lost.set()
            working.cancel()

        renewing = asyncio.create_task(self._renew(name, model, lease, lose))
        try:
            yield
        except (ServingError, LoadError) as error:
            problem = LoadError(error.kind, error.text)
            await self._give_back(name, model, lease, problem, certain=problem.kind in certain)
            raise problem from None
        except asyncio.CancelledError:
            if lost.is_set():
                working.uncancel()
                taken = LoadError(LoadProblem.LEASE_LOST, f"somebody else took over the load of {model}")
                await self._give_back(name, model, lease, taken, certain=False)
                raise taken from None
            stopped = LoadError(LoadProblem.LEASE_LOST, "it was told to stop")
            await asyncio.shield(self._give_back(name, model, lease, stopped, certain=False))
            raise
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _renew(self, name: PoolName, model: str, lease: Lease, lose: Callable[[], None]) -> None:
        """Renew a lease until it is somebody else's, or runs out because the store cannot be written."""
        seconds, until = self._terms.lease_seconds, lease.until
        while True:
            await asyncio.sleep(seconds / RENEWALS_PER_LEASE)
            wanted = self._now() + timedelta(seconds=seconds)
            try:
                async with self._engine.begin() as connection:
                    held = await model_leases.renew(connection, name, model, lease.key, wanted)
            except (SQLAlchemyError, OSError):
                held, wanted = self._now() < until, until
            if not held:
                lose()
                return
            until = wanted

    async def _give_back(
        self, name: PoolName, model: str, lease: Lease, problem: LoadError, *, certain: bool
    ) -> None:
        """End a lease that came to nothing; one that cannot be ended now runs out by itself."""
        ending = model_leases.give_up_load if certain else model_leases.leave_open
        try:
            async with self._engine.begin() as connection:
                await ending(connection, name, model, lease.key, problem.text, at=self._now())
        except (SQLAlchemyError, OSError) as error:
            log.warning("lease_runs_out", pool=name.pool_id, model=model, error=type(error).__name__)
        log.warning(
            "model_left_undone",
            tenant=name.tenant_id,
            pool=name.pool_id,
            model=model,
            kind=problem.kind.value,
            problem=problem.text,
        )

    async def _wait_for(self, name: PoolName, model: str, holder: UUID | None) -> None:
        """Wait until the lease of `holder` ends; its failure is ours too."""
        while True:
            await asyncio.sleep(WAIT_SECONDS)
            async with self._engine.connect() as connection:
                known = await cached_models.find(connection, name, model)
            if known is not None and known.load_key == holder and known.leased(self._now()):
                continue
            if known is not None and known.load_problem is not None:
                raise LoadError(ServingProblem.FAILED, f"the load under way ended: {known.load_problem}")
            return

    async def _lists(self, endpoint: Endpoint, model: str) -> bool:
        return any(same_model(one.model, model) for one in await self._serving.list_models(endpoint))

    def _lease(self) -> Lease:
        return Lease.of(self._new_key(), self._now(), self._terms.lease_seconds)
