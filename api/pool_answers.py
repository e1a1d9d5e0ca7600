"""What readers of the registry are answered: the JSON of `PoolView` and `PoolDetail`, from rows as they are.

A list of pools is read far more often than anything else, and nothing in it comes from outside: each value
was checked when it was stored. The views describe it; that they describe it rightly is for tests to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic.alias_generators import to_camel

from api.deps import Deps
from domain.ids import pool_drain_workflow_id
from domain.placement.liveness import PoolPulse, live_of
from domain.pool import PoolState
from domain.pool_life import Held, LoadedModel, allowed_actions
from domain.reasons import REASON_TEXT
from store.pool_reads import MODEL_COLUMNS, TOLD_COLUMNS, PoolRow

Document = dict[str, Any]
MODEL_LISTS = tuple(f"model_{name}" for name in MODEL_COLUMNS)
NAMES = tuple((name, to_camel(name)) for name in TOLD_COLUMNS)


class Teller:
    """Tells of pools at one moment, to one tenant."""

    def __init__(self, deps: Deps, tenant_id: str) -> None:
        self._deps = deps
        self._tenant_id = tenant_id
        self._now: datetime = deps.now()
        self._staleness = timedelta(seconds=deps.policy.placement.staleness_seconds)

    def pool(self, row: PoolRow) -> Document:
        """A pool as `PoolView` describes it."""
        blocked = live_of(_pulse(row), now=self._now, staleness=self._staleness).blocked
        document: Document = {alias: row[name] for name, alias in NAMES}
        document["freeInstances"] = row["free"]
        document["cachedModels"] = [
            {"model": model, "vramGb": vram_gb, "state": state, "loadedAt": loaded_at, "lastUsedAt": used_at}
            for model, vram_gb, state, loaded_at, used_at in _models(row)
        ]
        document["placeable"] = blocked is None
        document["notPlaceableReason"] = blocked
        document["notPlaceableText"] = None if blocked is None else REASON_TEXT[blocked]
        return document

    def detail(self, row: PoolRow) -> Document:
        """A pool as `PoolDetail` describes it."""
        document = self.pool(row)
        held = _held(row)
        state, name = PoolState(row["state"]), (row["tenant_id"], row["pool_id"])
        workflow_id = pool_drain_workflow_id(*name) if state is PoolState.DRAINING else None
        document["held"] = {
            "units": held.units,
            "instances": held.instances,
            "workloads": held.workloads,
            "models": [
                {"model": one.model, "vramGb": one.vram_gb, "lastUsedAt": one.last_used_at}
                for one in held.models
            ],
        }
        document["allowedActions"] = allowed_actions(state, held) if name[0] == self._tenant_id else ()
        document["drainWorkflowId"] = workflow_id
        document["drainTemporalUrl"] = None if workflow_id is None else self._deps.workflow_url(workflow_id)
        return document


def _pulse(row: PoolRow) -> PoolPulse:
    return PoolPulse(row["free"], row["state"], row["standing"], row["degraded"], row["reported_at"])


def _models(row: PoolRow) -> Iterator[Any]:
    """A tuple of `MODEL_COLUMNS` for each model."""
    return zip(*(row[name] or () for name in MODEL_LISTS), strict=True)


def _held(row: PoolRow) -> Held:
    return Held(
        units=row["held_units"],
        instances=row["held_instances"],
        workloads=tuple(row["held_workloads"] or ()),
        models=tuple(LoadedModel(model, vram_gb, used) for model, vram_gb, _, _, used in _models(row)),
    )
