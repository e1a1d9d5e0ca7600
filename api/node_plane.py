"""What the routes of nodes stand on: put together once, from the node file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import SecretStr

from activities.bundle_keys import SigningKeys
from activities.bundle_reports import BundleReports
from activities.bundling import Bundling, Told
from activities.enrolling import Enrolling
from activities.node_settings import NodeSettings
from store.engine import Engine


@dataclass(frozen=True, slots=True)
class NodePlane:
    """`api_url` is where nodes reach this API; whoever has `secret` asks as the provider."""

    api_url: str
    secret: SecretStr
    bundling: Bundling
    enrolling: Enrolling
    reports: BundleReports


def node_plane(
    engine: Engine, settings: NodeSettings, keys: SigningKeys, *, now: Callable[[], datetime]
) -> NodePlane:
    """The node plane of one process, over an engine that sees no rows until a tenant is named."""
    bundling = Bundling(engine, keys, Told(settings.notice_keys, settings.node_bus), now=now)
    enrolling = Enrolling(
        engine,
        bundling,
        bus=None if settings.bus is None else settings.bus.issuer,
        token_life=timedelta(minutes=settings.token_minutes),
        bus_life=timedelta(hours=settings.bus_hours),
        now=now,
    )
    reports = BundleReports(engine, now=now)
    return NodePlane(settings.api_url, settings.vendordata_secret, bundling, enrolling, reports)
