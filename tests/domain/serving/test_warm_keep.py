"""Warm keeping: windows, the spread over pools, and what one pool does with its memory."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.pool import PoolKind, SecurityBoundary
from domain.serving.warm_keep import (
    Cached,
    Evict,
    KeepPool,
    Look,
    PoolSelector,
    ProfileModel,
    ToEvict,
    ToLoad,
    WarmKeepTerms,
    WarmProfile,
    Weekday,
    Window,
    look,
    spread,
)

NOW = datetime(2026, 1, 30, 10, tzinfo=UTC)  # a friday
TERMS = WarmKeepTerms()


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def pool(pool_id: str, vram_gb: int = 80, **facts: Any) -> KeepPool:
    known: dict[str, Any] = {
        "region": "eu-north",
        "kind": PoolKind.PRIVATE_CLOUD,
        "gpu_type": "a100",
        "boundary": SecurityBoundary.REGIONAL,
    }
    return KeepPool(pool_id=pool_id, vram_gb=vram_gb, **(known | facts))


def profile(name: str = "chat", *, copies: int = 1, **changes: Any) -> WarmProfile:
    known: dict[str, Any] = {"models": (ProfileModel(model="m", vram_gb=40),)}
    return WarmProfile(profile_id=name, copies=copies, **(known | changes))


@pytest.mark.parametrize(
    ("start", "until", "days", "at", "expected"),
    [
        ("08:00", "18:00", (), "2026-01-30T08:00", True),
        ("08:00", "18:00", (), "2026-01-30T17:59", True),
        ("08:00", "18:00", (), "2026-01-30T18:00", False),
        ("08:00", "18:00", ("friday",), "2026-01-30T10:00", True),
        ("08:00", "18:00", ("saturday",), "2026-01-30T10:00", False),
        ("22:00", "06:00", ("friday",), "2026-01-30T23:00", True),
        ("22:00", "06:00", ("friday",), "2026-01-31T05:59", True),
        ("22:00", "06:00", ("friday",), "2026-01-31T06:00", False),
        ("22:00", "06:00", ("friday",), "2026-01-30T05:00", False),
        ("22:00", "06:00", ("sunday",), "2026-02-02T05:00", True),
        ("00:00", "00:00", ("friday",), "2026-01-30T00:00", True),
        ("00:00", "00:00", ("friday",), "2026-01-31T00:00", False),
        ("00:00", "00:00", (), "2026-01-31T12:00", True),
    ],
)
def test_a_window_is_open_as_it_says(
    start: str, until: str, days: tuple[str, ...], at: str, expected: bool
) -> None:
    window = Window(
        days=tuple(Weekday(day) for day in days),
        start=time.fromisoformat(start),
        until=time.fromisoformat(until),
    )
    assert window.holds(datetime.fromisoformat(at).replace(tzinfo=UTC)) is expected


def test_windows_have_no_zone_and_models_stand_once() -> None:
    with pytest.raises(ValidationError, match="without a zone"):
        Window(start=time(8, tzinfo=UTC), until=time(9))
    twice = (ProfileModel(model="m", vram_gb=1), ProfileModel(model="m:latest", vram_gb=2))
    with pytest.raises(ValidationError, match="more than once"):
        profile(models=twice)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"pool_ids": ("a-1", "b-1")}, True),
        ({"pool_ids": ("b-1",)}, False),
        ({"regions": ("eu-north",), "kinds": ("private_cloud",)}, True),
        ({"regions": ("eu-north",), "kinds": ("azure",)}, False),
        ({"gpu_types": ("l4",)}, False),
        ({"boundaries": ("private",)}, False),
    ],
)
def test_a_selector_restricts_by_what_it_names(selector: dict[str, Any], expected: bool) -> None:
    assert PoolSelector(**selector).selects(pool("a-1")) is expected


def test_a_profile_that_is_off_or_out_of_its_windows_keeps_nothing() -> None:
    shut = Window(start=time(11), until=time(12))
    for one in (profile(enabled=False), profile(windows=(shut,))):
        assert spread([one], [pool("a")], NOW) == {"a": {}}


def test_every_copy_is_on_a_pool_of_its_own() -> None:
    pools = [pool(f"p-{number}") for number in range(10)]
    kept = spread([profile(copies=3)], pools, NOW)
    assert sum("m" in models for models in kept.values()) == 3
    assert spread([profile(copies=30)], pools, NOW) == {one.pool_id: {"m": 40} for one in pools}


def test_pools_that_are_full_or_unable_are_passed_over() -> None:
    pools = [pool("a", vram_gb=30), pool("b", able=False), pool("c"), pool("d", vram_gb=40)]
    assert {name for name, models in spread([profile(copies=4)], pools, NOW).items() if models} == {"c", "d"}


def test_two_profiles_share_their_copies_of_one_model() -> None:
    pools = [pool(f"p-{number}") for number in range(10)]
    bigger = profile("other", copies=2, models=(ProfileModel(model="m", vram_gb=50),))
    kept = spread([profile(copies=3), bigger], pools, NOW)
    assert sorted(models["m"] for models in kept.values() if models) == [40, 50, 50]


def test_a_pool_that_goes_moves_only_its_own_models() -> None:
    pools = [pool(f"p-{number}", vram_gb=400) for number in range(20)]
    many = tuple(ProfileModel(model=f"m-{number}", vram_gb=1) for number in range(60))
    before = spread([profile(models=many, copies=2)], pools, NOW)
    after = spread([profile(models=many, copies=2)], pools[1:], NOW)
    for name, models in after.items():
        assert set(before[name]) <= set(models)
    assert min(len(models) for models in before.values()) > 0


@given(st.permutations(range(8)), st.permutations(range(5)))
def test_the_spread_depends_on_no_order(pools: list[int], profiles: list[int]) -> None:
    made_pools = [pool(f"p-{number}", vram_gb=50 + number) for number in pools]
    made = [
        profile(f"w-{number}", copies=number + 1, models=(ProfileModel(model=f"m-{number}", vram_gb=20),))
        for number in profiles
    ]
    kept = spread(made, made_pools, NOW)
    ordered = spread(sorted(made, key=lambda one: one.profile_id), sorted(made_pools), NOW)
    assert kept == ordered


def cached(model: str, vram_gb: int = 20, *, used: float = 0, **state: Any) -> Cached:
    known: dict[str, Any] = {"loaded": True}
    return Cached(model=model, vram_gb=vram_gb, last_used_at=ago(used), **(known | state))


def test_a_kept_model_is_loaded_once() -> None:
    assert look(80, [], {"m": 40}, NOW, TERMS) == Look(loads=(ToLoad("m", 40),))
    assert look(80, [cached("m", 40)], {"m": 40}, NOW, TERMS) == Look()
    under_way = [cached("m", 40, loaded=False, loading=True)]
    assert look(80, under_way, {"m": 40}, NOW, TERMS) == Look()
    assert look(80, under_way, {"m": 40}, NOW, TERMS, asked={"m": 40}).loads == (ToLoad("m", 40),)


def test_what_nobody_uses_is_unloaded_after_its_time() -> None:
    there = [cached("a", used=31), cached("b", used=29), cached("c", used=90, holds=1), cached("d", used=90)]
    seen = look(80, there, {"d": 20}, NOW, TERMS)
    assert seen == Look(evictions=(ToEvict("a", Evict.IDLE),))


def test_room_is_made_by_the_longest_unused_and_only_where_it_is_enough() -> None:
    there = [cached("a", used=5), cached("b", used=9), cached("c", used=1), cached("d", used=20, holds=2)]
    seen = look(80, there, {"m": 20}, NOW, TERMS)
    assert seen == Look((ToEvict("b", Evict.MAKE_ROOM),), (ToLoad("m", 20),))
    assert look(80, there, {"m": 41}, NOW, TERMS) == Look(short=(ToLoad("m", 41),))


def test_a_promise_is_filled_by_the_look_when_nobody_else_does() -> None:
    fresh = cached("m", 40, used=0.5, loaded=False, holds=1)
    stale = cached("n", 40, used=1.5, loaded=False, holds=1)
    assert look(80, [fresh, stale], {}, NOW, TERMS) == Look(loads=(ToLoad("n", 40, kept=False),))


def test_what_people_asked_for_comes_before_what_profiles_keep() -> None:
    seen = look(50, [], {"a": 40}, NOW, TERMS, asked={"z": 40})
    assert seen == Look(loads=(ToLoad("z", 40, kept=False),), short=(ToLoad("a", 40),))


def test_growth_of_a_promise_needs_only_the_difference() -> None:
    promised = cached("m", 40, used=0, loaded=False, holds=1)
    assert look(50, [promised], {"m": 50}, NOW, TERMS).loads == (ToLoad("m", 50),)
    assert look(49, [promised], {"m": 50}, NOW, TERMS).short == (ToLoad("m", 50),)
