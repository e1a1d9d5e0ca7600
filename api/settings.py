"""What the process is told: from the environment, checked before anything starts."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ApiSettings(BaseSettings):
    """Every name is an environment variable with the prefix SCO_."""

    model_config = SettingsConfigDict(env_prefix="SCO_", frozen=True)

    database_url: SecretStr
    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_ui_url: str | None = None
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    database_connections: Annotated[int, Field(ge=1, le=100)] = 10

    @field_validator("api_host")
    @classmethod
    def _loopback_only(cls, host: str) -> str:
        """Nobody signs in yet, so whoever reaches the service may change everything."""
        if not is_loopback(host):
            raise ValueError(
                "only loopback addresses are allowed (127.0.0.1, ::1 or localhost), because there is no"
                " sign-in yet and whoever reaches the service may change everything: leave SCO_API_HOST"
                " out, and reach it from elsewhere through an SSH tunnel"
            )
        return host

    @property
    def workflow_pages(self) -> str | None:
        """Temporal's screen for our namespace, where people have one."""
        if self.temporal_ui_url is None:
            return None
        return f"{self.temporal_ui_url.rstrip('/')}/namespaces/{self.temporal_namespace}"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
