"""Why units of a claim were not placed: the first cause that more of anything else would not cure."""

from __future__ import annotations

from collections.abc import Mapping

from domain.placement.draft import Draft, Live
from domain.placement.filters import Shortlist
from domain.reasons import Reason, ShortfallReason

POLICY_REASONS = frozenset({Reason.REGION, Reason.BOUNDARY})


def why_floor(shortlist: Shortlist) -> ShortfallReason:
    nothing = why_nothing(shortlist)
    return nothing if nothing is not None else ShortfallReason.FLOOR_CAPACITY


def why_fill(
    shortlist: Shortlist, draft: Draft, live: Mapping[str, Live], missing_units: int
) -> ShortfallReason:
    """`live` knows every pool of the fill."""
    if not shortlist.fill:
        return why_nothing(shortlist) or ShortfallReason.NO_ELIGIBLE_POOL
    if _caps_admit(shortlist, draft, live) < _reclaimable_units(draft) + missing_units:
        return ShortfallReason.CAPS_UNSATISFIABLE
    if any(_failed_with_room(shortlist, draft, live)):
        return ShortfallReason.LAUNCHES_FAILED
    return ShortfallReason.CAPACITY


def why_nothing(shortlist: Shortlist) -> ShortfallReason | None:
    """Nothing passes the filters: denied by policy when region and boundary alone leave nothing."""
    if shortlist.fill or shortlist.floor:
        return None
    if shortlist.refused and all(reason in POLICY_REASONS for reason in shortlist.refused.values()):
        return ShortfallReason.POLICY_DENIED
    return ShortfallReason.NO_ELIGIBLE_POOL


def _failed_with_room(shortlist: Shortlist, draft: Draft, live: Mapping[str, Live]) -> list[bool]:
    """For each pool of the fill whether launches failed there though the caps admit more units."""
    states = [(entry, live[entry.pool_id]) for entry in shortlist.fill]
    return [
        state.blocked is Reason.BACKED_OFF and draft.cap_left(entry, state.probation) > 0
        for entry, state in states
    ]


def _reclaimable_units(draft: Draft) -> int:
    return sum(row.units for row in draft.rows() if row.entry.reclaimable)


def _caps_admit(shortlist: Shortlist, draft: Draft, live: Mapping[str, Live]) -> int:
    """How many units the caps would admit if every open pool had endless capacity.

    A pool where launches failed is open again soon. A pool that takes no new units counts for what it
    holds.
    """
    by_pool: dict[str, tuple[str, int]] = {}
    for row in draft.rows():
        if row.entry.reclaimable:
            held = by_pool.get(row.entry.pool_id, ("", 0))[1]
            by_pool[row.entry.pool_id] = (row.entry.group_id, held + row.units)
    for entry in shortlist.fill:
        state = live[entry.pool_id]
        if state.blocked in (None, Reason.BACKED_OFF):
            by_pool[entry.pool_id] = (entry.group_id, draft.pool_cap(state.probation))
    by_group: dict[str, int] = {}
    for group_id, units in by_pool.values():
        by_group[group_id] = by_group.get(group_id, 0) + units
    return sum(min(draft.caps.group_units, units) for units in by_group.values())
