"""A server that is gone without a notice is told of once, with the cause that the provider's words give."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities import repairing
from domain.acquisition import ServerStatus
from tests.activities.deciding import halls
from tests.activities.reconciling import Reconciler
from tests.domain.drains import honest
from tests.estates import START, TENANT, Estate
from tests.store.histories import keep

TOLD = "SELECT key, payload->>'cause' FROM outbox WHERE topic = 'lifecycle.nodes.v1.no-notice' ORDER BY key"
DRAINS = "SELECT instance_id, outcome, cause FROM node_drains"
ADD = """
    INSERT INTO provider_notifications (tenant_id, message_id, region, kind, server_id, emitted_at)
    VALUES (:tenant, gen_random_uuid()::text, 'eu-north', :kind, :server, :at)
"""


@pytest.fixture
async def reconciler(estate: Estate) -> Reconciler:
    await estate.open(halls(), free=100)
    own = Reconciler(estate)
    await own.launch(4)
    return own


async def notify(estate: Estate, server_id: str, *kinds: str) -> None:
    for second, kind in enumerate(kinds):
        at = START + timedelta(seconds=second)
        await estate.rows(ADD, tenant=TENANT, kind=kind, server=server_id, at=at)


async def confirmed(reconciler: Reconciler) -> None:
    """Until what is missing is certain and given up."""
    for _ in range(3):
        await reconciler.cycle()


async def test_a_server_that_the_provider_took_is_told_of_once(reconciler: Reconciler) -> None:
    gone = reconciler.servers()[0]
    reconciler.compute.vanish(gone)
    await confirmed(reconciler)
    assert await reconciler.estate.rows(TOLD) == [(gone, "reclaim")]
    assert await reconciler.estate.rows(DRAINS) == [(gone, "no_notice", "reclaim")]


@pytest.mark.parametrize(
    ("kinds", "model", "cause"),
    [
        (("deleted",), "reclaimable", "reclaim"),
        (("deleted",), "guaranteed", "operator"),
        (("errored", "deleted"), "reclaimable", "unknown"),
        (("stopped", "deleted"), "reclaimable", "reclaim"),
    ],
)
async def test_the_words_of_the_provider_decide(
    reconciler: Reconciler, kinds: tuple[str, ...], model: str, cause: str
) -> None:
    gone = reconciler.servers()[0]
    await reconciler.estate.rows("UPDATE pools SET purchase_model = :model", model=model)
    await notify(reconciler.estate, gone, *kinds)
    reconciler.compute.vanish(gone)
    await confirmed(reconciler)
    assert await reconciler.estate.rows(DRAINS) == [(gone, "no_notice", cause)]
    assert await reconciler.estate.value("SELECT ended_at FROM node_drains") == START


async def test_a_server_that_fails_is_unknown_and_our_deleting_it_does_not_change_that(
    reconciler: Reconciler,
) -> None:
    broken = reconciler.servers()[0]
    reconciler.breaks(broken, ServerStatus.ERROR)
    await confirmed(reconciler)
    assert await reconciler.estate.rows(DRAINS) == [(broken, "no_notice", "unknown")]


async def test_a_server_whose_notice_is_known_has_a_drain_and_no_other_end(reconciler: Reconciler) -> None:
    gone = reconciler.servers()[0]
    await keep(reconciler.estate.engine, gone, honest()[:1])
    reconciler.compute.vanish(gone)
    await confirmed(reconciler)
    assert await reconciler.states() == {"active": 3, "lost": 1}
    assert await reconciler.estate.rows(TOLD) == []
    assert await reconciler.estate.rows(DRAINS) == [(gone, "open", "reclaim")]


async def test_what_is_rolled_back_is_not_told(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss and its event are one transaction."""

    async def fails(*_: object) -> None:
        raise OSError("the database is away")

    gone = reconciler.servers()[0]
    reconciler.compute.vanish(gone)
    with monkeypatch.context() as trouble:
        trouble.setattr(repairing, "record", fails)
        with pytest.raises(OSError, match="away"):
            await confirmed(reconciler)
    assert await reconciler.estate.rows(TOLD) == []
    await confirmed(reconciler)
    assert await reconciler.estate.rows(TOLD) == [(gone, "reclaim")]
