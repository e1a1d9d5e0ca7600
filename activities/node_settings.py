"""How nodes become known and what they are told: one file, the same for the API and the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from activities.openbao import OpenBaoSettings, PathText
from domain.model import Frozen
from wire.bus_credentials import Issuer, key_of
from wire.signing import KeyRing

KeyName = Annotated[str, Field(min_length=1, max_length=60)]
BusServer = Annotated[str, Field(pattern=r"^(?:nats|tls)://[^\s@]+$", max_length=255)]
# 32 random bytes in base64 have 43 characters.
SECRET_CHARACTERS = 32
MAX_KEYS = 8


class NodeFileRefused(ValueError):
    """A node file that cannot be used; the text names no value, since values may be secrets."""


class BusSigner(Frozen):
    """The account of the node bus that agents are admitted to, and the seed of its signing key."""

    account: Annotated[str, Field(pattern=r"^A[A-Z2-7]{55}$")]
    signing_seed: SecretStr

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if not self.issuer.signing.public.startswith("A"):
            raise ValueError("signing_seed is the seed of another kind of key: give one that begins with SA")
        return self

    @property
    def issuer(self) -> Issuer:
        return Issuer(self.account, key_of(self.signing_seed.get_secret_value()))


class TransitSettings(OpenBaoSettings):
    """The key `key` of OpenBao's transit engine mounted at `mount`, an Ed25519 key.

    A version signs from `lead_seconds` after it was made, when every node has read of it. What is known of
    the versions is used for `cache_seconds`.
    """

    mount: PathText = "transit"
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,50}$")]
    lead_seconds: Annotated[int, Field(ge=300, le=30 * 86400)] = 3600
    cache_seconds: Annotated[float, Field(ge=1, le=120)] = 15.0


class NodeSettings(Frozen):
    """`api_url` is where nodes reach this API; `vendordata_secret` proves that the provider asks.

    Bundles are signed with the keys in `bundle_keys_file`, or with those of `bundle_keys_transit`, and
    announce `bundle_keys_announced` besides. `notice_keys` are the provider's public keys by name. `node_bus`
    lists the servers of the bus by region; with `bus` agents are admitted to it.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    api_url: Annotated[
        str,
        Field(pattern=r"^https://[^\s@]+$|^http://(?:127\.0\.0\.1|localhost)(?::[0-9]+)?$", max_length=255),
    ]
    vendordata_secret: SecretStr
    bundle_keys_file: Path | None = None
    bundle_keys_transit: TransitSettings | None = None
    bundle_keys_announced: Annotated[dict[KeyName, str], Field(max_length=MAX_KEYS - 1)] = Field(
        default_factory=dict
    )
    notice_keys: Annotated[dict[KeyName, str], Field(min_length=1, max_length=MAX_KEYS)]
    node_bus: dict[str, Annotated[tuple[BusServer, ...], Field(max_length=16)]] = Field(default_factory=dict)
    bus: BusSigner | None = None
    token_minutes: Annotated[int, Field(ge=1, le=1440)] = 15
    bus_hours: Annotated[int, Field(ge=1, le=168)] = 12

    @field_validator("vendordata_secret")
    @classmethod
    def _long_enough(cls, secret: SecretStr) -> SecretStr:
        text = secret.get_secret_value()
        if len(text) < SECRET_CHARACTERS or not text.isascii():
            raise ValueError(
                f"it has fewer than {SECRET_CHARACTERS} ASCII characters: make one with"
                ' python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        return secret

    @model_validator(mode="after")
    def _one_place_of_keys(self) -> Self:
        if (self.bundle_keys_file is None) == (self.bundle_keys_transit is None):
            raise ValueError(
                "the keys of bundles are in no place or in two: give either bundle_keys_file or"
                " bundle_keys_transit, and public keys of the other in bundle_keys_announced"
            )
        return self

    @field_validator("notice_keys", "bundle_keys_announced")
    @classmethod
    def _public(cls, keys: dict[str, str]) -> dict[str, str]:
        KeyRing(keys)
        return keys


def read_node_settings(path: Path) -> NodeSettings:
    """The settings in a JSON file that only the process's user should read; else `NodeFileRefused`."""
    try:
        return NodeSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise NodeFileRefused(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise NodeFileRefused(f"{path} is refused: {problems_of(error)}") from None


def problems_of(error: ValidationError) -> str:
    """Every problem of a file in one line, without the values."""
    return "; ".join(
        f"{'.'.join(str(part) for part in one['loc']) or 'the whole file'}: {one['msg']}"
        for one in error.errors(include_input=False, include_url=False)
    )
