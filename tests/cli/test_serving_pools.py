"""Pools that serve models, as `sco` shows them: health, memory, models; and not as instances."""

from __future__ import annotations

import json
from typing import Any

from tests.cli import answers, model_answers
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document
from tests.cli.test_reading import page, row

POOLS = "/factory/compute-pools"
POOL = f"{POOLS}/cloud-a"


def described(sco: Sco, api: FakeApi, *arguments: str, **changed: Any) -> str:
    api.on("GET", POOL, document(model_answers.serving_pool(**changed)))
    api.on("GET", f"{POOL}/history", document(model_answers.history()))
    ran = sco("describe", "pool", "cloud-a", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_pools_that_serve_are_a_table_of_their_own(sco: Sco, api: FakeApi) -> None:
    stale = {"staleSince": "2026-11-29T13:50:00Z", "placeable": False, "notPlaceableReason": "stale"}
    listed = [
        answers.pool("p-instances"),
        answers.pool("p-vram", gpuType="l4", gpuCount=1, vramGb=24),
        model_answers.serving_pool(),
        model_answers.serving_pool("cloud-s", health="unknown", cachedModels=[], committedVramGb=0, **stale),
    ]
    api.on("GET", POOLS, document(page(*listed)))
    out = sco("get", "pools").out
    assert row(out, "p-instances")[7:9] == ["40", "0.14"]
    assert row(out, "p-vram")[5] == "1xl4"
    assert row(out, "cloud-a")[1:] == [
        *("active", "yes", "healthy", "no", "43.8", "%", "70/160", "1", "6.4"),
        *("2xa100", "eu-north", "regional", "cloud_gpu", "platform"),
    ]
    assert row(out, "cloud-s")[1:8] == ["active", "stale", "unknown", "yes", "43.8", "%", "0/160"]
    assert out.index("p-vram") < out.index("HEALTH") < out.index("cloud-a")


def test_one_table_is_left_out_where_there_is_none_of_its_pools(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOLS, document(page(model_answers.serving_pool())))
    ran = sco("get", "pools")
    assert ran.out.splitlines()[0].split()[:4] == ["POOL", "STATE", "TAKES", "WORK"]
    assert len(ran.out.splitlines()) == 2
    assert ran.err == ""


def test_filters_of_serving_pools_reach_the_server(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOLS, document(page()))
    sco("get", "pools", "--kind", "cloud_gpu", "--gpu", "a100", "--health", "degraded", "--stale")
    (call,) = api.asked("GET", POOLS)
    assert call.query == {
        "kind": "cloud_gpu",
        "gpuType": "a100",
        "health": "degraded",
        "stale": "true",
        "pageSize": "200",
    }


def test_memory_is_that_of_all_devices_together(sco: Sco, api: FakeApi) -> None:
    out = described(sco, api)
    assert "70 of 160 GB committed, 90 GB free" in out
    assert "32 vCPU, 256 GiB, x86_64, 2xa100" in out
    assert row(out, "price") == ["price", "6.4", "USD", "per", "hour"]
    for of_instances in ("each", "instance", "flavor", "guaranteed", "standalone"):
        assert of_instances not in out


def test_a_pool_of_instances_has_its_memory_per_device(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOL, document(answers.pool("cloud-a", gpuType="l4", gpuCount=2, vramGb=24)))
    out = sco("describe", "pool", "cloud-a").out
    assert "2xl4, 24 GB each" in out
    assert not api.asked("GET", f"{POOL}/history")


def test_health_is_told_with_its_problem(sco: Sco, api: FakeApi) -> None:
    told = described(sco, api, health="degraded", healthProblem="HTTP 503", staleSince="2026-11-29T13:50:00Z")
    lines = {line.split("  ")[0]: line for line in told.splitlines()}
    assert "degraded since 2026-11-29 13:00:00Z: HTTP 503; last probe 2026-11-29 13:59:00Z" in lines["health"]
    assert "silent for too long since 2026-11-29 13:50:00Z" in lines["reported"]
    unknown = described(sco, api, health="unknown", healthChangedAt=None, probedAt=None)
    assert "unknown; last probe never" in unknown


def test_the_cold_start_says_where_it_comes_from(sco: Sco, api: FakeApi) -> None:
    assert "4 s, learned" in described(sco, api, learnedColdStartSeconds=4, coldStartSeconds=90)
    assert "90 s, as registered" in described(sco, api, coldStartSeconds=90)
    assert "not known yet" in described(sco, api)


def test_models_and_loads_are_listed(sco: Sco, api: FakeApi) -> None:
    lines = [line.split() for line in described(sco, api).splitlines()]
    assert ["llama-3.3:70gb", "loaded", "70", "2", "2026-11-29", "14:00:03Z", "-"] in lines
    load = ["llama-3.3:70gb", "2026-11-29", "14:00:00Z", "placement", "3.5", "loaded"]
    assert load in lines


def test_a_load_that_failed_says_why(sco: Sco, api: FakeApi) -> None:
    failed = model_answers.history()["loads"][0] | {"outcome": "failed", "seconds": None, "problem": "gone"}
    running = failed | {"outcome": None, "problem": None}
    api.on("GET", POOL, document(model_answers.serving_pool(cachedModels=[])))
    api.on("GET", f"{POOL}/history", document({"models": [], "loads": [running, failed]}))
    lines = [line.split() for line in sco("describe", "pool", "cloud-a").out.splitlines()[-2:]]
    assert lines[0][4:] == ["-", "running"]
    assert lines[1][4:] == ["-", "failed:", "gone"]


def test_a_shared_pool_is_named_with_its_owner(sco: Sco, api: FakeApi) -> None:
    described(sco, api, "--tenant", "platform")
    assert [call.query for call in api.calls] == [{"tenantId": "platform"}] * 2


def test_programs_get_the_pool_alone(sco: Sco, api: FakeApi) -> None:
    assert json.loads(described(sco, api, "-o", "json")) == model_answers.serving_pool()
    assert [call.path for call in api.calls] == [POOL]
