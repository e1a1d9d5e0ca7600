"""The bundle that the node holds: signed, newer than any before it, and on its disk ahead of time."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import Field

from agent.boot import read_boot_copy
from agent.bounded import describe
from agent.files import Writer, read_bounded, write_atomic
from agent.metrics import AgentMetrics
from wire.bundle import Bundle, BundleRefusal, BundleRefusedAs, DrainOrders, DrainPath, Trust, read_bundle
from wire.node import Letter
from wire.signing import MAX_BYTES, KeyRing

CURRENT, PREVIOUS, TRUST = "bundle.json", "bundle.previous.json", "trust.json"
# Without a bundle, a believed notice still ends the work in the way that every process understands.
WITHOUT_BUNDLE = DrainOrders(path=DrainPath.PLAIN, budget_seconds=115)
log = logging.getLogger("sco.agent")


class BundleSource(Protocol):
    """Where newer bundles come from."""

    async def fetch(self, held_version: int) -> bytes | None:
        """The signed letter as it came, or None when the held version is the newest.

        Raises OSError (or a subclass) when nobody answered. The caller bounds the call and believes nothing
        that is not signed.
        """
        ...


class Pinned(Letter):
    """Whom this node believes: laid down by its image or its first bundle, and moved on by each newer one.

    `signers` are the keys of the bundles on disk, which may have been replaced since. `version` was that of
    `instance_id`; each instance has its own numbers.
    """

    notice_keys: dict[str, str] = Field(min_length=1)
    bundle_keys: dict[str, str] = Field(min_length=1)
    signers: dict[str, str] = Field(default_factory=dict)
    version: int = 0
    instance_id: str = ""

    def of_disk(self) -> dict[str, str]:
        """The keys that copies on this node's own disk may be signed with."""
        return self.signers | self.bundle_keys


class BundleStore:
    """The newest bundle, its keys and its copies on disk. Each accepted bundle is in force at once."""

    def __init__(
        self, folder: Path, boot_copy: Path | None, instance_id: str, writer: Writer, metrics: AgentMetrics
    ) -> None:
        self._folder, self._boot_copy, self._instance_id = folder, boot_copy, instance_id
        self._writer, self._metrics = writer, metrics
        self._pinned: Pinned | None = None
        self._raw: bytes | None = None
        self.bundle: Bundle | None = None

    @property
    def version(self) -> int:
        return self.bundle.version if self.bundle else 0

    @property
    def orders(self) -> DrainOrders:
        return self.bundle.drain if self.bundle else WITHOUT_BUNDLE

    def notice_ring(self) -> KeyRing:
        """Whose notices are believed: of the bundle in force, else of the keys laid down first."""
        if self.bundle is not None:
            return KeyRing(self.bundle.trust.notice_keys)
        return KeyRing(self._pinned.notice_keys if self._pinned else {})

    def load(self) -> None:
        """Take the first good copy: the newest, the one before, the one that the node was launched with."""
        self._pinned = _read_pinned(self._folder / TRUST)
        if self._pinned is not None and self._pinned.instance_id not in ("", self._instance_id):
            self._pinned = self._pinned.model_copy(update={"version": 0})
        for path in (self._folder / CURRENT, self._folder / PREVIOUS, self._boot_copy):
            raw = read_bounded(path) if path else None
            if raw is None or path is None:
                continue
            keys = self._pinned.of_disk() if self._pinned else _own_keys(raw)
            # What was launched with, or kept before anything newer came, is signed for the batch.
            refusal = self._take(raw, keys, read_boot_copy(raw, KeyRing(keys), self._instance_id))
            if refusal is None:
                return
            log.warning("%s is refused as %s: %s", path, refusal.reason, refusal.detail)

    async def offer(self, raw: bytes) -> BundleRefusal | None:
        """Accept a newer bundle and keep it, or say why not. The first ever brings its own keys."""
        before, floor = self._raw, self.version
        keys = _own_keys(raw) if self._pinned is None else self._pinned.bundle_keys
        if self._pinned is not None:
            # What the disk lost may come again, and nothing older than it.
            floor = max(floor, self._pinned.version - 1)
        refusal = self._take(raw, keys, read_bundle(raw, KeyRing(keys), self._instance_id, floor))
        if refusal is None:
            await self._writer.run(CURRENT, lambda: self._keep(raw, before))
        return refusal

    async def refresh(self, source: BundleSource) -> None:
        """Ask once for a newer one. Raises what the source raises."""
        raw = await source.fetch(self.version)
        refusal = await self.offer(raw) if raw is not None else None
        if refusal is not None and refusal.reason is not BundleRefusedAs.OLDER:
            log.warning("a bundle is refused as %s: %s", refusal.reason, refusal.detail)

    def age_seconds(self, now: datetime) -> float | None:
        """How long ago the bundle in force was issued; None without one."""
        return (now - self.bundle.issued_at).total_seconds() if self.bundle else None

    def _take(self, raw: bytes, keys: dict[str, str], read: Bundle | BundleRefusal) -> BundleRefusal | None:
        if isinstance(read, BundleRefusal):
            self._metrics.bundles_refused.labels(read.reason).inc()
            return read
        signers = dict(self._pinned.signers) if self._pinned else {}
        signer = str(json.loads(raw)["keyId"])
        signers = {name: signers[name] for name in list(signers)[-1:]} | {signer: keys[signer]}
        self._pinned = Pinned(
            notice_keys=read.trust.notice_keys,
            bundle_keys=read.trust.bundle_keys,
            signers=signers,
            version=max(read.version, self._pinned.version if self._pinned else 0),
            instance_id=self._instance_id,
        )
        self.bundle, self._raw = read, raw
        self._metrics.bundle_version.set(read.version)
        log.info("bundle %d is in force: path %s", read.version, read.drain.path)
        return None

    def _keep(self, raw: bytes, before: bytes | None) -> None:
        """The keys first: a bundle on disk that nobody can check is none."""
        if self._pinned is not None:
            text = self._pinned.model_dump_json(by_alias=True)
            write_atomic(self._folder / TRUST, text.encode())
        if before is not None:
            write_atomic(self._folder / PREVIOUS, before)
        write_atomic(self._folder / CURRENT, raw)


def _read_pinned(path: Path) -> Pinned | None:
    raw = read_bounded(path)
    if raw is None:
        return None
    try:
        pinned = Pinned.model_validate_json(raw)
        KeyRing(pinned.notice_keys)
        KeyRing(pinned.of_disk())
    except ValueError as error:
        log.warning("%s cannot be used: %s", path, describe(error))
        return None
    return pinned


def _own_keys(raw: bytes) -> dict[str, str]:
    """The keys that a letter brings itself: believed once, of the first bundle that a node ever sees."""
    try:
        return Trust.model_validate(json.loads(raw[: MAX_BYTES + 1])["payload"]["trust"]).bundle_keys
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
