"""Settings of the simulated cloud: sizes, times and secrets, all with lab defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from domain.model import Frozen

Seconds = Annotated[float, Field(ge=0, le=86_400)]
Limit = Annotated[int, Field(ge=-1)]


class QuotaSettings(Frozen):
    """Nova quota of the one project in every region; -1 is unlimited, memory is MiB."""

    instances: Limit = 20_000
    cores: Limit = 400_000
    ram: Limit = 4_000_000_000


class CloudSettings(Frozen):
    """How the cloud starts. Times run on the cloud's clock unless the name says otherwise.

    `speed` is cloud seconds per real second; 0 is a manual clock that moves only when advanced.
    `token_wall_seconds` is real time, because clients compare expiry with their own clock.
    `endpoints` names services by type that somebody else serves there, or nobody: None.
    A secret left at None is taken from the saved state, else made up. `nats_url` is where notifications
    go; without it none are sent.
    """

    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    data_dir: Path | None = None
    nats_url: str | None = None
    seed: int = 20_260
    speed: Annotated[float, Field(ge=0, le=10_000)] = 1.0
    build_seconds: Seconds = 20.0
    schedule_seconds: Seconds = 1.0
    delete_seconds: Seconds = 3.0
    endpoints: dict[str, str | None] = Field(default_factory=dict)
    token_wall_seconds: Annotated[int, Field(ge=1, le=86_400)] = 3_600
    quota: QuotaSettings = QuotaSettings()
    password: SecretStr | None = None
    application_credential_secret: SecretStr | None = None
    admin_token: SecretStr | None = None
