"""The rule of a pool's life: four steps, refusals with a reason, and when a pool is drained."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.pool import TRANSITIONS, PoolState
from domain.pool_life import (
    DrainTerms,
    EvictReason,
    Held,
    LifeRefusal,
    LoadedModel,
    PoolAction,
    Refusal,
    allowed_actions,
    changed,
    look,
    stale,
    step,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TERMS = DrainTerms(model_patience_seconds=600, model_quiet_seconds=60)
MODELS = st.builds(
    LoadedModel,
    st.sampled_from(["llama", "mistral", "qwen"]),
    st.integers(1, 80),
    st.integers(0, 3600).map(lambda seconds: NOW - timedelta(seconds=seconds)),
)
HELD = st.builds(
    Held,
    units=st.integers(0, 20),
    instances=st.integers(0, 20),
    workloads=st.just(("orders",)),
    models=st.lists(MODELS, max_size=3, unique_by=lambda one: one.model).map(tuple),
)
BUSY = Held(4, 2, ("orders", "web"), (LoadedModel("llama", 40, NOW),))


def model(name: str, idle_seconds: float) -> LoadedModel:
    return LoadedModel(name, 40, NOW - timedelta(seconds=idle_seconds))


@given(st.sampled_from(PoolState), st.sampled_from(PoolAction), HELD)
def test_a_step_is_taken_exactly_where_it_is_allowed(
    state: PoolState, action: PoolAction, held: Held
) -> None:
    allowed = allowed_actions(state, held)
    done = step("p1", state, action, held)
    assert isinstance(done, Refusal) is (action not in allowed)
    if isinstance(done, Refusal):
        assert done.allowed == allowed
        assert "'p1'" in done.text
        assert state in done.text or str(held) in done.text
    elif action is not PoolAction.CHANGE:
        assert TRANSITIONS[state, action.value] is done


@given(HELD)
def test_retiring_is_refused_with_what_is_held(held: Held) -> None:
    done = step("p1", PoolState.DRAINING, PoolAction.RETIRE, held)
    if held.nothing:
        assert done is PoolState.RETIRED
    else:
        assert isinstance(done, Refusal)
        assert (done.reason, done.allowed) == (
            LifeRefusal.POOL_HOLDS,
            (PoolAction.RESUME, PoolAction.CHANGE),
        )
        assert str(held) in done.text


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (PoolState.DRAFT, (PoolAction.ACTIVATE, PoolAction.CHANGE)),
        (PoolState.ACTIVE, (PoolAction.DRAIN, PoolAction.CHANGE)),
        (PoolState.DRAINING, (PoolAction.RESUME, PoolAction.RETIRE, PoolAction.CHANGE)),
        (PoolState.RETIRED, ()),
    ],
)
def test_each_state_says_what_it_allows(state: PoolState, allowed: tuple[PoolAction, ...]) -> None:
    assert allowed_actions(state, Held()) == allowed


def test_a_refusal_is_a_sentence() -> None:
    refused = step("p1", PoolState.DRAFT, PoolAction.RETIRE, Held())
    assert isinstance(refused, Refusal)
    assert refused.text == "pool 'p1' is draft: it cannot retire from there; allowed is activate, change"
    retired = step("p1", PoolState.RETIRED, PoolAction.CHANGE, Held())
    assert isinstance(retired, Refusal)
    assert retired.text == "pool 'p1' is retired: nothing of it changes any more"
    held = step("p1", PoolState.DRAINING, PoolAction.RETIRE, BUSY)
    assert isinstance(held, Refusal)
    assert "4 units, 2 instances of orders, web; 1 model" in held.text


@given(st.integers(1, 99), st.integers(1, 99))
def test_another_version_than_the_newest_is_stale(version: int, expected: int) -> None:
    refused = stale("p1", PoolState.ACTIVE, Held(), version, expected)
    assert (refused is None) is (version == expected)
    if refused is not None:
        assert refused.reason is LifeRefusal.VERSION_CONFLICT
        assert refused.text == f"pool 'p1' is at version {version}, not {expected}"


@given(HELD, st.integers(0, 1200))
def test_a_model_in_use_keeps_its_pool_until_patience_is_over(held: Held, draining_seconds: int) -> None:
    since = NOW - timedelta(seconds=draining_seconds)
    done = look(held, since=since, now=NOW, terms=TERMS)
    in_use = any(one.holds or NOW - one.last_used_at < timedelta(seconds=60) for one in held.models)
    if in_use and draining_seconds < 600:
        assert not done.evictions
        assert not done.drained
    else:
        assert {one.model for one in done.evictions} == set(held.models)
        assert done.drained is (held.units == held.instances == 0)
    if draining_seconds < 600:
        assert all(one.reason is EvictReason.DRAINED for one in done.evictions)


def test_patience_unloads_what_is_in_use_and_says_so() -> None:
    held = Held(models=(model("busy", 5), model("idle", 61)))
    early = look(held, since=NOW - timedelta(seconds=599), now=NOW, terms=TERMS)
    late = look(held, since=NOW - timedelta(seconds=600), now=NOW, terms=TERMS)
    assert early.evictions == ()
    assert {one.model.model: one.reason for one in late.evictions} == {
        "busy": EvictReason.PATIENCE_OVER,
        "idle": EvictReason.DRAINED,
    }


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (Held(), "nothing"),
        (Held(1, 0, ("orders",)), "1 unit of orders"),
        (Held(0, 3, ("a", "b", "c", "d", "e", "f")), "3 instances of a, b, c, d, e and 1 more"),
        (Held(models=(model("m", 0), model("n", 0))), "2 models"),
    ],
)
def test_what_is_held_is_said_in_words(held: Held, text: str) -> None:
    assert str(held) == text


def test_only_what_differs_is_a_change() -> None:
    assert changed({"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"b": 3}
    assert changed({"a": 1}, {"a": 1}) == {}
