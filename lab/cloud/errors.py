"""The one error of the cloud's model. Each service renders it in its own shape."""

from __future__ import annotations

from collections.abc import Mapping


class CloudError(Exception):
    """A refusal with its HTTP status; `message` is what the real service would say."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
