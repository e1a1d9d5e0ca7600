"""Leases are renewed ahead of their end, in one order, to one end, and never those of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.leases import HOLDING, OVER, RENEWABLE, LeaseTerms, LeaseView, alarm, to_renew, trouble

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
TERMS = LeaseTerms()
STATUSES = ("PENDING", "STARTING", "ACTIVE", "UPDATING", "TERMINATING", "TERMINATED", "ERROR", "GONE")
POOL, OTHER = "eu-north-h1-gp-l-committed", "eu-north-h2-gp-l-committed"

terms = st.builds(
    LeaseTerms,
    renew_ahead_hours=st.integers(48, 700),
    term_days=st.integers(30, 366),
    alarm_hours=st.integers(1, 48),
)
leases = st.lists(
    st.builds(
        LeaseView,
        lease_id=st.uuids().map(str),
        status=st.sampled_from(STATUSES),
        ends_at=st.integers(-100_000, 4_000_000).map(lambda seconds: NOW + timedelta(seconds=seconds)),
        pools=st.sampled_from(((), (POOL,), (POOL, OTHER))),
    ),
    unique_by=lambda lease: lease.lease_id,
    max_size=12,
)


def lease(hours: float, *, status: str = "ACTIVE", pools: tuple[str, ...] = (POOL,)) -> LeaseView:
    return LeaseView("lease", status, NOW + timedelta(hours=hours), pools)


@given(leases, terms)
def test_what_is_renewed_is_ours_due_and_prolonged_by_a_term(known: list[LeaseView], own: LeaseTerms) -> None:
    by_id = {each.lease_id: each for each in known}
    due = NOW + timedelta(hours=own.renew_ahead_hours)
    renewals = to_renew(known, NOW, own)
    for renewal in renewals:
        before = by_id[renewal.lease_id]
        assert before.pools == renewal.pools != ()
        assert before.status in RENEWABLE
        assert before.ends_at == renewal.ended_at <= due
        assert renewal.ends_at >= renewal.ended_at + timedelta(days=own.term_days)
        assert renewal.ends_at > due
        assert (renewal.ends_at.second, renewal.ends_at.microsecond) == (0, 0)
    ours = {one.lease_id for one in known if one.pools and one.status in RENEWABLE and one.ends_at <= due}
    assert {renewal.lease_id for renewal in renewals} == ours


@given(leases, terms, st.randoms(use_true_random=False))
def test_the_soonest_end_comes_first_in_whatever_order_leases_are_listed(
    known: list[LeaseView], own: LeaseTerms, chance: object
) -> None:
    shuffled = list(known)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    renewals = to_renew(shuffled, NOW, own)
    assert renewals == to_renew(known, NOW, own)
    assert [(each.ended_at, each.lease_id) for each in renewals] == sorted(
        (each.ended_at, each.lease_id) for each in renewals
    )


@given(leases, terms)
def test_a_renewed_lease_is_not_due_again(known: list[LeaseView], own: LeaseTerms) -> None:
    ends = {renewal.lease_id: renewal.ends_at for renewal in to_renew(known, NOW, own)}
    renewed = [each._replace(ends_at=ends.get(each.lease_id, each.ends_at)) for each in known]
    assert to_renew(renewed, NOW, own) == []


@given(st.integers(0, 72 * 60), st.integers(0, 3_600))
def test_a_renewal_repeated_later_asks_for_the_same_end(minutes: int, delay_seconds: int) -> None:
    due = lease(0)._replace(ends_at=NOW + timedelta(minutes=minutes, hours=2))
    first = to_renew([due], NOW, TERMS)
    assert first == to_renew([due], NOW + timedelta(seconds=delay_seconds), TERMS)


@pytest.mark.parametrize(("hours", "count"), [(72, 1), (72.01, 0), (0, 1), (-1, 1)])
def test_the_figures_are_hours_and_days(hours: float, count: int) -> None:
    renewals = to_renew([lease(hours)], NOW, TERMS)
    assert len(renewals) == count
    for renewal in renewals:
        assert renewal.ends_at == NOW + timedelta(hours=max(hours, 0), days=30)


@given(leases)
def test_only_our_leases_can_be_in_trouble(known: list[LeaseView]) -> None:
    held = {pool for each in known if each.status in HOLDING for pool in each.pools}
    for each in known:
        problem = trouble(each, known, NOW, TERMS)
        if not each.pools:
            assert problem is None
        elif each.status in OVER:
            assert (problem is not None) == bool(set(each.pools) - held)
        elif each.status in RENEWABLE:
            assert (problem is not None) == (each.status == "ERROR")
        else:
            assert (problem is not None) == (each.ends_at <= NOW + timedelta(hours=72))


def test_a_lease_that_went_away_names_the_pools_that_nobody_holds_now() -> None:
    gone = lease(5, status="GONE", pools=(POOL, OTHER))
    problem = trouble(gone, [gone, lease(700, pools=(POOL,))], NOW, TERMS)
    assert problem == f"the provider lists it no longer, and no other lease holds {OTHER}: book a new lease"


@pytest.mark.parametrize(
    ("hours", "status", "problem", "alarms"),
    [
        (24, "ACTIVE", "refused", True),
        (24.01, "ACTIVE", "refused", False),
        (1, "ACTIVE", None, False),
        (900, "GONE", "book a new lease", True),
        (-900, "TERMINATED", "book a new lease", True),
        (900, "ERROR", "the provider reports ERROR", False),
    ],
)
def test_it_is_an_alarm_when_the_end_is_near_and_there_is_a_problem(
    hours: float, status: str, problem: str | None, alarms: bool
) -> None:
    assert alarm(lease(hours, status=status), problem, NOW, TERMS) is alarms
    assert alarm(lease(hours, status=status, pools=()), problem, NOW, TERMS) is False


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"renew_ahead_hours": 48, "term_days": 2}, "give less than 48"),
        ({"renew_ahead_hours": 12}, "give at most 12"),
        ({"term_days": 0}, "greater than or equal to 1"),
        ({"renew_days": 3}, "renew_days"),
    ],
)
def test_terms_that_cannot_work_are_refused(figures: dict[str, int], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        LeaseTerms(**figures)
