"""The protocol under crashes at every call to the store, and with writers that overlap at every call.

Two writers save and publish; any call may be the last of a process, may fail before or after its effect, or
may be where the other writer does a whole piece of work. Whatever happens: what is found is whole and was
really saved, what was confirmed is never found to be older, and a published result stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from clients.checkpoint import CheckpointError, Checkpoints, Content
from clients.checkpoint.generations import orders, read
from clients.checkpoint.layout import Order
from clients.checkpoint.manifest import Manifest
from tests.clients.checkpoint.stores import (
    Crash,
    Fault,
    FaultyStore,
    ManualClock,
    MemoryStore,
    checkpoints,
    crash,
    go_down,
)

CALLS = st.integers(1, 40)
WHO = st.sampled_from([0, 1])


class Writer:
    """One process of the workload, and its line to the store."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        self.line = FaultyStore(store)
        self.checkpoints: Checkpoints = checkpoints(self.line, clock=clock)


class Protocol(RuleBasedStateMachine):
    """Two writers of one workload, one store."""

    @initialize(conditional=st.booleans())
    def begin(self, conditional: bool) -> None:
        self.conditional = conditional
        self.store, self.clock = MemoryStore(conditional=conditional), ManualClock()
        self.writers = [Writer(self.store, self.clock) for _ in range(2)]
        self.attempted: set[tuple[bytes, ...]] = set()
        self.confirmed = Order(0, 0, "")
        self.states = 0
        self.result: bytes | None = None

    @rule(who=WHO)
    def save(self, who: int) -> None:
        self._save(self.writers[who])

    @rule(who=WHO, at=CALLS, before=st.booleans(), final=st.booleans())
    def save_and_die(self, who: int, at: int, before: bool, final: bool) -> None:
        self.writers[who].line.arm(Fault(at, before, crash))
        self._run(who, lambda: self._save(self.writers[who], final))

    @rule(who=WHO, at=CALLS, before=st.booleans())
    def save_while_the_store_fails(self, who: int, at: int, before: bool) -> None:
        self.writers[who].line.arm(Fault(at, before, go_down))
        self._run(who, lambda: self._save(self.writers[who]))

    @rule(who=WHO, at=CALLS, before=st.booleans(), lapse=st.booleans())
    def save_while_the_other_saves(self, who: int, at: int, before: bool, lapse: bool) -> None:
        def other() -> None:
            self.clock.seconds += 120 if lapse else 0
            self._save(self.writers[1 - who])

        self.writers[who].line.arm(Fault(at, before, other))
        self._run(who, lambda: self._save(self.writers[who]))

    @rule(who=WHO, at=CALLS, before=st.booleans())
    def publish_and_die(self, who: int, at: int, before: bool) -> None:
        self.writers[who].line.arm(Fault(at, before, crash))
        self._run(who, lambda: self._publish(self.writers[who]))

    @rule(who=WHO, at=CALLS, before=st.booleans())
    def publish_while_the_other_does(self, who: int, at: int, before: bool) -> None:
        def other() -> None:
            # Without conditions, only the lease keeps two from publishing: it is not let lapse in between.
            self.clock.seconds += 120 if self.conditional else 0
            self._publish(self.writers[1 - who])

        self.writers[who].line.arm(Fault(at, before, other))
        self._run(who, lambda: self._publish(self.writers[who]))

    @rule(who=WHO)
    def end(self, who: int) -> None:
        self.writers[who].checkpoints.close()
        self.writers[who] = Writer(self.store, self.clock)

    @rule()
    def wait(self) -> None:
        self.clock.seconds += 70

    @invariant()
    def what_is_found_is_whole_and_not_older_than_what_was_confirmed(self) -> None:
        if not hasattr(self, "store"):
            return
        reader = checkpoints(self.store, clock=self.clock)
        found = reader.latest()
        if found is None:
            assert self.confirmed == Order(0, 0, "")
            return
        assert tuple(found.read(name) for name in found.files) in self.attempted
        manifest = found.manifest
        assert Order(manifest.token, manifest.generation, manifest.writer) >= self.confirmed

    @invariant()
    def the_result_stays_what_it_is(self) -> None:
        if hasattr(self, "store"):
            self._see(checkpoints(self.store, clock=self.clock).published())

    def _run(self, who: int, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            self.writers[who] = Writer(self.store, self.clock)
        self.writers[who].line.arm(None)

    def _save(self, writer: Writer, final: bool = False) -> None:
        self.states += 1
        state = {"a": b"a%d" % self.states, "b": b"many parts %d" % self.states}
        self.attempted.add(tuple(state.values()))
        with suppress(CheckpointError):
            generation = writer.checkpoints.save(state, final=final).generation
            saver = writer.checkpoints
            self.confirmed = max(self.confirmed, Order(saver._last_token, generation, saver._writer))

    def _publish(self, writer: Writer) -> None:
        self.states += 1
        with suppress(CheckpointError):
            writer.checkpoints.stage("r", b"result %d" % self.states)
            self._see(writer.checkpoints.publish())

    def _see(self, result: Content | None) -> None:
        if self.result is not None:
            assert result is not None
            assert result.read("r") == self.result
        elif result is not None:
            self.result = result.read("r")


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=120, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("strike", [crash, go_down])
def test_every_single_call_of_a_save_can_be_the_last(before: bool, strike: Callable[[], None]) -> None:
    at = 0
    reached = True
    while reached:
        at += 1
        store, clock = MemoryStore(conditional=False), ManualClock()
        writer = Writer(store, clock)
        for number in range(4):
            writer.checkpoints.save(b"state %d" % number)
        writer.line.arm(Fault(at, before, strike))
        with suppress(Crash, CheckpointError):
            writer.checkpoints.save(b"state 4")
        reached = writer.line.fault is None
        clock.seconds += 120
        successor = checkpoints(store, clock=clock)
        found = successor.latest()
        assert found is not None
        assert found.read() in (b"state 3", b"state 4")
        successor.save(b"state 5")
        newest = successor.latest()
        assert newest is not None
        assert newest.read() == b"state 5"
        assert newest.generation > found.generation
    assert at > 15


@pytest.mark.parametrize("before", [True, False])
def test_every_single_call_of_a_publication_can_be_the_last(before: bool) -> None:
    at = 0
    reached = True
    while reached:
        at += 1
        store, clock = MemoryStore(), ManualClock()
        writer = Writer(store, clock)
        writer.line.arm(Fault(at, before, crash))
        with suppress(Crash):
            writer.checkpoints.stage("r", b"first")
            writer.checkpoints.publish()
        reached = writer.line.fault is None
        seen = checkpoints(store, clock=clock).published()
        clock.seconds += 120
        successor = checkpoints(store, clock=clock)
        successor.stage("r", b"second")
        result = successor.publish().read("r")
        assert result == (b"second" if seen is None else b"first")
    assert at > 8


def test_a_listing_that_lags_neither_hides_the_newest_nor_costs_another_generation() -> None:
    store = MemoryStore(conditional=False)
    writer = checkpoints(store)
    store.lags = True
    for number in range(6):
        writer.save(b"%d" % number)
        found = checkpoints(store).latest()
        assert found is not None
        assert found.read() == b"%d" % number
    store.unlisted.clear()
    for order in orders(writer._room):
        Content(writer._room, _manifest(writer, order)).check()


def _manifest(writer: Checkpoints, order: Order) -> Manifest:
    return read(writer._room, order)
