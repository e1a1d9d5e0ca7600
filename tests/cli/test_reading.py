"""What the reading commands print: for people by content, for programs as the server gave it."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.cli import answers
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document

POOLS = "/factory/compute-pools"


def row(text: str, first: str) -> list[str]:
    """The cells of the one line that starts with `first`."""
    lines = [line.split() for line in text.splitlines() if line.split()[:1] == [first]]
    assert len(lines) == 1, text
    return lines[0]


def page(*items: object, token: str | None = None) -> dict[str, object]:
    return {"items": list(items), "nextPageToken": token}


def test_pools_are_listed_with_what_is_free(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOLS, document(page(answers.pool("eu-north-h1-gp-m"))))
    ran = sco("get", "pools")
    assert ran.code == 0
    assert row(ran.out, "eu-north-h1-gp-m") == [
        "eu-north-h1-gp-m", "active", "yes", "8", "32", "-", "37", "40", "0.14",
        "reclaimable", "eu-north-h1", "eu-north-h1-a1",
    ]  # fmt: skip


def test_a_pool_that_takes_no_work_says_why(sco: Sco, api: FakeApi) -> None:
    blocked = {"placeable": False, "notPlaceableReason": "stale", "notPlaceableText": "its report is old"}
    api.on("GET", POOLS, document(page(answers.pool("p1", **blocked))))
    api.on("GET", f"{POOLS}/p1", document(answers.pool("p1", **blocked)))
    assert row(sco("get", "pools").out, "p1")[2] == "stale"
    assert "no: its report is old" in sco("describe", "pool", "p1").out


def test_filters_reach_the_server(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOLS, document(page()))
    ran = sco(
        *("get", "pools", "--region", "eu-north", "--hall", "eu-north-h1"),
        *("--state", "active", "--purchase-model", "committed", "--sku", "gp"),
    )
    (call,) = api.asked("GET", POOLS)
    assert call.query == {
        "region": "eu-north",
        "hall": "eu-north-h1",
        "state": "active",
        "purchaseModel": "committed",
        "skuFamily": "gp",
        "pageSize": "200",
    }
    assert (ran.code, ran.out) == (0, "")
    assert "no pool found" in ran.err


def test_every_page_is_followed(sco: Sco, api: FakeApi) -> None:
    api.on(
        "GET",
        POOLS,
        document(page(answers.pool("p1"), token="t1")),
        document(page(answers.pool("p2"), token="t2")),
        document(page(answers.pool("p3"))),
    )
    ran = sco("get", "pools", "-o", "json")
    assert [pool["poolId"] for pool in json.loads(ran.out)] == ["p1", "p2", "p3"]
    assert [call.query.get("pageToken") for call in api.asked("GET", POOLS)] == [None, "t1", "t2"]
    assert ran.err == ""


def test_a_limit_ends_the_listing_and_says_so(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOLS, document(page(answers.pool("p1"), answers.pool("p2"), token="t1")))
    ran = sco("get", "pools", "--limit", "2", "-o", "json")
    assert len(json.loads(ran.out)) == 2
    assert len(api.asked("GET", POOLS)) == 1
    assert "there are more: raise --limit" in ran.err


def test_a_server_that_repeats_a_page_is_left(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOLS, document(page(answers.pool("p1"), token="t1")))
    ran = sco("get", "pools")
    assert ran.code == 3
    assert "without end" in ran.err
    assert len(api.calls) == 2


@pytest.mark.parametrize(
    ("command", "path", "answer"),
    [
        (["describe", "pool", "p1"], f"{POOLS}/p1", answers.pool("p1")),
        (["describe", "workload", "orders-daily"], "/workloads/orders-daily", answers.workload()),
        (["explain", "orders-daily"], "/placements/orders-daily/explanation", answers.explanation()),
        (["status"], "/status", answers.status(note="größer 0.30")),
    ],
)
def test_json_and_yaml_are_what_the_server_said(
    sco: Sco, api: FakeApi, command: list[str], path: str, answer: dict[str, object]
) -> None:
    api.on("GET", path, document(answer))
    assert json.loads(sco(*command, "-o", "json").out) == answer
    assert yaml.safe_load(sco(*command, "-o", "yaml").out) == answer


def test_a_workload_is_shown_against_its_caps(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/workloads/orders-daily", document(answers.workload()))
    out = sco("describe", "workload", "orders-daily").out
    assert "42 units, 168 vCPU, 672 GiB, 0 GPUs" in out
    assert "floor 13 guaranteed units; at most 6 units per reclaimable pool and 12" in out
    assert row(out, "eu-north-h1-gp-m")[1:7] == ["6", "14.3", "%", "3/3", "4000m-16384Mi", "reclaimable"]
    assert row(out, "eu-north-h1-a1") == ["eu-north-h1-a1", "6", "14.3", "%", "12"]
    assert row(out, "eu-north-h1") == ["eu-north-h1", "6", "14.3", "%", "0", "6", "12"]
    assert "3.5182 USD per hour" in out
    assert "4 vCPU and 16.5 GiB" in out
    assert row(out, "instances") == ["instances", "21", "active"]


def test_a_workload_without_a_claim_says_how_to_submit_one(sco: Sco, api: FakeApi) -> None:
    bare = answers.workload(
        "requested", claimVersion=0, plannedVersion=0, generation=0, claim=None, caps=None, fleet=[]
    )
    api.on("GET", "/workloads/orders-daily", document(bare))
    assert "sco claim -f FILE --workload orders-daily" in sco("describe", "workload", "orders-daily").out


def test_a_shortfall_is_shown_with_its_reason(sco: Sco, api: FakeApi) -> None:
    short = {"units": 4, "reason": "capacity", "text": "the eligible pools have too little free capacity"}
    api.on("GET", "/workloads/orders-daily", document(answers.workload("shortfall", shortfall=short)))
    out = sco("describe", "workload", "orders-daily").out
    assert "4 units not placed: the eligible pools have too little free capacity" in out


def test_a_decision_shows_kept_pools_and_reasons_of_the_others(sco: Sco, api: FakeApi) -> None:
    decision = answers.explanation(
        answers.kept("p-kept"),
        answers.candidate("p-other", rank=2),
        answers.candidate("p-arm", reason="arch", text="its architecture is another", rank=None),
        answers.candidate("p-arm2", reason="arch", text="its architecture is another", rank=None),
        answers.candidate("p-arm3", reason="arch", text="its architecture is another", rank=None),
    )
    api.on("GET", "/placements/orders-daily/explanation", document(decision))
    out = sco("explain", "orders-daily").out
    assert "42 of 42 units placed" in out
    assert row(out, "6")[:4] == ["6", "3", "1", "p-kept"]
    assert row(out, "3") == [
        *["3", "arch", "its", "architecture", "is", "another", "p-arm,", "p-arm2", "and", "1", "more"]
    ]
    assert row(out, "1")[:2] == ["1", "outscored"]


def test_one_pool_is_answered_in_one_sentence(sco: Sco, api: FakeApi) -> None:
    path = "/placements/orders-daily/explanation"
    api.on("GET", path, document(answers.explanation(answers.candidate("p-other"))))
    ran = sco("explain", "orders-daily", "--pool", "p-other", "--generation", "3")
    assert ran.out.splitlines()[0] == (
        "p-other was left out (outscored): better pools already covered the claim."
    )
    assert "0.14 USD, 65 % below the guaranteed rate" in ran.out
    assert api.asked("GET", path)[0].query == {"poolId": "p-other", "generation": "3"}
    api.on("GET", path, document(answers.explanation(answers.kept("p-kept"))))
    first = sco("explain", "orders-daily", "--pool", "p-kept").out.splitlines()[0]
    assert first == "p-kept was kept: holds 6 units on 3 instances, place 1 of 20."


def test_a_pool_that_was_no_candidate_is_refused(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/placements/orders-daily/explanation", document(answers.explanation()))
    ran = sco("explain", "orders-daily", "--pool", "p-unknown")
    assert (ran.code, ran.out) == (1, "")
    assert "p-unknown was no candidate in generation 1" in ran.err


def test_pools_of_one_reason_are_listed(sco: Sco, api: FakeApi) -> None:
    path = "/placements/orders-daily/explanation"
    api.on("GET", path, document(answers.explanation(answers.candidate("p-1"), answers.candidate("p-2"))))
    out = sco("explain", "orders-daily", "--reason", "outscored").out
    assert api.asked("GET", path)[0].query == {"reason": "outscored"}
    assert "2 pools left out for outscored: better pools already covered the claim" in out
    assert [line.split()[1] for line in out.splitlines() if line.split()[:1] == ["17"]] == ["p-1", "p-2"]


def test_an_unknown_history_is_marked(sco: Sco, api: FakeApi) -> None:
    one = answers.candidate("p-new", historyKnown=False, interruptionsPerHour="0.5")
    api.on("GET", "/placements/orders-daily/explanation", document(answers.explanation(one)))
    assert "0.5 per hour, assumed" in sco("explain", "orders-daily", "--pool", "p-new").out
    assert "0.5?" in row(sco("explain", "orders-daily", "--reason", "outscored").out, "17")


def test_committed_pools_have_no_interruptions(sco: Sco, api: FakeApi) -> None:
    one = answers.kept("p-floor", purchaseModel="committed", historyKnown=False, interruptionsPerHour="0.05")
    api.on("GET", "/placements/orders-daily/explanation", document(answers.explanation(one)))
    out = sco("explain", "orders-daily", "--pool", "p-floor").out
    assert "its instances are not taken back" in out
    assert "0.05" not in out + sco("explain", "orders-daily").out


def test_tables_have_no_spaces_at_the_end_of_lines(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/workloads/orders-daily", document(answers.workload()))
    lines = sco("describe", "workload", "orders-daily").out.splitlines()
    assert lines == [line.rstrip() for line in lines]


def test_a_replay_that_is_the_same(sco: Sco, api: FakeApi) -> None:
    path = "/placements/orders-daily/replay"
    api.on("POST", path, document(answers.replay()))
    ran = sco("explain", "orders-daily", "--replay", "--generation", "2")
    assert (ran.code, ran.out) == (0, "generation 1 decided again: the same\n")
    assert api.asked("POST", path)[0].query == {"generation": "2"}


def test_a_replay_that_differs_ends_with_6(sco: Sco, api: FakeApi) -> None:
    one = {"part": "allocations[0]", "stored": "p-1 6", "recomputed": "p-2 6"}
    api.on("POST", "/placements/orders-daily/replay", document(answers.replay(one, omitted=3)))
    ran = sco("explain", "orders-daily", "--replay")
    assert ran.code == 6
    assert "4 differences" in ran.out
    assert row(ran.out, "allocations[0]") == ["allocations[0]", "p-1", "6", "p-2", "6"]
    assert "and 3 more" in ran.out
    as_json = sco("explain", "orders-daily", "--replay", "-o", "json")
    assert (as_json.code, json.loads(as_json.out)["same"]) == (6, False)


def test_status_says_what_there_is_and_whether_placements_can_run(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/status", document(answers.status()))
    out = sco("status").out
    assert row(out, "432") == ["432", "active", "reclaimable"]
    assert row(out, "k8s-eu-north")[2:] == ["kubernetes", "7", "1:05"]
    assert row(out, "slurm-eu-west")[2:] == ["slurm", "none", "yet", "-"]
    assert row(out, "workloads") == ["workloads", "2", "placed,", "1", "shortfall"]
    assert row(out, "placements") == ["placements", "can", "run"]
    api.on("GET", "/status", document(answers.status(temporalReachable=False)))
    assert "cannot run: Temporal cannot be reached" in sco("status").out


def test_placements_of_several_workloads_are_one_table(sco: Sco, api: FakeApi) -> None:
    for name in ("orders-daily", "web"):
        api.on("GET", f"/placements/{name}", document(answers.placement(name)))
    out = sco("get", "placements", "orders-daily", "web").out
    assert row(out, "web") == [
        "web",
        "acquiring",
        "2",
        "1",
        "3",
        "42",
        "40",
        "17",
        "placement/k8s-eu-north/web",
    ]
    assert row(out, "orders-daily")[1] == "acquiring"


def test_workloads_contracts_partitions_and_generations_are_listed(sco: Sco, api: FakeApi) -> None:
    contract = {
        "contractId": "orders-daily",
        "tier": "T1",
        "floorShare": "0.30",
        "poolCapShare": "0.15",
        "groupCapShare": "0.30",
        "toleratedInterruptionsPerHour": "1",
        "drainBudgetSeconds": 115,
        "repoCommit": "",
        "warnings": ["too few pools are active"],
    }
    ends = {"checkpointMode": "periodic_and_final", "finalWriteSeconds": 40, "restart": "resume"}
    newer = contract | {"contractId": "web", "drainOnAdvisory": True} | ends
    partition = {"partitionId": "k8s-eu-north", "region": "eu-north", "scheduler": "kubernetes"}
    api.on("GET", "/workloads", document(page(answers.workload("shortfall"))))
    api.on("GET", "/contracts", document({"items": [contract, newer]}))
    api.on("GET", "/contracts/orders-daily", document(contract))
    api.on("GET", "/contracts/web", document(newer))
    api.on("GET", "/partitions", document(page(partition)))
    api.on("GET", "/placements/orders-daily/generations", document(page(answers.generation(3))))
    assert row(sco("get", "workloads").out, "orders-daily")[1:6] == [
        "shortfall",
        "1",
        "1",
        "1",
        "k8s-eu-north",
    ]
    assert row(sco("get", "contracts").out, "orders-daily")[1:6] == ["T1", "30", "%", "15", "%"]
    assert row(sco("get", "partitions").out, "k8s-eu-north") == ["k8s-eu-north", "eu-north", "kubernetes"]
    cells = row(sco("get", "generations", "orders-daily").out, "3")
    assert cells == ["3", "1", "42", "42", "13", "3.5182", "USD", "0.00", "USD", "2026-11-29", "14:00:00Z"]
    described = sco("describe", "contract", "orders-daily").out
    assert "30 % of every claim on committed capacity" in described
    assert "too few pools are active" in described
    assert "restart" not in described, "an older server does not say it"
    listed = sco("get", "contracts").out
    assert row(listed, "orders-daily")[-3:] == ["-", "-", "-"]
    assert row(listed, "web")[-3:] == ["periodic_and_final", "resume", "drains"]
    told = sco("describe", "contract", "web").out
    for line in (
        ("advisory notice", "drains"),
        ("checkpoints", "periodic and final, the final write within 40 s"),
        ("restart", "resume"),
    ):
        assert re.search(rf"^{line[0]} +{line[1]}$", told, re.MULTILINE), told


@pytest.mark.parametrize(("columns", "shows_hall"), [(60, False), (112, True)])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_names(
    sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch, columns: int, shows_hall: bool
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", str(columns))):
        monkeypatch.setenv(name, value)
    api.on("GET", POOLS, document(page(answers.pool("eu-north-h1-gp-l-committed", hall="hall-9"))))
    cells = row(sco("get", "pools").out, "eu-north-h1-gp-l-committed")
    assert cells[1:9] == ["active", "yes", "8", "32", "-", "37", "40", "0.14"]
    assert ("hall-9" in cells) is shows_hall


def test_names_from_a_server_cannot_steer_the_terminal(sco: Sco, api: FakeApi) -> None:
    evil = answers.workload(ownerTeam="\x1b[31m[bold]red[/bold]\x1b]0;title\x07")
    api.on("GET", "/workloads/orders-daily", document(evil))
    out = sco("describe", "workload", "orders-daily").out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]red[/bold]" in out


def test_a_pool_that_drains_says_what_it_still_holds(sco: Sco, api: FakeApi) -> None:
    since = {"state": "draining", "drainingSince": "2026-11-29T14:00:00Z", "drainedAt": None}
    api.on("GET", "/factory/compute-pools/p1", document(answers.pool("p1", held=answers.HELD, **since)))
    lines = {line.split("  ")[0]: line for line in sco("describe", "pool", "p1").out.splitlines()}
    assert lines["holds"].endswith("4 units on 2 instances of orders, web; models llama")
    assert "2026-11-29 14:00" in lines["draining since"]
    assert lines["drained"].endswith("not yet")


def test_a_drained_pool_says_when(sco: Sco, api: FakeApi) -> None:
    nothing = {"units": 0, "instances": 0, "workloads": [], "models": []}
    done = {"drainingSince": "2026-11-29T14:00:00Z", "drainedAt": "2026-11-29T14:30:00Z"}
    api.on("GET", "/factory/compute-pools/p1", document(answers.pool("p1", held=nothing, **done)))
    lines = {line.split("  ")[0]: line for line in sco("describe", "pool", "p1").out.splitlines()}
    assert lines["holds"].endswith("nothing")
    assert "2026-11-29 14:30" in lines["drained"]
