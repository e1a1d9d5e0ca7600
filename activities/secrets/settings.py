"""How to reach the secrets service: its address, and one way to sign in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, SecretStr, ValidationError, model_validator

from domain.model import Frozen

Text = Annotated[str, Field(min_length=1, max_length=255)]
PathText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*$", max_length=255)]


class SecretsFileRefused(ValueError):
    """A secrets file that cannot be used; the text names no value, since values may be secrets."""


class SecretsSettings(Frozen):
    """OpenBao, or a service that speaks its API.

    Sign-in is by AppRole, `role_id` and `secret_id`, or with the token in `token_file`, which an agent
    keeps fresh. Credentials of endpoints are in version 2 of the key-value engine mounted at `mount`,
    under `<prefix>/<tenant>/<pool>`, field `token`. Each is handed out for `lease_seconds`, and kept in
    memory for `cache_seconds`; one that was written more than `rotate_days` ago is told in the log.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, Field(pattern=r"^https://[^\s@]+$|^http://(?:127\.0\.0\.1|localhost)(?::[0-9]+)?$")]
    role_id: Text | None = None
    secret_id: SecretStr | None = None
    token_file: Path | None = None
    mount: PathText = "secret"
    prefix: PathText = "pools"
    ca_file: Path | None = None
    answer_seconds: Annotated[float, Field(gt=0, le=2)] = 1.5
    lease_seconds: Annotated[float, Field(ge=10, le=3600)] = 300.0
    cache_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    rotate_days: Annotated[int, Field(ge=1, le=3650)] = 90

    @model_validator(mode="after")
    def _has_one_way_in(self) -> Self:
        by_role = (self.role_id is not None, self.secret_id is not None)
        if (any(by_role) and not all(by_role)) or all(by_role) == (self.token_file is not None):
            raise ValueError(
                "the sign-in is incomplete or given twice: give either role_id and secret_id, or token_file"
            )
        return self


def read_secrets_settings(path: Path) -> SecretsSettings:
    """The settings in a JSON file that only the process's user should read; else `SecretsFileRefused`."""
    try:
        return SecretsSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SecretsFileRefused(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in one['loc']) or 'the whole file'}: {one['msg']}"
            for one in error.errors(include_input=False, include_url=False)
        )
        raise SecretsFileRefused(f"{path} is refused: {problems}") from None
