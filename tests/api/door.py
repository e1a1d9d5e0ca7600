"""The front door over a test's own database, asked as a client asks it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import httpx2
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp
from temporalio.service import RPCError, RPCStatusCode

from activities.bundle_keys import SigningKeys
from activities.model_placement_calls import ModelPlacementInput, PlacementRequest
from activities.placement_calls import Decided
from api.app import create_app
from api.deps import Deps
from api.overload import Limits
from api.sign_in.setup import SignIn
from domain.ids import (
    audit_workflow_id,
    model_placement_workflow_id,
    placement_workflow_id,
    pool_drain_workflow_id,
    warm_keep_workflow_id,
)
from store.roles import TENANT_ROLE
from tests.activities.deciding import Placer
from tests.activities.model_placing import Vault
from tests.api.nodes_scene import KeyFile, plane_on
from tests.api.sign_in.minting import claims, header, mint, verifier
from tests.database import opened
from tests.domain.worlds import estate as every_pool
from tests.estates import Estate

ADDRESS = "http://localhost:8080"
ORDERS = {"partitionId": "k8s-eu-north", "contractId": "orders-daily", "ownerTeam": "data-platform"}
# However slow the machine is that tests run on.
PATIENT = Limits(patience_seconds=120)
T1 = {"tier": "T1", "floorShare": "0.30"}


class RecordingStarter:
    """Remembers what it was asked to start; `down` makes it fail as a Temporal that is away does."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str, str, int | None]] = []
        self.audits: list[tuple[str, UUID, str | None, str]] = []
        self.drains: list[tuple[str, str]] = []
        self.told: list[tuple[str, str]] = []
        self.models: list[ModelPlacementInput] = []
        self.models_told: list[PlacementRequest] = []
        self.warm: list[tuple[str, str]] = []
        self.down = False

    async def start(
        self, tenant_id: str, partition_id: str, workload_id: str, claim_version: int | None
    ) -> str:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.started.append((tenant_id, partition_id, workload_id, claim_version))
        return placement_workflow_id(tenant_id, partition_id, workload_id)

    async def start_audit(
        self, tenant_id: str, audit_id: UUID, partition_id: str | None, served_by: str
    ) -> str:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.audits.append((tenant_id, audit_id, partition_id, served_by))
        return audit_workflow_id(audit_id)

    async def start_drain(self, tenant_id: str, pool_id: str) -> str:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.drains.append((tenant_id, pool_id))
        return pool_drain_workflow_id(tenant_id, pool_id)

    async def tell_drain(self, tenant_id: str, pool_id: str) -> None:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.told.append((tenant_id, pool_id))

    async def start_model_placement(self, request: ModelPlacementInput) -> str:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.models.append(request)
        return model_placement_workflow_id(request.tenant_id, request.placement_id)

    async def tell_model_placement(self, request: PlacementRequest) -> None:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.models_told.append(request)

    async def want_warm_keep(self, tenant_id: str, pool_id: str) -> str:
        if self.down:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        self.warm.append((tenant_id, pool_id))
        return warm_keep_workflow_id(tenant_id, pool_id)

    async def reachable(self) -> bool:
        return not self.down


class Bearer(httpx2.Auth):
    """Sends a token of one subject that is good at the clock's time, unless a request brings its own."""

    def __init__(self, now: Callable[[], datetime], **said: Any) -> None:
        self._now = now
        self._said = said
        self._made: tuple[datetime, str] | None = None

    @property
    def token(self) -> str:
        now = self._now()
        if self._made is None or self._made[0] != now:
            self._made = (now, mint(claims(now, **self._said), header("EdDSA")))
        return self._made[1]

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers.setdefault("authorization", f"Bearer {self.token}")
        yield request


class Door:
    """A client of one application, with what the application stands on.

    It asks as a PlatformAdmin of the tenant `platform`; `as_` gives a client that asks as somebody else.
    """

    def __init__(
        self,
        estate: Estate,
        starter: RecordingStarter,
        app: ASGIApp,
        http: httpx2.AsyncClient,
        *,
        registry: CollectorRegistry,
        vault: Vault,
        keys: KeyFile,
    ) -> None:
        self.app = app
        self.registry = registry
        self.estate = estate
        self.starter = starter
        self.http = http
        self.vault = vault
        self.keys = keys
        self.placer = Placer(estate)

    def as_(self, **said: Any) -> httpx2.AsyncClient:
        """A client whose token says something else: `tenant_id`, `roles`, `scope`, `sub`."""
        return client_of(self.app, Bearer(self.estate.clock, **said))

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.http.get(path, params=query or None)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return await self.http.post(path, json=body, **options)

    async def patch(self, path: str, body: Any, **options: Any) -> httpx2.Response:
        return await self.http.patch(path, json=body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> httpx2.Response:
        return await self.http.put(path, json=body, **options)

    async def delete(self, path: str, **options: Any) -> httpx2.Response:
        return await self.http.delete(path, **options)

    async def open_estate(self, **options: Any) -> None:
        """One region of pools, a T1 contract and the workload orders-daily."""
        await self.estate.open(every_pool(("eu-north",), hours=500), **options)
        assert (await self.put("/contracts/orders-daily", T1)).status_code == 201
        assert (await self.put("/workloads/orders-daily", ORDERS)).status_code == 201

    async def claim(self, units: int = 42, workload: str = "orders-daily", **query: Any) -> dict[str, Any]:
        answer = await self.post(f"/workloads/{workload}/claims", pods(units), params=query)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def placed(self, units: int = 42) -> Decided:
        """A claim of orders-daily with a committed plan."""
        await self.claim(units)
        return await self.placer.decide("orders-daily")


@asynccontextmanager
async def door_on(
    estate: Estate,
    sign_in: SignIn | None = None,
    limits: Limits = PATIENT,
    signing: SigningKeys | None = None,
) -> AsyncIterator[Door]:
    """The application over the estate's database, working as the role that row-level security binds.

    Bundles are signed by `signing`, or by the keys of a file that the test may change.
    """
    starter, vault = RecordingStarter(), Vault(estate.clock)
    dsn = estate.engine.url.render_as_string(hide_password=False)
    with TemporaryDirectory(prefix="sco-keys-") as folder:
        keys = KeyFile(Path(folder) / "bundle-keys.json")
        async with opened(dsn, role=TENANT_ROLE) as engine:
            deps = Deps(
                engine=engine,
                starter=starter,
                temporal_reachable=starter.reachable,
                now=estate.clock,
                workflow_pages="http://localhost:8233/namespaces/default",
                secrets=vault,
                nodes=plane_on(engine, estate.clock, keys.path, signing),
            )
            registry = CollectorRegistry()
            app = create_app(deps, sign_in or SignIn(verifier(estate.clock)), registry, limits)
            async with client_of(app, Bearer(estate.clock)) as http:
                yield Door(estate, starter, app, http, registry=registry, vault=vault, keys=keys)


def client_of(app: ASGIApp, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """A client of an application in this process; without `auth` nobody is signed in."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=ADDRESS, auth=auth)


def pod(name: str, *, phase: str = "Pending", cpu: str = "4", memory: str = "16Gi") -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "orders", "uid": name},
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }


def pods(count: int, **options: Any) -> dict[str, Any]:
    return {"kind": "List", "items": [pod(f"orders-{number}", **options) for number in range(count)]}


def problem(answer: httpx2.Response, status: int, reason: str) -> dict[str, Any]:
    """The problem document of an answer, checked for everything that each must have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(answer.content)
    assert document["status"] == status
    assert document["reason"] == reason
    for field in ("type", "title", "detail", "instance", "whatToDo"):
        assert document[field], field
    return document
