"""A provider as the suite needs it: the adapter's settings, and a hand on what the provider does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar
from uuid import UUID

import requests
from openstack.connection import Connection

from activities.openstack.settings import CloudSettings
from domain.pool import Arch

REGION = "eu-north"
HALL, OTHER_HALL = "eu-north-h1", "eu-north-h2"
FLAVOR, OTHER_FLAVOR = "gp.m.reclaimable", "ga.m.reclaimable"
VCPUS, RAM_MIB = 8, 32 * 1024
SMALL_HALL, FITS = "eu-north-h3", 2
"""A hall that has room for so many servers of FLAVOR."""
IMAGES = {arch: UUID("6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11") for arch in Arch}
NO_IMAGES = dict.fromkeys(Arch, UUID(int=0))


class Provider(ABC):
    """One cloud behind the adapter. Metadata that a method answers goes into the batch it is to hit."""

    name: ClassVar[str]

    @abstractmethod
    def credential(self) -> dict[str, Any]:
        """Settings that sign in with a password."""

    @abstractmethod
    def application_credential(self) -> dict[str, Any]:
        """Settings that sign in with an application credential."""

    @property
    @abstractmethod
    def auth_url(self) -> str: ...

    def settings(self, credential: Mapping[str, Any] | None = None, **changes: Any) -> CloudSettings:
        known = self.credential() if credential is None else credential
        values = {"auth_url": self.auth_url, "regions": (REGION,), "images": IMAGES, **known}
        return CloudSettings(**{**values, **changes})

    @abstractmethod
    def connect(self) -> Connection:
        """A connection of the project's own user, without the adapter."""

    @cached_property
    def own(self) -> Connection:
        """The one that is kept."""
        return self.connect()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        microversion: str | None = "2.75",
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """One request to compute as it is, whatever it answers."""
        options: dict[str, Any] = {"microversion": microversion, "headers": dict(headers or {})}
        if body is not None:
            options["json"] = body
        compute = self.own.compute
        answer: requests.Response = compute.request(path, method, raise_exc=False, **options)
        return answer

    # What goes wrong on the way

    @abstractmethod
    def fails(self, method: str, path: str, status: int, *, works: bool = False, after: int = 0) -> None:
        """The next such request gets `status`; with `works` it was carried out all the same."""

    @abstractmethod
    def throttles(self, method: str, path: str, retry_after_seconds: int) -> None:
        """The next such request gets 429."""

    @abstractmethod
    def drops(self, method: str, path: str, *, works: bool) -> None:
        """The next such request loses its connection."""

    @abstractmethod
    def holds(self, method: str, path: str) -> None:
        """The next such request is carried out and not answered for a long time."""

    @abstractmethod
    def heals(self) -> None:
        """No more faults."""

    # What the provider does

    @abstractmethod
    def now(self) -> datetime:
        """The provider's own time."""

    @abstractmethod
    def failing_build(self) -> dict[str, str]:
        """The next batch is accepted and every server of it fails in its build."""

    @abstractmethod
    @contextmanager
    def late_quota(self, create: Callable[[], None]) -> Iterator[None]:
        """Carry out `create`, which is accepted and turns out to be too many once it gets its hosts."""

    @abstractmethod
    def slow_build(self) -> dict[str, str]:
        """The next batch gets a host and then builds for long."""

    @abstractmethod
    def set_quota(self, **limits: int) -> None:
        """Limits of the project: `instances`, `cores`, `ram` (MiB)."""

    @contextmanager
    def quota(self, **limits: int) -> Iterator[None]:
        """Limits for a while."""
        self.set_quota(**limits)
        try:
            yield
        finally:
            self.set_quota(instances=5_000, cores=100_000, ram=800_000_000)

    @abstractmethod
    def take(self, server_id: str) -> None:
        """Take a server away, as the provider may."""

    @abstractmethod
    def stop_server(self, server_id: str) -> None:
        """Stop a server without deleting it."""

    @abstractmethod
    def user_data(self, server_id: str) -> bytes:
        """What the server reads as its user data."""

    @abstractmethod
    def end_token(self, token: str) -> None:
        """Revoke a token."""

    @abstractmethod
    @contextmanager
    def many(self, count: int, tags: tuple[str, ...], metadata: dict[str, str]) -> Iterator[None]:
        """So many running servers more, for a while."""

    @abstractmethod
    def crash_and_restart(self) -> None:
        """End the provider's API in the middle of what it does and start it again."""
