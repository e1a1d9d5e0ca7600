"""The bundle that a node is launched with: signed for its batch, since no instance had an id then."""

from __future__ import annotations

import json
import re

from wire.bundle import Bundle, BundleRefusal, read_bundle
from wire.signing import MAX_BYTES, KeyRing

_BATCH = re.compile(r"b-[0-9a-f]{32}")


def read_boot_copy(raw: bytes, ring: KeyRing, instance_id: str) -> Bundle | BundleRefusal:
    """The copy in the launch user-data as this instance's bundle. Never raises.

    Whose user-data it is, the provider has seen to: what is signed for a batch is for each of its instances.
    """
    batch = _batch_of(raw)
    if batch is None:
        return read_bundle(raw, ring, instance_id)
    read = read_bundle(raw, ring, batch)
    if isinstance(read, BundleRefusal):
        return read
    return read.model_copy(update={"instance_id": instance_id})


def _batch_of(raw: bytes) -> str | None:
    try:
        said = json.loads(raw[: MAX_BYTES + 1])["payload"]["instanceId"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return said if isinstance(said, str) and _BATCH.fullmatch(said) else None
