"""The hand that gives a node its bundle: compiled from the contract as it is, signed, kept.

A bundle is issued again when what it would say differs from what the newest one says: another contract, other
keys, another bus. Every node asks each minute, so a change is with the nodes within that minute, and a
node that was away is served the newest content when it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

import structlog
from prometheus_client import Counter
from pydantic import ValidationError

from activities.bundle_keys import KeysUnavailable, PublicKeys, SigningKeys, seal_bundle
from activities.node_settings import problems_of
from domain.bundle_compile import CompiledBundle, NodeFacts, Trusted, compile_bundle
from domain.contract import Contract
from store import bundles
from store.bundles import IssuedBundle
from store.engine import Engine, of_tenant
from wire.bundle import Bundle, DrainOrders, Trust, read_bundle
from wire.signing import KeyRing

# Two readers may find the same change: one of them issues the version, the other reads it.
ATTEMPTS = 3
BOOT_VERSION = 1
log = structlog.get_logger("bundling")
NOT_ISSUED = Counter(
    "sco_bundles_not_issued_total", "Bundles asked for while the keys could not be had", ["served"]
)


class NoBundle(ValueError):
    """Something about an instance cannot be said in a bundle; the text names it."""


class Told(NamedTuple):
    """What all nodes are told: the provider's keys by name, and the servers of the bus by region."""

    notice_keys: Mapping[str, str]
    node_bus: Mapping[str, tuple[str, ...]]


class Bundling:
    """Bundles for one process. `engine` may be one that sees no rows until a tenant is named."""

    def __init__(self, engine: Engine, keys: SigningKeys, told: Told, *, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._keys = keys
        self._told = told
        self._now = now

    async def bundle(self, tenant_id: str, instance_id: str) -> IssuedBundle:
        """The newest bundle of an instance, issued now if its content has changed.

        While no key can be had it is the newest that was issued before. Raises `UnknownNode`, `NoBundle`, and
        `KeysUnavailable` where none was; whatever fails, the node keeps what it has.
        """
        engine = of_tenant(self._engine, tenant_id)
        try:
            return await self._newest(engine, tenant_id, instance_id)
        except KeysUnavailable:
            held = await self._held(engine, tenant_id, instance_id)
            NOT_ISSUED.labels("nothing" if held is None else "an_older_one").inc()
            if held is None:
                raise
            return held

    async def _held(self, engine: Engine, tenant_id: str, instance_id: str) -> IssuedBundle | None:
        async with engine.connect() as connection:
            await bundles.find_purpose(connection, tenant_id, instance_id)
            return await bundles.newest_bundle(connection, tenant_id, instance_id)

    async def _newest(self, engine: Engine, tenant_id: str, instance_id: str) -> IssuedBundle:
        public = await self._keys.public()
        for _ in range(ATTEMPTS):
            async with engine.connect() as connection:
                purpose = await bundles.find_purpose(connection, tenant_id, instance_id)
                held = await bundles.newest_bundle(connection, tenant_id, instance_id)
            content = self.compiled(purpose.facts, purpose.contract, public)
            digest = content.digest(public.signs)
            if held is not None and held.content_digest == digest:
                return held
            version = BOOT_VERSION + 1 if held is None else held.version + 1
            issued = await self._issued(content, public, version)
            async with engine.begin() as connection:
                if await bundles.add_bundle(connection, tenant_id, instance_id, issued, public.signs):
                    log.info("bundle_issued", instance=instance_id, version=version, key=public.signs)
                    return issued
        raise RuntimeError(f"the bundle of {instance_id} changed {ATTEMPTS} times while it was issued")

    async def boot_copy(self, facts: NodeFacts, contract: Contract) -> bytes:
        """What instances of a batch start with, signed for the batch before any of them has an id."""
        public = await self._keys.public()
        return (await self._issued(self.compiled(facts, contract, public), public, BOOT_VERSION)).letter

    def compiled(self, facts: NodeFacts, contract: Contract, public: PublicKeys) -> CompiledBundle:
        trusted = Trusted(notice_keys=dict(self._told.notice_keys), bundle_keys=dict(public.announced))
        return compile_bundle(facts, contract, trusted, self._told.node_bus.get(facts.region, ()))

    async def _issued(self, content: CompiledBundle, public: PublicKeys, version: int) -> IssuedBundle:
        """A signed bundle that a node has been asked about: none leaves that no node would believe."""
        now = self._now()
        said = letter_of(content, version, now)
        letter = await seal_bundle(said.model_dump(mode="json", by_alias=True), self._keys, public.signs)
        read = read_bundle(letter, KeyRing(public.announced), content.facts.instance_id)
        if read != said:
            raise RuntimeError(f"the bundle of {content.facts.instance_id} would not be believed: {read}")
        return IssuedBundle(version, content.digest(public.signs), letter, now)


def letter_of(content: CompiledBundle, version: int, at: datetime) -> Bundle:
    """The compiled content in the words of the letter. Raises `NoBundle`."""
    try:
        return Bundle(
            version=version,
            issued_at=at,
            **content.facts.model_dump(exclude={"scheduler"}),
            contract_id=content.contract_id,
            contract_commit=content.contract_commit,
            drain=DrainOrders.model_validate(content.drain.model_dump()),
            trust=Trust.model_validate(content.trusted.model_dump()),
            node_bus=content.node_bus,
        )
    except ValidationError as error:
        raise NoBundle(
            f"instance {content.facts.instance_id} can have no bundle: {problems_of(error)}"
        ) from None
