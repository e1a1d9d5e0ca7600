"""The candidates of a model placement as they are stored: a few kilobytes for hundreds of pools.

A pool of whoever asked goes by its id, a shared one by `<tenant>/<id>`. Those excluded stand under their
reason with the price that they had, those kept in the order of their scores. What is told of a pool's
region or boundary is not repeated here: these are facts and never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from domain.reasons import MODEL_REASON_TEXT, Reason
from domain.serving.placement_terms import Weights
from domain.serving.placing import (
    MICRO,
    Decision,
    Parts,
    PlacementOutcome,
    PoolName,
    PoolNow,
    score_of,
)

FORM = 1


class Candidate(NamedTuple):
    """One pool of a decision. What is scored is None where the pool was excluded before."""

    tenant_id: str
    pool_id: str
    kept: bool
    reason: Reason | None
    text: str
    price_per_hour_usd: Decimal
    score: Decimal | None = None
    parts: Parts | None = None
    warm: bool | None = None
    cold_start_seconds: int | None = None
    start_seconds: int | None = None


def recorded(decision: Decision, asked_by: str, weights: Weights) -> dict[str, Any]:
    """A decision's candidates as plain JSON."""
    excluded: dict[str, dict[str, int]] = {}
    for pool, reason in decision.excluded:
        excluded.setdefault(reason.value, {})[_reference(pool, asked_by)] = pool.price_micro_usd
    kept = [
        [
            _reference(one.pool, asked_by),
            one.pool.price_micro_usd,
            one.cold_start_seconds,
            one.start_seconds,
            *one.parts,
        ]
        for one in decision.kept
    ]
    return {"form": FORM, "weights": [str(each) for each in weights], "kept": kept, "excluded": excluded}


def candidates(stored: Mapping[str, Any], asked_by: str) -> Iterator[Candidate]:
    """Every candidate of a stored decision: those kept, best first, then the others by reason and name."""
    weights = tuple(Decimal(each) for each in stored["weights"])
    for place, (reference, price, cold, start, *figures) in enumerate(stored["kept"]):
        parts = Parts(*figures)
        reason = None if place == 0 else Reason.OUTSCORED
        yield Candidate(
            *_name(reference, asked_by),
            kept=reason is None,
            reason=reason,
            text="" if reason is None else MODEL_REASON_TEXT[reason],
            price_per_hour_usd=_usd(price),
            score=score_of(parts, weights),
            parts=parts,
            warm=parts.warm > 0,
            cold_start_seconds=cold,
            start_seconds=start,
        )
    for reason in (each for each in Reason if each.value in stored["excluded"]):
        refused = stored["excluded"][reason.value]
        for name in sorted(_name(reference, asked_by) for reference in refused):
            price = refused[_named(name, asked_by)]
            yield Candidate(*name, False, reason, MODEL_REASON_TEXT[reason], _usd(price))


def in_a_sentence(
    outcome: PlacementOutcome, model: str, pool_id: str | None, cold_start_seconds: int | None
) -> str:
    """What came of a request, for people; `cold_start_seconds` is None where the model is loaded."""
    if outcome is PlacementOutcome.POLICY_DENIED:
        return f"no pool satisfies the boundary and the regions that {model} requires"
    if outcome is PlacementOutcome.NO_CAPACITY:
        return f"pools satisfy the boundary and the regions of {model}, and none of them can take it now"
    where = f"{model} goes to pool {pool_id}"
    if cold_start_seconds is None:
        return f"{where}, where it is loaded"
    return f"{where}, where loading it takes about {cold_start_seconds} s"


def _reference(pool: PoolNow, asked_by: str) -> str:
    return _named(pool.name, asked_by)


def _named(name: PoolName, asked_by: str) -> str:
    tenant_id, pool_id = name
    return pool_id if tenant_id == asked_by else f"{tenant_id}/{pool_id}"


def _name(reference: str, asked_by: str) -> PoolName:
    tenant_id, slash, pool_id = reference.partition("/")
    return (tenant_id, pool_id) if slash else (asked_by, reference)


def _usd(micro: int) -> Decimal:
    return Decimal(micro) / MICRO
