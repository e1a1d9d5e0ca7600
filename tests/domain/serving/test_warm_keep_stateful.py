"""Pools that look after themselves, whatever happens between two looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from domain.pool import PoolKind, SecurityBoundary
from domain.serving.warm_keep import (
    Cached,
    KeepPool,
    ProfileModel,
    WarmKeepTerms,
    WarmProfile,
    look,
    spread,
)

TERMS = WarmKeepTerms()
MODELS = tuple(f"m-{number}" for number in range(6))
SIZES = dict(zip(MODELS, (10, 15, 20, 30, 45, 70), strict=True))
numbers = st.integers(0, 3)
models = st.sampled_from(MODELS)


@dataclass
class Kept:
    """One model in a pool's memory, as the store holds it."""

    vram_gb: int
    last_used_at: datetime
    loaded: bool = True
    holds: int = 0


@dataclass
class One:
    """One pool with its memory."""

    facts: KeepPool
    there: dict[str, Kept] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return sum(one.vram_gb for one in self.there.values())

    def cached(self) -> list[Cached]:
        return [
            Cached(name, one.vram_gb, one.loaded, one.last_used_at, one.holds)
            for name, one in self.there.items()
        ]


class Pools(RuleBasedStateMachine):
    @initialize(sizes=st.lists(st.sampled_from([24, 40, 80, 160]), min_size=4, max_size=4))
    def begin(self, sizes: list[int]) -> None:
        self.now = datetime(2026, 1, 30, 10, tzinfo=UTC)
        self.profiles: dict[str, WarmProfile] = {}
        self.pools = [
            One(
                KeepPool(
                    f"p-{number}",
                    "eu-north",
                    PoolKind.PRIVATE_CLOUD,
                    "a100",
                    SecurityBoundary.REGIONAL,
                    vram_gb=size,
                )
            )
            for number, size in enumerate(sizes)
        ]

    def kept(self) -> dict[str, dict[str, int]]:
        return spread(self.profiles.values(), [one.facts for one in self.pools], self.now)

    @rule(
        name=st.sampled_from(["a", "b", "c"]),
        names=st.sets(models, min_size=1, max_size=4),
        copies=st.integers(1, 4),
    )
    def write_profile(self, name: str, names: set[str], copies: int) -> None:
        wanted = tuple(ProfileModel(model=one, vram_gb=SIZES[one]) for one in sorted(names))
        self.profiles[name] = WarmProfile(profile_id=name, models=wanted, copies=copies)

    @precondition(lambda self: bool(self.profiles))
    @rule()
    def remove_profile(self) -> None:
        self.profiles.pop(min(self.profiles))

    @rule(number=numbers, model=models)
    def place(self, number: int, model: str) -> None:
        """A placement keeps memory if there is some, and its own workflow may not have loaded it yet."""
        one = self.pools[number]
        known = one.there.get(model)
        if known is None and one.used + SIZES[model] <= one.facts.vram_gb:
            one.there[model] = Kept(SIZES[model], self.now, loaded=False, holds=1)
        elif known is not None:
            known.holds += 1
            known.last_used_at = self.now

    @rule(number=numbers, model=models)
    def release(self, number: int, model: str) -> None:
        known = self.pools[number].there.get(model)
        if known is not None and known.holds:
            known.holds -= 1
            if not known.holds and not known.loaded:
                del self.pools[number].there[model]

    @rule(number=numbers, model=models)
    def lose(self, number: int, model: str) -> None:
        """The endpoint lets go of a model by itself; what holds it stays promised."""
        known = self.pools[number].there.get(model)
        if known is not None and known.loaded:
            known.loaded = False
            if not known.holds:
                del self.pools[number].there[model]

    @rule(minutes=st.integers(1, 45))
    def wait(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(number=numbers)
    def look_at(self, number: int) -> None:
        one, kept = self.pools[number], self.kept()[f"p-{number}"]
        seen = look(one.facts.vram_gb, one.cached(), kept, self.now, TERMS)
        for leaving in seen.evictions:
            assert leaving.model not in kept
            assert not one.there[leaving.model].holds
            del one.there[leaving.model]
        for coming in seen.loads:
            known = one.there.setdefault(coming.model, Kept(coming.vram_gb, self.now))
            known.vram_gb, known.loaded = max(known.vram_gb, coming.vram_gb), True
            known.last_used_at = max(known.last_used_at, self.now)
            assert one.used <= one.facts.vram_gb
        again = look(one.facts.vram_gb, one.cached(), kept, self.now, TERMS)
        assert (again.evictions, again.loads) == ((), ())
        for missing in kept.keys() - {name for name, state in one.there.items() if state.loaded}:
            assert missing in {each.model for each in again.short}

    @rule()
    def settle(self) -> None:
        """With nothing held, pools come to hold what profiles keep and nothing that is idle."""
        for one in self.pools:
            for model in list(one.there):
                one.there[model].holds = 0
                if not one.there[model].loaded:
                    del one.there[model]
        self.now += timedelta(minutes=TERMS.idle_evict_minutes)
        for number in range(len(self.pools)):
            self.look_at(number)
        assert [one.there.keys() for one in self.pools] == [
            self.kept()[one.facts.pool_id].keys() for one in self.pools
        ]

    @invariant()
    def no_pool_exceeds_its_memory(self) -> None:
        for one in getattr(self, "pools", []):
            assert one.used <= one.facts.vram_gb
            assert sum(self.kept()[one.facts.pool_id].values()) <= one.facts.vram_gb


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
