"""Causes: the whole table, written out a second time, and what must hold for any end."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.cause import (
    OF_NOTICES,
    Cause,
    Ended,
    Ending,
    Evidence,
    Verdict,
    counts_in_ledger,
    decide,
    is_error,
    signal_of,
)
from wire import lifecycle

ERROR, SIGNAL, SHELL_SIGNAL, FINE = 1, -9, 143, 0
CODES = (None, FINE, ERROR, 128, 193, 255, SIGNAL, SHELL_SIGNAL)
IS_ERROR = {None: False, 0: False, 1: True, 128: True, 193: True, 255: True, -9: False, 143: False}

endings = st.builds(
    Ending,
    st.sampled_from([None, *Cause]),
    st.sampled_from([None, *Ended]),
    st.none() | st.integers(-255, 255),
    st.sampled_from(Evidence),
    st.booleans(),
)


def test_the_words_are_those_of_the_letters() -> None:
    assert [one.value for one in Cause] == [one.value for one in lifecycle.Cause]


@pytest.mark.parametrize("notice", sorted(OF_NOTICES))
def test_a_notice_that_stood_is_the_cause(notice: Cause) -> None:
    for code, provider, pool in product(CODES, Evidence, (True, False)):
        for ended in (None, Ended.IN_TIME):
            assert decide(Ending(notice, ended, code, provider, pool)) == Verdict(notice)
        late = decide(Ending(notice, Ended.AFTER_DEADLINE, code, provider, pool))
        assert late == Verdict(notice, overran=True)


@pytest.mark.parametrize("notice", sorted(OF_NOTICES))
def test_work_that_ended_before_the_notice_is_a_defect_only_by_its_own_error(notice: Cause) -> None:
    for code, provider in product(CODES, Evidence):
        found = decide(Ending(notice, Ended.BEFORE_NOTICE, code, provider))
        assert found == Verdict(Cause.DEFECT if IS_ERROR[code] else Cause.UNKNOWN)


def test_without_a_notice_an_error_is_a_defect_whatever_the_provider_tells() -> None:
    for ended, provider, pool in product(Ended, Evidence, (True, False)):
        assert decide(Ending(None, ended, ERROR, provider, pool)) == Verdict(Cause.DEFECT)


@pytest.mark.parametrize(
    ("provider", "is_reclaimable", "cause"),
    [
        (Evidence.NOTHING, True, Cause.UNKNOWN),
        (Evidence.NOTHING, False, Cause.UNKNOWN),
        (Evidence.ASKED, True, Cause.OPERATOR),
        (Evidence.ASKED, False, Cause.OPERATOR),
        (Evidence.DELETED, True, Cause.RECLAIM),
        (Evidence.DELETED, False, Cause.OPERATOR),
        (Evidence.ERRORED, True, Cause.UNKNOWN),
        (Evidence.ERRORED, False, Cause.UNKNOWN),
        (Evidence.STOPPED, True, Cause.UNKNOWN),
        (Evidence.STOPPED, False, Cause.UNKNOWN),
    ],
)
def test_without_notice_and_error_the_provider_decides(
    provider: Evidence, is_reclaimable: bool, cause: Cause
) -> None:
    for ended, code in product((None, *Ended), (None, FINE, SIGNAL, SHELL_SIGNAL)):
        assert decide(Ending(None, ended, code, provider, is_reclaimable)) == Verdict(cause)


@pytest.mark.parametrize("notice", [Cause.UNKNOWN, Cause.DEFECT])
def test_a_notice_that_says_no_cause_gives_none(notice: Cause) -> None:
    assert decide(Ending(notice, Ended.IN_TIME, ERROR)).cause is Cause.UNKNOWN


@given(endings)
def test_what_holds_for_any_end(ending: Ending) -> None:
    found = decide(ending)
    assert decide(ending) == found
    if found.cause is Cause.DEFECT:
        assert is_error(ending.exit_code)
        assert ending.notice is None or ending.ended is Ended.BEFORE_NOTICE
    if found.cause is Cause.DRILL:
        assert ending.notice is Cause.DRILL
    if found.overran:
        assert ending.ended is Ended.AFTER_DEADLINE
        assert ending.notice is not None
    if ending.notice is None and ending.provider is Evidence.NOTHING and not is_error(ending.exit_code):
        assert found.cause is Cause.UNKNOWN


@given(st.integers(-255, 255))
def test_an_exit_code_is_fine_an_error_or_a_signal(code: int) -> None:
    assert [code == 0, is_error(code), signal_of(code) is not None].count(True) == 1


def test_a_shell_and_the_kernel_tell_the_same_signal() -> None:
    assert signal_of(-15) == signal_of(143) == 15
    assert signal_of(None) is None


def test_only_what_has_a_cause_counts_in_the_ledger() -> None:
    assert {one for one in Cause if counts_in_ledger(one)} == set(Cause) - {Cause.UNKNOWN}
