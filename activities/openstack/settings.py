"""How to reach the cloud: addresses, one credential, regions, time limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from uuid import UUID

from pydantic import ConfigDict, Field, SecretStr, model_validator

from domain.model import Frozen
from domain.pool import Arch, Name

Text = Annotated[str, Field(min_length=1, max_length=255)]
Seconds = Annotated[float, Field(gt=0, le=600)]


class CloudSettings(Frozen):
    """One cloud, one credential: either `username` and `password`, or an application credential.

    `auth_url` ends with the identity version, `images` names the image to boot by architecture, the
    same in every region. `read_timeout_seconds` bounds the silence of the provider within one call.
    `rates_service_type` is the catalog entry of the provider's own price and capacity API.
    `ca_file` replaces the system's certificate authorities. No secret shows in `repr` or errors.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    auth_url: Annotated[str, Field(pattern=r"^https?://[^\s]+/v3/?$")]
    regions: Annotated[tuple[Name, ...], Field(min_length=1)]
    images: Annotated[dict[Arch, UUID], Field(min_length=1)]
    username: Text | None = None
    password: SecretStr | None = None
    project: Text | None = None
    user_domain: Text = "Default"
    project_domain: Text = "Default"
    application_credential_id: Text | None = None
    application_credential_secret: SecretStr | None = None
    connect_timeout_seconds: Seconds = 3.05
    read_timeout_seconds: Seconds = 30.0
    ca_file: Path | None = None
    rates_service_type: Text = "rates"
    max_connections: Annotated[int, Field(ge=1, le=200)] = 16

    @model_validator(mode="after")
    def _has_one_credential(self) -> Self:
        by_password = (self.username, self.password, self.project)
        by_application = (self.application_credential_id, self.application_credential_secret)
        given = [any(part is not None for part in parts) for parts in (by_password, by_application)]
        complete = [all(part is not None for part in parts) for parts in (by_password, by_application)]
        if given != complete or sum(given) != 1:
            raise ValueError(
                "the credential is incomplete or given twice: give either username, password and project,"
                " or application_credential_id and application_credential_secret"
            )
        return self
