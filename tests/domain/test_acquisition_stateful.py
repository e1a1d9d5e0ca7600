"""A provider in any mood: every slot ends with one server or none, and no server is left over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from domain.acquisition import (
    ENDED_STATES,
    AcquisitionTerms,
    ServerStatus,
    ServerView,
    SlotState,
    SlotView,
    Steps,
    next_steps,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = AcquisitionTerms(settle_seconds=10, build_patience_seconds=40, max_attempts=3)
STEPS_TO_CONVERGE = 120
FATES = (ServerStatus.ACTIVE, ServerStatus.ACTIVE, ServerStatus.ERROR, ServerStatus.BUILDING)


class Made:
    """One server as the provider knows it: listed from `shows_at`, as it will be from `ready_at`."""

    def __init__(self, name: str, batch: str | None, shows_at: int, fate: ServerStatus) -> None:
        self.name, self.batch, self.fate = name, batch, fate
        self.shows_at, self.ready_at = shows_at, shows_at + 3
        self.gone_at: int | None = None

    def seen(self, now: int) -> ServerView | None:
        if now < self.shows_at or (self.gone_at is not None and now >= self.gone_at):
            return None
        status = self.fate if now >= self.ready_at else ServerStatus.BUILDING
        if self.gone_at is not None:
            status = ServerStatus.DELETING
        return ServerView(self.name, self.batch, status, START + timedelta(seconds=self.shows_at))


class Acquisition(RuleBasedStateMachine):
    """Carries out the steps of each look as the hand does: record, delete, then ask."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.names = count(1)
        self.slots: dict[str, SlotView] = {}
        self.made: dict[str, Made] = {}
        self.owner_of: dict[str, str] = {}

    @initialize(batches=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def plan(self, batches: list[int]) -> None:
        for number, size in enumerate(batches):
            for place in range(size):
                key = f"b-{number}-{place}"
                self.slots[key] = SlotView(key, f"b-{number}", f"pool-{number}", SlotState.PLANNED)
        self._make(None, 1, 0, ServerStatus.ACTIVE)
        self._make("b-99", 1, 0, ServerStatus.ERROR)

    @rule(
        share=st.sampled_from((0, 1, 2, 4, 4)),
        delay=st.sampled_from((0, 1, 8, 11, 14, 18)),
        fate=st.sampled_from(FATES),
        refused=st.booleans(),
        deletes=st.booleans(),
    )
    def look(self, share: int, delay: int, fate: ServerStatus, refused: bool, deletes: bool) -> None:
        """The requests of this look make `share` quarters of their servers, which show after `delay`.

        Only what a first request makes may show later than the settle time.
        """
        steps = self._look(deletes=deletes)
        for request in steps.request:
            self._note(request.slot_keys)
            first = all(self.slots[key].attempts == 1 for key in request.slot_keys)
            asked = len(request.slot_keys)
            made = asked * share // 4
            self._make(request.batch_key, made, delay if first else min(delay, 9), fate)
            if made == 0 and refused:
                for key in request.slot_keys:
                    self.slots[key] = self.slots[key]._replace(state=SlotState.FAILED)

    @rule(seconds=st.sampled_from((1, 3, 10, 15)))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(which=st.integers(0, 50), how=st.sampled_from(("vanishes", "stops", "breaks")))
    def a_server_changes(self, which: int, how: str) -> None:
        """While it is built: what happens to a server that runs is no part of a launch."""
        building = [
            one for one in self.made.values() if one.batch in self._batches() and self.now < one.ready_at
        ]
        if not building:
            return
        one = building[which % len(building)]
        if how == "vanishes":
            one.gone_at = self.now
        else:
            one.ready_at = max(self.now, one.shows_at)
            one.fate = ServerStatus.STOPPED if how == "stops" else ServerStatus.ERROR

    @rule(which=st.integers(0, 50))
    def a_slot_is_given_back(self, which: int) -> None:
        active = [one for one in self.slots.values() if one.state is SlotState.ACTIVE]
        if active:
            slot = active[which % len(active)]
            self.slots[slot.slot_key] = slot._replace(state=SlotState.RELEASING)

    def _batches(self) -> set[str]:
        return {slot.batch_key for slot in self.slots.values()}

    def _make(self, batch: str | None, number: int, delay: int, fate: ServerStatus) -> None:
        for _ in range(number):
            name, shows_at = f"server-{next(self.names)}", self.now + delay
            self.made[name] = Made(name, batch, shows_at, fate)

    def _listed(self) -> list[ServerView]:
        seen = (one.seen(self.now) for one in self.made.values())
        return [one for one in seen if one is not None]

    def _look(self, *, deletes: bool = True) -> Steps:
        now = START + timedelta(seconds=self.now)
        listed = self._listed()
        batches = {one.batch_key for one in listed}
        # An ended slot is only read where a server of its batch is listed or may still come.
        lately = now - timedelta(seconds=TERMS.settle_seconds)
        known = [
            one
            for one in self.slots.values()
            if one.state not in ENDED_STATES
            or one.batch_key in batches
            or (one.requested_at is not None and one.requested_at >= lately)
        ]
        steps = next_steps(known, listed, now, TERMS)
        self._record(steps, {one.server_id: one for one in listed})
        for name in steps.delete:
            self._delete(name, deletes)
        return steps

    def _record(self, steps: Steps, listed: dict[str, ServerView]) -> None:
        for key, name in steps.bind:
            assert self.slots[key].state is SlotState.PLANNED
            assert listed[name].batch_key == self.slots[key].batch_key
            self._own(key, name)
            self.slots[key] = self.slots[key]._replace(state=SlotState.BUILDING, server_id=name)
        for name in steps.active:
            assert listed[name].status is ServerStatus.ACTIVE
            slot = self.slots[self.owner_of[name]]
            assert slot.state is SlotState.BUILDING
            self.slots[slot.slot_key] = slot._replace(state=SlotState.ACTIVE)
        for failure in steps.fail:
            slot = self.slots[failure.slot_key]
            assert slot.state in (SlotState.PLANNED, SlotState.BUILDING)
            if failure.server_id is not None:
                self._own(failure.slot_key, failure.server_id)
                slot = slot._replace(server_id=failure.server_id)
            self.slots[slot.slot_key] = slot._replace(state=SlotState.FAILED)

    def _own(self, key: str, name: str) -> None:
        assert name not in self.owner_of, f"{name} has a slot already"
        assert self.slots[key].server_id is None, f"{key} has a server already"
        self.owner_of[name] = key

    def _delete(self, name: str, works: bool) -> None:
        assert self.made[name].batch in self._batches(), f"{name} is not ours"
        owner = self.slots[self.owner_of[name]] if name in self.owner_of else None
        assert owner is None or owner.state in ENDED_STATES, f"{name} is in use"
        if works:
            self.made[name].gone_at = self.now + 2

    def _note(self, keys: tuple[str, ...]) -> None:
        """Before servers are asked for: only what had its time, and not more often than allowed."""
        at = START + timedelta(seconds=self.now)
        for key in keys:
            slot = self.slots[key]
            assert slot.state is SlotState.PLANNED
            assert slot.attempts < TERMS.max_attempts
            if slot.requested_at is not None:
                assert (at - slot.requested_at).total_seconds() >= TERMS.settle_seconds
            self.slots[key] = slot._replace(requested_at=at, attempts=slot.attempts + 1)

    @invariant()
    def every_running_slot_has_its_own_server(self) -> None:
        bound = [one.server_id for one in self.slots.values() if one.server_id is not None]
        assert len(bound) == len(set(bound))
        for one in self.slots.values():
            assert one.state not in (SlotState.BUILDING, SlotState.ACTIVE) or one.server_id is not None

    def teardown(self) -> None:
        """Once the provider does what it is asked, it all ends: nothing open, nothing left over."""
        if not self.slots:
            return
        for _ in range(STEPS_TO_CONVERGE):
            steps = self._look()
            if steps.done:
                break
            for request in steps.request:
                self._note(request.slot_keys)
                self._make(request.batch_key, len(request.slot_keys), 1, ServerStatus.ACTIVE)
            self.now += 1
        assert steps.done, f"still {steps} after {STEPS_TO_CONVERGE} looks"
        kept = {SlotState.ACTIVE, SlotState.RELEASING}
        assert {one.state for one in self.slots.values()} <= kept | set(ENDED_STATES)
        left = {one.server_id for one in self._listed() if one.status is not ServerStatus.DELETING}
        held = {one.server_id for one in self.slots.values() if one.state in kept}
        assert left - held == {"server-1", "server-2"}, "only what is not ours is left"
        assert not any(one.shows_at > self.now for one in self.made.values())


Acquisition.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAcquisition = Acquisition.TestCase
