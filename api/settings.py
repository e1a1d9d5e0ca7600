"""What the process is told: from the environment, checked before anything starts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from api.gate import LOOPBACK_NAMES
from api.sign_in.addresses import RULE, is_loopback, problem_of_address
from api.sign_in.session import KEY_BYTES
from api.sign_in.tokens import Trust


class ApiSettings(BaseSettings):
    """Every name is an environment variable with the prefix SCO_."""

    model_config = SettingsConfigDict(env_prefix="SCO_", frozen=True)

    database_url: SecretStr
    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_ui_url: str | None = None
    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    api_metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    database_connections: Annotated[int, Field(ge=1, le=100)] = 10

    policy_file: Path | None = None
    secrets_file: Path | None = None
    node_file: Path | None = None
    api_names: Annotated[tuple[str, ...], NoDecode] = ()
    oidc_issuer: str
    oidc_audience: Annotated[str, Field(min_length=1)]
    oidc_tenant_claim: Annotated[str, Field(min_length=1)] = "tenant_id"
    oidc_leeway_seconds: Annotated[int, Field(ge=0, le=300)] = 60
    oidc_client_id: Annotated[str, Field(min_length=1)] | None = None
    oidc_client_secret: SecretStr | None = None
    session_key: SecretStr | None = None

    @field_validator("api_names", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        """Commas between the names; brackets around an IPv6 address may be left out."""
        if not isinstance(given, str):
            return given
        return tuple(name.strip().strip("[]").lower() for name in given.split(",") if name.strip())

    @field_validator("oidc_issuer")
    @classmethod
    def _trusted(cls, issuer: str) -> str:
        problem = problem_of_address(issuer)
        if problem is None and ("?" in issuer or "#" in issuer):
            problem = "it has a ? or # part"
        if problem is not None:
            raise ValueError(f"this is no address of an issuer: {problem}; {RULE}")
        return issuer

    @field_validator("session_key")
    @classmethod
    def _long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value().encode()) < KEY_BYTES:
            raise ValueError(
                f"it is shorter than {KEY_BYTES} bytes: make one with"
                ' python -c "import secrets; print(secrets.token_urlsafe(48))"'
            )
        return key

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.oidc_client_id is not None and self.session_key is None:
            raise ValueError(
                "SCO_SESSION_KEY is not set, and SCO_OIDC_CLIENT_ID lets people sign in at the screens:"
                " set both, or neither for a server that knows tokens only"
            )
        if not is_loopback(self.api_host) and not self.api_names:
            raise ValueError(
                f"SCO_API_HOST is {self.api_host}, which others reach, and SCO_API_NAMES is not set: list"
                " the host names that the service is served under, or listen on a loopback address"
            )
        return self

    @property
    def names(self) -> frozenset[str]:
        """The host names that the service is served under."""
        return frozenset(self.api_names) or LOOPBACK_NAMES

    @property
    def trust(self) -> Trust:
        return Trust(
            self.oidc_issuer,
            self.oidc_audience,
            self.oidc_tenant_claim,
            timedelta(seconds=self.oidc_leeway_seconds),
        )

    @property
    def workflow_pages(self) -> str | None:
        """Temporal's screen for our namespace, where people have one."""
        if self.temporal_ui_url is None:
            return None
        return f"{self.temporal_ui_url.rstrip('/')}/namespaces/{self.temporal_namespace}"
