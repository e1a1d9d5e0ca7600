"""What the agent is told: from the environment, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from wire.node import InstanceId

PREFIX = "SCO_AGENT_"
LISTS = frozenset({"units", "cgroups", "pid_files", "bus_servers"})
# Whatever a person typed, the line that says what was wrong with it stays a line.
MOST_SHOWN = 80
Url = Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=500)]


class SettingsError(Exception):
    """A setting is wrong; the message says which, what it was and what is allowed."""


class AgentSettings(BaseModel):
    """Every name is an environment variable with the prefix SCO_AGENT_. Lists are separated by commas."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    instance_id: InstanceId | None = None
    state_dir: Path = Path("/var/lib/sco-agent")
    run_dir: Path = Path("/run/sco-agent")
    boot_bundle: Path = Path("/etc/sco-agent/bundle.json")
    api_url: Url | None = None
    metadata_url: Url = "http://169.254.169.254"
    bus_servers: tuple[str, ...] = ()
    poll_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0
    bundle_refresh_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 60.0
    scheduler_seconds: Annotated[float, Field(ge=0.05, le=2)] = 0.8
    lives_on_seconds: Annotated[float, Field(ge=1, le=3600)] = 120.0
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9466
    units: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    pid_files: tuple[str, ...] = ()
    cgroup_root: Path = Path("/sys/fs/cgroup")
    node_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    kubernetes_url: Url | None = None
    kubernetes_token_file: Path | None = None
    kubernetes_ca_file: Path | None = None
    slurm_url: Url | None = None
    slurm_ca_file: Path | None = None

    @field_validator("units", "cgroups")
    @classmethod
    def _stays_below(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name.startswith("/") or ".." in Path(name).parts:
                raise ValueError(f"{name!r} must be a name or path below the root of the control groups")
        return names

    @field_validator("bus_servers")
    @classmethod
    def _are_addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if not server.startswith(("nats://", "tls://")) or "@" in server:
                raise ValueError(f"{server!r} must be a nats:// or tls:// address without a password")
        return servers


def read_settings(environ: Mapping[str, str]) -> AgentSettings:
    """The settings in an environment. SettingsError says in one line what is wrong."""
    given: dict[str, Any] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in AgentSettings.model_fields:
            raise SettingsError(f"{variable} is no setting of the agent. Remove it, or correct its name.")
        given[name] = _parts(text) if name in LISTS else text
    try:
        return AgentSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        shown = str(given.get(name, ""))[:MOST_SHOWN]
        raise SettingsError(
            f"{PREFIX}{name.upper()} is {shown!r}: {first['msg']}. Correct or unset it."
        ) from None


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
