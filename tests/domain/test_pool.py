"""The life of a pool, and what may be registered."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import ValidationError

from domain.pool import Pool, PoolState, next_state
from tests.domain.worlds import facts

ACTIONS = ("activate", "drain", "resume", "retire")
LIFE = {
    (PoolState.DRAFT, "activate"): PoolState.ACTIVE,
    (PoolState.ACTIVE, "drain"): PoolState.DRAINING,
    (PoolState.DRAINING, "resume"): PoolState.ACTIVE,
    (PoolState.DRAINING, "retire"): PoolState.RETIRED,
}


@pytest.mark.parametrize("state", list(PoolState))
@pytest.mark.parametrize("action", ACTIONS)
def test_a_pool_has_these_steps_in_its_life_and_no_others(state: PoolState, action: str) -> None:
    assert next_state(state, action) is LIFE.get((state, action))


def test_an_unknown_action_leads_nowhere() -> None:
    assert next_state(PoolState.ACTIVE, "delete") is None


def test_retired_is_the_end() -> None:
    assert {next_state(PoolState.RETIRED, action) for action in ACTIONS} == {None}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pool_id", "Bad_Id"),
        ("price_per_hour_usd", Decimal("-0.01")),
        ("price_per_hour_usd", Decimal("0.0000001")),
        ("guaranteed_price_per_hour_usd", Decimal(0)),
        ("cpu_cores", 0),
        ("purchase_model", "spot"),
        ("security_boundary", "public"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_field(field: str, value: object) -> None:
    document = facts().model_dump() | {field: value}
    with pytest.raises(ValidationError) as refused:
        type(facts()).model_validate(document)
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


def test_a_pool_is_a_value() -> None:
    pool = Pool(**facts().model_dump(), state=PoolState.ACTIVE)
    assert pool == Pool(**facts().model_dump(), state=PoolState.ACTIVE)
    with pytest.raises(ValidationError):
        pool.state = PoolState.RETIRED  # type: ignore[misc]
