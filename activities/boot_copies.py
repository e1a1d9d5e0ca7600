"""The bundles that instances start with, before they can ask for their own."""

from __future__ import annotations

import sqlalchemy as sa
import structlog
from pydantic import ValidationError

from activities.bundle_keys import KeysUnavailable
from activities.bundling import Bundling, NoBundle
from activities.placement_calls import RegionRequest
from domain.bundle_compile import NodeFacts
from domain.contract import Contract
from domain.user_data import BootCopy
from store import bundles
from store.engine import Engine

log = structlog.get_logger("launching")


class BootCopies:
    """Boot copies for one process."""

    def __init__(self, engine: Engine, bundling: Bundling, api_url: str) -> None:
        self._engine = engine
        self._bundling = bundling
        self._api_url = api_url

    async def of(self, request: RegionRequest, slot: sa.RowMapping, contract: Contract) -> BootCopy | None:
        """The copy for a batch; None where none can be made: a launch does not wait for it.

        An instance without a copy drains as every process understands it until it has read its bundle.
        """
        async with self._engine.connect() as connection:
            scheduler = await bundles.find_scheduler(connection, request.tenant_id, request.partition_id)
        try:
            facts = NodeFacts(
                tenant_id=request.tenant_id,
                instance_id=slot["batch_key"],
                region=request.region,
                hall=slot["hall"],
                pool_id=slot["pool_id"],
                partition_id=request.partition_id,
                scheduler=scheduler or "",
                workload_id=request.workload_id,
            )
            letter = await self._bundling.boot_copy(facts, contract)
            return BootCopy(bundle=letter.decode(), api_url=self._api_url)
        except (KeysUnavailable, NoBundle, ValidationError) as error:
            log.warning("launched_without_bundle", batch=slot["batch_key"], problem=type(error).__name__)
            return None
