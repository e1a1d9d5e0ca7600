"""The bundle: the part of a contract that a node needs to drain alone, signed, kept on its disk."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from wire.node import Hall, InstanceId, Letter, Moment, Name
from wire.signing import KeyRing, LetterKind, Opened, SigningKey, seal, unseal

MAX_BUDGET_SECONDS = 115
MAX_DETAIL = 200
MAX_KEYS = 8
MAX_SERVERS = 16


class DrainPath(StrEnum):
    """Which system takes the work off the node."""

    KUBERNETES = "kubernetes"
    SPARK = "spark"
    SLURM = "slurm"
    PLAIN = "plain"


class CheckpointMode(StrEnum):
    """When a workload writes its state."""

    NONE = "none"
    PERIODIC = "periodic"
    FINAL = "final"
    PERIODIC_AND_FINAL = "periodic_and_final"


class DrainSignal(StrEnum):
    """What tells a workload that it has to end."""

    TERM = "TERM"
    USR1 = "USR1"
    USR2 = "USR2"
    INT = "INT"


class Restart(StrEnum):
    """What becomes of the work afterwards, as its contract declares."""

    RESUME = "resume"
    REQUEUE = "requeue"
    NONE = "none"


class DrainOrders(Letter):
    """How the work of this node is drained. `budget_seconds` is how long a workload may take."""

    path: DrainPath
    budget_seconds: Annotated[int, Field(ge=1, le=MAX_BUDGET_SECONDS)]
    signal: DrainSignal = DrainSignal.TERM
    checkpoint: CheckpointMode = CheckpointMode.NONE
    restart: Restart = Restart.NONE
    drain_on_advisory: bool = False


class Trust(Letter):
    """Raw Ed25519 public keys in base64, by name: whose notices and whose bundles are believed."""

    notice_keys: Annotated[dict[Name, str], Field(min_length=1, max_length=MAX_KEYS)]
    bundle_keys: Annotated[dict[Name, str], Field(min_length=1, max_length=MAX_KEYS)]

    @model_validator(mode="after")
    def _readable(self) -> Self:
        KeyRing(self.notice_keys)
        KeyRing(self.bundle_keys)
        return self


class Bundle(Letter):
    """What a node has to know ahead of time. A higher `version` replaces a lower one; none ever expires."""

    version: Annotated[int, Field(ge=1, lt=2**53)]
    issued_at: Moment
    tenant_id: Name
    instance_id: InstanceId
    region: Name
    hall: Hall
    pool_id: Name
    partition_id: Name
    workload_id: Name
    contract_id: Name
    contract_commit: Annotated[str, Field(max_length=64)] = ""
    drain: DrainOrders
    trust: Trust
    node_bus: Annotated[tuple[str, ...], Field(max_length=MAX_SERVERS)] = ()


class BundleRefusedAs(StrEnum):
    FORGED = "forged"
    MALFORMED = "malformed"
    FOREIGN = "foreign"
    OLDER = "older"


class BundleRefusal(NamedTuple):
    reason: BundleRefusedAs
    detail: str


def write_bundle(bundle: Bundle, key: SigningKey) -> bytes:
    return seal(LetterKind.BUNDLE, bundle.model_dump(mode="json", by_alias=True), key)


def read_bundle(raw: bytes, ring: KeyRing, instance_id: str, newer_than: int = 0) -> Bundle | BundleRefusal:
    """A bundle for this instance that a known key has signed and that is newer. Never raises."""
    opened = unseal(LetterKind.BUNDLE, raw, ring)
    if not isinstance(opened, Opened):
        malformed = opened.reason in ("malformed", "too_large")
        return BundleRefusal(
            BundleRefusedAs.MALFORMED if malformed else BundleRefusedAs.FORGED, opened.detail
        )
    try:
        bundle = Bundle.model_validate(opened.payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return BundleRefusal(BundleRefusedAs.MALFORMED, f"{where}: {first['msg']}"[:MAX_DETAIL])
    if bundle.instance_id != instance_id:
        return BundleRefusal(BundleRefusedAs.FOREIGN, f"for instance {bundle.instance_id}, not {instance_id}")
    if bundle.version <= newer_than:
        return BundleRefusal(
            BundleRefusedAs.OLDER, f"version {bundle.version}, version {newer_than} is already held"
        )
    return bundle
