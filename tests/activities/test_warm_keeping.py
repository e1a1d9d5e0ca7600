"""Looks at a pool with a real model server: what profiles keep is loaded, what is idle goes, all are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio

from activities.model_loading import LoadError
from activities.reporting import report_utilization
from activities.warm_calls import FailedLoad, ModelsLooked, WarmKeepInput
from activities.warm_keeping import WarmKeepingActivities
from domain.serving.utilization import ReportedModel, UtilizationReport, UtilizationTerms
from domain.serving.warm_keep import ProfileModel, WarmProfile
from store import warm_profiles, warm_requests
from store.engine import Engine
from store.serving_pools import PoolName
from store.tables import LoadCause, WarmStatus
from store.warm_requests import WarmRequest
from tests.activities.model_loading import NAME, TERMS, Loader, utc_now
from tests.activities.serving.model_servers import Served, served

OLD = "UPDATE cached_models SET last_used_at = now() - interval '31 minutes', loaded_at = loaded_at"


class Keeper:
    """The hand that looks, and a workflow that carries out what it asks for."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.hand = WarmKeepingActivities(loader.engine, loader.hand, terms=TERMS, now=utc_now)

    async def look(self, *failed: FailedLoad, name: PoolName = NAME) -> ModelsLooked:
        return await self.hand.look_at_models(WarmKeepInput(**name._asdict(), failed=failed))

    async def keep(self, rounds: int = 3) -> ModelsLooked:
        """Look and load as the workflow does, until a look wants nothing."""
        failed: tuple[FailedLoad, ...] = ()
        for _ in range(rounds):
            looked = await self.look(*failed)
            if not looked.loads:
                return looked
            failed = ()
            for one in looked.loads:
                try:
                    await self.loader.hand.load(NAME, one.model, one.vram_gb, LoadCause(one.cause))
                except LoadError as error:
                    failed += (FailedLoad(model=one.model, kind=error.kind.value, problem=error.text),)
        raise AssertionError(f"a look still wants loads: {looked}")

    async def profile(self, *models: str, name: str = "chat", **changes: Any) -> None:
        wanted = tuple(ProfileModel(model=one, vram_gb=int(one[2:-2])) for one in models)
        made = WarmProfile(profile_id=name, models=wanted, **changes)
        async with self.loader.engine.begin() as connection:
            await warm_profiles.add(connection, NAME.tenant_id, made, at=utc_now())

    async def ask(self, model: str, vram_gb: int | None = None) -> UUID:
        request_id = uuid4()
        size = vram_gb or int(model[2:-2])
        request = WarmRequest(
            request_id, NAME.pool_id, model, size, WarmStatus.REQUESTED, None, "ada", utc_now(), None
        )
        async with self.loader.engine.begin() as connection:
            await warm_requests.add(connection, NAME.tenant_id, request)
        return request_id

    async def asked(self, request_id: UUID) -> WarmRequest:
        async with self.loader.engine.connect() as connection:
            return await warm_requests.find(connection, NAME, request_id)


@pytest.fixture
def server() -> Iterator[Served]:
    with served("ollama") as own:
        yield own


@pytest_asyncio.fixture
async def keeper(engine: Engine, server: Served) -> AsyncIterator[Keeper]:
    own = Keeper(await Loader(engine, server).open())
    yield own
    await own.loader.all_is_well()


async def test_what_profiles_keep_is_loaded_and_stays(keeper: Keeper) -> None:
    await keeper.profile("a:30gb", "b:40gb")
    first = await keeper.look()
    assert (first.kept, first.warm, [one.cause for one in first.loads]) == (2, 0, ["warm_keep"] * 2)
    settled = await keeper.keep()
    assert (settled.kept, settled.warm, settled.loads) == (2, 2, ())
    await keeper.loader.run(OLD)
    assert (await keeper.keep()).evicted == ()
    assert await keeper.loader.states() == {"a:30gb": "loaded", "b:40gb": "loaded"}
    assert keeper.loader.served.state["loads"] == {"a:30gb": 1, "b:40gb": 1}
    await keeper.loader.agrees()


async def test_what_nobody_used_or_keeps_goes(keeper: Keeper) -> None:
    await keeper.loader.load("a:10gb", 10)
    await keeper.loader.load("b:10gb", 10)
    await keeper.loader.hold("b:10gb", 10)
    assert (await keeper.look()).evicted == ()
    await keeper.loader.run(OLD)
    assert (await keeper.look()).evicted == ("a:10gb",)
    assert ("model-evicted", "a:10gb", "idle") in await keeper.loader.events()
    await keeper.loader.agrees()


async def test_a_profile_that_ends_lets_its_models_go_when_they_are_idle(keeper: Keeper) -> None:
    await keeper.profile("a:30gb")
    await keeper.keep()
    await keeper.loader.run("UPDATE warm_profiles SET enabled = false")
    assert (await keeper.look()).evicted == ()
    await keeper.loader.run(OLD)
    assert (await keeper.look()).evicted == ("a:30gb",)


async def test_room_is_made_before_a_load(keeper: Keeper) -> None:
    await keeper.loader.load("z:60gb", 60)
    await keeper.loader.run("UPDATE cached_models SET last_used_at = now() - interval '3 minutes'")
    await keeper.profile("a:30gb")
    looked = await keeper.look()
    assert (looked.evicted, [one.model for one in looked.loads]) == (("z:60gb",), ["a:30gb"])
    await keeper.keep()
    assert await keeper.loader.states() == {"a:30gb": "loaded"}
    assert keeper.loader.served.state["most_used_gb"] == 60


async def test_what_does_not_fit_is_said_and_does_no_harm(keeper: Keeper) -> None:
    await keeper.loader.hold("z:60gb", 60)
    await keeper.loader.load("z:60gb", 60)
    await keeper.profile("a:30gb")
    looked = await keeper.look()
    assert (looked.short, looked.loads, looked.evicted) == (("a:30gb",), (), ())


async def test_what_a_person_asked_for_is_loaded_once_and_told(keeper: Keeper) -> None:
    first, second = await keeper.ask("a:30gb"), await keeper.ask("a:30gb")
    looked = await keeper.look()
    assert [(one.model, one.cause) for one in looked.loads] == [("a:30gb", "request")]
    assert (await keeper.asked(first)).status is WarmStatus.LOADING
    await keeper.keep()
    for request in (first, second):
        told = await keeper.asked(request)
        assert (told.status, told.problem) == (WarmStatus.LOADED, None)
        assert told.finished_at is not None
    again = await keeper.ask("a:30gb")
    assert (await keeper.keep()).loads == ()
    assert (await keeper.asked(again)).status is WarmStatus.LOADED
    assert keeper.loader.served.state["loads"] == {"a:30gb": 1}


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [("nobody-knows-it", 10, "not there"), ("a:90gb", 90, "90 GB do not fit: 80 of 80 GB are free")],
)
async def test_a_request_that_cannot_be_is_failed_with_its_reason(
    keeper: Keeper, model: str, size: int, words: str
) -> None:
    request = await keeper.ask(model, size)
    await keeper.keep()
    told = await keeper.asked(request)
    assert told.status is WarmStatus.FAILED
    assert words in str(told.problem)
    assert await keeper.loader.states() == {}


async def test_a_failed_load_is_left_for_the_next_look(keeper: Keeper) -> None:
    await keeper.profile("a:30gb")
    keeper.loader.served.admin("disturb", {"fail_next": 1})
    settled = await keeper.keep()
    assert (settled.kept, settled.warm) == (1, 0)
    assert (await keeper.keep()).warm == 1


async def test_an_endpoint_that_cannot_be_asked_changes_nothing(keeper: Keeper) -> None:
    await keeper.profile("a:30gb")
    await keeper.keep()
    await keeper.loader.run(OLD)
    request = await keeper.ask("b:10gb")
    keeper.loader.served.admin("disturb", {"deny": True})
    looked = await keeper.look()
    assert (looked.over, looked.loads, looked.evicted) == (False, (), ())
    assert "401" in str(looked.problem)
    assert await keeper.loader.states() == {"a:30gb": "loaded"}
    assert (await keeper.asked(request)).status is WarmStatus.FAILED


async def test_a_model_that_the_endpoint_lost_is_loaded_again(keeper: Keeper) -> None:
    await keeper.profile("a:30gb")
    await keeper.keep()
    keeper.loader.served.admin("forget", {"model": "a:30gb"})
    looked = await keeper.look()
    assert (looked.warm, [one.model for one in looked.loads]) == (0, ["a:30gb"])
    await keeper.keep()
    assert [event[0] for event in await keeper.loader.events()] == [
        "model-warmed",
        "model-evicted",
        "model-warmed",
    ]
    await keeper.loader.agrees()


@pytest.mark.parametrize("change", ["state = 'draining', draining_since = now()", "endpoint_ref = NULL"])
async def test_a_pool_that_serves_no_more_is_let_be(keeper: Keeper, change: str) -> None:
    await keeper.profile("a:30gb")
    request = await keeper.ask("b:10gb")
    await keeper.loader.run(f"UPDATE pools SET {change}")
    assert await keeper.look() == ModelsLooked(over=True)
    assert "not active" in str((await keeper.asked(request)).problem)
    assert (await keeper.look(name=PoolName("platform", "nobody"))).over


async def test_copies_are_spread_and_the_pools_agree(engine: Engine) -> None:
    names = [PoolName("platform", f"gpu-{number}") for number in range(1, 5)]
    with served("openai") as server:
        loader = Loader(engine, server)
        for name in names:
            await loader.open(name=name)
        keeper = Keeper(loader)
        await keeper.profile("a:30gb", copies=2)
        looks = await asyncio.gather(*(keeper.look(name=name) for name in names))
        chosen = {name.pool_id for name, looked in zip(names, looks, strict=True) if looked.kept}
        assert len(chosen) == 2
        await loader.run("UPDATE pool_serving SET health = 'degraded' WHERE pool_id = :p", p=min(chosen))
        again = await asyncio.gather(*(keeper.look(name=name) for name in names))
        now = {name.pool_id for name, looked in zip(names, again, strict=True) if looked.kept}
        assert (len(now), now & chosen) == (2, chosen - {min(chosen)})


async def test_another_tenants_profiles_keep_nothing_here(keeper: Keeper) -> None:
    await keeper.profile("a:30gb")
    await keeper.loader.run("UPDATE warm_profiles SET tenant_id = 'acme'")
    assert (await keeper.look()).kept == 0


async def test_a_report_that_was_on_its_way_brings_no_model_back(keeper: Keeper) -> None:
    """An agent listed the model a moment before it was unloaded."""
    await keeper.loader.load("a:10gb", 10)
    still_there = report(utc_now() - timedelta(seconds=1), "a:10gb")
    await keeper.loader.hand.unload(NAME, "a:10gb", "idle")
    await report_utilization(
        keeper.loader.engine, NAME.tenant_id, [still_there], utc_now(), terms=UtilizationTerms()
    )
    assert await keeper.loader.states() == {}
    later = utc_now() + timedelta(seconds=10)
    again = report(later, "a:10gb")
    await report_utilization(keeper.loader.engine, NAME.tenant_id, [again], later, terms=UtilizationTerms())
    assert await keeper.loader.states() == {"a:10gb": "loading"}, "until its endpoint lists it"


@pytest.mark.parametrize("asked_for", [False, True], ids=["at the next look", "by who needs it"])
async def test_what_only_an_agent_lists_is_warm_once_its_endpoint_was_asked(
    keeper: Keeper, asked_for: bool
) -> None:
    """Somebody else loaded the one, and the agent is wrong about the other."""
    loader = keeper.loader
    await loader.served.serving.load(loader.served.endpoint, "a:10gb")
    for model in ("a:10gb", "b:10gb"):
        at = utc_now()
        await report_utilization(loader.engine, NAME.tenant_id, [report(at, model)], at)
    assert await loader.states() == {"a:10gb": "loading", "b:10gb": "loading"}
    assert await loader.events() == []
    if asked_for:
        assert await loader.load("a:10gb", 10)
    else:
        await keeper.look()
    assert (await loader.states())["a:10gb"] == "loaded"
    assert await loader.events() == [("model-warmed", "a:10gb", None)]
    assert loader.served.state["loads"] == {"a:10gb": 1}, "it was there"
    await loader.settle()
    await loader.agrees()


def report(at: datetime, model: str) -> UtilizationReport:
    listed = ReportedModel(model=model, vram_gb=10, last_used_at=at)
    return UtilizationReport(
        pool_id=NAME.pool_id, utilization=Decimal("0.5"), queue_depth=0, reported_at=at, models=(listed,)
    )
