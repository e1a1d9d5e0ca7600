"""Which keys bundles are signed with, as the node file says, and which others they announce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from activities.bundle_keys import FileKeys, PublicKeys, SigningKeys
from activities.node_settings import MAX_KEYS, NodeSettings
from activities.transit_keys import TransitKeys


class Announcing:
    """Keys, and public keys of another place besides, which signs before or after this one."""

    def __init__(self, keys: SigningKeys, others: Mapping[str, str]) -> None:
        self._keys = keys
        self._others = dict(others)

    async def public(self) -> PublicKeys:
        """Of too many keys, those that sign here count first."""
        own = await self._keys.public()
        named = dict(own.announced) | {k: v for k, v in self._others.items() if k not in own.announced}
        return PublicKeys(dict(list(named.items())[:MAX_KEYS]), own.signs)

    async def sign(self, key_id: str, message: bytes) -> bytes:
        return await self._keys.sign(key_id, message)


def bundle_keys_of(settings: NodeSettings, *, now: Callable[[], datetime]) -> SigningKeys:
    """The keys that the node file names. Raises `NodeFileRefused` where they are in a file that is wrong."""
    keys: SigningKeys
    if settings.bundle_keys_transit is not None:
        keys = TransitKeys(settings.bundle_keys_transit, now=now)
    else:
        assert settings.bundle_keys_file is not None, "settings have one place of keys"
        keys = FileKeys(settings.bundle_keys_file, now=now)
    return Announcing(keys, settings.bundle_keys_announced) if settings.bundle_keys_announced else keys
