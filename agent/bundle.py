"""The bundle that the node holds."""

from __future__ import annotations

from typing import Protocol


class BundleSource(Protocol):
    """Where newer bundles come from."""

    async def fetch(self, held_version: int) -> bytes | None:
        """The signed letter as it came, or None when the held version is the newest.

        Raises OSError (or a subclass) when nobody answered. The caller bounds the call and believes nothing
        that is not signed.
        """
        ...
