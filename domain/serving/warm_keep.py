"""Warm keeping: which models a pool is to have loaded, and which of them may go.

Profiles say which models are to be warm, on how many pools and when. Every pool decides for itself and all
of them agree, because each works out the same spread from the same profiles and pools. What one pool does
then follows from its own memory: it is never exceeded, a kept model is never unloaded for being idle, and
memory is freed before it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from domain.model import Frozen
from domain.pool import Name, PoolId, PoolKind, SecurityBoundary
from domain.serving.models import ModelName, plain_name
from domain.serving.requirements import VramGb

MAX_ENTRIES = 64
MAX_COPIES = 1000

ProfileId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]


class Weekday(StrEnum):
    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


WEEK = tuple(Weekday)


class Window(Frozen):
    """A span of time, in UTC, on some days of the week; no `days` is every day.

    It ends before `until`. One that ends at or before its start ends on the next day: 22:00 to 06:00 on
    friday lasts until saturday morning, 00:00 to 00:00 the whole day.
    """

    days: Annotated[tuple[Weekday, ...], Field(max_length=len(WEEK))] = ()
    start: time
    until: time

    @field_validator("start", "until")
    @classmethod
    def _has_no_zone(cls, moment: time) -> time:
        if moment.tzinfo is not None:
            raise ValueError("windows are in UTC: give the time without a zone")
        return moment

    def holds(self, now: datetime) -> bool:
        """Whether the window is open at `now`, an aware time in UTC."""
        clock, today = now.time(), WEEK[now.weekday()]
        if self.start < self.until:
            return self._is_on(today) and self.start <= clock < self.until
        yesterday = WEEK[now.weekday() - 1]
        return (self._is_on(today) and clock >= self.start) or (self._is_on(yesterday) and clock < self.until)

    def _is_on(self, day: Weekday) -> bool:
        return not self.days or day in self.days


class PoolSelector(Frozen):
    """Which pools a profile is for. What is empty does not restrict; what is given must hold together."""

    pool_ids: Annotated[tuple[PoolId, ...], Field(max_length=MAX_ENTRIES)] = ()
    regions: Annotated[tuple[Name, ...], Field(max_length=MAX_ENTRIES)] = ()
    kinds: Annotated[tuple[PoolKind, ...], Field(max_length=len(PoolKind))] = ()
    gpu_types: Annotated[tuple[Name, ...], Field(max_length=MAX_ENTRIES)] = ()
    boundaries: Annotated[tuple[SecurityBoundary, ...], Field(max_length=len(SecurityBoundary))] = ()

    def selects(self, pool: KeepPool) -> bool:
        return all(
            not allowed or value in allowed
            for allowed, value in (
                (self.pool_ids, pool.pool_id),
                (self.regions, pool.region),
                (self.kinds, pool.kind),
                (self.gpu_types, pool.gpu_type),
                (self.boundaries, pool.boundary),
            )
        )


class ProfileModel(Frozen):
    """A model and the accelerator memory that it takes, in GB."""

    model: ModelName
    vram_gb: VramGb

    @field_validator("model")
    @classmethod
    def _in_plain_words(cls, model: str) -> str:
        return plain_name(model)


class WarmProfile(Frozen):
    """Keep each of `models` loaded on `copies` of the selected pools, in any of `windows` or always."""

    profile_id: ProfileId
    models: Annotated[tuple[ProfileModel, ...], Field(min_length=1, max_length=MAX_ENTRIES)]
    pools: PoolSelector = PoolSelector()
    copies: Annotated[int, Field(ge=1, le=MAX_COPIES)] = 1
    windows: Annotated[tuple[Window, ...], Field(max_length=MAX_ENTRIES)] = ()
    enabled: bool = True

    @model_validator(mode="after")
    def _names_each_model_once(self) -> Self:
        names = [one.model for one in self.models]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"models names {', '.join(twice)} more than once")
        return self

    def holds(self, now: datetime) -> bool:
        return self.enabled and (not self.windows or any(one.holds(now) for one in self.windows))


class WarmKeepTerms(Frozen):
    """How pools are looked after.

    A model that nobody used for `idle_evict_minutes` is unloaded unless a profile keeps it. One that was
    used within `quiet_seconds` does not make room for another. Memory that was promised to a placement is
    filled by the placement itself; after `promise_patience_seconds` without it, by the pool's next look.
    A load holds its place for `lease_seconds` at a time, so one whose worker died is taken up after that.
    """

    look_seconds: Annotated[float, Field(ge=0.05, le=3600)] = 300
    idle_evict_minutes: Annotated[float, Field(ge=0, le=100_000)] = 30
    quiet_seconds: Annotated[float, Field(ge=0, le=86_400)] = 120
    promise_patience_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60
    lease_seconds: Annotated[float, Field(ge=0.1, le=600)] = 30

    @property
    def idle(self) -> timedelta:
        return timedelta(minutes=self.idle_evict_minutes)


class KeepPool(NamedTuple):
    """A pool that serves models: the facts that profiles select by, and whether it takes models now."""

    pool_id: str
    region: str
    kind: PoolKind
    gpu_type: str | None
    boundary: SecurityBoundary
    vram_gb: int
    able: bool = True


class Cached(NamedTuple):
    """A model that takes memory on a pool. `loading` is one whose load or unloading is under way."""

    model: str
    vram_gb: int
    loaded: bool
    last_used_at: datetime
    holds: int = 0
    loading: bool = False


class Evict(StrEnum):
    """Why a model leaves a pool."""

    IDLE = "idle"
    MAKE_ROOM = "make_room"


class ToEvict(NamedTuple):
    model: str
    reason: Evict


class ToLoad(NamedTuple):
    """A model to load, and whether a profile or a placement wants it."""

    model: str
    vram_gb: int
    kept: bool = True


class Look(NamedTuple):
    """What one pool is to do: unload first, then load. `short` are models that do not fit now."""

    evictions: tuple[ToEvict, ...] = ()
    loads: tuple[ToLoad, ...] = ()
    short: tuple[ToLoad, ...] = ()


def spread(
    profiles: Iterable[WarmProfile], pools: Iterable[KeepPool], now: datetime
) -> dict[str, dict[str, int]]:
    """The models that each pool is to keep, with their memory in GB, by pool id.

    Each model goes to the pools that rank highest for it by a hash of both names, as far as their memory
    lasts; a pool that is to keep it for another profile goes first. So a pool that comes or goes moves
    few models, and nobody has to be asked.
    """
    able = sorted((pool for pool in pools if pool.able), key=lambda pool: pool.pool_id)
    kept: dict[str, dict[str, int]] = {pool.pool_id: {} for pool in able}
    for profile in sorted(profiles, key=lambda one: one.profile_id):
        if not profile.holds(now):
            continue
        selected = [pool for pool in able if profile.pools.selects(pool)]
        for wanted in sorted(profile.models, key=lambda one: one.model):
            _place(wanted, profile.copies, selected, kept)
    return kept


def _place(
    wanted: ProfileModel, copies: int, selected: Sequence[KeepPool], kept: Mapping[str, dict[str, int]]
) -> None:
    ranked = sorted(selected, key=lambda pool: _rank(wanted.model, pool.pool_id, kept))
    left = copies
    for pool in ranked:
        if left == 0:
            return
        models = kept[pool.pool_id]
        already = models.get(wanted.model, 0)
        size = max(already, wanted.vram_gb)
        if sum(models.values()) - already + size <= pool.vram_gb:
            models[wanted.model] = size
            left -= 1


def _rank(model: str, pool_id: str, kept: Mapping[str, Mapping[str, int]]) -> tuple[bool, bytes]:
    mark = hashlib.blake2b(f"{model}\n{pool_id}".encode(), digest_size=8).digest()
    return (model not in kept[pool_id], mark)


def look(
    vram_gb: int,
    cached: Iterable[Cached],
    kept: Mapping[str, int],
    now: datetime,
    terms: WarmKeepTerms,
    *,
    asked: Mapping[str, int] | None = None,
) -> Look:
    """What a pool with so much memory does now. `asked` are models that people asked for once, with GB."""
    there = {one.model: one for one in sorted(cached)}
    wanted = _wanted(there, kept, asked or {}, now, terms)
    names = {one.model for one in wanted} | set(kept)
    idle = [one for one in there.values() if _may_go(one, names) and now - one.last_used_at >= terms.idle]
    quiet = timedelta(seconds=terms.quiet_seconds)
    spare = sorted(
        (
            one
            for one in there.values()
            if _may_go(one, names) and one not in idle and now - one.last_used_at >= quiet
        ),
        key=lambda one: (one.last_used_at, one.model),
    )
    evictions = [ToEvict(one.model, Evict.IDLE) for one in idle]
    free = vram_gb - sum(one.vram_gb for one in there.values()) + sum(one.vram_gb for one in idle)
    loads, short = [], []
    for one in wanted:
        needs = max(0, one.vram_gb - _held_by(there, one.model))
        room = _room_for(needs - free, spare)
        if room is None:
            short.append(one)
            continue
        for leaving in room:
            spare.remove(leaving)
            free += leaving.vram_gb
            evictions.append(ToEvict(leaving.model, Evict.MAKE_ROOM))
        free -= needs
        loads.append(one)
    return Look(tuple(evictions), tuple(loads), tuple(short))


def _wanted(
    there: Mapping[str, Cached],
    kept: Mapping[str, int],
    asked: Mapping[str, int],
    now: datetime,
    terms: WarmKeepTerms,
) -> list[ToLoad]:
    """What is to be loaded, in order: what placements hold, what people asked for, what profiles keep.

    A load that is under way is waited for where people asked for it, and else left alone.
    """
    patience = timedelta(seconds=terms.promise_patience_seconds)
    wanted = {
        one.model: ToLoad(one.model, max(one.vram_gb, kept.get(one.model, 0)), kept=one.model in kept)
        for one in there.values()
        if one.holds and not one.loaded and now - one.last_used_at >= patience
    }
    for source in (asked, kept):
        for model in sorted(source):
            one = there.get(model)
            if one is None or not one.loaded:
                wanted.setdefault(model, ToLoad(model, source[model], kept=model in kept))
    under_way = {one.model for one in there.values() if one.loading}
    return [one for one in wanted.values() if one.model not in under_way or one.model in asked]


def _may_go(one: Cached, names: set[str]) -> bool:
    return one.loaded and not one.holds and one.model not in names


def _held_by(there: Mapping[str, Cached], model: str) -> int:
    return there[model].vram_gb if model in there else 0


def _room_for(missing_gb: int, spare: Sequence[Cached]) -> list[Cached] | None:
    """The models that leave so that so many GB come free, longest unused first; None where too few can."""
    leaving: list[Cached] = []
    for one in spare:
        if missing_gb <= 0:
            break
        leaving.append(one)
        missing_gb -= one.vram_gb
    return leaving if missing_gb <= 0 else None
