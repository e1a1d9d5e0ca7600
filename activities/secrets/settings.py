"""How to reach the secrets service: its address, and one way to sign in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from activities.openbao import OpenBaoSettings, PathText


class SecretsFileRefused(ValueError):
    """A secrets file that cannot be used; the text names no value, since values may be secrets."""


class SecretsSettings(OpenBaoSettings):
    """Where credentials of endpoints are, and for how long they are given out.

    They are in version 2 of the key-value engine mounted at `mount`, under `<prefix>/<tenant>/<pool>`, field
    `token`. Each is handed out for `lease_seconds`, and kept in memory for `cache_seconds`; one that was
    written more than `rotate_days` ago is told in the log.
    """

    mount: PathText = "secret"
    prefix: PathText = "pools"
    lease_seconds: Annotated[float, Field(ge=10, le=3600)] = 300.0
    cache_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    rotate_days: Annotated[int, Field(ge=1, le=3650)] = 90


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
