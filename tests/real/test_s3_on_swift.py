"""The suite of S3 servers on the Swift of the distribution's packages, which knows no conditional writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.checkpoint import StoreRefusedError
from tests.clients.checkpoint.servers import S3Server
from tests.clients.checkpoint.test_s3_servers import (
    read_while_replaced,
    test_a_listing_of_more_than_one_page_is_read_to_its_end,
    test_a_result_is_published_once,
    test_a_server_that_dies_while_it_is_written_to_is_waited_for,
    test_a_server_that_stays_away_loses_nothing_that_was_saved,
    test_a_state_of_many_parts_is_found_again,
    test_a_wrong_clock_is_put_right_by_the_stores_own,
    test_half_an_upload_is_no_object_and_in_nobodys_way,
    test_what_a_former_holder_publishes_late_replaces_a_result_only_without_conditions,
    test_what_is_not_allowed_is_said_at_once,
    test_writers_at_once_take_turns,
)
from tests.real.swift_world import Swift

pytestmark = pytest.mark.real

__all__ = [
    "test_a_listing_of_more_than_one_page_is_read_to_its_end",
    "test_a_result_is_published_once",
    "test_a_server_that_dies_while_it_is_written_to_is_waited_for",
    "test_a_server_that_stays_away_loses_nothing_that_was_saved",
    "test_a_state_of_many_parts_is_found_again",
    "test_a_wrong_clock_is_put_right_by_the_stores_own",
    "test_half_an_upload_is_no_object_and_in_nobodys_way",
    "test_what_a_former_holder_publishes_late_replaces_a_result_only_without_conditions",
    "test_what_is_not_allowed_is_said_at_once",
    "test_writers_at_once_take_turns",
]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with Swift() as own:
        yield own


@pytest.fixture
def top(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").replace("]", "")


def test_a_condition_is_refused_as_such_and_the_object_written_all_the_same(
    server: S3Server, top: str
) -> None:
    store = server.store()
    assert store.put_new(f"{top}/once", b"first")
    assert store.put_new(f"{top}/once", b"second")
    assert store.get(f"{top}/once") == b"second"


def test_who_reads_what_is_replaced_meanwhile_gets_all_of_it_or_nothing(server: S3Server, top: str) -> None:
    assert read_while_replaced(server, top) <= {None}


def test_a_wrong_region_is_said(server: S3Server, top: str) -> None:
    with pytest.raises(StoreRefusedError, match="AuthorizationHeaderMalformed"):
        server.store(region="eu-north").put(f"{top}/key", b"")
