"""What a checkpoint needs of a store: whole objects by key. Conditional writes are an extra."""

from __future__ import annotations

import re
from typing import Protocol

MAX_KEY = 900
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class Store(Protocol):
    """Whole objects under keys of letters, digits and `._-`, parted by `/`. Used by several threads at once.

    Every call raises StoreDownError when the store does not answer after its own bounded retries, and
    StoreRefusedError when it does not allow the call. An object is there whole or not at all.
    """

    def put(self, key: str, body: bytes) -> None:
        """Write the object, over an earlier one if there is one. It is durable when this returns."""
        ...

    def put_new(self, key: str, body: bytes) -> bool:
        """The same, unless there is an object already: then False.

        A store that knows no conditions overwrites, and True says nothing then.
        """
        ...

    def get(self, key: str) -> bytes:
        """Raises MissingError when there is none."""
        ...

    def size(self, key: str) -> int | None:
        """The object's bytes, None when there is none."""
        ...

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with the prefix, sorted. One that was just written may be missing."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; that there is none is no error."""
        ...


def is_key(text: str) -> bool:
    """Whether every store takes it as the key of an object."""
    return len(text) <= MAX_KEY and _KEY.fullmatch(text) is not None


def checked_key(key: str) -> str:
    """The key itself. ValueError when a store may not take it."""
    if not is_key(key):
        raise ValueError(
            f"{key[:100]!r} is no key: use letters, digits and ._- in parts divided by /, each beginning "
            f"with a letter or digit, at most {MAX_KEY} characters"
        )
    return key
