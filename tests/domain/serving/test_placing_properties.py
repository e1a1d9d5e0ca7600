"""What holds of every choice of a pool for a model, whatever the estate."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from domain.pool import SecurityBoundary
from domain.reasons import Reason
from domain.serving.placing import (
    MICRO,
    POLICY_REASONS,
    PlacementOutcome,
    PoolNow,
    cold_start_seconds,
    verdicts,
)
from domain.serving.record import candidates, recorded
from domain.serving.requirements import STRICTNESS, ModelRequirements
from store import documents
from tests.domain.serving.pools import ESTATES, NOW, POOLS, STALENESS, TERMS, WANTED, decision
from tests.domain.strategies import QUICK


def forbidden(one: PoolNow, asked: ModelRequirements) -> bool:
    """What the policy forbids, written anew."""
    strict = list(reversed(SecurityBoundary)).index(SecurityBoundary(one.boundary))
    return strict < list(reversed(SecurityBoundary)).index(asked.boundary) or (
        bool(asked.regions) and one.region not in asked.regions
    )


@QUICK
@given(ESTATES, WANTED)
def test_no_requirement_is_ever_relaxed(estate: list[PoolNow], asked: ModelRequirements) -> None:
    for kept in decision(estate, asked).kept:
        one = kept.pool
        assert not forbidden(one, asked)
        assert one.vram_gb >= asked.vram_gb
        assert one.committed_vram_gb + max(0, asked.vram_gb - one.resident_vram_gb) <= one.vram_gb
        limit = asked.max_price_per_hour_usd
        assert limit is None or one.price_micro_usd <= limit * MICRO
        assert kept.start_seconds <= TERMS.start_seconds(asked.latency_class)
        assert kept.start_seconds >= cold_start_seconds(one, TERMS.unknown_cold_start_seconds)
        assert (one.state, one.standing, one.degraded) == ("active", "eligible", False)
        assert one.endpoint_ref is not None
        assert one.reported_at is not None
        assert NOW - one.reported_at <= STALENESS


@QUICK
@given(ESTATES, WANTED)
def test_every_candidate_has_one_verdict(estate: list[PoolNow], asked: ModelRequirements) -> None:
    found = list(verdicts(decision(estate, asked)))
    assert sorted(one for one, _ in found) == sorted(estate)
    assert [reason for _, reason in found].count(None) == (1 if decision(estate, asked).kept else 0)


@QUICK
@given(ESTATES, WANTED, POOLS)
def test_a_forbidden_pool_changes_nothing(
    estate: list[PoolNow], asked: ModelRequirements, more: PoolNow
) -> None:
    strange = more._replace(tenant_id="stranger")
    before, after = decision(estate, asked), decision([*estate, strange], asked)
    if forbidden(strange, asked):
        assert (after.outcome, after.kept) == (before.outcome, before.kept)
        assert [one for one in after.excluded if one.pool != strange] == list(before.excluded)


@QUICK
@given(ESTATES, WANTED, st.randoms(use_true_random=False))
def test_the_order_is_total_and_that_of_nothing_else(
    estate: list[PoolNow], asked: ModelRequirements, chance: random.Random
) -> None:
    shuffled = list(estate)
    chance.shuffle(shuffled)
    found = decision(estate, asked)
    assert decision(shuffled, asked) == found
    keys = [(-one.score, *one.pool.name) for one in found.kept]
    assert keys == sorted(set(keys))
    assert all(0 <= part <= MICRO for one in found.kept for part in one.parts)
    assert all(0 <= one.score <= 1 for one in found.kept)


@QUICK
@given(ESTATES, WANTED)
def test_outcomes_say_why(estate: list[PoolNow], asked: ModelRequirements) -> None:
    found = decision(estate, asked)
    if all(forbidden(one, asked) for one in estate):
        assert found.outcome is PlacementOutcome.POLICY_DENIED
    else:
        assert (found.outcome is PlacementOutcome.PLACED) == bool(found.kept)
        assert found.outcome is not PlacementOutcome.POLICY_DENIED
    assert all(forbidden(one.pool, asked) == (one.reason in POLICY_REASONS) for one in found.excluded)


@QUICK
@given(ESTATES, WANTED)
def test_less_room_never_makes_a_pool_better(estate: list[PoolNow], asked: ModelRequirements) -> None:
    """A chosen pool that fills up is replaced by the next; the others keep their verdicts."""
    found = decision(estate, asked)
    if found.chosen is None:
        return
    name = found.chosen.pool.name
    again = decision(estate, asked, full={name})
    assert name in [one.pool.name for one in again.excluded if one.reason is Reason.CAPACITY]
    assert {one.pool.name for one in again.kept} == {one.pool.name for one in found.kept} - {name}


@QUICK
@given(ESTATES, WANTED)
def test_a_cheaper_emptier_faster_or_warmer_pool_scores_no_less(
    estate: list[PoolNow], asked: ModelRequirements
) -> None:
    found = decision(estate, asked)
    for one in found.kept:
        for better in (
            one.pool._replace(price_micro_usd=one.pool.price_micro_usd // 2),
            one.pool._replace(utilization_micro=one.pool.utilization_micro // 2),
            one.pool._replace(queue_depth=one.pool.queue_depth // 2),
            one.pool._replace(loaded=True),
        ):
            others = [each for each in estate if each != one.pool]
            changed = {each.pool.name: each for each in decision([*others, better], asked).kept}
            assert changed[better.name].score >= one.score


@QUICK
@given(ESTATES, WANTED, st.sampled_from(["acme", "platform", "somebody"]))
def test_what_is_recorded_reads_as_it_was_decided(
    estate: list[PoolNow], asked: ModelRequirements, asked_by: str
) -> None:
    found = decision(estate, asked)
    stored = documents.loads(documents.dumps(recorded(found, asked_by, TERMS.weights)))
    told = list(candidates(stored, asked_by))
    assert {((one.tenant_id, one.pool_id), one.reason) for one in told} == {
        (one.name, reason) for one, reason in verdicts(found)
    }
    assert len(told) == len(estate)
    for one, kept in zip(told, found.kept, strict=False):
        assert (one.score, one.parts, one.start_seconds) == (kept.score, kept.parts, kept.start_seconds)
        assert (one.warm, one.cold_start_seconds) == (kept.pool.loaded, kept.cold_start_seconds)
        assert one.price_per_hour_usd * MICRO == kept.pool.price_micro_usd
    assert all(one.text for one in told if one.reason is not None)


def test_strictness_falls_with_the_declared_order() -> None:
    """The words of a boundary are declared from the strictest on."""
    assert [STRICTNESS[each] for each in SecurityBoundary] == [2, 1, 0]
