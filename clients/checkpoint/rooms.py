"""One workload's part of a store."""

from __future__ import annotations

from clients.checkpoint.layout import checked_workload
from clients.checkpoint.store import Store, checked_key, is_key


class Room:
    """The same calls as the store's, with keys relative to the workload's prefix."""

    def __init__(self, store: Store, prefix: str, workload: str) -> None:
        """ValueError when prefix or workload cannot be part of a key."""
        self._store = store
        self.workload = checked_workload(workload)
        self._at = checked_key(f"{prefix.strip('/')}/{workload}" if prefix.strip("/") else workload) + "/"

    def put(self, key: str, body: bytes) -> None:
        self._store.put(self._at + key, body)

    def put_new(self, key: str, body: bytes) -> bool:
        return self._store.put_new(self._at + key, body)

    def get(self, key: str) -> bytes:
        return self._store.get(self._at + key)

    def size(self, key: str) -> int | None:
        return self._store.size(self._at + key)

    def list(self, prefix: str) -> list[str]:
        """Without keys that are none of ours, such as a store's own temporary files."""
        found = self._store.list(self._at + prefix)
        return [key.removeprefix(self._at) for key in found if is_key(key)]

    def delete(self, key: str) -> None:
        self._store.delete(self._at + key)
