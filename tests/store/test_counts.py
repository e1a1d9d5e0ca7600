"""Whatever is done to slots, the counts of reservations and pools are those of the live slots."""

from __future__ import annotations

import itertools
from collections import Counter

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from psycopg import errors

from domain.acquisition import LIVE_STATES, SlotState
from domain.placement.scoring import PoolInputs
from tests.domain.worlds import facts
from tests.estates import BROKEN_COUNTS, TENANT, Estate

POOLS = ("eu-north-h1-gp-m", "eu-north-h2-gp-m")
WORKLOADS = ("orders", "reports")
SHAPES = ("4000m-16384Mi", "2000m-4096Mi")
FREE = 5
REFUSED = (errors.CheckViolation, errors.UniqueViolation)


class Slots(RuleBasedStateMachine):
    """Inserts, changes and deletes slots by the statement, also many at once and across pools."""

    connection: psycopg.Connection
    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.names = itertools.count(1)
        self.states: dict[str, SlotState] = {}
        self.pool_of: dict[str, str] = {}
        self.servers: set[str] = set()
        for table in ("instances", "reservations"):
            self.connection.execute(f"DELETE FROM {table}")

    @rule(
        target=keys,
        pool=st.sampled_from(POOLS),
        workload=st.sampled_from(WORKLOADS),
        shape=st.sampled_from(SHAPES),
        number=st.integers(1, 4),
        state=st.sampled_from([SlotState.PLANNED, SlotState.PLANNED, SlotState.GONE]),
    )
    def plan(self, pool: str, workload: str, shape: str, number: int, state: SlotState) -> tuple[str, ...]:
        """One statement plans several slots, or none when the pool has too little room."""
        keys = tuple(f"s-{next(self.names)}" for _ in range(number))
        rows = [(TENANT, key, workload, "p", pool, "r", shape, 1, "b", state) for key in keys]
        places = ", ".join(["(" + ", ".join(["%s"] * 10) + ")"] * number)
        columns = "tenant_id, slot_key, workload_id, partition_id, pool_id, region, shape_key, generation"
        done = self._do(
            f"INSERT INTO instances ({columns}, batch_key, state) VALUES {places}",
            [value for row in rows for value in row],
        )
        fits = self.live(pool) + number <= FREE
        assert done == (fits or state is SlotState.GONE)
        if done:
            self.states |= dict.fromkeys(keys, state)
            self.pool_of |= dict.fromkeys(keys, pool)
        return keys

    @rule(keys=st.lists(keys, max_size=3), state=st.sampled_from(SlotState), bind=st.booleans())
    def change(self, keys: list[tuple[str, ...]], state: SlotState, bind: bool) -> None:
        """One statement changes slots of several pools, workloads and shapes, or none of them."""
        chosen = [key for group in keys for key in group]
        known = {key for key in chosen if key in self.states}
        server = "server_id = coalesce(server_id, 'of-' || slot_key)," if bind else ""
        done = self._do(f"UPDATE instances SET {server} state = %s WHERE slot_key = ANY(%s)", [state, chosen])
        ended = any(self.states[key] not in LIVE_STATES and self.states[key] is not state for key in known)
        runs = state in (SlotState.BUILDING, SlotState.ACTIVE)
        bare = runs and not bind and any(key not in self.servers for key in known)
        assert done == (not ended and not bare)
        if done:
            self.states |= dict.fromkeys(known, state)
            if bind:
                self.servers |= known

    @rule(keys=keys)
    def remove(self, keys: tuple[str, ...]) -> None:
        assert self._do("DELETE FROM instances WHERE slot_key = ANY(%s)", [list(keys)])
        for key in keys:
            self.states.pop(key, None)

    @invariant()
    def counts_are_those_of_live_slots(self) -> None:
        assert self.connection.execute(BROKEN_COUNTS).fetchall() == []
        query = "SELECT pool_id, reserved_instances FROM pool_capacity ORDER BY 1"
        assert self.connection.execute(query).fetchall() == [(pool, self.live(pool)) for pool in POOLS]

    def live(self, pool: str) -> int:
        states = Counter(state for key, state in self.states.items() if self.pool_of[key] == pool)
        return sum(states[state] for state in LIVE_STATES)

    def _do(self, statement: str, values: list[object]) -> bool:
        """Whether the statement was taken; one that is refused changes nothing."""
        try:
            with self.connection.transaction():
                self.connection.execute(statement, values)
        except REFUSED:
            return False
        return True


async def test_counts_follow_the_slots(estate: Estate, dsn: str) -> None:
    pools = [facts(pool, hall=pool[:11], group=pool[:11]) for pool in POOLS]
    await estate.open([PoolInputs(facts=one, free_instances=FREE) for one in pools], free=FREE)
    for name in WORKLOADS:
        await estate.workload(name)
    await estate.engine.dispose()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        Slots.connection = connection
        run_state_machine_as_test(
            Slots,
            settings=settings(
                max_examples=100,
                stateful_step_count=25,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
