"""The whole cloud in memory: all regions, one clock, one identity, one plan of faults."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime

from lab.cloud.clock import CloudClock
from lab.cloud.errors import CloudError
from lab.cloud.estate import REGIONS, stable_id
from lab.cloud.faults import FaultPlan
from lab.cloud.identity import PROJECT_ID, USER_ID, Identity, Secrets
from lab.cloud.launch import Launch, launch
from lab.cloud.records import Server, Status
from lab.cloud.region import Region
from lab.cloud.request_log import RequestLog
from lab.cloud.settings import CloudSettings
from lab.cloud.snapshot import CloudState, region_state, restore_region


class Cloud:
    """Everything the HTTP services speak about. Not thread-safe: one event loop owns it."""

    def __init__(
        self,
        settings: CloudSettings,
        state: CloudState | None = None,
        *,
        wall_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if state is not None and state.seed != settings.seed:
            raise ValueError(
                f"the saved cloud was made with seed {state.seed}, not {settings.seed}:"
                " start it with that seed, or with an empty data folder"
            )
        self.settings = settings
        self.starts = state.starts + 1 if state is not None else 1
        start = max(wall_now(), state.now) if state is not None else wall_now()
        self.clock = CloudClock(start, settings.speed, monotonic)
        self.secrets = _secrets(settings, state)
        self.identity = Identity(self.secrets, settings.token_wall_seconds, wall_now)
        self.faults = FaultPlan(random.Random(f"{settings.seed}/faults"))
        self.requests = RequestLog(monotonic)
        self.regions = {name: self._region(name, state) for name in REGIONS}

    def settle(self) -> None:
        for region in self.regions.values():
            region.settle()

    def state(self) -> CloudState:
        """Everything worth remembering, secrets included: keep it in a private file."""
        self.settle()
        return CloudState(
            now=self.clock.now(),
            starts=self.starts,
            seed=self.settings.seed,
            secrets={
                "password": self.secrets.password,
                "application_credential_secret": self.secrets.application_credential_secret,
                "admin_token": self.secrets.admin_token,
            },
            regions={name: region_state(region) for name, region in self.regions.items()},
        )

    def region_of_hall(self, hall: str) -> Region:
        for region in self.regions.values():
            if hall in region.halls:
                return region
        known = ", ".join(hall for region in self.regions.values() for hall in region.halls)
        raise CloudError(404, f"hall {hall!r} does not exist: give one of {known}")

    def region_of_group(self, group: str) -> Region:
        for region in self.regions.values():
            if group in region.groups:
                return region
        raise CloudError(
            404, f"pool {group!r} does not exist: give a host group name such as {REGIONS[0]}-h1-gp-m"
        )

    def set_hall(self, hall: str, *, lost: bool) -> None:
        """Lose a hall or bring it back. Its servers stay as they are; nothing new starts there."""
        region = self.region_of_hall(hall)
        if lost:
            region.lost_halls.add(hall)
        else:
            region.lost_halls.discard(hall)

    def load(self, region_name: str, count: int, tags: tuple[str, ...], metadata: dict[str, str]) -> int:
        """Put `count` ACTIVE servers into a region at once, spread over its reclaimable pools."""
        region = self.regions[region_name]
        loaded = 0
        for group in [each for each in region.groups.values() if each.flavor.name.endswith(".reclaimable")]:
            share = min(group.free, count - loaded)
            if share == 0:
                continue
            order = Launch(
                name=f"load-{group.name}",
                flavor=group.flavor,
                image_id=stable_id("image", "node"),
                project_id=PROJECT_ID,
                user_id=USER_ID,
                request_id="req-load",
                min_count=share,
                max_count=share,
                zone=group.plan.hall,
                metadata={**metadata, "sco_pool": group.name},
                tags=tags,
            )
            for server in launch(region, order)[1]:
                _activate(region, server)
            loaded += share
        return loaded

    def _region(self, name: str, state: CloudState | None) -> Region:
        rng = random.Random(f"{self.settings.seed}/{name}/{self.starts}")
        region = Region(name, self.settings, self.clock, rng)
        if state is not None and name in state.regions:
            restore_region(region, state.regions[name])
        else:
            region.seed_leases()
        return region


def _activate(region: Region, server: Server) -> None:
    server.wait_for(None, None)
    server.status, server.task_state, server.launched_at = Status.ACTIVE, None, server.created_at
    region.servers.changed(server)


def _secrets(settings: CloudSettings, state: CloudState | None) -> Secrets:
    saved = state.secrets if state is not None else {}

    def pick(name: str) -> str:
        given = getattr(settings, name)
        return (
            str(given.get_secret_value())
            if given is not None
            else saved.get(name) or secrets.token_urlsafe(24)
        )

    return Secrets(
        password=pick("password"),
        application_credential_secret=pick("application_credential_secret"),
        admin_token=pick("admin_token"),
    )
