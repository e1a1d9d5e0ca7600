"""The life of a pool: which steps it takes, what it may change, and when it is drained.

A refusal is a value: the reason to program against, the sentence for a person, and what is allowed
instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from domain.model import Frozen
from domain.pool import TRANSITIONS, PoolState, next_state

MAX_NAMED = 5


class PoolAction(StrEnum):
    """What a person may ask of a pool. A step leads to another state; a change alters what is no fact."""

    ACTIVATE = "activate"
    DRAIN = "drain"
    RESUME = "resume"
    RETIRE = "retire"
    CHANGE = "change"


class LifeRefusal(StrEnum):
    """Why a pool does not do what was asked."""

    NO_SUCH_STEP = "no_such_step"
    POOL_HOLDS = "pool_holds"
    VERSION_CONFLICT = "version_conflict"


class EvictReason(StrEnum):
    """Why a model was unloaded from a pool that drains."""

    DRAINED = "drained"
    PATIENCE_OVER = "patience_over"


class DrainTerms(Frozen):
    """How a pool drains.

    A model counts as in use while placements hold it, and for `model_quiet_seconds` after its last use;
    after `model_patience_seconds` of draining it is unloaded whatever it does. A look at the pool comes
    every `look_seconds`.
    """

    model_patience_seconds: Annotated[float, Field(ge=0)] = 1800
    model_quiet_seconds: Annotated[float, Field(ge=0)] = 120
    look_seconds: Annotated[float, Field(ge=0.05, le=600)] = 15


class LoadedModel(NamedTuple):
    """A model that takes memory of a pool. `holds` counts the placements that keep it there."""

    model: str
    vram_gb: int
    last_used_at: datetime
    holds: int = 0


class Held(NamedTuple):
    """What is still in a pool: planned units, live instances, the workloads they belong to, and models."""

    units: int = 0
    instances: int = 0
    workloads: tuple[str, ...] = ()
    models: tuple[LoadedModel, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.units or self.instances or self.models)

    def __str__(self) -> str:
        """Such as `4 units, 2 instances of orders and web; 1 model`."""
        return "; ".join(part for part in (self._capacity(), self._models()) if part) or "nothing"

    def _capacity(self) -> str:
        counts = [_count(self.units, "unit"), _count(self.instances, "instance")]
        said = ", ".join(one for one in counts if one)
        return f"{said} of {_names(self.workloads)}" if said and self.workloads else said

    def _models(self) -> str:
        return _count(len(self.models), "model")


class Refusal(NamedTuple):
    """What was asked is not done: why, in a sentence, and which actions the pool allows now."""

    reason: LifeRefusal
    text: str
    allowed: tuple[PoolAction, ...]


class Eviction(NamedTuple):
    """One model to unload."""

    model: LoadedModel
    reason: EvictReason


class DrainLook(NamedTuple):
    """What is to be done at one look at a pool that drains."""

    evictions: tuple[Eviction, ...]
    drained: bool


def allowed_actions(state: PoolState, held: Held) -> tuple[PoolAction, ...]:
    """What a pool may be asked in this state, in the order of its life."""
    return tuple(
        action
        for action in PoolAction
        if (action is PoolAction.CHANGE and state is not PoolState.RETIRED)
        or ((state, action.value) in TRANSITIONS and (action is not PoolAction.RETIRE or held.nothing))
    )


def step(pool_id: str, state: PoolState, action: PoolAction, held: Held) -> PoolState | Refusal:
    """The state after `action`, or why there is none."""
    allowed = allowed_actions(state, held)
    if action is PoolAction.CHANGE:
        if action in allowed:
            return state
        return Refusal(
            LifeRefusal.NO_SUCH_STEP, f"pool {pool_id!r} is {state}: nothing of it changes any more", allowed
        )
    after = next_state(state, action)
    if after is None:
        text = f"pool {pool_id!r} is {state}: it cannot {action} from there; allowed is {_words(allowed)}"
        return Refusal(LifeRefusal.NO_SUCH_STEP, text, allowed)
    if action is PoolAction.RETIRE and not held.nothing:
        text = f"pool {pool_id!r} still holds {held}, so it cannot retire; allowed is {_words(allowed)}"
        return Refusal(LifeRefusal.POOL_HOLDS, text, allowed)
    return after


def stale(pool_id: str, state: PoolState, held: Held, version: int, expected: int) -> Refusal | None:
    """Why a caller that knows version `expected` may not act; None when it knows the newest."""
    if version == expected:
        return None
    text = f"pool {pool_id!r} is at version {version}, not {expected}"
    return Refusal(LifeRefusal.VERSION_CONFLICT, text, allowed_actions(state, held))


def look(held: Held, *, since: datetime, now: datetime, terms: DrainTerms) -> DrainLook:
    """What to unload from a pool that drains since `since`, and whether it is drained then."""
    out_of_patience = now - since >= timedelta(seconds=terms.model_patience_seconds)
    quiet = timedelta(seconds=terms.model_quiet_seconds)
    in_use = {one.model for one in held.models if one.holds or now - one.last_used_at < quiet}
    if in_use and not out_of_patience:
        return DrainLook((), drained=False)
    evictions = tuple(
        Eviction(one, EvictReason.PATIENCE_OVER if one.model in in_use else EvictReason.DRAINED)
        for one in sorted(held.models)
    )
    return DrainLook(evictions, drained=held._replace(models=()).nothing)


def changed(now: Mapping[str, object], wanted: Mapping[str, object]) -> dict[str, object]:
    """What of `wanted` differs from what is there: a change that changes nothing adds no version."""
    return {name: value for name, value in wanted.items() if now[name] != value}


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}" if number else ""


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _words(actions: Sequence[PoolAction]) -> str:
    return ", ".join(actions) or "nothing"
