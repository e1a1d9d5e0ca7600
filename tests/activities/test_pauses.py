"""Pauses grow while nothing moves, within a bound, and start over when something does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from activities.pauses import MOST, Pauses


def test_the_first_pause_is_the_one_asked_for() -> None:
    assert Pauses(0.5).next_seconds(moved=False) == 0.5


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_pauses_stay_between_the_first_and_the_bound_and_grow_only_while_nothing_moves(
    moves: list[bool],
) -> None:
    pauses, last = Pauses(1.0), 0.0
    for moved in moves:
        due = pauses.next_seconds(moved=moved)
        assert 1.0 <= due <= MOST
        assert due == 1.0 if moved else due >= last
        last = due


def test_a_long_wait_reaches_the_bound() -> None:
    pauses = Pauses(2.0)
    assert [pauses.next_seconds(moved=False) for _ in range(20)][-1] == 2.0 * MOST
