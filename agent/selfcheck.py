"""Would a notice reach this node, and could it drain? Asked at the start, and ever after."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from agent.bounded import bounded, describe
from agent.bundle import BundleStore
from agent.drain.drains import Drains
from agent.metrics import AgentMetrics

DRIVER_LIMIT_SECONDS = 2.0
# The record of a drain and what the spool has to tell of it, with much to spare.
LEAST_ROOM_BYTES = 1024 * 1024


class Check(NamedTuple):
    """One part of the answer; `detail` says what was found."""

    name: str
    passed: bool
    detail: str


class SelfCheck:
    """Asks every part that a drain will need."""

    def __init__(
        self,
        bundles: BundleStore,
        drains: Drains,
        sources: dict[str, Callable[[], bool]],
        folders: dict[str, Path],
        metrics: AgentMetrics,
    ) -> None:
        """`sources` are the ways by which notices come, one of which has to answer; both are by name."""
        self._bundles, self._drains, self.sources = bundles, drains, sources
        self._folders, self._metrics = folders, metrics

    async def run(self) -> tuple[Check, ...]:
        """Every check, and the metrics set by them."""
        checks = (
            self._bundle(),
            self._keys(),
            self._reached(),
            await self._driver(),
            *(_writable(name, folder) for name, folder in self._folders.items()),
        )
        for check in checks:
            self._metrics.checks.labels(check.name).set(check.passed)
        self._metrics.ready.set(is_ready(checks))
        age = self._bundles.age_seconds(datetime.now(UTC))
        if age is not None:
            self._metrics.bundle_age.set(age)
        return checks

    def _bundle(self) -> Check:
        bundle = self._bundles.bundle
        if bundle is None:
            return Check("bundle", False, "none is held; work would end by TERM within 115 s")
        return Check("bundle", True, f"version {bundle.version}, issued {bundle.issued_at.isoformat()}")

    def _keys(self) -> Check:
        names = self._bundles.notice_ring().names()
        return Check("notice_keys", bool(names), ", ".join(names) or "none: no notice would be believed")

    def _reached(self) -> Check:
        up = {name: is_up() for name, is_up in self.sources.items()}
        said = ", ".join(f"{name} {'answers' if one else 'is silent'}" for name, one in up.items())
        return Check("notices", any(up.values()), said)

    async def _driver(self) -> Check:
        wanted = self._bundles.orders.path
        if self._drains.current is not None:
            return Check("drain", True, "one is under way")
        driver = self._drains.prepare(wanted).driver
        if driver.name != wanted:
            return Check("drain", False, f"path {wanted} cannot be used here; processes would be signalled")
        try:
            left = await bounded(driver.left(), DRIVER_LIMIT_SECONDS)
        except Exception as error:
            return Check("drain", False, f"{driver.name}: {describe(error)}")
        return Check("drain", True, f"{driver.name}: {len(left)} pieces of work here")


def is_ready(checks: tuple[Check, ...]) -> bool:
    return all(check.passed for check in checks)


def said(checks: tuple[Check, ...]) -> str:
    """What does not pass, in one line; `ready` when all does."""
    failed = [f"{check.name}: {check.detail}" for check in checks if not check.passed]
    return "; ".join(failed) or "ready"


def _writable(name: str, folder: Path) -> Check:
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        return Check(name, False, f"{folder} cannot be written")
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        return Check(name, False, f"{folder} does not tell its room: {error.strerror}")
    # Some file systems count no files.
    if disk.f_bfree * disk.f_frsize < LEAST_ROOM_BYTES or (disk.f_files and not disk.f_ffree):
        return Check(name, False, f"{folder} has no room: a drain goes on without it, and tells less")
    return Check(name, True, f"{folder} can be written")
