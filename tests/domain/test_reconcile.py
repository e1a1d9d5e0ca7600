"""What differs, when a fleet may be acted upon, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError

from domain.acquisition import LIVE_STATES, ServerStatus, SlotState
from domain.contract import Tier
from domain.reconcile import (
    LEFT_OVER,
    NEVER_SEEN,
    REPLACED,
    TIER_ORDER,
    Drift,
    DriftKind,
    FleetPhase,
    FleetState,
    HeldSlot,
    ReconcileTerms,
    SeenServer,
    after_cycle,
    agrees,
    compare,
    in_order,
    is_paced,
    lapsed,
    may_be_repaired,
    pace_limit,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = ReconcileTerms()
TAGS = frozenset({"sco:managed", "sco:workload=orders"})
TIERS = {"orders": Tier.T3, "web": Tier.T1}


def slot(
    number: int = 1,
    state: SlotState = SlotState.ACTIVE,
    *,
    server: str | None = "s1",
    batch: str = "b1",
    workload: str = "orders",
) -> HeldSlot:
    return HeldSlot(f"{batch}-{number}", batch, workload, "pool", TIERS[workload], state, server, TAGS)


def server(
    server_id: str = "s1",
    status: ServerStatus = ServerStatus.ACTIVE,
    *,
    batch: str = "b1",
    workload: str = "orders",
    tags: frozenset[str] = TAGS,
) -> SeenServer:
    return SeenServer(server_id, batch, workload, "pool", status, tags)


def kinds(slots: Sequence[HeldSlot], servers: Sequence[SeenServer]) -> list[tuple[DriftKind, str]]:
    return [(one.kind, one.subject) for one in compare(slots, servers, TIERS)]


@pytest.mark.parametrize(
    ("slots", "servers", "expected"),
    [
        ([slot()], [server()], []),
        ([slot()], [], [(DriftKind.LOST, "s1")]),
        ([slot()], [server(status=ServerStatus.DELETING)], [(DriftKind.LOST, "s1")]),
        ([slot()], [server(status=ServerStatus.ERROR)], [(DriftKind.UNSERVING, "s1")]),
        ([slot()], [server(status=ServerStatus.STOPPED)], [(DriftKind.UNSERVING, "s1")]),
        ([slot()], [server(status=ServerStatus.BUILDING)], []),
        ([slot(state=SlotState.BUILDING)], [], []),
        ([slot(state=SlotState.RELEASING)], [], []),
        ([slot(state=SlotState.RELEASING)], [server(status=ServerStatus.ERROR)], []),
        ([slot(state=SlotState.GONE)], [server()], [(DriftKind.ENDED, "s1")]),
        ([slot(state=SlotState.LOST)], [server()], [(DriftKind.ENDED, "s1")]),
        ([slot(state=SlotState.FAILED)], [server(status=ServerStatus.DELETING)], []),
        ([slot()], [server(), server("s2")], [(DriftKind.ORPHAN, "s2")]),
        ([slot(state=SlotState.PLANNED, server=None)], [server()], []),
        ([slot(state=SlotState.PLANNED, server=None)], [server(), server("s2")], [(DriftKind.ORPHAN, "s2")]),
        ([], [server(batch="b9")], [(DriftKind.UNRECORDED, "s1")]),
        ([], [server(workload="who")], [(DriftKind.STRANGER, "s1")]),
        ([], [server(status=ServerStatus.DELETING)], []),
        ([slot()], [server(tags=frozenset())], [(DriftKind.WRONG_TAGS, "s1")]),
        ([slot()], [server(tags=TAGS | {"owner=x"})], []),
        ([slot()], [server(batch="b2")], [(DriftKind.MISMATCH, "s1")]),
    ],
)
def test_what_differs(
    slots: list[HeldSlot], servers: list[SeenServer], expected: list[tuple[DriftKind, str]]
) -> None:
    assert kinds(slots, servers) == expected


def test_the_strictest_tier_is_put_right_first_and_losses_before_left_overs() -> None:
    slots = [slot(server="a"), slot(2, server="b", batch="b2", workload="web"), slot(3, server="c")]
    found = compare(slots, [server("x"), server("y", batch="b2", workload="web")], TIERS)
    assert [(one.kind, one.subject) for one in found] == [
        (DriftKind.LOST, "b"),
        (DriftKind.ORPHAN, "y"),
        (DriftKind.LOST, "a"),
        (DriftKind.LOST, "c"),
        (DriftKind.ORPHAN, "x"),
    ]


ids = st.sampled_from([f"s{number}" for number in range(6)])
batches = st.sampled_from(["b1", "b2", "b3"])
some_servers = st.lists(
    st.builds(
        server,
        ids,
        st.sampled_from(ServerStatus),
        batch=batches,
        workload=st.sampled_from(["orders", "web", "who"]),
    ),
    unique_by=lambda one: one.server_id,
)


@st.composite
def some_slots(draw: st.DrawFn) -> list[HeldSlot]:
    taken = draw(st.lists(st.none() | ids, max_size=8))
    used: set[str] = set()
    slots = []
    for number, wanted in enumerate(taken):
        one = wanted if wanted not in used else None
        used |= {one} if one else set()
        states = [SlotState.PLANNED] if one is None else [*SlotState][1:]
        slots.append(slot(number, draw(st.sampled_from(states)), server=one, batch=draw(batches)))
    return slots


@given(some_slots(), some_servers)
def test_every_server_is_judged_once_and_held_servers_are_never_left_over(
    slots: list[HeldSlot], servers: list[SeenServer]
) -> None:
    found = compare(slots, servers, TIERS)
    held = {one.server_id for one in slots if one.state in LIVE_STATES}
    left_over = [one.subject for one in found if one.kind in LEFT_OVER]
    assert len(left_over) == len(set(left_over))
    assert not set(left_over) & held
    listed = {one.server_id: one for one in servers}
    assert all(listed[one].status is not ServerStatus.DELETING for one in left_over)


@given(some_slots(), some_servers, st.randoms(use_true_random=False))
def test_the_order_of_slots_and_servers_does_not_matter(
    slots: list[HeldSlot], servers: list[SeenServer], random: object
) -> None:
    shuffled_slots, shuffled_servers = slots[::-1], servers[::-1]
    assert {one[:2] for one in compare(slots, servers, TIERS)} == {
        one[:2] for one in compare(shuffled_slots, shuffled_servers, TIERS)
    }


views = st.frozensets(ids)


@given(views, views, views)
def test_views_agree_when_nothing_appeared_and_what_left_is_confirmed(
    before: frozenset[str], now: frozenset[str], deleted: frozenset[str]
) -> None:
    assert agrees(before, now, deleted) == (all(one in before for one in now) and before - now <= deleted)
    assert agrees(before, before, frozenset())


def cycle(
    state: FleetState, *, agreed: bool = True, fleet: int = 40, backlog: int = 0, now: datetime = NOW
) -> FleetState:
    return after_cycle(state, agreed=agreed, fleet=fleet, backlog=backlog, now=now, terms=TERMS)


def test_a_licence_takes_two_cycles_that_agree() -> None:
    first = cycle(NEVER_SEEN, agreed=False)
    assert first == NEVER_SEEN._replace(agreeing=1)
    assert cycle(first, agreed=False) == first
    second = cycle(first, backlog=3)
    assert second == FleetState(FleetPhase.PACING, 2, NOW + timedelta(seconds=300), NOW, unattended=False)
    assert cycle(second, backlog=1).phase is FleetPhase.PACING
    assert cycle(second).phase is FleetPhase.NORMAL


def test_a_first_cycle_agrees_with_nothing() -> None:
    assert cycle(NEVER_SEEN).agreeing == 1


@pytest.mark.parametrize(
    ("unattended", "fleet", "phase"),
    [
        (True, 40, FleetPhase.PACING),
        (True, 0, FleetPhase.NORMAL),
        (False, 40, FleetPhase.NORMAL),
    ],
)
def test_only_a_fleet_that_was_left_alone_is_put_right_in_small_steps(
    unattended: bool, fleet: int, phase: FleetPhase
) -> None:
    state = FleetState(FleetPhase.READ_ONLY, 1, None, None, unattended)
    assert cycle(state, fleet=fleet, backlog=9).phase is phase


def at(state: FleetState, now: datetime, tried_at: datetime, seen_at: datetime | None = None) -> FleetState:
    return lapsed(state, tried_at=tried_at, seen_at=seen_at or tried_at, now=now, terms=TERMS)


@pytest.mark.parametrize("late", [0, 1, 10_000])
def test_a_licence_lapses_at_its_end_and_not_before(late: int) -> None:
    state = FleetState(FleetPhase.NORMAL, 2, NOW, NOW, unattended=False)
    before, after = NOW - timedelta(microseconds=1), NOW + timedelta(seconds=late)
    assert at(state, before, before) == state
    tried = after - timedelta(seconds=10)
    assert at(state, after, tried) == FleetState(FleetPhase.READ_ONLY, 0, None, NOW, unattended=False)


def test_a_fleet_at_which_nobody_even_tried_to_look_was_unattended() -> None:
    state = FleetState(FleetPhase.NORMAL, 2, NOW, NOW, unattended=False)
    left_alone = at(state, NOW, NOW - timedelta(seconds=TERMS.lapse_seconds))
    assert left_alone.unattended
    assert at(left_alone, NOW, NOW).unattended


@pytest.mark.parametrize(("age", "agreeing"), [(10, 1), (299, 1), (300, 0), (36_000, 0)])
def test_a_cycle_that_is_too_old_agrees_with_nothing(age: int, agreeing: int) -> None:
    first = FleetState(FleetPhase.READ_ONLY, 1, None, None, unattended=False)
    assert at(first, NOW, NOW, NOW - timedelta(seconds=age)).agreeing == agreeing


class Licence(RuleBasedStateMachine):
    """Whatever happens in whatever order, nobody acts without two agreeing looks since the last lapse."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.state = NEVER_SEEN
        self.agreed_in_a_row = 0
        self.looked_at: datetime | None = None

    @rule(seconds=st.integers(1, 400))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.state = at(self.state, self.now, self.looked_at or NOW)
        if self.state.agreeing == 0:
            self.agreed_in_a_row = 0

    @rule(agreed=st.booleans(), backlog=st.integers(0, 2), fleet=st.integers(0, 2))
    def a_cycle_completes(self, agreed: bool, backlog: int, fleet: int) -> None:
        before = self.state
        self.state = cycle(before, agreed=agreed, fleet=fleet, backlog=backlog, now=self.now)
        if before.phase is FleetPhase.READ_ONLY:
            self.agreed_in_a_row = self.agreed_in_a_row + 1 if agreed and self.agreed_in_a_row else 1
        self.looked_at = self.now

    @invariant()
    def only_a_looked_at_fleet_is_acted_upon(self) -> None:
        may_act = self.state.acting_until is not None and self.state.acting_until > self.now
        assert may_act == (self.state.phase is not FleetPhase.READ_ONLY)
        if may_act:
            assert self.agreed_in_a_row >= 2
            assert self.looked_at is not None
            assert self.now - self.looked_at < timedelta(seconds=TERMS.lapse_seconds)

    @precondition(lambda self: self.state.phase is FleetPhase.NORMAL)
    @invariant()
    def normal_comes_after_pacing(self) -> None:
        assert self.state.recovered_at is not None


TestLicence = Licence.TestCase


@pytest.mark.parametrize(("fleet", "limit"), [(0, 1), (1, 1), (39, 1), (40, 2), (20_000, 1_000)])
def test_the_pace_is_a_share_rounded_down_and_at_least_one(fleet: int, limit: int) -> None:
    assert pace_limit(fleet, TERMS) == limit


drift_values = st.builds(
    Drift,
    st.sampled_from(DriftKind),
    ids,
    st.just("why"),
    st.just("orders"),
    st.just("pool"),
    st.sampled_from(TIER_ORDER),
)


@given(st.lists(drift_values), st.integers(0, 5), st.sampled_from([FleetPhase.PACING, FleetPhase.NORMAL]))
def test_no_more_is_put_right_than_the_pace_allows_and_the_strictest_first(
    drifts: list[Drift], allowance: int, phase: FleetPhase
) -> None:
    now, later = may_be_repaired(drifts, allowance, phase)
    assert sorted([*now, *later], key=repr) == sorted(drifts, key=repr)
    assert sum(is_paced(one.kind, phase) for one in now) <= allowance
    paced = [one for one in in_order(drifts) if is_paced(one.kind, phase)]
    assert [one for one in now if is_paced(one.kind, phase)] == paced[:allowance]
    assert all(is_paced(one.kind, phase) for one in later)


def test_what_nobody_replaces_is_always_paced_and_losses_only_after_an_outage() -> None:
    for kind in LEFT_OVER:
        assert is_paced(kind, FleetPhase.NORMAL)
    for kind in REPLACED:
        assert is_paced(kind, FleetPhase.PACING)
        assert not is_paced(kind, FleetPhase.NORMAL)


def test_terms_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValidationError, match="lapse_seconds 60 must be at least twice"):
        ReconcileTerms(lapse_seconds=60, cycle_seconds=60)
    with pytest.raises(ValidationError):
        ReconcileTerms(pace_share=Decimal(0))
