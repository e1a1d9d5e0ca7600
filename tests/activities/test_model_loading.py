"""Loading and unloading: one load for all who ask, the endpoint's list is the truth, no memory is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from temporalio.exceptions import ApplicationError

from activities.model_loading import LoadError
from activities.model_placement_calls import LoadModelRequest
from activities.secrets.ports import Credential, SecretsUnavailable
from domain.serving.warm_keep import WarmKeepTerms
from store.engine import Engine
from store.tables import LoadCause
from tests.activities.model_loading import LEASE_SECONDS, NAME, Loader, utc_now
from tests.activities.serving.model_servers import DIALECTS, Served, served

# For loads that last longer than their lease.
SHORT = WarmKeepTerms(lease_seconds=3, look_seconds=0.2, promise_patience_seconds=0)


async def under_way(loader: Loader) -> datetime:
    """Until the server loads the one model; how long the lease is held by then."""
    for _ in range(3000):
        if "loading" in loader.served.state["models"].values():
            break
        await asyncio.sleep(0.01)
    (model,) = (await loader.models()).values()
    assert model.load_until is not None
    return model.load_until


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    with served(request.param, seconds_per_gb=0.01) as own:
        yield own


@pytest_asyncio.fixture
async def loader(engine: Engine, server: Served) -> AsyncIterator[Loader]:
    opened = await Loader(engine, server).open()
    yield opened
    await opened.all_is_well()


async def test_a_model_is_loaded_recorded_and_told(loader: Loader) -> None:
    assert await loader.load(cause="placement") is True
    (model,) = (await loader.models()).values()
    assert (model.state, model.load_key, model.load_until) == ("loaded", None, None)
    assert model.loaded_at == model.listed_at
    assert await loader.events() == [("model-warmed", "m:20gb", None)]
    ((seconds, outcome),) = await loader.rows("SELECT seconds, outcome FROM model_loads")
    assert (seconds >= 0.2, outcome) == (True, "loaded")
    await loader.agrees()


async def test_loading_again_is_no_load(loader: Loader) -> None:
    assert [await loader.load() for _ in range(3)] == [True, False, False]
    assert loader.served.state["loads"] == {"m:20gb": 1}
    assert len(await loader.loads()) == 1


async def test_many_callers_share_one_load(loader: Loader) -> None:
    hands = [loader.another() for _ in range(6)]
    loaded = await asyncio.gather(*(one.load(NAME, "m:20gb", 20, LoadCause.REQUEST) for one in hands))
    assert sorted(one.caused for one in loaded) == [False] * 5 + [True]
    assert loader.served.state["loads"] == {"m:20gb": 1}
    assert await loader.events() == [("model-warmed", "m:20gb", None)]


async def test_the_default_tag_is_the_same_model(loader: Loader) -> None:
    assert await loader.load("qwen3-8b:latest", 6) is True
    assert await loader.load("qwen3-8b", 6) is False
    assert list(await loader.models()) == ["qwen3-8b"]


async def test_memory_is_kept_before_it_is_used(loader: Loader) -> None:
    await loader.load("a:50gb", 50)
    with pytest.raises(LoadError) as told:
        await loader.load("b:40gb", 40)
    assert told.value.kind == "no_memory"
    assert "gpu-1" in told.value.text
    assert "b:40gb" not in loader.served.state["loads"]
    assert await loader.states() == {"a:50gb": "loaded"}


async def test_a_load_that_fails_leaves_no_memory_taken_and_may_be_repeated(loader: Loader) -> None:
    loader.served.admin("disturb", {"fail_next": 1})
    with pytest.raises(LoadError) as told:
        await loader.load()
    assert told.value.kind == "failed"
    assert (await loader.states(), await loader.events()) == ({}, [])
    assert await loader.load() is True
    assert await loader.loads() == [("m:20gb", "request", "failed"), ("m:20gb", "request", "loaded")]


async def test_a_failed_load_of_what_is_promised_keeps_the_promise(loader: Loader) -> None:
    held = await loader.hold()
    loader.served.admin("disturb", {"fail_next": 1})
    with pytest.raises(LoadError):
        await loader.load()
    model = (await loader.models())["m:20gb"]
    assert (model.state, model.holds) == ("promised", 1)
    assert model.load_problem is not None
    await loader.release(held)
    assert await loader.states() == {}


async def test_who_waits_for_a_load_shares_its_failure(loader: Loader) -> None:
    await loader.hold()
    loader.served.admin("disturb", {"fail_next": 1})
    ended = await asyncio.gather(loader.load(), loader.load(), return_exceptions=True)
    assert [type(one) for one in ended] == [LoadError, LoadError]
    assert sum(loader.served.state["loads"].values()) == 1


async def test_a_pool_that_is_not_active_or_has_no_endpoint_loads_nothing(loader: Loader) -> None:
    for change in ("state = 'draining', draining_since = now()", "state = 'active', endpoint_ref = NULL"):
        await loader.run(f"UPDATE pools SET {change}")
        with pytest.raises(LoadError) as told:
            await loader.load()
        assert told.value.kind == "pool_not_serving"
    assert loader.served.state["loads"] == {}


async def test_without_its_credential_nothing_is_asked(loader: Loader) -> None:
    class Away:
        async def endpoint_credential(self, tenant_id: str, pool_id: str) -> Credential:
            raise SecretsUnavailable("nobody answers")

    with pytest.raises(LoadError) as told:
        await loader.another(secrets=Away()).load(NAME, "m:20gb", 20, LoadCause.REQUEST)
    assert told.value.kind == "secrets_unavailable"
    assert await loader.states() == {}


async def test_what_an_endpoint_does_not_say_stays_counted_until_it_does(engine: Engine) -> None:
    with served("ollama", terms={"load_seconds": 0.4}, seconds_per_gb=0.05) as server:
        loader = await Loader(engine, server).open()
        with pytest.raises(LoadError) as told:
            await loader.load()
        assert told.value.kind == "timeout"
        assert await loader.states() == {"m:20gb": "loading"}
        assert (await loader.settle(patience=60)).lost == ()
        for _ in range(100):
            if server.state["models"] == {"m:20gb": "loaded"}:
                break
            await asyncio.sleep(0.05)
        assert (await loader.settle(patience=60)).found == ("m:20gb",)
        assert await loader.events() == [("model-warmed", "m:20gb", None)]
        await loader.agrees()


async def test_a_load_that_never_came_is_free_after_the_patience(engine: Engine) -> None:
    with served("ollama") as server:
        loader = await Loader(engine, server).open()
        impatient = Loader(engine, Served(server.handle, "ollama", load_seconds=0.2, answer_seconds=0.2))
        server.admin("disturb", {"hang": True})
        with pytest.raises(LoadError):
            await impatient.load()
        with pytest.raises(LoadError):
            await impatient.settle()
        assert await loader.states() == {"m:20gb": "loading"}
        server.admin("disturb", {"hang": False})
        server.admin("forget", {"model": "m:20gb"})
        await asyncio.sleep(0.05)
        server.admin("forget", {"model": "m:20gb"})
        assert (await loader.settle()).lost == ("m:20gb",)
        assert (await loader.states(), await loader.events()) == ({}, [])


async def test_a_load_longer_than_its_lease_keeps_it(engine: Engine) -> None:
    with served("ollama", seconds_per_gb=0.25) as server:
        loader = await Loader(engine, server, SHORT).open()
        first = asyncio.create_task(loader.load())
        taken = await under_way(loader)
        await asyncio.sleep(SHORT.lease_seconds)
        assert await under_way(loader) > taken
        assert await loader.load() is False
        assert await first is True
        assert server.state["loads"] == {"m:20gb": 1}
        await loader.agrees()


async def test_a_load_whose_lease_was_taken_over_ends_without_a_word(engine: Engine) -> None:
    with served("ollama", seconds_per_gb=0.1) as server:
        loader = await Loader(engine, server, SHORT).open()
        first = asyncio.create_task(loader.load())
        await under_way(loader)
        second = loader.another(now=lambda: utc_now() + timedelta(seconds=LEASE_SECONDS))
        taken = await second.load(NAME, "m:20gb", 20, LoadCause.REQUEST)
        with pytest.raises(LoadError) as told:
            await first
        assert told.value.kind == "lease_lost"
        assert taken.caused
        assert await loader.events() == [("model-warmed", "m:20gb", None)]
        assert sorted(row[2] for row in await loader.loads()) == ["failed", "loaded"]
        await loader.agrees()


async def test_a_load_that_is_told_to_stop_gives_its_lease_back(engine: Engine) -> None:
    with served("ollama", seconds_per_gb=0.05) as server:
        loader = await Loader(engine, server, WarmKeepTerms(lease_seconds=60)).open()
        first = asyncio.create_task(loader.load())
        await under_way(loader)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await loader.load() is True
        assert server.state["loads"] == {"m:20gb": 1}
        await loader.agrees()


async def test_what_nobody_holds_is_unloaded_and_told(loader: Loader) -> None:
    await loader.load()
    assert await loader.hand.unload(NAME, "m:20gb", "idle") is True
    assert await loader.hand.unload(NAME, "m:20gb", "idle") is False
    assert await loader.events() == [("model-warmed", "m:20gb", None), ("model-evicted", "m:20gb", "idle")]
    assert await loader.states() == {}
    await loader.agrees()


async def test_what_is_held_stays_unless_it_is_forced(loader: Loader) -> None:
    held = await loader.hold()
    await loader.load()
    assert await loader.hand.unload(NAME, "m:20gb", "idle") is False
    await loader.turn("draining")
    assert await loader.hand.unload(NAME, "m:20gb", "drained", forced=True) is True
    assert await loader.states() == {}
    ((state, problem),) = await loader.rows(
        "SELECT state, problem FROM model_placements WHERE placement_id = :id", id=held
    )
    assert (state, "drained" in problem) == ("released", True)
    await loader.agrees()


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
async def test_nothing_is_forced_from_a_pool_that_was_resumed(loader: Loader, held: bool) -> None:
    """What a drain wanted to unload a moment ago is not its business any more."""
    await loader.load()
    if held:
        await loader.hold()
    assert await loader.hand.unload(NAME, "m:20gb", "drained", forced=True) is False
    assert await loader.states() == {"m:20gb": "loaded"}
    await loader.agrees()


async def test_a_pool_that_is_resumed_while_a_model_leaves_keeps_its_placements(engine: Engine) -> None:
    with served("ollama") as server:
        loader = await Loader(engine, server).open()
        before = await loader.hold()
        await loader.load()
        await loader.turn("draining")

        class Slow:
            """Somebody resumes the pool and is placed there while the endpoint unloads the model."""

            async def unload(self, endpoint: object, model: str) -> None:
                await server.serving.unload(server.endpoint, model)
                await loader.turn("active")
                await loader.hold()

            def __getattr__(self, name: str) -> object:
                return getattr(server.serving, name)

        hand = loader.another(serving=Slow())  # type: ignore[arg-type]  # what it lacks comes from the real one
        assert await hand.unload(NAME, "m:20gb", "patience_over", forced=True) is True
        assert await loader.states() == {"m:20gb": "promised"}
        held = await loader.rows("SELECT placement_id FROM model_placements WHERE state = 'held'")
        assert len(held) == 2
        assert before in [row[0] for row in held]
        assert await loader.load() is True
        await loader.agrees()


async def test_a_model_placed_on_while_it_leaves_is_promised_and_loaded_again(engine: Engine) -> None:
    with served("ollama") as server:
        loader = await Loader(engine, server).open()
        await loader.load()

        class Slow:
            """Somebody places the model while the endpoint unloads it."""

            async def unload(self, endpoint: object, model: str) -> None:
                await server.serving.unload(server.endpoint, model)
                await loader.hold()

            def __getattr__(self, name: str) -> object:
                return getattr(server.serving, name)

        hand = loader.another(serving=Slow())  # type: ignore[arg-type]  # what it lacks comes from the real one
        assert await hand.unload(NAME, "m:20gb", "idle") is True
        assert await loader.states() == {"m:20gb": "promised"}
        assert await loader.load() is True
        assert [event[0] for event in await loader.events()] == [
            "model-warmed",
            "model-evicted",
            "model-warmed",
        ]
        await loader.agrees()


async def test_an_endpoint_that_is_gone_keeps_its_model_unless_it_is_given_up(engine: Engine) -> None:
    with served("ollama") as server:
        loader = await Loader(engine, server).open()
        await loader.load()
    await loader.turn("draining")
    with pytest.raises(LoadError) as told:
        await loader.hand.unload(NAME, "m:20gb", "drained", forced=True)
    assert told.value.kind == "unreachable"
    assert await loader.states() == {"m:20gb": "loading"}
    assert await loader.hand.unload(NAME, "m:20gb", "drained", forced=True, given_up=True) is True
    assert await loader.states() == {}
    assert (await loader.events())[-1] == ("model-evicted", "m:20gb", "drained")


async def test_what_an_endpoint_lost_is_found_missing(loader: Loader) -> None:
    await loader.load("a:10gb", 10)
    await loader.load("b:10gb", 10)
    await loader.hold("b:10gb", 10)
    for model in ("a:10gb", "b:10gb"):
        loader.served.admin("forget", {"model": model})
    assert (await loader.settle()).lost == ("a:10gb", "b:10gb")
    assert await loader.states() == {"b:10gb": "promised"}
    assert (await loader.settle()).lost == ()
    lost = [event for event in await loader.events() if event[0] == "model-evicted"]
    assert lost == [("model-evicted", "a:10gb", "lost"), ("model-evicted", "b:10gb", "lost")]


@pytest.mark.parametrize(
    ("disturb", "kind", "final"),
    [({"fail_next": 1}, "failed", False), ({"deny": True}, "refused", True)],
)
async def test_workflows_are_told_whether_to_try_again(
    loader: Loader, disturb: dict[str, object], kind: str, final: bool
) -> None:
    loader.served.admin("disturb", disturb)
    request = LoadModelRequest(
        tenant_id=NAME.tenant_id, pool_id=NAME.pool_id, model="m:20gb", vram_gb=20, cause="placement"
    )
    with pytest.raises(ApplicationError) as told:
        await loader.hand.load_model(request)
    assert (told.value.type, told.value.non_retryable) == (kind, final)
