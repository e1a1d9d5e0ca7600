"""All services of the cloud as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp

from lab.cloud.cloud import Cloud
from lab.cloud.notifications import Herald
from lab.cloud.region import Region
from lab.cloud.web.admin import AdminApi
from lab.cloud.web.baremetal import BareMetalApi
from lab.cloud.web.compute import ComputeApi
from lab.cloud.web.gate import Gate, TokenGuard
from lab.cloud.web.identity import IdentityApi
from lab.cloud.web.instance_metadata import InstanceMetadataApi
from lab.cloud.web.placement import PlacementApi
from lab.cloud.web.rates import RatesApi
from lab.cloud.web.reservation import ReservationApi
from lab.cloud.web.server_labels import ServerLabelsApi
from lab.cloud.web.server_view import ServerView
from lab.cloud.web.servers import ServersApi

_VERSION_DOCUMENTS = ("", "/v1", "/v2.1")


def build_app(
    cloud: Cloud, base_url: str, on_stop: Callable[[], None], herald: Herald | None = None
) -> ASGIApp:
    """The application that serves `cloud` at `base_url`; `on_stop` runs after the last request."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        on_stop()

    routes: list[BaseRoute] = [
        Mount("/identity", routes=IdentityApi(cloud, base_url).routes()),
        Mount("/admin", routes=AdminApi(cloud, herald).routes()),
    ]
    for region in cloud.regions.values():
        routes += _region_routes(cloud, region, base_url)
    return Gate(Starlette(routes=routes, lifespan=lifespan), cloud)


def _region_routes(cloud: Cloud, region: Region, base_url: str) -> list[BaseRoute]:
    address = f"{base_url}/{region.name}"
    view = ServerView(region, base_url)
    compute = ComputeApi(region, view)
    nova = [
        *ServersApi(cloud, region, view).routes(),
        *ServerLabelsApi(region).routes(),
        *compute.routes(),
    ]
    guarded: dict[str, list[BaseRoute]] = {
        "compute": [*compute.version_routes(), Mount("/v2.1", routes=nova)],
        "placement": PlacementApi(region, f"{address}/placement").routes(),
        "baremetal": BareMetalApi(region, f"{address}/baremetal").routes(),
        "reservation": ReservationApi(region, f"{address}/reservation/v1").routes(),
        "rates": RatesApi(region).routes(),
    }
    mounts: list[BaseRoute] = [
        Mount(f"/{region.name}/{name}", app=TokenGuard(Router(routes), cloud, _VERSION_DOCUMENTS, base_url))
        for name, routes in guarded.items()
    ]
    return [*mounts, Mount(f"/{region.name}/metadata", routes=InstanceMetadataApi(region).routes())]
