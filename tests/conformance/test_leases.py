"""Leases: read, extended and refused alike by the simulated cloud and by a real Blazar beside a real Nova."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from activities.ports import ProviderErrorKind
from tests.conformance.hands import Hands, caught
from tests.conformance.lessor import BY_FLAVOR, BY_SIZE, FLAVOR, HALL, LONG, Lessor, text
from tests.conformance.provider import REGION


@pytest.mark.parametrize("kind", [BY_FLAVOR, BY_SIZE])
def test_a_lease_is_read_with_its_end_and_what_it_holds(lessor: Lessor, hands: Hands, kind: str) -> None:
    lease = lessor.book(kind)
    assert lease.status == "ACTIVE"
    left = lease.ends_at - datetime.now(UTC)
    assert LONG - timedelta(minutes=2) < left <= LONG
    (held,) = lease.reservations
    assert (held.status, held.hall, held.flavor, held.amount) == ("active", HALL, FLAVOR, 1)
    assert hands.catalog.committed_reservations(REGION)[HALL, FLAVOR] == held.reservation_id


@pytest.mark.parametrize("kind", [BY_FLAVOR, BY_SIZE])
def test_a_lease_is_extended_once_and_never_shortened(lessor: Lessor, hands: Hands, kind: str) -> None:
    lease = lessor.book(kind)
    later = lease.ends_at + timedelta(days=30)
    for end in (later, later, lease.ends_at):
        hands.catalog.extend_lease(REGION, lease.lease_id, end)
        assert lessor.lease(lease.lease_id).ends_at == later
    assert lessor.lease(lease.lease_id).status == "ACTIVE"


def test_a_lease_is_not_extended_over_what_others_have_booked(lessor: Lessor, hands: Hands) -> None:
    """By flavor: of a reservation by size, a real Blazar counts one instance on each host, however many."""
    lease = lessor.book(BY_FLAVOR)
    start = lease.ends_at + timedelta(days=1)
    others = lessor.try_to_book(start + LONG, kind=BY_FLAVOR, amount=lessor.instances, start=text(start))
    assert others.status_code == 201, others.text
    error = caught(hands.catalog.extend_lease, REGION, lease.lease_id, start + timedelta(days=1))
    assert error.kind is ProviderErrorKind.NO_VALID_HOST
    assert "HTTP 500, Not enough hosts available" in str(error)
    assert lessor.lease(lease.lease_id) == lease
    before = start - timedelta(minutes=1)
    hands.catalog.extend_lease(REGION, lease.lease_id, before)
    assert lessor.lease(lease.lease_id).ends_at == before


def test_more_than_there_is_cannot_be_booked(lessor: Lessor) -> None:
    end, amount = datetime.now(UTC) + LONG, lessor.instances + 1
    answer = lessor.try_to_book(end, kind=BY_FLAVOR, amount=amount)
    assert answer.status_code == 500
    assert answer.json()["error_message"] == "Not enough hosts available"


def test_an_end_in_the_past_is_refused(lessor: Lessor) -> None:
    lease = lessor.book()
    past = text(datetime.now(UTC) - timedelta(days=1))
    answer = lessor.ask("PUT", f"/leases/{lease.lease_id}", {"end_date": past})
    assert answer.status_code == 400
    assert answer.json()["error_message"] == "End date must be later than current and start date"
    assert lessor.lease(lease.lease_id) == lease


def test_a_lease_that_nobody_knows_is_not_found(lessor: Lessor, hands: Hands) -> None:
    error = caught(hands.catalog.extend_lease, REGION, "nobody", datetime(2040, 1, 1, tzinfo=UTC))
    assert (error.kind, error.in_doubt) == (ProviderErrorKind.NOT_FOUND, False)
    assert "not found" in str(error)
