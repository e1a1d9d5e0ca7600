"""A question and its plan as documents: what was stored can be asked again, with the same answer."""

from __future__ import annotations

import json

from hypothesis import given

from domain.placement.draft import Live
from domain.placement.portfolio import Question, plan
from domain.placement.record import plan_document, question_document, question_from
from domain.reasons import Reason
from tests.domain.strategies import QUICK, SHAPES, Lived, histories
from tests.domain.worlds import all_free, listing, terms


def again(question: Question) -> Question:
    """The question after it was stored as JSON and read back, over the same shortlist."""
    stored = json.loads(json.dumps(question_document(question, plan(question))))
    return question_from(stored, question.shortlist)


@given(histories(shapes=SHAPES[:3], standings=6))
@QUICK
def test_a_stored_question_has_the_same_answer(lived: Lived) -> None:
    question = lived.world.asked(lived.units, lived.under, lived.holdings)
    asked_again = again(question)
    assert plan(asked_again) == plan(question)
    assert plan_document(plan(asked_again)) == plan_document(plan(question))


@given(histories(standings=6))
@QUICK
def test_storing_again_changes_nothing(lived: Lived) -> None:
    question = lived.world.asked(lived.units, lived.under, lived.holdings)
    once = again(question)
    assert again(once) == once
    assert (once.units, once.terms) == (question.units, question.terms)


def test_only_live_states_that_were_looked_at_are_stored() -> None:
    """An estate has hundreds of pools; a small claim looks at few of them."""
    listed = listing()
    question = Question((3,), terms(), listed, all_free(listed))
    stored = question_document(question, plan(question))
    assert 0 < len(stored["live"]) < len(listed.fill)


def test_shares_are_stored_exactly_and_reasons_by_name() -> None:
    listed = listing()
    first = listed.fill[0].pool_id
    live = all_free(listed) | {first: Live(4, Reason.BACKED_OFF, True)}
    question = Question((3,), terms(floor="0.30", pool="0.123456"), listed, live)
    stored = json.loads(json.dumps(question_document(question, plan(question))))
    assert (stored["terms"]["floor_share"], stored["terms"]["pool_cap_share"]) == ("0.30", "0.123456")
    assert stored["live"][first] == [4, "backed_off", True]
    assert question_from(stored, listed).live[first] == live[first]
