"""Answers about models, as the server gives them."""

from __future__ import annotations

from typing import Any

from tests.cli import answers

PLACEMENT_ID = "0d31f0e2-45f2-4eba-b2b3-933738c1ff2f"
TOKEN = "s.endpoint-token"
DECIDED, EXPIRES = "2026-11-29T14:00:00Z", "2026-11-29T14:10:00Z"
WEIGHTS = {"warm": "0.4", "price": "0.3", "utilization": "0.2", "latency": "0.1"}


def serving_pool(pool_id: str = "cloud-a", **changed: Any) -> dict[str, Any]:
    facts = {
        "kind": "cloud_gpu",
        "hall": "eu-north",
        "groupId": pool_id,
        "skuFamily": "a100",
        "size": "standalone",
        "gpuType": "a100",
        "gpuCount": 2,
        "vramGb": 160,
        "cpuCores": 32,
        "ramGb": 256,
        "purchaseModel": "guaranteed",
        "flavor": "standalone",
        "pricePerHourUsd": "6.400000",
        "guaranteedPricePerHourUsd": "6.400000",
        "capacityInstances": 0,
        "reservedInstances": 0,
        "utilization": "0.4375",
        "endpointRef": "ollama+http://127.0.0.1:11434",
        "health": "healthy",
        "healthProblem": None,
        "healthChangedAt": "2026-11-29T13:00:00Z",
        "probedAt": "2026-11-29T13:59:00Z",
        "staleSince": None,
        "committedVramGb": 70,
        "learnedColdStartSeconds": None,
        "cachedModels": [cached("loaded")],
    }
    return answers.pool(pool_id, **facts | changed)


def cached(state: str, **changed: Any) -> dict[str, Any]:
    return {
        "model": "llama-3.3:70gb",
        "vramGb": 70,
        "state": state,
        "loadedAt": "2026-11-29T14:00:03.600Z" if state == "loaded" else None,
        "lastUsedAt": DECIDED,
    } | changed


def history(**changed: Any) -> dict[str, Any]:
    load = {
        "loadId": "7b0e8a34-0000-4000-8000-000000000004",
        "model": "llama-3.3:70gb",
        "vramGb": 70,
        "cause": "placement",
        "startedAt": DECIDED,
        "finishedAt": "2026-11-29T14:00:03.531Z",
        "seconds": "3.531",
        "outcome": "loaded",
        "problem": None,
    }
    model = cached("loaded") | {"holds": 2, "loadProblem": None}
    return {"models": [model], "loads": [load], "events": [], "usage": []} | changed


def placement(**changed: Any) -> dict[str, Any]:
    return {
        "kind": "model",
        "placementId": PLACEMENT_ID,
        "deploymentId": "assistant",
        "runId": None,
        "model": "llama-3.3:70gb",
        "requirements": {
            "vramGb": 70,
            "boundary": "regional",
            "regions": ["eu-north"],
            "latencyClass": "standard",
            "maxPricePerHourUsd": None,
        },
        "outcome": "placed",
        "text": "llama-3.3:70gb goes to pool cloud-a, where loading it takes about 120 s",
        "state": "held",
        "chosenPoolTenantId": "platform",
        "chosenPoolId": "cloud-a",
        "warm": False,
        "coldStartSeconds": 120,
        "causedLoad": True,
        "decidedAt": DECIDED,
        "expiresAt": EXPIRES,
        "endedAt": None,
        "problem": None,
        "workflowId": f"placement/model/platform/{PLACEMENT_ID}",
        "temporalUrl": None,
    } | changed


def chosen(pool_id: str = "cloud-a", **changed: Any) -> dict[str, Any]:
    return {
        "tenantId": "platform",
        "poolId": pool_id,
        "kept": True,
        "reason": None,
        "text": "",
        "pricePerHourUsd": "6.4",
        "score": "0.560000",
        "parts": {"warm": "0", "price": "1", "utilization": "1", "latency": "0.6"},
        "warm": False,
        "coldStartSeconds": 120,
        "startSeconds": 120,
    } | changed


def left_out(pool_id: str, reason: str, price: str, **changed: Any) -> dict[str, Any]:
    scored = dict.fromkeys(("score", "parts", "warm", "coldStartSeconds", "startSeconds"))
    told = {"kept": False, "reason": reason, "text": f"the text of {reason}", "pricePerHourUsd": price}
    return chosen(pool_id, **scored | told | changed)


CANDIDATES = (
    chosen(),
    chosen("cloud-c", kept=False, reason="outscored", text="another pool scored higher", score="0.3"),
    left_out("cloud-b", "boundary", "4.10"),
    left_out("gpu-local", "memory", "0.40"),
    left_out("gpu-small", "memory", "0.55"),
)


def decision(**changed: Any) -> dict[str, Any]:
    own = {"weights": WEIGHTS, "countsByReason": [], "candidates": list(CANDIDATES)}
    return placement(**own | changed)


def placed(**changed: Any) -> dict[str, Any]:
    own = {
        "endpointRef": "ollama+http://127.0.0.1:11434",
        "credential": {"token": TOKEN, "expiresAt": "2026-11-29T14:05:00Z"},
    }
    return decision(**own | changed)


def nowhere(outcome: str = "policy_denied", **changed: Any) -> dict[str, Any]:
    none = {
        "outcome": outcome,
        "text": "no pool satisfies the boundary and the regions that llama-3.3:70gb requires",
        "state": "none",
        "chosenPoolTenantId": None,
        "chosenPoolId": None,
        "coldStartSeconds": 0,
        "causedLoad": False,
        "expiresAt": None,
        "workflowId": None,
        "candidates": list(CANDIDATES[2:]),
        "endpointRef": None,
        "credential": None,
    }
    return placed(**none | changed)
