"""A pool that many people and workloads use: it only ever goes where its life leads, and retires empty."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from domain.pool import PoolState
from domain.pool_life import DrainTerms, Held, LoadedModel, PoolAction, Refusal, allowed_actions, look, step

START = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = DrainTerms(model_patience_seconds=300, model_quiet_seconds=60)
STEPS = [PoolAction.ACTIVATE, PoolAction.DRAIN, PoolAction.RESUME, PoolAction.RETIRE]
LEADS = {
    PoolState.DRAFT: {PoolState.ACTIVE},
    PoolState.ACTIVE: {PoolState.DRAINING},
    PoolState.DRAINING: {PoolState.ACTIVE, PoolState.RETIRED},
    PoolState.RETIRED: set(),
}


class OnePool(RuleBasedStateMachine):
    """Units come only while it is active; they and models leave as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.state = PoolState.DRAFT
        self.held = Held()
        self.since = START
        self.drained = False

    @rule(action=st.sampled_from(STEPS))
    def a_person_asks(self, action: PoolAction) -> None:
        done = step("p1", self.state, action, self.held)
        if isinstance(done, Refusal):
            assert action not in allowed_actions(self.state, self.held)
            return
        assert done in LEADS[self.state]
        if done is PoolState.DRAINING:
            self.since, self.drained = self.now, False
        self.state = done

    @precondition(lambda self: self.state is PoolState.ACTIVE)
    @rule(units=st.integers(1, 5))
    def units_come(self, units: int) -> None:
        self.held = self.held._replace(units=self.held.units + units, instances=self.held.instances + units)

    @precondition(lambda self: self.held.units)
    @rule(units=st.integers(1, 5))
    def units_leave(self, units: int) -> None:
        leaving = min(units, self.held.units)
        self.held = self.held._replace(
            units=self.held.units - leaving, instances=self.held.instances - leaving
        )

    @precondition(lambda self: self.state is PoolState.ACTIVE)
    @rule(name=st.sampled_from("abc"))
    def a_model_is_used(self, name: str) -> None:
        others = tuple(one for one in self.held.models if one.model != name)
        self.held = self.held._replace(models=(*others, LoadedModel(name, 10, self.now)))

    @precondition(lambda self: self.state is PoolState.DRAINING and not self.drained)
    @rule()
    def the_drain_looks(self) -> None:
        done = look(self.held, since=self.since, now=self.now, terms=TERMS)
        if done.evictions:
            self.held = self.held._replace(models=())
        self.drained = done.drained
        assert not done.drained or self.held.nothing

    @rule(seconds=st.integers(1, 200))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def a_retired_pool_holds_nothing(self) -> None:
        assert self.state is not PoolState.RETIRED or self.held.nothing

    @invariant()
    def a_drained_pool_stays_drained(self) -> None:
        assert not (self.drained and self.state is PoolState.DRAINING) or self.held.nothing

    def teardown(self) -> None:
        """Whatever went before, a pool that drains is drained once its units left and patience is over."""
        if self.state is not PoolState.DRAINING:
            return
        gone = self.held._replace(units=0, instances=0)
        late = self.since + timedelta(seconds=TERMS.model_patience_seconds)
        assert look(gone, since=self.since, now=late, terms=TERMS).drained


OnePool.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOnePool = OnePool.TestCase
