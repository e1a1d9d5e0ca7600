"""A pool that is kept warm as it runs: a real database, Temporal, OpenBao and model server, nothing faked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest_asyncio
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.warm_calls import Wanted, WarmKeepInput
from activities.warm_keep_start import start_warm_keep
from domain.ids import warm_keep_workflow_id
from domain.policy import Policy
from domain.pool_life import DrainTerms, PoolAction
from domain.serving.warm_keep import ProfileModel, WarmKeepTerms, WarmProfile
from lab.logins import WORKER_LOGIN, dsn_of, ensure_logins
from lab.secrets import SecretsServer
from lab.stack import Stack
from store import pool_life, warm_profiles, warm_requests
from store.engine import Engine
from store.tables import WarmStatus
from store.warm_requests import WarmRequest
from tests.activities.model_loading import NAME, Loader, utc_now
from tests.activities.serving.model_servers import TOKEN, served, terms_for
from tests.workers.post_office import until
from workers.main import run
from workers.settings import WorkerSettings

TERMS = WarmKeepTerms(look_seconds=1, lease_seconds=1, promise_patience_seconds=0)
DRAIN = DrainTerms(model_patience_seconds=30, model_quiet_seconds=0, look_seconds=0.2)


class Kept:
    """A running worker, one pool with its model server, its secrets and its workflow."""

    def __init__(self, loader: Loader, bao: SecretsServer, client: Client) -> None:
        self.loader = loader
        self.bao = bao
        self.client = client

    async def profile(self, *models: tuple[str, int]) -> None:
        wanted = tuple(ProfileModel(model=name, vram_gb=size) for name, size in models)
        async with self.loader.engine.begin() as connection:
            made = WarmProfile(profile_id="chat", models=wanted)
            await warm_profiles.add(connection, NAME.tenant_id, made, at=utc_now())

    async def ask(self, model: str, vram_gb: int) -> Any:
        """What the API does with a warm request."""
        request_id = uuid4()
        asked = WarmRequest(
            request_id, NAME.pool_id, model, vram_gb, WarmStatus.REQUESTED, None, "ada", utc_now(), None
        )
        async with self.loader.engine.begin() as connection:
            await warm_requests.add(connection, NAME.tenant_id, asked)
        await start_warm_keep(self.client, WarmKeepInput(**NAME._asdict()), Wanted(why="asked"))
        return request_id

    async def ends(self, request_id: Any) -> WarmRequest:
        found: list[WarmRequest] = []

        async def ended() -> bool:
            async with self.loader.engine.connect() as connection:
                found.append(await warm_requests.find(connection, NAME, request_id))
            return found[-1].finished_at is not None

        await until(ended)
        return found[-1]

    async def has(self, *models: str) -> None:
        """Until store and server agree that exactly these are loaded."""

        async def agreed() -> bool:
            state = await asyncio.to_thread(lambda: self.loader.served.state["models"])
            loaded = dict.fromkeys(models, "loaded")
            return bool(state == loaded and await self.loader.states() == loaded)

        await until(agreed)

    async def status(self) -> WorkflowExecutionStatus:
        handle = self.client.get_workflow_handle(warm_keep_workflow_id(*NAME))
        return cast(WorkflowExecutionStatus, (await handle.describe()).status)


@asynccontextmanager
async def working(settings: WorkerSettings, policy: Policy) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, policy, stop, CollectorRegistry()))
    try:
        yield
    finally:
        stop.set()
        await task


@pytest_asyncio.fixture
async def kept(
    own_stack: Stack, stack: Stack, engine: Engine, dsn: str, tmp_path: Path
) -> AsyncIterator[Kept]:
    ensure_logins(dsn, stack.data_dir)
    with SecretsServer(tmp_path / "bao") as bao, served("openai", seconds_per_gb=0.01) as server:
        bao.put(*NAME, TOKEN)
        settings_file = tmp_path / "secrets.json"
        kept_for_no_time = json.loads(bao.settings_file.read_text()) | {"cache_seconds": 0}
        settings_file.write_text(json.dumps(kept_for_no_time))
        loader = await Loader(engine, server, TERMS).open()
        settings = WorkerSettings(
            database_url=SecretStr(dsn_of(WORKER_LOGIN, dsn, stack.data_dir)),
            temporal_address=own_stack.temporal_address,
            secrets_file=settings_file,
            sandbox=True,
        )
        policy = Policy(endpoints=terms_for(server.handle.port), warm_keep=TERMS, drain=DRAIN)
        client = await Client.connect(own_stack.temporal_address, data_converter=pydantic_data_converter)
        async with working(settings, policy):
            yield Kept(loader, bao, client)
        await loader.all_is_well()


async def test_the_models_of_a_pool_from_its_profile_to_its_drain(kept: Kept) -> None:
    """Nobody starts anything: the worker sees to every pool. Then a person asks, and the pool drains."""
    await kept.profile(("a:20gb", 20))
    await kept.has("a:20gb")
    request = await kept.ends(await kept.ask("b:10gb", 10))
    assert (request.status, request.problem) == (WarmStatus.LOADED, None)
    await kept.has("a:20gb", "b:10gb")
    refused = await kept.ends(await kept.ask("c:70gb", 70))
    assert (refused.status, "do not fit" in str(refused.problem)) == (WarmStatus.FAILED, True)
    kept.loader.served.admin("forget", {"model": "a:20gb"})
    await kept.has("b:10gb", "a:20gb")
    async with kept.loader.engine.begin() as connection:
        await pool_life.take_step(connection, *NAME, PoolAction.DRAIN, None, by="ada", at=datetime.now(UTC))
    await kept.client.get_workflow_handle(warm_keep_workflow_id(*NAME)).signal("wanted")

    async def is_over() -> bool:
        return await kept.status() is WorkflowExecutionStatus.COMPLETED

    await until(is_over)


async def test_without_its_credential_a_pool_is_left_as_it_is(kept: Kept) -> None:
    await kept.profile(("a:20gb", 20))
    await kept.has("a:20gb")
    kept.bao.pause()
    refused = await kept.ends(await kept.ask("b:10gb", 10))
    assert "secrets service" in str(refused.problem)
    # A load may be under way when the look that comes beside it gives the request up.
    await kept.has("a:20gb")
    kept.bao.pause(paused=False)
    assert (await kept.ends(await kept.ask("b:10gb", 10))).status is WarmStatus.LOADED
    await kept.has("a:20gb", "b:10gb")
