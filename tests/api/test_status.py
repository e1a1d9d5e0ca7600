"""Health, status and metrics: what cannot be reached is named, and bad input is never a failure of ours."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, generate_latest

from api.app import create_app
from api.deps import Deps
from api.sign_in.setup import SignIn
from store.engine import create_engine
from tests.api.door import Bearer, Door, RecordingStarter, client_of, problem
from tests.api.sign_in.minting import verifier
from tests.estates import Clock

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


async def test_the_process_answers_and_is_ready(door: Door) -> None:
    assert (await door.get("/healthz")).json() == {"ok": True}
    ready = await door.get("/readyz")
    assert ready.json() == {"ready": True, "checks": {"database": "reachable", "temporal": "reachable"}}


async def test_without_temporal_it_stays_ready_and_says_so(door: Door) -> None:
    """Placements of models, reads and steps of pools go on; a balancer that took it out would end them."""
    door.starter.down = True
    ready = await door.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"ready": True, "checks": {"database": "reachable", "temporal": "unreachable"}},
    )
    assert (await door.get("/status")).json()["temporalReachable"] is False


async def test_a_database_that_is_away_is_told_and_not_a_traceback() -> None:
    starter = RecordingStarter()
    engine = create_engine(NOWHERE)
    now = Clock()
    deps = Deps(engine=engine, starter=starter, temporal_reachable=starter.reachable, now=now)
    async with client_of(create_app(deps, SignIn(verifier(now)), CollectorRegistry()), Bearer(now)) as http:
        assert (await http.get("/healthz")).status_code == 200
        told = problem(await http.get("/readyz"), 503, "not_ready")
        assert told["checks"]["database"] == "unreachable"
        assert told["detail"] == "database cannot be reached"
        for path in ("/status", "/partitions", "/workloads", "/factory/compute-pools/eu-north-h1-gp-m"):
            problem(await http.get(path), 503, "not_ready")
        page = await http.get("/ui/pools")
        assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert "cannot be reached" in page.text
    await engine.dispose()


async def test_status_counts_everything(door: Door) -> None:
    await door.open_estate()
    await door.placed(42)
    told = (await door.get("/status")).json()
    pools = {(one["purchaseModel"], one["state"]): one["pools"] for one in told["pools"]}
    assert pools == {("reclaimable", "active"): 144, ("committed", "active"): 36}
    assert told["workloadsByPhase"] == {"planned": 1}
    assert told["outboxWaiting"] == 1
    (partition,) = told["partitions"]
    assert (partition["partitionId"], partition["rankingVersion"]) == ("k8s-eu-north", 1)
    assert partition["rankingAgeSeconds"] >= 0


async def test_partitions_are_listed_in_pages(door: Door) -> None:
    await door.open_estate()
    page = (await door.get("/partitions", pageSize=1)).json()
    assert page["items"] == [{"partitionId": "k8s-eu-north", "region": "eu-north", "scheduler": "kubernetes"}]
    assert page["nextPageToken"] is None


async def test_metrics_count_by_route_and_not_by_id(door: Door) -> None:
    await door.get("/workloads/one")
    await door.get("/workloads/two")
    await door.get("/nowhere")
    await door.http.request("BREW", "/workloads")
    assert (await door.get("/metrics")).status_code == 404
    text = generate_latest(door.registry).decode()
    assert 'sco_http_requests_total{method="GET",route="/workloads/{workloadId}",status="404"} 2.0' in text
    assert 'sco_http_requests_total{method="GET",route="unmatched",status="404"} 2.0' in text
    assert re.search(r'sco_http_requests_total\{method="other",[^}]*status="405"\} 1\.0', text)
    assert 'sco_http_request_duration_seconds_bucket{le="0.005",method="GET"' in text
    assert "/workloads/one" not in text
    assert "process_cpu_seconds_total" in text
