"""Scoring: what is known of every pool becomes the newest ranking of a partition, once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.ranking import NOT_OBSERVED_PAUSE, RankingActivities
from activities.scoring_calls import NOT_OBSERVED, Scored, ScoreRequest
from domain.placement.scoring import PoolInputs, Ranking
from domain.policy import ScoringPolicy
from store import observations, rankings
from store.observations import PoolReport
from tests.activities.deciding import halls
from tests.estates import PARTITION, TENANT, Estate, report

POOL, OTHER = "eu-north-h1-p1", "eu-north-h2-p1"


class Scorer:
    """Scores one estate of two pools."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate
        self.hands = RankingActivities(estate.engine, policy=ScoringPolicy(), now=estate.clock)

    async def score(self, ranking_id: UUID | None = None) -> Scored:
        request = ScoreRequest(tenant_id=TENANT, partition_id=PARTITION, ranking_id=ranking_id or uuid4())
        return await self.hands.score_partition(request)

    async def ranked(self, scored: Scored) -> Ranking:
        async with self.estate.engine.connect() as connection:
            return await rankings.load_ranking(connection, TENANT, scored.ranking_id)

    async def inputs(self, pool_id: str = POOL) -> PoolInputs:
        """What a new ranking takes for the pool."""
        scored = await self.score()
        async with self.estate.engine.connect() as connection:
            known = await rankings.load_inputs(connection, TENANT, scored.ranking_id)
        return next(one for one in known if one.facts.pool_id == pool_id)

    async def remember(self, *days: tuple[int, int, int]) -> None:
        """Episodes and observed hours of one pool, so many days ago."""
        today = self.estate.clock().date()
        rows = [
            {
                "tenant_id": TENANT,
                "pool_id": POOL,
                "day": today - timedelta(days=back),
                "episodes": episodes,
                "observed_hours": hours,
            }
            for back, episodes, hours in days
        ]
        async with self.estate.engine.begin() as connection:
            await observations.record_history(connection, rows)

    async def told(self, one: PoolReport) -> None:
        async with self.estate.engine.begin() as connection:
            await observations.report_pools(connection, TENANT, [one], self.estate.clock())


@pytest_asyncio.fixture
async def scorer(estate: Estate) -> Scorer:
    await estate.open(halls(2, per_hall=1), free=10)
    return Scorer(estate)


async def test_every_ranking_is_the_newest_and_one_is_stored_once(scorer: Scorer) -> None:
    ranking_id = uuid4()
    first = await scorer.score(ranking_id)
    assert (first.version, first.pools, first.open_pools, first.without_history) == (2, 2, 2, 2)
    assert await scorer.score(ranking_id) == first
    assert (await scorer.score()).version == 3
    assert await scorer.score(ranking_id) == first
    assert await scorer.estate.value("SELECT count(*) FROM rankings") == 3


async def test_rankings_at_once_get_versions_of_their_own(scorer: Scorer) -> None:
    scored = await asyncio.gather(*(scorer.score() for _ in range(6)))
    assert sorted(one.version for one in scored) == [2, 3, 4, 5, 6, 7]


async def test_a_past_of_reclaims_makes_a_pool_shallower(scorer: Scorer) -> None:
    before = await scorer.ranked(await scorer.score())
    await scorer.remember((1, 12, 24), (2, 6, 24))
    scored = await scorer.score()
    after = await scorer.ranked(scored)
    assert scored.without_history == 1
    was = {score.facts.pool_id: score for score in before.scores}
    now = {score.facts.pool_id: score for score in after.scores}
    assert now[POOL].depth < was[POOL].depth
    assert (now[POOL].history_known, was[POOL].history_known) == (True, False)
    assert now[OTHER] == was[OTHER]


async def test_history_counts_for_thirty_days_and_the_latest_word_holds(scorer: Scorer) -> None:
    await scorer.remember((30, 1, 24), (31, 100, 24), (5, 9, 9))
    await scorer.remember((5, 2, 20))
    inputs = await scorer.inputs()
    assert (inputs.episodes, inputs.observed_hours) == (3, 44)


@pytest.mark.parametrize("state", ["draft", "retired"])
async def test_pools_that_nobody_may_use_are_not_ranked(scorer: Scorer, state: str) -> None:
    await scorer.estate.rows("UPDATE pools SET state = :s WHERE pool_id = :p", s=state, p=POOL)
    ranked = await scorer.ranked(await scorer.score())
    assert [score.facts.pool_id for score in ranked.scores] == [OTHER]


async def test_a_draining_pool_is_ranked_since_units_run_there(scorer: Scorer) -> None:
    await scorer.estate.rows("UPDATE pools SET state = 'draining'")
    assert (await scorer.score()).pools == 2


@pytest.mark.parametrize(("free", "free_24h", "used"), [(8, 3, 3), (3, 8, 3), (0, 8, 0), (8, 0, 0)])
async def test_the_least_that_is_free_counts(scorer: Scorer, free: int, free_24h: int, used: int) -> None:
    await scorer.told(report(scorer.estate.pools[0].facts, free, free_24h=free_24h))
    assert (await scorer.inputs()).free_instances == used


async def test_a_spent_quota_closes_a_pool_and_a_new_price_may_too(scorer: Scorer) -> None:
    facts = scorer.estate.pools[0].facts
    await scorer.told(report(facts, 10, quota=0))
    scored = await scorer.score()
    refused = {score.facts.pool_id: score.refused for score in (await scorer.ranked(scored)).scores}
    assert (refused, scored.open_pools) == ({POOL: "quota", OTHER: None}, 1)
    dearer = report(facts.model_copy(update={"price_per_hour_usd": facts.guaranteed_price_per_hour_usd}), 10)
    await scorer.told(dearer)
    ranked = await scorer.ranked(await scorer.score())
    assert {score.facts.pool_id: score.refused for score in ranked.scores} == {POOL: "discount", OTHER: None}


async def test_without_an_observation_there_is_nothing_to_rank(scorer: Scorer) -> None:
    await scorer.estate.rows("UPDATE pool_capacity SET reported_at = NULL")
    with pytest.raises(ApplicationError, match="no pool was observed yet") as refused:
        await scorer.score()
    assert (refused.value.type, refused.value.non_retryable) == (NOT_OBSERVED, False)
    assert refused.value.next_retry_delay == NOT_OBSERVED_PAUSE


async def test_a_report_of_an_endpoint_is_no_observation_of_the_provider(scorer: Scorer) -> None:
    await scorer.estate.rows("UPDATE pool_capacity SET reported_at = NULL WHERE pool_id = :p", p=OTHER)
    await scorer.estate.rows(
        "UPDATE pools SET endpoint_ref = 'vllm+http://127.0.0.1' WHERE pool_id = :p", p=POOL
    )
    with pytest.raises(ApplicationError, match="no pool was observed yet") as refused:
        await scorer.score()
    assert refused.value.type == NOT_OBSERVED
    await scorer.told(report(scorer.estate.pools[1].facts, 5))
    assert (await scorer.score()).pools == 2


async def test_endpoints_alone_are_ranked_by_their_reports(scorer: Scorer) -> None:
    await scorer.estate.rows("UPDATE pools SET endpoint_ref = 'vllm+http://127.0.0.1'")
    assert (await scorer.score()).pools == 2


async def test_a_ranking_comes_back_as_it_was(scorer: Scorer) -> None:
    await scorer.remember((1, 1, 7))
    scored = await scorer.score()
    ranked = await scorer.ranked(scored)
    assert ranked.ranking_id == str(scored.ranking_id)
    assert (ranked.partition_id, ranked.policy) == (PARTITION, ScoringPolicy())
    unknown = uuid4()
    async with scorer.estate.engine.connect() as connection:
        with pytest.raises(rankings.UnknownRanking, match=str(unknown)):
            await rankings.load_ranking(connection, TENANT, unknown)
