"""Connections to the cloud: one per region, signed in, metered, and bounded in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.cookiejar import DefaultCookiePolicy
from threading import Lock
from typing import Any

import requests
from keystoneauth1.identity import v3
from keystoneauth1.session import Session
from openstack.connection import Connection

from activities.openstack.adapter import BudgetAdapter
from activities.openstack.errors import PROVIDER_EXCEPTIONS, provider_error
from activities.openstack.metrics import ProviderMetrics
from activities.openstack.settings import CloudSettings
from activities.ports import ProviderError, ProviderErrorKind, TokenBudget

# Tags at create (2.52), networks 'none' (2.37), extra specs with flavors (2.61), servers of a cell
# that is down shown as UNKNOWN (2.69), and unknown filters refused instead of ignored (2.75).
MICROVERSION = "2.75"
MAX_REDIRECTS = 3
APP_NAME = "spot-capacity-orchestrator"


@dataclass(frozen=True, slots=True)
class RegionClient:
    """What one region offers, behind its token budget. Exceptions are those of the libraries."""

    region: str
    connection: Connection
    session: Session

    def read(self, service_type: str, path: str) -> Any:
        """The JSON at `path` of a service for which the SDK has no typed proxy."""
        found = {"service_type": service_type, "interface": "public", "region_name": self.region}
        return self.session.get(path, endpoint_filter=found, headers={"Accept": "application/json"}).json()


class Connections:
    """The regions' connections, made when first used and kept.

    Safe to share between threads: a region is signed in and discovered by one thread while others
    wait, and what they share afterwards holds no state of a call (keystoneauth guards the token
    with a lock, cookies are not kept). The libraries' own retries are off: the token budget and
    the caller's retry policy decide alone.
    """

    def __init__(
        self,
        settings: CloudSettings,
        budget: TokenBudget,
        metrics: ProviderMetrics,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._metrics = metrics
        self._now = now
        self._locks = {region: Lock() for region in settings.regions}
        self._clients: dict[str, RegionClient] = {}

    @contextmanager
    def calling(self, region: str, attempted: str, *, creates: bool = False) -> Iterator[RegionClient]:
        """The client of `region` for one act; whatever fails inside is raised as ProviderError.

        `attempted` completes the sentence "could not …"; `creates` marks an act in doubt after a
        failure that may have come too late.
        """
        client = self._client(region, attempted)
        try:
            yield client
        except PROVIDER_EXCEPTIONS as error:
            raise provider_error(
                error, region=region, attempted=attempted, creates=creates, now=self._now()
            ) from error

    def close(self) -> None:
        """Close every connection. None may be in use."""
        for client in self._clients.values():
            client.connection.close()
            client.session.session.close()
        self._clients.clear()

    def _client(self, region: str, attempted: str) -> RegionClient:
        lock = self._locks.get(region)
        if lock is None:
            raise ProviderError(
                ProviderErrorKind.BAD_REQUEST,
                f"{region}: could not {attempted}: the region is not configured,"
                f" known are {', '.join(self._settings.regions)}",
            )
        # Bounded, or calls would queue behind one login after another while the provider is silent.
        if not lock.acquire(timeout=self._settings.read_timeout_seconds):
            raise ProviderError(
                ProviderErrorKind.UNAVAILABLE,
                f"{region}: could not {attempted}: another call is still signing in; nothing was sent",
            )
        try:
            client = self._clients.get(region)
            if client is None:
                client = self._clients[region] = self._connect(region, attempted)
        finally:
            lock.release()
        return client

    def _connect(self, region: str, attempted: str) -> RegionClient:
        """Sign in and discover compute now, so that no two threads do it later."""
        session = self._session(region)
        attempted = f"connect in order to {attempted}"
        try:
            connection = Connection(
                session=session,
                region_name=region,
                app_name=APP_NAME,
                compute_default_microversion=MICROVERSION,
            )
            connection.compute  # noqa: B018 - reading it signs in
        except PROVIDER_EXCEPTIONS as error:
            session.session.close()
            raise provider_error(
                error, region=region, attempted=attempted, creates=False, now=self._now()
            ) from error
        return RegionClient(region, connection, session)

    def _session(self, region: str) -> Session:
        settings = self._settings
        adapter = BudgetAdapter(
            region,
            self._budget,
            self._metrics,
            timeout_seconds=(settings.connect_timeout_seconds, settings.read_timeout_seconds),
            max_connections=settings.max_connections,
            now=self._now,
        )
        http = requests.Session()
        # Neither proxies nor .netrc of whoever started the process decide where credentials go.
        http.trust_env = False
        http.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in ("https://", "http://"):
            http.mount(scheme, adapter)
        return Session(
            auth=_auth(settings),
            session=http,
            verify=str(settings.ca_file) if settings.ca_file is not None else True,
            redirect=MAX_REDIRECTS,
            app_name=APP_NAME,
        )


def _auth(settings: CloudSettings) -> v3.Password | v3.ApplicationCredential:
    if settings.application_credential_secret is not None:
        return v3.ApplicationCredential(
            settings.auth_url,
            application_credential_id=settings.application_credential_id,
            application_credential_secret=settings.application_credential_secret.get_secret_value(),
        )
    assert settings.password is not None, "settings hold one complete credential"
    return v3.Password(
        settings.auth_url,
        username=settings.username,
        password=settings.password.get_secret_value(),
        user_domain_name=settings.user_domain,
        project_name=settings.project,
        project_domain_name=settings.project_domain,
    )
