"""The headers of answers in the description of the API: versions, places, repetitions and waits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

VERSIONED = {
    "/factory/compute-pools": ("post",),
    "/factory/compute-pools/{poolId}": ("get", "patch"),
    "/factory/compute-pools/{poolId}/activate": ("post",),
    "/factory/compute-pools/{poolId}/drain": ("post",),
    "/factory/compute-pools/{poolId}/resume": ("post",),
    "/factory/compute-pools/{poolId}/retire": ("post",),
    "/factory/warm-profiles/{profileId}": ("get", "put"),
    "/nodes/{instanceId}/bundle": ("get",),
}
PLACED_ELSEWHERE = {
    "/factory/audits": ("post",),
    "/factory/compute-pools": ("post",),
    "/factory/compute-pools/placements": ("post",),
    "/factory/compute-pools/{poolId}/warm": ("post",),
}

ETAG = {"description": 'The version of what is told, such as "3"; for If-Match', "schema": {"type": "string"}}
LOCATION = {"description": "The path at which it can be read", "schema": {"type": "string"}}
REPLAYED = {
    "description": "true where the Idempotency-Key was answered before, and nothing was done now",
    "schema": {"type": "string"},
}
RETRY_AFTER = {
    "description": "After so many seconds it is worth repeating; left out where it is not",
    "schema": {"type": "integer"},
}


def describe(path: str, method: str, operation: dict[str, Any], refusals: Collection[str]) -> None:
    """Add to one operation what its answers carry besides their bodies."""
    succeeded: dict[str, Any] = {}
    if method in VERSIONED.get(path, ()):
        succeeded["ETag"] = ETAG
    if method in PLACED_ELSEWHERE.get(path, ()):
        succeeded["Location"] = LOCATION
    if any(one["name"] == "Idempotency-Key" for one in operation.get("parameters", ())):
        succeeded["Idempotency-Replayed"] = REPLAYED
    refused = {"Retry-After": RETRY_AFTER}
    if "ETag" in succeeded and method != "get":
        refused["ETag"] = ETAG
    for status_code, answer in operation["responses"].items():
        if status_code.startswith("2") and succeeded:
            answer["headers"] = answer.get("headers", {}) | succeeded
        elif status_code in refusals:
            answer["headers"] = refused
