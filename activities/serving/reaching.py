"""The way from a pool's name to its endpoint: the reference in the registry and a fresh credential."""

from __future__ import annotations

from activities.secrets.ports import NoCredential, Secrets
from activities.serving.ports import Endpoint
from store import serving_pools
from store.engine import Engine
from store.serving_pools import PoolName


class Endpoints:
    """The endpoints of one database's pools."""

    def __init__(self, engine: Engine, secrets: Secrets) -> None:
        self._engine = engine
        self._secrets = secrets

    async def of(self, name: PoolName) -> Endpoint | None:
        """A pool's endpoint; None where the pool has none. `SecretsUnavailable` without its credential.

        A pool for which no credential is stored is asked without: an endpoint that needs one says so.
        """
        async with self._engine.connect() as connection:
            url = await serving_pools.endpoint_of(connection, name)
        if url is None:
            return None
        try:
            credential = (await self._secrets.endpoint_credential(*name)).token
        except NoCredential:
            credential = None
        return Endpoint(url=url, credential=credential)
