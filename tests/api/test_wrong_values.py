"""What is refused for its form is told in words of ours, whatever was sent in place of whichever field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.door import Door, problem
from tests.api.serving_scene import GPU_FACTS

PROFILE: dict[str, Any] = {
    "models": [{"model": "m", "vramGb": 1}],
    "pools": {"poolIds": [], "regions": [], "kinds": [], "gpuTypes": [], "boundaries": []},
    "copies": 1,
    "windows": [{"days": ["monday"], "start": "08:00", "until": "09:00"}],
    "enabled": True,
}
PLACE: dict[str, Any] = {
    "deploymentId": "d",
    "runId": None,
    "model": "m",
    "vramGb": 1,
    "boundary": "shared",
    "regions": [],
    "latencyClass": "batch",
    "maxPricePerHourUsd": None,
}
POOLS = "/factory/compute-pools"
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    POOLS: ("POST", GPU_FACTS),
    f"{POOLS}/gpu-1": ("PATCH", {"pricePerHourUsd": "1", "endpointRef": None, "coldStartSeconds": 1}),
    f"{POOLS}/gpu-1/warm": ("POST", {"model": "m", "vramGb": 1}),
    f"{POOLS}/gpu-1/endpoint-reports": ("POST", {"problem": "p", "poolTenantId": "t"}),
    f"{POOLS}/placements": ("POST", PLACE),
    "/factory/warm-profiles/p": ("PUT", PROFILE),
}
WRONG: tuple[Any, ...] = (
    "\x00",
    "",
    "x y",
    1.5,
    -1,
    10**30,
    True,
    [],
    [1],
    [[]] * 70,
    {},
    {"a": 1},
    "2030-99-99",
    None,
)
QUERIES = (
    f"{POOLS}?pageSize=x",
    f"{POOLS}?pageSize=99999999999999999999",
    f"{POOLS}?stale=perhaps",
    f"{POOLS}?health=ill",
    f"{POOLS}/placements/history",
    f"{POOLS}/gpu-1/warm/0",
    f"{POOLS}/placements?outcome=",
)
# How the library that reads bodies says it.
NOT_OURS = re.compile(
    r"Input |Tuple|Value error|List should|validation|Dictionary|instance of|characters? in"
)


def spoilt(document: Any, wrong: Any) -> list[Any]:
    """The document with one value in it replaced, for each value in it and for the whole of it."""
    if isinstance(document, dict):
        parts = [(name, one) for name, value in document.items() for one in spoilt(value, wrong)]
        return [wrong, *({**document, name: one} for name, one in parts)]
    if isinstance(document, list) and document:
        return [wrong, *([one] for one in spoilt(document[0], wrong))]
    return [wrong]


@pytest.mark.parametrize("path", BODIES)
async def test_every_wrong_value_is_told_in_our_words(door: Door, path: str) -> None:
    method, body = BODIES[path]
    told = 0
    for wrong in WRONG:
        for document in spoilt(body, wrong):
            answer = await door.http.request(method, path, json=document, headers={"If-Match": "*"})
            if answer.status_code != 422 or answer.json()["reason"] != "invalid_request":
                assert answer.status_code < 500, (document, answer.text)
                continue
            refused = problem(answer, 422, "invalid_request")
            assert not NOT_OURS.search(refused["detail"]), (wrong, refused["detail"])
            for one in refused.get("errors", ()):
                assert not NOT_OURS.search(one["allowed"]), (wrong, one)
                told += 1
    assert told > 20


@pytest.mark.parametrize("path", QUERIES)
async def test_so_are_those_of_paths_and_queries(door: Door, path: str) -> None:
    refused = problem(await door.get(path), 422, "invalid_request")
    assert not NOT_OURS.search(refused["detail"]), refused["detail"]
