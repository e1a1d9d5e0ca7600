"""What the workflow that keeps a pool warm may ask of its hand: names, requests and answers."""

from __future__ import annotations

from datetime import datetime

from activities.model_placement_calls import LoadModelRequest
from domain.model import Frozen

WARM_KEEP = "WarmKeep"
WANTED = "wanted"
LOOK_AT_MODELS = "look_at_models"


class Wanted(Frozen):
    """Somebody wants something of the pool: what, is in the store."""

    why: str = ""


class FailedLoad(Frozen):
    """A load that came to nothing: why, as a word and in a sentence."""

    model: str
    kind: str
    problem: str


class WarmKeepInput(Frozen):
    """Keep one pool warm. `failed` are loads that the last look had asked for."""

    tenant_id: str
    pool_id: str
    failed: tuple[FailedLoad, ...] = ()


class ModelsLooked(Frozen):
    """What a look at a pool found, did and wants.

    `over` means that the pool serves no models any more. `kept` models are to be warm and `warm` of them
    are; `loads` are to be carried out; `short` did not fit; `problem` says why nothing could be seen.
    """

    over: bool
    kept: int = 0
    warm: int = 0
    loads: tuple[LoadModelRequest, ...] = ()
    evicted: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    problem: str | None = None
    pause_seconds: float = 0
    next_look_at: datetime | None = None


class WarmKeepEnded(Frozen):
    """Why a pool is looked after no more."""

    why: str
