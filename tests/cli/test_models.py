"""`sco models`: where a model goes, why not elsewhere, and how it ends when it goes nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.cli import answers, model_answers
from tests.cli.conftest import FakeClock, Ran, Sco
from tests.cli.fake_api import FakeApi, Reply, document, problem
from tests.cli.model_answers import PLACEMENT_ID, TOKEN
from tests.cli.test_reading import page, row

PLACEMENTS = "/factory/compute-pools/placements"
ONE = f"{PLACEMENTS}/{PLACEMENT_ID}"
POOL = "/factory/compute-pools/cloud-a"
ASK = ("models", "place", "--deployment", "assistant", "--model", "llama-3.3:70gb", "--vram-gb", "70")


def place(sco: Sco, api: FakeApi, *arguments: str, **changed: Any) -> Ran:
    api.on("POST", PLACEMENTS, document(model_answers.placed(**changed), 201))
    return sco(*ASK, *arguments)


def loading(api: FakeApi, *states: str) -> None:
    """What the pool shows each time it is looked at; `absent` is no model at all."""
    api.on("GET", ONE, document(model_answers.decision()))
    api.on("GET", POOL, *(document(model_answers.serving_pool(cachedModels=_there(one))) for one in states))


def _there(state: str) -> list[dict[str, Any]]:
    return [] if state == "absent" else [model_answers.cached(state)]


def test_what_was_asked_reaches_the_server(sco: Sco, api: FakeApi) -> None:
    run = "7b0e8a34-0000-4000-8000-00000000000a"
    place(
        *(sco, api, "--boundary", "regional", "--region", "eu-north", "--region", "eu-west"),
        *("--latency", "interactive", "--max-price", "4.50", "--run-id", run),
    )
    (call,) = api.asked("POST", PLACEMENTS)
    assert call.document == {
        "deploymentId": "assistant",
        "runId": run,
        "model": "llama-3.3:70gb",
        "vramGb": 70,
        "boundary": "regional",
        "regions": ["eu-north", "eu-west"],
        "latencyClass": "interactive",
        "maxPricePerHourUsd": "4.50",
    }
    assert call.headers["idempotency-key"]


def test_what_is_left_out_is_the_strictest_boundary_and_any_region(sco: Sco, api: FakeApi) -> None:
    place(sco, api)
    asked = api.asked("POST", PLACEMENTS)[0].document
    assert (asked["boundary"], asked["regions"], asked["maxPricePerHourUsd"]) == ("private", [], None)


def test_the_chosen_pool_and_the_reasons_of_the_others_are_told(sco: Sco, api: FakeApi) -> None:
    ran = place(sco, api)
    assert (ran.code, ran.err) == (0, "")
    lines = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in ran.out.splitlines()}
    assert ran.out.splitlines()[0] == f"placement {PLACEMENT_ID}: placed"
    assert lines["pool"] == "cloud-a of tenant platform"
    assert lines["start"] == "cold, about 120 s"
    assert lines["state"] == "held until 2026-11-29 14:10:00Z"
    assert lines["endpoint"] == "ollama+http://127.0.0.1:11434"
    reasons = [line.split() for line in ran.out.splitlines()[-3:]]
    assert reasons[0] == ["2", "memory", *["the", "text", "of", "memory", "gpu-local,", "0.4", "USD/h"]]
    assert reasons[1] == ["1", "boundary", *["the", "text", "of", "boundary", "cloud-b,", "4.1", "USD/h"]]
    assert reasons[2][:2] == ["1", "outscored"]


def test_a_warm_placement_says_so(sco: Sco, api: FakeApi) -> None:
    out = place(sco, api, warm=True, coldStartSeconds=0).out
    assert row(out, "start") == ["start", "warm"]


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_the_credential_is_printed_only_where_it_is_asked_for(sco: Sco, api: FakeApi, form: str) -> None:
    hidden = place(sco, api, "-o", form)
    assert TOKEN not in hidden.out + hidden.err
    assert "2026-11-29" in hidden.out
    assert TOKEN in place(sco, api, "-o", form, "--show-credential").out


def test_an_endpoint_that_needs_no_credential_says_so(sco: Sco, api: FakeApi) -> None:
    assert "the endpoint takes requests without" in place(sco, api, credential=None).out
    assert json.loads(place(sco, api, "-o", "json", credential=None).out)["credential"] is None


def test_programs_get_the_answer_as_it_came(sco: Sco, api: FakeApi) -> None:
    expected = model_answers.placed(note="new")
    shown = place(sco, api, "-o", "json", "--show-credential", note="new")
    assert json.loads(shown.out) == expected
    del expected["credential"]["token"]
    assert yaml.safe_load(place(sco, api, "-o", "yaml", note="new").out) == expected


@pytest.mark.parametrize("outcome", ["policy_denied", "no_capacity"])
@pytest.mark.parametrize("wait", [(), ("--wait",)])
def test_no_pool_ends_like_a_shortfall_with_the_reasons(
    sco: Sco, api: FakeApi, outcome: str, wait: tuple[str, ...]
) -> None:
    api.on("POST", PLACEMENTS, document(model_answers.nowhere(outcome), 201))
    ran = sco(*ASK, *wait)
    assert ran.code == 5
    assert f"{outcome}: no pool satisfies the boundary" in ran.err
    assert f"sco describe model-placement {PLACEMENT_ID}" in ran.err
    assert row(ran.out, "2")[1] == "memory"
    assert "endpoint" not in ran.out
    told = sco(*ASK, *wait, "-o", "json")
    assert (told.code, json.loads(told.out)["outcome"]) == (5, outcome)


def test_it_waits_until_the_pool_has_loaded_the_model(
    sco: Sco, api: FakeApi, passing_time: FakeClock
) -> None:
    loading(api, "absent", "promised", "loading", "loaded")
    ran = place(sco, api, "--wait")
    assert ran.code == 0
    assert ran.err.splitlines() == ["  0:00  llama-3.3:70gb is loading on cloud-a"]
    assert ran.out.splitlines()[-1] == "llama-3.3:70gb is loaded, 3.6 s after it was placed"
    assert passing_time.slept == [1.0] * 3
    assert api.asked("GET", POOL)[0].query == {"tenantId": "platform"}


def test_a_model_of_another_placement_is_not_the_one(sco: Sco, api: FakeApi) -> None:
    api.on("GET", ONE, document(model_answers.decision()))
    other = model_answers.serving_pool(cachedModels=[model_answers.cached("loaded", model="other")])
    api.on("GET", POOL, document(other), document(model_answers.serving_pool()))
    assert place(sco, api, "--wait").code == 0
    assert len(api.asked("GET", POOL)) == 2


def test_a_warm_model_is_not_waited_for(sco: Sco, api: FakeApi) -> None:
    assert place(sco, api, "--wait", warm=True).code == 0
    assert [call.method for call in api.calls] == ["POST"]


def test_a_model_that_does_not_load_ends_with_5_and_the_problem(sco: Sco, api: FakeApi) -> None:
    api.on("GET", POOL, document(model_answers.serving_pool(cachedModels=[])))
    failed = {"state": "released", "endedAt": "2026-11-29T14:00:05Z", "problem": "the runner terminated"}
    api.on("GET", ONE, document(model_answers.decision()), document(model_answers.decision(**failed)))
    ran = place(sco, api, "--wait")
    assert ran.code == 5
    assert "did not load on cloud-a: its placement was released: the runner terminated" in ran.err
    assert "sco describe pool cloud-a --tenant platform" in ran.err
    assert "is loaded" not in ran.out


def test_too_long_ends_with_4_and_the_answer_is_there(sco: Sco, api: FakeApi) -> None:
    loading(api, "loading")
    ran = place(sco, api, "--wait", "--timeout", "5", "-o", "json")
    assert ran.code == 4
    assert json.loads(ran.out)["placementId"] == PLACEMENT_ID
    assert "llama-3.3:70gb is loading on cloud-a after 5 seconds" in ran.err
    assert f"sco describe model-placement {PLACEMENT_ID}" in ran.err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--vram-gb", "0"),
        ("--boundary", "public"),
        ("--latency", "soon"),
        ("--max-price", "cheap"),
        ("--max-price", "NaN"),
        ("--run-id", "7"),
    ],
)
def test_wrong_usage_is_not_sent(sco: Sco, api: FakeApi, wrong: tuple[str, str]) -> None:
    ran = sco(*ASK, *wrong)
    assert ran.code == 2
    assert wrong[0] in ran.err
    assert api.calls == []


def test_a_refusal_names_the_field(sco: Sco, api: FakeApi) -> None:
    refused = {"field": "model", "value": "a b", "allowed": "text that matches X", "message": "no"}
    api.on("POST", PLACEMENTS, problem(422, "body model is a b", errors=[refused]))
    ran = sco(*ASK)
    assert ran.code == 1
    assert "model is a b; allowed is text that matches X" in ran.err


def test_a_server_without_secrets_places_nothing(sco: Sco, api: FakeApi) -> None:
    api.on("POST", PLACEMENTS, problem(503, "the secrets service gives no credential, nothing was placed"))
    ran = sco(*ASK)
    assert (ran.code, ran.out) == (3, "")
    assert "nothing was placed" in ran.err


@pytest.mark.parametrize(
    ("action", "changed", "told"),
    [
        ("release", {"state": "released", "endedAt": model_answers.EXPIRES}, "released at 2026-11-29 14:10"),
        ("release", {"state": "expired", "endedAt": model_answers.EXPIRES}, "expired at 2026-11-29 14:10"),
        ("release", {"state": "none", "chosenPoolId": None}, "nothing is held: no pool was chosen"),
        ("renew", {}, "held until 2026-11-29 14:10:00Z"),
    ],
)
def test_release_and_renew_tell_the_state(
    sco: Sco, api: FakeApi, action: str, changed: dict[str, Any], told: str
) -> None:
    api.on("POST", f"{ONE}/{action}", document(model_answers.placement(**changed)))
    ran = sco("models", action, PLACEMENT_ID)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"placement {PLACEMENT_ID}: {told}")


def test_a_placement_that_ended_is_not_renewed(sco: Sco, api: FakeApi) -> None:
    ended = problem(409, "placement expired at 2026-11-29 14:10", whatToDo="Place the model again.")
    api.on("POST", f"{ONE}/renew", ended)
    ran = sco("models", "renew", PLACEMENT_ID)
    assert ran.code == 1
    assert "what to do: Place the model again." in ran.err


def test_placements_are_listed_and_filtered(sco: Sco, api: FakeApi) -> None:
    none = {"outcome": "no_capacity", "state": "none", "chosenPoolId": None, "expiresAt": None}
    other = PLACEMENT_ID.replace("0d31", "1e42")
    listed = [model_answers.placement(warm=True), model_answers.placement(placementId=other, **none)]
    api.on("GET", PLACEMENTS, document(page(*listed)))
    ran = sco(
        *("get", "model-placements", "--outcome", "placed", "--state", "held", "--deployment", "assistant"),
        *("--model", "llama-3.3:70gb", "--pool", "cloud-a", "--limit", "7"),
    )
    assert api.asked("GET", PLACEMENTS)[0].query == {
        "outcome": "placed",
        "state": "held",
        "deploymentId": "assistant",
        "model": "llama-3.3:70gb",
        "poolId": "cloud-a",
        "pageSize": "7",
    }
    assert row(ran.out, PLACEMENT_ID)[1:7] == ["llama-3.3:70gb", "70", "placed", "held", "cloud-a", "warm"]
    assert row(ran.out, other)[3:8] == ["no_capacity", "none", "-", "-", "-"]
    assert json.loads(sco("get", "model-placements", "-o", "json").out) == listed


def test_no_placement_says_so(sco: Sco, api: FakeApi) -> None:
    api.on("GET", PLACEMENTS, document(page()))
    ran = sco("get", "model-placements")
    assert (ran.code, ran.out) == (0, "")
    assert "no placement of a model found" in ran.err


def test_a_placement_is_described_with_every_candidate(sco: Sco, api: FakeApi) -> None:
    api.on("GET", ONE, document(model_answers.decision(problem="the runner terminated")))
    out = sco("describe", "model-placement", PLACEMENT_ID).out
    assert row(out, "cloud-a") == [
        "cloud-a",
        "chosen",
        "0.56",
        *["0", "1", "1", "0.6", "120", "6.4", "platform"],
    ]
    assert row(out, "cloud-c")[1:3] == ["outscored", "0.3"]
    assert row(out, "weight") == ["weight", "0.4", "0.3", "0.2", "0.1"]
    assert row(out, "cloud-b") == [
        "cloud-b",
        "boundary",
        "4.1",
        *["the", "text", "of", "boundary", "platform"],
    ]
    assert row(out, "gpu-small")[1] == "memory"
    assert row(out, "problem") == ["problem", "the", "runner", "terminated"]


def test_candidates_can_be_asked_for_by_name(sco: Sco, api: FakeApi) -> None:
    api.on("GET", ONE, document(model_answers.decision()))
    two = sco("describe", "model-placement", PLACEMENT_ID, "--pool", "cloud-b", "--pool", "gpu-local")
    assert [line.split()[0] for line in two.out.splitlines()[-2:]] == ["cloud-b", "gpu-local"]
    assert "gpu-small" not in two.out
    missing = sco("describe", "model-placement", PLACEMENT_ID, "--pool", "cloud-z")
    assert (missing.code, missing.out) == (1, "")
    assert f"cloud-z was no candidate of placement {PLACEMENT_ID}" in missing.err


def test_a_decision_about_a_claim_is_sent_to_explain(sco: Sco, api: FakeApi) -> None:
    api.on("GET", ONE, document(answers.explanation(generation=4)))
    ran = sco("describe", "model-placement", PLACEMENT_ID)
    assert ran.code == 2
    assert "is a decision about workload orders-daily" in ran.err
    assert "sco explain orders-daily --generation 4" in ran.err


def test_an_answer_that_is_not_as_expected_is_named(sco: Sco, api: FakeApi) -> None:
    api.on("POST", PLACEMENTS, Reply(b'{"placementId": "x"}'))
    ran = sco(*ASK)
    assert ran.code == 3
    assert "the placement" in ran.err
