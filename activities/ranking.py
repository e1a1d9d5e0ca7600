"""The hand that scores: it gathers what is known of every pool and stores the ranking with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities import metrics
from activities.scoring_calls import NOT_OBSERVED, SCORE, Scored, ScoreRequest
from domain.placement.scoring import PoolInputs, rank
from domain.policy import ScoringPolicy
from domain.pool import Pool, PoolFacts, PoolState
from store import observations, rankings, registry
from store.engine import Connection, Engine

ALL_POOLS = 100_000
# How often a ranking is asked for again while nothing was observed.
NOT_OBSERVED_PAUSE = timedelta(seconds=2)


class RankingActivities:
    """Scores the pools of one tenant from the registry, its history and the provider's last reports."""

    def __init__(self, engine: Engine, *, policy: ScoringPolicy, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._policy = policy
        self._now = now

    @activity.defn(name=SCORE)
    async def score_partition(self, request: ScoreRequest) -> Scored:
        """Store a ranking of every pool that is not a draft and not retired."""
        async with self._engine.connect() as connection:
            inputs = await self._inputs(connection, request.tenant_id)
        ranking = await asyncio.to_thread(
            rank, str(request.ranking_id), request.partition_id, inputs, self._policy
        )
        async with self._engine.begin() as connection:
            version = await rankings.save_ranking(connection, request.tenant_id, ranking, inputs)
        scored = Scored(
            ranking_id=request.ranking_id,
            version=version,
            pools=len(ranking.scores),
            open_pools=sum(score.refused is None for score in ranking.scores),
            without_history=sum(not score.history_known for score in ranking.scores),
        )
        metrics.RANKED_AT.labels(request.partition_id).set(self._now().timestamp())
        metrics.OPEN_POOLS.labels(request.partition_id).set(scored.open_pools)
        return scored

    async def _inputs(self, connection: Connection, tenant_id: str) -> list[PoolInputs]:
        pools = await registry.list_pools(connection, tenant_id, registry.PoolFilter(), limit=ALL_POOLS)
        first_day = (self._now() - timedelta(days=self._policy.history_days)).date()
        history = await observations.history_since(connection, tenant_id, first_day)
        outlook = await observations.outlook(connection, tenant_id)
        if not _observed(pools):
            raise ApplicationError(
                "no pool was observed yet: observation runs every minute",
                type=NOT_OBSERVED,
                # Not less and less often, as after other errors: the first placements wait for it.
                next_retry_delay=NOT_OBSERVED_PAUSE,
                category=ApplicationErrorCategory.BENIGN,
            )
        inputs = []
        for pool in pools:
            if pool.state in (PoolState.DRAFT, PoolState.RETIRED):
                continue
            episodes, observed_hours = history.get(pool.pool_id, (0, 0))
            free, free_24h, quota = outlook[pool.pool_id]
            facts = {name: getattr(pool, name) for name in PoolFacts.model_fields}
            inputs.append(
                PoolInputs(
                    facts=PoolFacts(**facts),
                    episodes=episodes,
                    observed_hours=observed_hours,
                    free_instances=max(0, min(free, free_24h)),
                    quota_instances=quota,
                )
            )
        return inputs


def _observed(pools: Sequence[Pool]) -> bool:
    """Whether the provider told of any pool. Agents report those that serve models, and may be earlier: a
    ranking of their reports alone would hold no room for units until the next one, minutes later."""
    launched = [pool for pool in pools if pool.endpoint_ref is None]
    return any(pool.reported_at for pool in launched or pools)
