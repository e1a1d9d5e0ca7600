"""A decision over hundreds of pools is stored in a few kilobytes."""

from __future__ import annotations

from decimal import Decimal

from domain.reasons import Reason
from domain.serving.record import candidates, recorded
from store import documents
from tests.domain.serving.pools import TERMS, decision, pool, wanted


def test_two_hundred_pools_take_a_few_kilobytes() -> None:
    pools = [
        pool(
            f"eu-north-h{number % 4}-g2-{number}",
            tenant_id="platform",
            price=f"{2 + number / 100}",
            region=("eu-north", "eu-west", "eu-south")[number % 3],
        )
        for number in range(200)
    ]
    found = decision(pools, wanted(regions=("eu-north",)))
    text = documents.dumps(recorded(found, "acme", TERMS.weights))
    assert len(found.kept) == 67
    assert len(text) < 12_000


def test_own_pools_go_by_their_id_and_shared_ones_by_their_full_name() -> None:
    found = decision([pool("gpu-1"), pool("gpu-1", tenant_id="platform", region="eu-west")])
    stored = recorded(found, "acme", TERMS.weights)
    assert [one[0] for one in stored["kept"]] == ["gpu-1", "platform/gpu-1"]
    told = [(one.tenant_id, one.pool_id, one.reason) for one in candidates(stored, "acme")]
    assert told == [("acme", "gpu-1", None), ("platform", "gpu-1", Reason.OUTSCORED)]


def test_an_excluded_pool_keeps_the_price_that_it_had() -> None:
    found = decision([pool("cheap", price="0.5", region="us-east")], wanted(regions=("eu-north",)))
    (one,) = candidates(recorded(found, "acme", TERMS.weights), "acme")
    assert (one.reason, one.price_per_hour_usd, one.score) == (Reason.REGION, Decimal("0.5"), None)
