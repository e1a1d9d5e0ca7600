"""The hand that probes: endpoints of serving pools are asked whether they answer, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from prometheus_client import Counter, Gauge
from temporalio import activity

from activities.probing_calls import PROBE_POOLS, Probed, ProbeRequest
from activities.reporting import batches
from activities.secrets.ports import NoCredential, Secrets, SecretsUnavailable
from activities.serving.ports import Endpoint, ServingError, ServingPort
from domain.serving.health import EndpointHealth, Health, HealthTerms, Probe, probed
from store import pool_health
from store.engine import Engine
from store.pool_health import Judged, PoolName, ToProbe

# More pools than one control plane serves; the next round begins with those that were left out.
MOST_POOLS = 5000

PROBES = Counter("sco_pool_probes_total", "Probes of serving endpoints", ["outcome"])
PROBED_AT = Gauge("sco_pool_probes_timestamp_seconds", "When a round of probes of all pools last ended")
log = structlog.get_logger("health")


class _Asked(NamedTuple):
    """A pool with its probe; None where nobody could ask, which says nothing of the pool."""

    name: PoolName
    probe: Probe | None


class ProbingActivities:
    """Probes the serving endpoints of one database."""

    def __init__(
        self,
        engine: Engine,
        serving: ServingPort,
        secrets: Secrets,
        *,
        terms: HealthTerms,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._serving = serving
        self._secrets = secrets
        self._terms = terms
        self._now = now

    @activity.defn(name=PROBE_POOLS)
    async def probe_pools(self, request: ProbeRequest) -> Probed:
        """One round of probes. What a part of it found is kept, whatever becomes of the rest."""
        async with self._engine.connect() as connection:
            pools = await pool_health.to_probe(connection, MOST_POOLS, request.only)
        asked: list[_Asked] = []
        judged: list[Judged] = []
        for some in batches(pools, self._terms.probes_at_once):
            answers = await asyncio.gather(*(self._ask(one) for one in some))
            asked += answers
            judged += await self._judge(answers)
        if request.only is None:
            PROBED_AT.set(self._now().timestamp())
        return _summary(asked, judged)

    async def _ask(self, pool: ToProbe) -> _Asked:
        began = self._now()
        try:
            credential = (await self._secrets.endpoint_credential(*pool.name)).token
        except NoCredential:
            credential = None  # There are endpoints that take none; one that needs one will say so.
        except SecretsUnavailable as error:
            log.warning("pool_not_probed", tenant=pool.tenant_id, pool=pool.pool_id, problem=str(error))
            return _Asked(pool.name, None)
        endpoint = Endpoint(url=pool.endpoint_ref, credential=credential)
        seconds = self._terms.probe_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._serving.probe(endpoint)
        except ServingError as error:
            return _Asked(pool.name, Probe(began, error.text or error.kind.value))
        except TimeoutError:
            return _Asked(pool.name, Probe(began, f"no answer within {seconds:g} s"))
        except Exception:
            # A fault of ours says nothing of the pool, and must not keep the others from being judged.
            log.exception("pool_probe_broke", tenant=pool.tenant_id, pool=pool.pool_id)
            return _Asked(pool.name, None)
        return _Asked(pool.name, Probe(began))

    async def _judge(self, asked: Sequence[_Asked]) -> list[Judged]:
        """Write what a part of a round found, in one transaction."""
        probes = {one.name: one.probe for one in asked if one.probe is not None}
        if not probes:
            return []

        def rule(name: PoolName, known: EndpointHealth, reported_at: datetime | None) -> EndpointHealth:
            return probed(known, probes[name], reported_at=reported_at, terms=self._terms)

        since = min(one.began_at for one in probes.values()) - timedelta(
            seconds=self._terms.report_hold_seconds
        )
        async with self._engine.begin() as connection:
            judged = await pool_health.judge(connection, list(probes), rule, reports_since=since)
        for one in judged:
            _tell(one)
        return judged


def _tell(one: Judged) -> None:
    """A line for each pool whose health changed, once it is committed."""
    if one.before.health is one.after.health:
        return
    tenant, pool = one.name
    said = {"tenant": tenant, "pool": pool, "before": one.before.health.value}
    if one.after.health is Health.DEGRADED:
        source = one.after.source.value if one.after.source is not None else None
        log.warning("pool_degraded", **said, problem=one.after.problem, source=source)
    else:
        log.info("pool_healthy", **said)


def _summary(asked: Sequence[_Asked], judged: Sequence[Judged]) -> Probed:
    failing = sum(one.probe is not None and one.probe.problem is not None for one in asked)
    not_asked = sum(one.probe is None for one in asked)
    PROBES.labels("answered").inc(len(asked) - failing - not_asked)
    PROBES.labels("failed").inc(failing)
    PROBES.labels("not_asked").inc(not_asked)
    return Probed(
        probed=len(asked) - not_asked,
        failing=failing,
        not_asked=not_asked,
        degraded=_became(judged, Health.DEGRADED),
        healed=_became(judged, Health.HEALTHY),
    )


def _became(judged: Sequence[Judged], health: Health) -> tuple[str, ...]:
    return tuple("/".join(one.name) for one in judged if one.after.health is health is not one.before.health)
