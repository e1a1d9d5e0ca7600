"""The protocol under crashes at every call to the store, and with writers that overlap at every call.

Two writers save and publish; any call may be the last of a process, may fail before or after its effect, or
may be where the other writer does a whole piece of work. Whatever happens: what is found is whole and was
really saved, what was confirmed is never found to be older, and a published result stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from clients.checkpoint import CheckpointError, Checkpoints, Content, Keep, LeaseLostError
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

    def __init__(self, store: MemoryStore, clock: ManualClock, keep: Keep | None = None) -> None:
        self.line = FaultyStore(store)
        self.checkpoints: Checkpoints = checkpoints(self.line, clock=clock, keep=keep)


class Protocol(RuleBasedStateMachine):
    """Two writers of one workload, one store."""

    @initialize(conditional=st.booleans(), generations=st.sampled_from([1, 3]))
    def begin(self, conditional: bool, generations: int) -> None:
        self.keep = Keep(generations)
        self.conditional = conditional
        self.store, self.clock = MemoryStore(conditional=conditional), ManualClock()
        self.writers = [self._born() for _ in range(2)]
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
        self.writers[who] = self._born()

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

    def _born(self) -> Writer:
        return Writer(self.store, self.clock, self.keep)

    def _run(self, who: int, work: Callable[[], None]) -> None:
        try:
            work()
        except Crash:
            self.writers[who] = self._born()
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


def test_who_is_taken_over_while_it_writes_parts_does_not_go_on() -> None:
    store, clock = MemoryStore(), ManualClock()
    first, second = Writer(store, clock), checkpoints(store, clock=clock)

    def take_over() -> None:
        clock.seconds += 120
        second.save(b"second")

    first.line.arm(Fault("/parts/", False, take_over))
    with pytest.raises(LeaseLostError):
        first.checkpoints.save(b"first")
    newest = second.latest()
    assert newest is not None
    assert newest.read() == b"second"
    assert len(orders(second._room)) == 1


def test_what_comes_late_from_a_former_holder_is_older_whatever_number_it_has() -> None:
    store, clock = MemoryStore(), ManualClock()
    first, second = Writer(store, clock, Keep(1)), checkpoints(store, clock=clock, keep=Keep(1))
    for _ in range(4):
        # Attempts that came to nothing take numbers: the former holder is far ahead with its own.
        with suppress(FileNotFoundError):
            first.checkpoints.save({"x": Path("/nonexistent/file")})

    def take_over() -> None:
        clock.seconds += 120
        second.save(b"second", final=True)

    first.line.arm(Fault("/manifests/", True, take_over))
    assert first.checkpoints.save(b"first").generation > 4
    for reader in (second, first.checkpoints, checkpoints(store)):
        newest = reader.latest()
        assert newest is not None
        assert newest.read() == b"second"
    assert second.save(b"third").generation == 2


def test_two_that_cannot_see_each_other_end_with_one_of_them_whole() -> None:
    store = MemoryStore(conditional=False)
    store.lags = True
    first, second = checkpoints(store), checkpoints(store)
    assert first.save(b"the state of one").generation == 1
    store.objects = {key: body for key, body in store.objects.items() if not key.endswith("head.json")}
    assert second.save(b"what another has").generation == 1
    store.unlisted.clear()
    both = orders(first._room)
    assert [order.token for order in both] == [1, 1]
    found = {reader.latest().read() for reader in (first, second, checkpoints(store))}  # type: ignore[union-attr]
    assert len(found) == 1
    whole = {Content(first._room, _manifest(first, order)).read("state") for order in both}
    assert whole == {b"the state of one", b"what another has"}


def _manifest(writer: Checkpoints, order: Order) -> Manifest:
    return read(writer._room, order)
