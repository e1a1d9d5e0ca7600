"""What the gRPC process is told: what the API is told, and what only its own work needs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Self

import grpc
from pydantic import Field, model_validator

from api.settings import ApiSettings
from api.sign_in.addresses import is_loopback


class TlsRefused(ValueError):
    """A certificate and a key that TLS cannot be spoken with."""


class GrpcSettings(ApiSettings):
    """Every name is an environment variable with the prefix SCO_."""

    grpc_host: str = "127.0.0.1"
    grpc_port: Annotated[int, Field(ge=0, le=65535)] = 8081
    grpc_metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    grpc_tls_cert: Path | None = None
    grpc_tls_key: Path | None = None

    @model_validator(mode="after")
    def _kept_from_listeners(self) -> Self:
        """Tokens and credentials of endpoints cross this line."""
        if (self.grpc_tls_cert is None) != (self.grpc_tls_key is None):
            raise ValueError("SCO_GRPC_TLS_CERT and SCO_GRPC_TLS_KEY go together: set both, or neither")
        if self.grpc_tls_cert is None and not is_loopback(self.grpc_host):
            raise ValueError(
                f"SCO_GRPC_HOST is {self.grpc_host}, which others reach, and without TLS they could read"
                " tokens: set SCO_GRPC_TLS_CERT and SCO_GRPC_TLS_KEY, or listen on a loopback address"
            )
        return self

    @property
    def address(self) -> str:
        host = f"[{self.grpc_host}]" if ":" in self.grpc_host else self.grpc_host
        return f"{host}:{self.grpc_port}"

    def credentials(self) -> grpc.ServerCredentials | None:
        """What TLS is spoken with, or None without TLS; `TlsRefused` where the files are of no use."""
        if self.grpc_tls_cert is None or self.grpc_tls_key is None:
            return None
        try:
            # The library takes whatever it is given and then refuses every client.
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.grpc_tls_cert, self.grpc_tls_key, password=_no_password
            )
            pair = (self.grpc_tls_key.read_bytes(), self.grpc_tls_cert.read_bytes())
        except (OSError, ValueError) as error:
            raise TlsRefused(
                f"the certificate {self.grpc_tls_cert} and the key {self.grpc_tls_key} are no readable pair"
                f" in PEM ({error}); give a chain and its key, without a password"
            ) from None
        return grpc.ssl_server_credentials([pair])


def _no_password() -> str:
    raise ValueError("the key has a password")
