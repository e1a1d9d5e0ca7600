"""The hand that makes nodes known: one-time tokens through the provider, identities, and entry to the bus.

The provider asks for an instance that it starts, and passes the token on to that instance alone. The agent
there trades it for an identity of its own. Only a digest of a token is kept, and none is given out for an
instance that is known already.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256

import structlog

from activities.bundling import Bundling
from store import bundles, nodes
from store.engine import Engine, of_tenant
from wire.bus_credentials import Issuer, agent_token
from wire.node import INSTANCE_ID
from wire.node_requests import BusAdmission, Registered, Registration

TOKEN_BYTES = 32
# Nova asks at every read of an instance's metadata, and so for every poll of its agent.
KNOWN_KEPT = 50_000
log = structlog.get_logger("enrolling")


class NotEnrolled(Exception):
    """The token is not worth an identity. Why is for the log, not for who sent it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Enrolling:
    """Enrolment for one process. `engine` may be one that sees no rows until a tenant is named."""

    def __init__(
        self,
        engine: Engine,
        bundling: Bundling,
        *,
        bus: Issuer | None,
        token_life: timedelta,
        bus_life: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._bundling = bundling
        self._bus = bus
        self._token_life = token_life
        self._bus_life = bus_life
        self._now = now
        self._known: dict[str, None] = {}

    @property
    def bus_life(self) -> timedelta | None:
        """How long an admission to the node bus is good at most; None where agents are admitted to none."""
        return None if self._bus is None else self._bus_life

    async def token(self, server_id: str) -> str | None:
        """A one-time token for a server that we launched; None for others, and for one that is known.

        An instance is never known by two identities, so who is known once is answered from memory.
        """
        if server_id in self._known or INSTANCE_ID.fullmatch(server_id) is None:
            return None
        async with self._engine.connect() as connection:
            tenant_id = await nodes.tenant_of_server(connection, server_id)
        if tenant_id is None:
            return None
        token = secrets.token_urlsafe(TOKEN_BYTES)
        async with of_tenant(self._engine, tenant_id).begin() as connection:
            issued = await nodes.issue_token(
                connection,
                tenant_id=tenant_id,
                instance_id=server_id,
                token_sha256=_digest(token),
                now=self._now(),
                life=self._token_life,
            )
        if not issued:
            self._remember(server_id)
            return None
        log.info("node_token_issued", instance=server_id)
        return token

    def _remember(self, server_id: str) -> None:
        self._known[server_id] = None
        if len(self._known) > KNOWN_KEPT:
            del self._known[next(iter(self._known))]

    async def register(self, asked: Registration) -> Registered:
        """The identity of an instance, with its first bundle. Raises `NotEnrolled`."""
        async with self._engine.connect() as connection:
            tenant_id = await nodes.tenant_of_server(connection, asked.instance_id)
        if tenant_id is None:
            raise NotEnrolled("no_instance")
        async with of_tenant(self._engine, tenant_id).begin() as connection:
            outcome = await nodes.register(
                connection,
                tenant_id=tenant_id,
                instance_id=asked.instance_id,
                token_sha256=_digest(asked.token),
                public_key=asked.public_key,
                now=self._now(),
            )
        if outcome is not nodes.Registration.DONE:
            raise NotEnrolled(outcome.value)
        log.info("node_registered", instance=asked.instance_id, tenant=tenant_id)
        issued = await self._bundling.bundle(tenant_id, asked.instance_id)
        return Registered(
            instance_id=asked.instance_id,
            bundle=issued.letter.decode(),
            bus=await self.admission(tenant_id, asked.instance_id, asked.bus_key),
        )

    async def admission(self, tenant_id: str, instance_id: str, bus_key: str) -> BusAdmission | None:
        """What admits the agent of an instance to the node bus; None where agents are admitted to none."""
        if self._bus is None:
            return None
        async with of_tenant(self._engine, tenant_id).connect() as connection:
            facts = (await bundles.find_purpose(connection, tenant_id, instance_id)).facts
        now = self._now()
        until = (now + self._bus_life).replace(microsecond=0)
        jwt = agent_token(
            self._bus, user=bus_key, hall=facts.hall, instance_id=instance_id, now=now, expires_at=until
        )
        return BusAdmission(jwt=jwt, expires_at=until)


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()
