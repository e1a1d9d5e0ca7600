"""The application: every route, behind the guard and the gate, and observed."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry
from starlette.requests import Request
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from activities import bundle_reports, bundling, model_placement_metrics
from activities.model_placing import ModelPlacing
from api import (
    answer_headers,
    audits,
    claims,
    contracts,
    health_reports,
    model_placements,
    nodes,
    nodes_forwarder,
    nodes_history,
    nodes_revoking,
    partitions,
    placements,
    pool_history,
    pool_life,
    pools,
    refusals,
    regions,
    status,
    warm_profiles,
    warm_requests,
    workloads,
)
from api.deps import Deps
from api.gate import Gate
from api.observe import HttpMetrics, Observe
from api.overload import USUAL, Admission, Limits, OverloadMetrics
from api.problems import MEDIA_TYPE, ProblemDocument
from api.queries import refuse_unknown_query
from api.sign_in import screens
from api.sign_in.guard import Guard, SignInMetrics, authorize
from api.sign_in.needs import CALLERS, Caller, is_open, require_needs
from api.sign_in.node_door import NodeDoor, NodeDoorMetrics
from api.sign_in.node_proof import SignedRequests
from api.sign_in.setup import SignIn
from api.web import audit_pages, node_pages, pages, pool_pages, serving_pages, warm_pages

STATIC = Path(__file__).parent / "web" / "static"
BEARER = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "A token of the OpenID issuer that this service is set up with, made out for it",
}
NODE_SIGNATURE = {
    "type": "apiKey",
    "in": "header",
    "name": "SCO-Signature",
    "description": "Ed25519 signature of a node; SCO-Instance, SCO-Time and SCO-Nonce come with it",
}
PROVIDER = {
    "type": "http",
    "scheme": "basic",
    "description": "The secret of the vendordata target, as password",
}
SECURITY: dict[Caller, list[dict[str, list[str]]]] = {
    Caller.TOKEN: [{"bearer": []}],
    Caller.NODE: [{"nodeSignature": []}],
    Caller.NEWCOMER: [],
    Caller.PROVIDER: [{"provider": []}],
}
REFUSAL = {
    "model": ProblemDocument,
    "description": "What was wrong, which value, what is allowed and what to do",
}

# Not `default`, which would stand for a success as well that nobody has described.
REFUSED = ("4XX", "5XX")


def create_app(deps: Deps, sign_in: SignIn, registry: CollectorRegistry, limits: Limits = USUAL) -> ASGIApp:
    """The whole service as one ASGI application, over what it is given; what it counts is in `registry`."""
    for collector in (
        PROCESS_COLLECTOR,
        PLATFORM_COLLECTOR,
        GC_COLLECTOR,
        bundling.NOT_ISSUED,
        bundle_reports.LATE_REPORTS,
        *model_placement_metrics.OF_PLACING,
    ):
        registry.register(collector)
    app = routes()
    app.state.deps = deps
    app.state.placing = ModelPlacing(
        deps.engine,
        policy=deps.policy_in_force,
        now=deps.now,
        secrets=deps.secrets,
        starter=deps.starter,
    )
    app.state.sign_in_screens = sign_in.screens
    app.state.sign_in_metrics = SignInMetrics(registry)
    refusals.install(app)
    require_needs(app)
    nodes_door = NodeDoor(deps.nodes, NodeDoorMetrics(registry), SignedRequests(deps.engine, deps.now))
    guarded = Guard(app, sign_in.doorkeeper, app.state.sign_in_metrics, nodes_door)
    admitted = Admission(Gate(guarded, sign_in.names), limits, OverloadMetrics(registry))
    return Observe(admitted, HttpMetrics(registry))


class Described(FastAPI):
    """FastAPI, whose description tells of sign-in, and of refusals with the media type that they have."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            described = super().openapi()
            described["components"]["securitySchemes"] = {
                "bearer": BEARER,
                "nodeSignature": NODE_SIGNATURE,
                "provider": PROVIDER,
            }
            for path, operations in described["paths"].items():
                for method, operation in operations.items():
                    caller = CALLERS.get((method.upper(), path), Caller.TOKEN)
                    operation["security"] = [] if is_open(path) else SECURITY[caller]
                    for status_code in ("422", *REFUSED):
                        content = operation["responses"][status_code]["content"]
                        content[MEDIA_TYPE] = content.pop("application/json")
                    answer_headers.describe(path, method, operation, REFUSED)
        return super().openapi()


def routes() -> FastAPI:
    """Every route without what it runs on: enough to describe the API."""
    app = Described(
        title="Spot Capacity Orchestrator",
        version=version("spot-capacity-orchestrator"),
        summary="Pools, contracts, workloads and their placements",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(authorize), Depends(refuse_unknown_query)],
        generate_unique_id_function=_operation_id,
        responses={422: REFUSAL, **dict.fromkeys(REFUSED, REFUSAL)},
        redirect_slashes=False,
    )
    # Before the pools, whose paths would match theirs.
    app.include_router(model_placements.router)
    for module in (
        pools,
        pool_life,
        health_reports,
        pool_history,
        warm_requests,
        warm_profiles,
        partitions,
        regions,
        audits,
        contracts,
        workloads,
        claims,
        placements,
        status,
        nodes,
        nodes_forwarder,
        nodes_history,
        nodes_revoking,
    ):
        app.include_router(module.router)
    for page in (pages, pool_pages, serving_pages, warm_pages, audit_pages, node_pages, screens):
        app.include_router(page.router, include_in_schema=False)
    app.add_api_route("/openapi.json", _description, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


async def _description(request: Request) -> dict[str, Any]:
    """The OpenAPI document of this application."""
    application: FastAPI = request.app
    return application.openapi()


def _operation_id(route: APIRoute) -> str:
    return route.name
