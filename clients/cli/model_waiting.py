"""Wait until a model that was placed is loaded on its pool."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from clients.cli.answers import read
from clients.cli.api import path
from clients.cli.failures import Exit, Failure
from clients.cli.model_answers import ModelPlacement, PlacementState
from clients.cli.pool_answers import CachedModel, Pool
from clients.cli.session import Session
from clients.cli.waiting import poll, running

PLACEMENTS = ("factory", "compute-pools", "placements")
LOADED = "loaded"


class Loading(NamedTuple):
    """A placement, and its model on the pool; None where it is not there."""

    placement: ModelPlacement
    model: CachedModel | None

    @property
    def loaded_at(self) -> datetime | None:
        if self.model is None or self.model.state != LOADED:
            return None
        return self.model.loaded_at

    @property
    def ended(self) -> bool:
        """A placement that is given back has no use for its model any more."""
        return self.loaded_at is not None or self.placement.state != PlacementState.HELD


def wait_for_model(session: Session, placed: ModelPlacement, *, seconds: float) -> datetime:
    """When the model was loaded, once it is; `Failure` when it takes longer or the placement ends before."""

    def ask() -> Loading:
        document = session.api.get(path(*PLACEMENTS, str(placed.placement_id)))
        placement = read(ModelPlacement, document, "the placement")
        return Loading(placement, _on_pool(session, placement))

    with running(session.screen, f"{placed.model} is loading on {placed.chosen_pool_id}") as report:
        found = poll(
            session,
            ask,
            lambda one: one.ended,
            seconds=seconds,
            report=report,
            too_long=lambda one: _too_long(one, seconds),
        )
    if found.loaded_at is None:
        raise _not_loaded(found.placement)
    return found.loaded_at


def _on_pool(session: Session, one: ModelPlacement) -> CachedModel | None:
    where = path("factory", "compute-pools", one.chosen_pool_id or "")
    pool = read(Pool, session.api.get(where, {"tenantId": one.chosen_pool_tenant_id}), "the pool")
    return next((each for each in pool.cached_models if each.model == one.model), None)


def _too_long(one: Loading, seconds: float) -> Failure:
    state = "not there" if one.model is None else one.model.state
    name = one.placement.placement_id
    return Failure(
        Exit.WAITED_TOO_LONG,
        f"{one.placement.model} is {state} on {one.placement.chosen_pool_id} after {seconds:g} seconds",
        (
            f"it goes on without sco; look at it again with sco describe model-placement {name},"
            " or wait longer with --timeout",
        ),
    )


def _not_loaded(one: ModelPlacement) -> Failure:
    why = f": {one.problem}" if one.problem else ""
    pool, owner = one.chosen_pool_id, one.chosen_pool_tenant_id
    return Failure(
        Exit.SHORTFALL,
        f"{one.model} did not load on {pool}: its placement was {one.state}{why}",
        (f"sco describe pool {pool} --tenant {owner} shows the pool's health and its last loads",),
    )
