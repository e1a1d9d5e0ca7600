"""What a worker process is told: from the environment, validated before anything starts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import Field, FilePath, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class WorkerSettings(BaseSettings):
    """Every name is an environment variable with the prefix SCO_. Lists are separated by commas."""

    model_config = SettingsConfigDict(env_prefix="SCO_", frozen=True)

    database_url: SecretStr
    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    nats_url: str | None = None
    tenant_id: str = "platform"
    partitions: Annotated[tuple[str, ...], NoDecode] = ()
    regions: Annotated[tuple[str, ...], NoDecode] = ()
    sandbox: bool = False
    cloud_file: Path | None = None
    policy_file: Path | None = None
    serving: bool = True
    secrets_file: Path | None = None
    node_file: Path | None = None
    usage_url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=500)] | None = None
    collector_seconds: Annotated[int, Field(ge=1, le=600)] = 60
    pool_probe_seconds: Annotated[int, Field(ge=1, le=600)] = 20
    identity: str = "sco-orchestrator"
    database_connections: Annotated[int, Field(ge=1, le=100)] = 10
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    poll_seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    provider_burst: Annotated[int, Field(ge=1)] = 40
    provider_calls_per_second: Annotated[Decimal, Field(gt=0)] = Decimal(20)
    scoring_minutes: Annotated[int, Field(ge=1, le=60)] = 5
    observation_seconds: Annotated[int, Field(ge=5, le=600)] = 60
    events_keep_days: Annotated[int, Field(ge=1, le=400)] = 7
    events_stream_days: Annotated[int, Field(ge=1, le=400)] = 30
    events_stream_bytes: Annotated[int, Field(ge=1024**2)] = 1024**3
    events_stream_replicas: Annotated[int, Field(ge=1, le=5)] = 1
    node_bus_url: str | None = None
    node_bus_credentials: FilePath | None = None
    node_bus_replicas: Annotated[int, Field(ge=1, le=5)] = 1

    @field_validator("partitions", "regions", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
