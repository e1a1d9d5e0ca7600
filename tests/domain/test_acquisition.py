"""One look at slots and servers: what is bound, ended, deleted, asked for and waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from domain.acquisition import (
    AcquisitionTerms,
    Binding,
    Failure,
    Request,
    ServerStatus,
    ServerView,
    SlotState,
    SlotView,
    Steps,
    next_steps,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TERMS = AcquisitionTerms(settle_seconds=10, build_patience_seconds=60, max_attempts=3)
ENDED = (SlotState.GONE, SlotState.FAILED)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def slot(
    number: int = 0,
    state: SlotState = SlotState.PLANNED,
    server: str | None = None,
    *,
    batch: str = "b-1",
    asked: float | None = None,
    attempts: int = 0,
) -> SlotView:
    requested_at = None if asked is None else ago(asked)
    return SlotView(f"{batch}-{number}", batch, "pool-1", state, server, requested_at, attempts)


def server(
    name: str = "server-1",
    status: ServerStatus = ServerStatus.ACTIVE,
    *,
    batch: str | None = "b-1",
    age: float = 5,
    fault: str | None = None,
) -> ServerView:
    return ServerView(name, batch, status, ago(age), fault)


def look(slots: list[SlotView], servers: list[ServerView]) -> Steps:
    return next_steps(slots, servers, NOW, TERMS)


def test_nothing_is_done() -> None:
    assert look([], []) == Steps()
    assert look([], []).done


def test_what_was_never_asked_for_is_asked_for_in_one_call_for_each_batch() -> None:
    steps = look([slot(1), slot(0), slot(0, batch="b-2")], [])
    assert steps.request == [Request("b-1", ("b-1-0", "b-1-1")), Request("b-2", ("b-2-0",))]
    assert not steps.done


@pytest.mark.parametrize("asked", [0, 9.9])
def test_a_request_has_time_to_show(asked: float) -> None:
    steps = look([slot(asked=asked, attempts=1)], [])
    assert (steps.request, steps.waiting, steps.done) == ([], 1, False)


def test_what_did_not_show_is_asked_for_again_up_to_the_last_attempt() -> None:
    assert look([slot(asked=10, attempts=2)], []).request == [Request("b-1", ("b-1-0",))]
    given_up = look([slot(asked=10, attempts=3)], [])
    assert (given_up.request, given_up.fail) == (
        [],
        [Failure("b-1-0", "pool-1", "no server appeared after 3 requests")],
    )


def test_only_what_is_missing_of_a_batch_is_asked_for() -> None:
    slots = [slot(number, asked=10, attempts=1) for number in range(3)]
    steps = look(slots, [server("server-1"), server("server-2", ServerStatus.BUILDING)])
    assert steps.bind == [Binding("b-1-0", "server-1"), Binding("b-1-1", "server-2")]
    assert steps.active == ["server-1"]
    assert steps.request == [Request("b-1", ("b-1-2",))]


def test_the_oldest_server_takes_the_first_slot() -> None:
    servers = [server("server-1", age=1), server("server-3", age=2), server("server-2", age=2)]
    steps = look([slot(asked=5, attempts=1)], servers)
    assert (steps.bind, steps.delete) == ([Binding("b-1-0", "server-2")], ["server-3", "server-1"])


@pytest.mark.parametrize("state", [*ENDED, SlotState.ACTIVE, SlotState.RELEASING])
def test_a_server_too_many_of_a_known_batch_is_deleted(state: SlotState) -> None:
    steps = look([slot(0, state, "server-1")], [server("server-1"), server("server-2")])
    assert steps.delete == (["server-1", "server-2"] if state in ENDED else ["server-2"])


@pytest.mark.parametrize("batch", [None, "b-9"])
@pytest.mark.parametrize("status", list(ServerStatus))
def test_servers_of_unknown_batches_are_left_alone(batch: str | None, status: ServerStatus) -> None:
    assert look([], [server(status=status, batch=batch)]) == Steps()
    assert look([slot(0, SlotState.ACTIVE, "server-9")], [server(status=status, batch=batch)]) == Steps()


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (ServerStatus.ERROR, "no valid host"),
        (ServerStatus.STOPPED, "its server was stopped before it was used"),
        (ServerStatus.DELETING, "its server was deleted while it was built"),
    ],
)
def test_a_server_that_will_not_run_ends_with_its_slot(status: ServerStatus, problem: str) -> None:
    seen = server(status=status, fault="no valid host" if status is ServerStatus.ERROR else None)
    steps = look([slot(0, SlotState.BUILDING, "server-1")], [seen])
    assert steps.fail == [Failure("b-1-0", "pool-1", problem)]
    assert steps.delete == ([] if status is ServerStatus.DELETING else ["server-1"])
    assert not steps.done


def test_an_error_without_a_word_says_so() -> None:
    steps = look([slot(0, SlotState.BUILDING, "server-1")], [server(status=ServerStatus.ERROR)])
    assert steps.fail[0].problem == "its server went to ERROR without saying why"


def test_a_server_that_comes_in_error_is_kept_for_the_record_and_deleted() -> None:
    steps = look([slot(asked=1, attempts=1)], [server(status=ServerStatus.ERROR, fault="no valid host")])
    assert steps.fail == [Failure("b-1-0", "pool-1", "no valid host", "server-1")]
    assert (steps.delete, steps.bind, steps.request) == (["server-1"], [], [])


def test_a_server_that_is_leaving_takes_no_slot() -> None:
    steps = look([slot(asked=10, attempts=1)], [server(status=ServerStatus.DELETING)])
    assert (steps.bind, steps.delete) == ([], [])
    assert steps.request == [Request("b-1", ("b-1-0",))]


@pytest.mark.parametrize(("age", "late"), [(60, False), (60.1, True)])
def test_a_build_has_its_time(age: float, late: bool) -> None:
    building = server(status=ServerStatus.BUILDING, age=age)
    steps = look([slot(0, SlotState.BUILDING, "server-1")], [building])
    assert (steps.waiting, bool(steps.fail), bool(steps.delete)) == (int(not late), late, late)


def test_a_server_that_vanishes_while_it_is_built_ends_its_slot() -> None:
    steps = look([slot(0, SlotState.BUILDING, "server-1")], [])
    assert steps.fail == [Failure("b-1-0", "pool-1", "its server vanished while it was built")]


@pytest.mark.parametrize("status", list(ServerStatus))
@pytest.mark.parametrize("state", [SlotState.ACTIVE, SlotState.RELEASING])
def test_what_runs_or_is_given_back_is_not_touched(state: SlotState, status: ServerStatus) -> None:
    assert look([slot(0, state, "server-1")], [server(status=status)]) == Steps()
    assert look([slot(0, state, "server-1")], []) == Steps()


@pytest.mark.parametrize("state", ENDED)
def test_an_ended_slot_whose_server_is_leaving_is_done(state: SlotState) -> None:
    assert look([slot(0, state, "server-1")], [server(status=ServerStatus.DELETING)]).done


@pytest.mark.parametrize("state", [SlotState.ACTIVE, *ENDED])
def test_a_slot_that_was_asked_for_twice_may_still_get_a_second_server(state: SlotState) -> None:
    """The first request may show after the second did: the look is not the last one before that."""
    once = slot(0, state, "server-1", asked=5, attempts=1)
    assert look([once], []).done
    twice = slot(0, state, "server-1", asked=5, attempts=2)
    assert (look([twice], []).waiting, look([twice], []).done) == (1, False)
    assert look([slot(0, state, "server-1", asked=10, attempts=2)], []).done
    late = look([twice], [server("server-2")])
    assert late.delete == ["server-2"]
