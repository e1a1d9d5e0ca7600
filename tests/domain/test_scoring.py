"""How pools are scored: depth before price, unknown is not perfect, inverted prices are refused."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.placement.filters import shortlist
from domain.placement.scoring import PoolInputs, rank, score_pool
from domain.policy import ScoringPolicy
from domain.pool import PurchaseModel
from domain.reasons import Reason
from tests.domain.strategies import QUICK
from tests.domain.worlds import estate, facts, wanted

POLICY = ScoringPolicy()
MONTH_HOURS = 720


def known(
    pool_id: str = "pool-1",
    *,
    episodes: int = 0,
    hours: int = MONTH_HOURS,
    free: int = 100,
    quota: int | None = None,
    price: str = "0.35",
    model: PurchaseModel = PurchaseModel.RECLAIMABLE,
) -> PoolInputs:
    return PoolInputs(
        facts=facts(pool_id, price=price, model=model),
        episodes=episodes,
        observed_hours=hours,
        free_instances=free,
        quota_instances=quota,
    )


def order_of(*inputs: PoolInputs) -> list[str]:
    listed = shortlist(rank("ranking-1", "k8s-eu-north", inputs, POLICY), wanted(tolerated="100"))
    return [entry.pool_id for entry in listed.fill]


any_pool = st.builds(
    known,
    st.just("pool-1"),
    episodes=st.integers(0, 300),
    hours=st.sampled_from((0, 24, 300, MONTH_HOURS)),
    free=st.integers(0, 80),
    quota=st.none() | st.integers(1, 80),
    price=st.sampled_from(("0.10", "0.20", "0.35", "0.60", "0.85")),
)


@QUICK
@given(any_pool, any_pool)
def test_a_deeper_band_always_ranks_first_whatever_it_costs(one: PoolInputs, other: PoolInputs) -> None:
    other = other.model_copy(update={"facts": other.facts.model_copy(update={"pool_id": "pool-2"})})
    scores = {pool.facts.pool_id: score_pool(pool, POLICY) for pool in (one, other)}
    band = {pool_id: score.depth_band for pool_id, score in scores.items()}
    price = {pool_id: score.facts.price_per_hour_usd for pool_id, score in scores.items()}
    deepest_then_cheapest = sorted(scores, key=lambda pool_id: (-band[pool_id], price[pool_id], pool_id))
    assert order_of(one, other) == deepest_then_cheapest


@QUICK
@given(any_pool)
def test_depth_is_a_share_and_its_band_is_in_range(pool: PoolInputs) -> None:
    score = score_pool(pool, POLICY)
    assert 0 <= score.depth <= 1
    assert 0 <= score.depth_band < POLICY.depth_bands
    assert score.interruptions_per_hour > 0


@QUICK
@given(any_pool, st.integers(1, 50))
def test_more_reclaims_never_make_a_pool_deeper_and_more_room_never_shallower(
    pool: PoolInputs, more: int
) -> None:
    score = score_pool(pool, POLICY)
    worse = pool.model_copy(update={"episodes": pool.episodes + more})
    roomier = pool.model_copy(update={"free_instances": pool.free_instances + more})
    assert score_pool(worse, POLICY).depth <= score.depth
    assert score_pool(worse, POLICY).interruptions_per_hour > score.interruptions_per_hour
    assert score_pool(roomier, POLICY).depth >= score.depth


def test_unknown_history_is_the_prior_between_a_clean_and_a_bad_month() -> None:
    unknown = score_pool(known(hours=0), POLICY)
    clean, bad = score_pool(known(), POLICY), score_pool(known(episodes=100), POLICY)
    assert unknown.interruptions_per_hour == POLICY.prior_interruptions_per_hour
    assert (unknown.history_known, clean.history_known) == (False, True)
    assert clean.interruptions_per_hour < unknown.interruptions_per_hour < bad.interruptions_per_hour
    assert clean.depth > unknown.depth > bad.depth


def test_one_quiet_hour_does_not_make_a_pool_perfect() -> None:
    hour, month = score_pool(known(hours=1), POLICY), score_pool(known(), POLICY)
    assert hour.depth < month.depth
    assert hour.depth - score_pool(known(hours=0), POLICY).depth < Decimal("0.001")


def test_a_month_of_history_turns_the_ranking_around() -> None:
    cheap, dear = known("pool-cheap", hours=0, price="0.20"), known("pool-dear", hours=0, price="0.40")
    assert order_of(cheap, dear) == ["pool-cheap", "pool-dear"]
    reclaimed = known("pool-cheap", episodes=150, price="0.20")
    steady = known("pool-dear", episodes=0, price="0.40")
    assert order_of(reclaimed, steady) == ["pool-dear", "pool-cheap"]


def test_quota_limits_depth_as_free_capacity_does() -> None:
    assert score_pool(known(quota=10), POLICY).depth == score_pool(known(free=10), POLICY).depth
    assert score_pool(known(quota=None), POLICY).depth == score_pool(known(quota=1000), POLICY).depth


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        ("0.849999", None),
        ("0.85", None),
        ("0.850001", Reason.DISCOUNT),
        ("0.9", Reason.DISCOUNT),
        ("1.2", Reason.DISCOUNT),
    ],
)
def test_a_price_above_the_discount_limit_is_inverted(price: str, reason: Reason | None) -> None:
    assert score_pool(known(price=price), POLICY).refused is reason


def test_committed_capacity_needs_no_discount() -> None:
    assert score_pool(known(price="1.2", model=PurchaseModel.COMMITTED), POLICY).refused is None


def test_without_quota_headroom_a_pool_is_refused() -> None:
    assert score_pool(known(quota=0), POLICY).refused is Reason.QUOTA
    assert score_pool(known(quota=1), POLICY).refused is None


def test_the_discount_is_what_is_saved_against_the_guaranteed_price() -> None:
    assert score_pool(known(price="0.35"), POLICY).discount_share == Decimal("0.65")


@QUICK
@given(st.integers(0, 10_000))
def test_the_order_of_inputs_does_not_matter(seed: int) -> None:
    inputs = estate(("eu-north",))[:40]
    straight = rank("ranking-1", "k8s-eu-north", inputs, POLICY)
    random.Random(seed).shuffle(inputs)
    assert rank("ranking-1", "k8s-eu-north", inputs, POLICY) == straight


def test_every_pool_is_scored_once() -> None:
    inputs = estate()
    ranking = rank("ranking-1", "k8s-eu-north", inputs, POLICY)
    assert len(inputs) == 432 + 108
    assert [score.facts.pool_id for score in ranking.scores] == sorted(one.facts.pool_id for one in inputs)
