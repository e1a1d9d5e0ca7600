"""Answers as the server gives them."""

from __future__ import annotations

from typing import Any

HELD: dict[str, Any] = {
    "units": 4,
    "instances": 2,
    "workloads": ["orders", "web"],
    "models": [{"model": "llama", "vramGb": 40, "lastUsedAt": "2026-11-29T14:00:00Z"}],
}


def pool(pool_id: str, **changed: Any) -> dict[str, Any]:
    return {
        "poolId": pool_id,
        "tenantId": "platform",
        "kind": "private_cloud",
        "state": "active",
        "region": "eu-north",
        "hall": "eu-north-h1",
        "securityBoundary": "regional",
        "skuFamily": "gp",
        "size": "m",
        "arch": "x86_64",
        "gpuType": None,
        "gpuCount": 0,
        "vramGb": 0,
        "cpuCores": 8,
        "ramGb": 32,
        "nvme": False,
        "nicGbps": 10,
        "purchaseModel": "reclaimable",
        "groupId": "eu-north-h1-a1",
        "groupBasis": "aggregate",
        "pricePerHourUsd": "0.140000",
        "guaranteedPricePerHourUsd": "0.400000",
        "flavor": "gp.m.reclaimable",
        "capacityInstances": 40,
        "reservedInstances": 3,
        "utilization": "0.075",
        "queueDepth": 0,
        "reportedAt": "2026-11-29T14:00:00Z",
        "coldStartSeconds": 0,
        "endpointRef": None,
        "version": 2,
        "placeable": True,
        "notPlaceableReason": None,
        "notPlaceableText": None,
    } | changed


def money(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": "USD"}


def fleet_pool(pool_id: str, units: int, hall: str, **changed: Any) -> dict[str, Any]:
    return {
        "poolId": pool_id,
        "shape": "4000m-16384Mi",
        "units": units,
        "instances": units // 2,
        "targetInstances": units // 2,
        "share": str(round(units / 42, 4)),
        "purchaseModel": "reclaimable",
        "region": "eu-north",
        "hall": hall,
        "groupId": f"{hall}-a1",
    } | changed


def workload(phase: str = "placed", **changed: Any) -> dict[str, Any]:
    return {
        "workloadId": "orders-daily",
        "partitionId": "k8s-eu-north",
        "contractId": "orders-daily",
        "ownerTeam": "data-platform",
        "phase": phase,
        "claimVersion": 1,
        "plannedVersion": 1,
        "generation": 1,
        "claim": {"units": 42, "vcpu": "168", "memoryGib": "672", "gpus": 0, "shapes": []},
        "caps": {"units": 42, "floorUnits": 13, "poolUnits": 6, "groupUnits": 12},
        "shortfall": None,
        "updatedAt": "2026-11-29T14:00:00Z",
        "fleet": [
            fleet_pool("eu-north-h1-gp-m", 6, "eu-north-h1"),
            fleet_pool("eu-north-h2-gp-l-committed", 8, "eu-north-h2", purchaseModel="committed"),
        ],
        "byGroup": [{"groupId": "eu-north-h1-a1", "units": 6, "share": "0.1429", "capUnits": 12}],
        "byHall": [
            {"hall": "eu-north-h1", "units": 6, "share": "0.1429", "capUnits": 12}
            | {"reclaimableUnits": 6, "committedUnits": 0}
        ],
        "waste": {"vcpu": "4", "memoryGib": "16.5"},
        "costPerHour": money("3.518200"),
        "depthPremiumPerHour": money("0.214000"),
        "instancesByState": {"active": 21, "planned": 0},
    } | changed


def launch(started: bool | str = True) -> dict[str, Any]:
    return {"workflowId": "placement/k8s-eu-north/orders-daily", "started": started}


def claimed(version: int | None = 1, **changed: Any) -> dict[str, Any]:
    return {
        "workloadId": "orders-daily",
        "claimVersion": version,
        "units": 42,
        "vcpu": "168",
        "memoryGib": "672",
        "gpus": 0,
        "leftOut": [],
        "unreadable": [],
        "notes": [],
        "placement": None if version is None else launch(),
    } | changed


def candidate(pool_id: str, **changed: Any) -> dict[str, Any]:
    return {
        "poolId": pool_id,
        "region": "eu-north",
        "hall": "eu-north-h1",
        "groupId": "eu-north-h1-a1",
        "skuFamily": "gp",
        "size": "m",
        "purchaseModel": "reclaimable",
        "kept": False,
        "units": 0,
        "instances": 0,
        "reason": "outscored",
        "text": "better pools already covered the claim",
        "rank": 17,
        "pricePerHourUsd": "0.140000",
        "discountShare": "0.65",
        "depth": "0.8",
        "depthBand": 1,
        "interruptionsPerHour": "0.02",
        "historyKnown": True,
    } | changed


def kept(pool_id: str, **changed: Any) -> dict[str, Any]:
    taken = {"kept": True, "units": 6, "instances": 3, "reason": None, "rank": 1}
    return candidate(pool_id, **taken | {"text": "holds 6 units on 3 instances, place 1 of 20"} | changed)


def explanation(*candidates: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "decisionId": "7b0e8a34-0000-4000-8000-000000000001",
        "workloadId": "orders-daily",
        "generation": 1,
        "claimVersion": 1,
        "partitionId": "k8s-eu-north",
        "rankingId": "7b0e8a34-0000-4000-8000-000000000002",
        "scorerVersion": "1",
        "decidedAt": "2026-11-29T14:00:00Z",
        "outcome": "placed",
        "units": 42,
        "placedUnits": 42,
        "floorUnits": 13,
        "poolCapUnits": 6,
        "groupCapUnits": 12,
        "costPerHour": money("3.518200"),
        "depthPremiumPerHour": money("0.214000"),
        "shortfalls": [],
        "candidates": list(candidates),
    } | changed


def replay(*differences: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "workloadId": "orders-daily",
        "generation": 1,
        "same": not differences,
        "differences": list(differences),
        "omitted": 0,
    } | changed


def placement(workload_id: str) -> dict[str, Any]:
    return {
        "workloadId": workload_id,
        "workflowId": f"placement/k8s-eu-north/{workload_id}",
        "phase": "acquiring",
        "claimVersion": 2,
        "plannedVersion": 1,
        "generation": 3,
        "units": 42,
        "placedUnits": 40,
        "activeInstances": 17,
    }


def generation(number: int) -> dict[str, Any]:
    return {
        "generation": number,
        "claimVersion": 1,
        "units": 42,
        "placedUnits": 42,
        "floorUnits": 13,
        "costPerHour": money("3.518200"),
        "depthPremiumPerHour": money("0.000000"),
        "decidedAt": "2026-11-29T14:00:00Z",
    }


def status(**changed: Any) -> dict[str, Any]:
    return {
        "at": "2026-11-29T14:00:00Z",
        "pools": [{"state": "active", "purchaseModel": "reclaimable", "pools": 432}],
        "partitions": [
            {"partitionId": "k8s-eu-north", "region": "eu-north", "scheduler": "kubernetes"}
            | {"rankingId": None, "rankingVersion": 7, "rankingAgeSeconds": 65},
            {"partitionId": "slurm-eu-west", "region": "eu-west", "scheduler": "slurm"}
            | {"rankingId": None, "rankingVersion": None, "rankingAgeSeconds": None},
        ],
        "workloadsByPhase": {"placed": 2, "shortfall": 1},
        "outboxWaiting": 0,
        "temporalReachable": True,
    } | changed


def finding(kind: str = "lost", subject: str = "b-1-001", **changed: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "subject": subject,
        "problem": f"slot {subject} is active, its server s-1 does not exist",
        "whatToDo": f"What to do about {kind}.",
        "region": "eu-north",
        "workloadId": "orders-daily",
        "poolId": "eu-north-h1-gp-m",
        "serverIds": ["s-1"],
    } | changed


def audit(status: str = "clean", *findings: dict[str, Any], **changed: Any) -> dict[str, Any]:
    kinds = [one["kind"] for one in findings]
    return {
        "auditId": "7b0e8a34-0000-4000-8000-000000000003",
        "partitionId": None,
        "status": status,
        "startedAt": "2026-11-29T14:00:00Z",
        "finishedAt": None if status == "running" else "2026-11-29T14:00:20Z",
        "workflowId": "audit/7b0e8a34-0000-4000-8000-000000000003",
        "temporalUrl": None,
        "regions": [] if status == "running" else ["eu-north", "eu-west"],
        "failures": [],
        "counts": {"servers": 21, "slots": 22, "workloads": 1, "foreign": None}
        | {"serversInFlight": 1, "workloadsInFlight": 0, "gaps": 2},
        "findingsTotal": len(kinds),
        "findingsByKind": {kind: kinds.count(kind) for kind in kinds},
        "notes": [],
        "findings": list(findings),
    } | changed
