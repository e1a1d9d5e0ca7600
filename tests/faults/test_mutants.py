"""Each guard of the hands is taken away in turn, and something of the fault matrix must notice.

A mutant that nobody notices is a guard that nothing holds. Without it the same scenes are well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from activities import launching, provider_acts, reconciling, repairing
from activities.acquiring import AcquiringActivities
from activities.launching import Launcher
from activities.openstack import compute, listed
from activities.openstack.adapter import BudgetAdapter
from activities.ports import ProviderError, ProviderErrorKind
from activities.provider_acts import ProviderActs
from domain import acquisition, reconcile
from domain.acquisition import ServerStatus, ServerView, SlotState, SlotView
from domain.reconcile import DriftKind
from lab.chaos import life
from lab.chaos.lane import Lane
from lab.chaos.life import Life, Stage
from lab.chaos.table import Cell, Fault
from lab.cloud.wire import Act
from store import fleet_facts, licences, quota_holds
from store import slots as store_slots
from tests.faults import launches, outages, test_recovery
from tests.faults.fleet import Scene
from tests.faults.lanes import lane  # noqa: F401 - a fixture

SECONDS = 90.0
# A mutant often never comes to rest; how long it may try need not be long.
MUTANT_SECONDS = 12.0
SEED = 3


def cell(fault: Fault, step: Act, stage: str) -> Scene:
    """One case of the matrix as a scene, without deaths: what is noticed is the mutant's doing alone."""

    async def live(own: Lane) -> list[str]:
        await own.reset()
        outcome = await Life(own, Cell(fault, step), SEED, deaths=0, stage=stage).run()
        return [str(one) for one in outcome.broken]

    live.__name__ = f"{fault.name.lower()}_{step}"
    return live


BUILT_ANYWAY = cell(Fault.DONE_503, Act.CREATE, Stage.PLACE)


def create_without_looking(patch: pytest.MonkeyPatch) -> None:
    """A create that is in doubt is asked for again at once, instead of looking what came of it."""

    async def create(self: ProviderActs, spec: Any, count: int) -> None:
        for _ in range(2):
            try:
                await asyncio.to_thread(self._compute.create_batch, spec, count)
            except ProviderError as error:
                if not error.in_doubt:
                    raise
            else:
                return

    patch.setattr(ProviderActs, "create", create)


def write_nothing_before_a_create(patch: pytest.MonkeyPatch) -> None:
    async def unwritten(connection: Any, tenant_id: str, slots: Sequence[str], **_: Any) -> Sequence[str]:
        return list(slots)

    patch.setattr(store_slots, "mark_requested", unwritten)


def wait_for_nothing_to_show(patch: pytest.MonkeyPatch) -> None:
    """A slot is asked for again as soon as a list does not show its server."""
    grant_a_slot_twice(patch)
    patch.setattr(acquisition, "_is_settling", lambda slot, now, terms: False)


def adopt_nothing_late(patch: pytest.MonkeyPatch) -> None:
    """Servers that turn up after their slot was asked for again are left to themselves."""
    adopt = acquisition._adopt

    def only_first(free: list[SlotView], server: ServerView, steps: Any) -> None:
        if free and free[0].attempts <= 1:
            adopt(free, server, steps)

    patch.setattr(acquisition, "_adopt", only_first)
    patch.setattr(reconcile, "LEFT_OVER", frozenset())
    patch.setattr(repairing, "LEFT_OVER", frozenset())


def bind_without_comparing_batches(patch: pytest.MonkeyPatch) -> None:
    next_steps = acquisition.next_steps

    def in_any_order(slots: Sequence[SlotView], servers: Sequence[ServerView], *rest: Any) -> Any:
        bound = {slot.server_id for slot in slots}
        free = [slot for slot in slots if slot.state is SlotState.PLANNED and slot.server_id is None]
        batches = iter(slot.batch_key for slot in reversed(free))
        mixed = [
            one if one.server_id in bound else one._replace(batch_key=next(batches, one.batch_key))
            for one in servers
        ]
        return next_steps(slots, mixed, *rest)

    patch.setattr("activities.acquiring.next_steps", in_any_order)


def one_look_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "AGREEING_CYCLES", 1)


def looks_need_not_agree(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciling, "agrees", lambda before, now, deleted: True)


def a_failed_page_ends_a_list(patch: pytest.MonkeyPatch) -> None:
    pages = compute._pages

    def forgiving(client: Any, asked: dict[str, str]) -> Any:
        shown = 0
        try:
            for page in pages(client, asked):
                shown += 1
                yield page
        except Exception:
            if not shown:
                raise

    patch.setattr(compute, "_pages", forgiving)


def believe_every_list(patch: pytest.MonkeyPatch) -> None:
    """What a list does not show is gone: nobody asks for it by its id."""

    async def confirm(self: Any, place: Any, opened: Any, sight: Any) -> Any:
        return sight, frozenset(one.subject for one in sight.drift if one.kind is DriftKind.LOST)

    patch.setattr(reconciling.ReconcilingActivities, "_confirm", confirm)


def believe_lists_when_giving_back(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, *asked: Any) -> list[Any]:
        return []

    patch.setattr(AcquiringActivities, "_unlisted", nothing)


def act_without_a_licence(patch: pytest.MonkeyPatch) -> None:
    async def may(connection: Any, place: Any, now: datetime) -> bool:
        return True

    async def grant(
        connection: Any, place: Any, *, wanted: int, clock: Callable[[], datetime], **_: Any
    ) -> licences.Grant:
        return licences.Grant(wanted, False, clock())

    patch.setattr(licences, "may_act", may)
    patch.setattr(licences, "launch_grant", grant)
    patch.setattr(licences, "delete_grant", grant)


def repair_everything_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(licences, "pace_limit", lambda fleet, terms: 1_000_000)


def forget_the_order_of_tiers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "TIER_ORDER", tuple(reversed(reconcile.TIER_ORDER)))


def delete_what_a_slot_holds(patch: pytest.MonkeyPatch) -> None:
    async def nobody(connection: Any, tenant_id: str, servers: Any) -> frozenset[str]:
        return frozenset()

    patch.setattr(fleet_facts, "held", nobody)


def take_others_for_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        reconciling, "is_ours", lambda server, place: None not in (server.batch_key, server.pool_id)
    )


def write_no_log(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any, **__: Any) -> None:
        return None

    patch.setattr(provider_acts, "record", nothing)


def call_without_a_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetAdapter, "_take_token", lambda self: None)


def ask_again_over_quota(patch: pytest.MonkeyPatch) -> None:
    async def free(*_: Any, **__: Any) -> None:
        return None

    patch.setattr(launching, "FINAL_KINDS", launching.FINAL_KINDS - {ProviderErrorKind.QUOTA})
    patch.setattr(quota_holds, "held_until", free)


def hold_nothing_over_quota(patch: pytest.MonkeyPatch) -> None:
    """Each batch is refused once, but nobody learns from the one before."""

    async def nothing(self: Launcher, *_: Any) -> None:
        return None

    patch.setattr(Launcher, "_hold", nothing)


def see_no_server_in_error(patch: pytest.MonkeyPatch) -> None:
    """Neither in a list nor by its id, which is known where a list came while it was still building."""
    read, gone = listed.read_tagged, listed.is_gone

    def blind(*asked: Any) -> Any:
        found = read(*asked)
        return None if found is None or found.status is ServerStatus.ERROR else found

    def gone_to_the_blind(region: str, shown: dict[str, Any]) -> bool:
        return gone(region, shown) or shown["status"] == "ERROR"

    patch.setattr(compute, "read_tagged", blind)
    patch.setattr(compute, "is_gone", gone_to_the_blind)


def grant_a_slot_twice(patch: pytest.MonkeyPatch) -> None:
    """A slot that somebody asked for just now is asked for all the same."""
    mark = store_slots.mark_requested

    async def again(*asked: Any, settle: timedelta, **named: Any) -> Sequence[str]:
        return await mark(*asked, settle=timedelta(seconds=-60), **named)

    patch.setattr(store_slots, "mark_requested", again)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A guard taken away, the scene that has to notice, and words of what it notices."""

    take_away: Callable[[pytest.MonkeyPatch], None]
    scene: Scene
    words: str

    @property
    def name(self) -> str:
        return f"{self.take_away.__name__}-{self.scene.__name__}"


MUTANTS = (
    Mutant(create_without_looking, BUILT_ANYWAY, "duplicate: batch"),
    Mutant(write_nothing_before_a_create, launches.slow_to_show, "creates for"),
    Mutant(wait_for_nothing_to_show, launches.slow_to_show, "creates for"),
    Mutant(adopt_nothing_late, launches.late_for_good, "servers of 2"),
    Mutant(bind_without_comparing_batches, launches.fewer, "made for another slot"),
    Mutant(one_look_is_enough, outages.outage, "one look was enough"),
    Mutant(looks_need_not_agree, outages.disagreement, "looks that differ agreed"),
    Mutant(a_failed_page_ends_a_list, launches.failed_pages, "were made for 9 units"),
    Mutant(believe_every_list, outages.lying_list, "servers that served were given up"),
    Mutant(believe_lists_when_giving_back, launches.untagged, "lives without our tag"),
    Mutant(act_without_a_licence, outages.outage, "without a licence"),
    Mutant(repair_everything_at_once, outages.recovery, "steps in one window"),
    Mutant(repair_everything_at_once, outages.strangers, "were deleted at once"),
    Mutant(forget_the_order_of_tiers, outages.recovery, "before tier 1"),
    Mutant(delete_what_a_slot_holds, outages.bound_meanwhile, "a server that had a slot was deleted"),
    Mutant(take_others_for_ours, outages.neighbours, "servers of others were touched"),
    Mutant(write_no_log, outages.neighbours, "unwritten"),
    Mutant(call_without_a_token, launches.tight_budget, "times the budget was used"),
    Mutant(ask_again_over_quota, launches.over_quota, "did not end"),
    Mutant(hold_nothing_over_quota, launches.over_quota, "times for what the quota refused"),
    Mutant(see_no_server_in_error, launches.errored_quota, "servers in ERROR were left"),
    Mutant(grant_a_slot_twice, launches.two_workers, "were made for 6 units"),
)


async def test_without_a_mutant_the_cell_is_well(lane: Lane) -> None:  # noqa: F811
    assert await BUILT_ANYWAY(lane) == []


def test_without_a_mutant_every_scene_is_well() -> None:
    """`test_recovery` runs them all."""
    assert {mutant.scene for mutant in MUTANTS} - {BUILT_ANYWAY} <= set(test_recovery.ALL)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_guard_that_is_taken_away_is_missed(
    lane: Lane,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    mutant: Mutant,
) -> None:
    mutant.take_away(monkeypatch)
    monkeypatch.setattr(life, "CASE_SECONDS", MUTANT_SECONDS)
    noticed: list[str] = []
    try:
        async with asyncio.timeout(SECONDS):
            noticed = await mutant.scene(lane)
    finally:
        monkeypatch.undo()
        print("\n".join(noticed))
    assert any(mutant.words in one for one in noticed), noticed
