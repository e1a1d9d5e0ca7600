"""`sco warm` and warm profiles: asked for, waited for, listed, applied at the version that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document, problem

WARM = "/factory/compute-pools/gpu-7/warm"
PROFILES = "/factory/warm-profiles"
ID = "6f1b1d52-2a3e-4a1c-8f62-0d7d2b0c9a11"
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "warm" / "chat.yaml")


def request(status: str, text: str | None = None) -> dict[str, Any]:
    return {
        "requestId": ID,
        "poolId": "gpu-7",
        "model": "llama",
        "vramGb": 42,
        "status": status,
        "problem": text,
        "requestedBy": "ada",
        "requestedAt": "2030-01-31T10:00:00Z",
        "finishedAt": None,
    }


def profile(**other: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "profileId": "chat",
        "models": [{"model": "llama", "vramGb": 42}, {"model": "qwen", "vramGb": 6}],
        "copies": 2,
        "windows": [{"days": ["monday", "friday"], "start": "06:00:00", "until": "18:00:00"}],
        "enabled": True,
        "inForce": False,
        "version": 3,
    }
    return usual | other


def test_a_request_is_sent_once_and_named(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WARM, document(request("requested"), 202))
    ran = sco("warm", "gpu-7", "llama", "--vram-gb", "42")
    assert (ran.code, ran.out) == (0, f"llama is requested on gpu-7: {ID}\n")
    (call,) = api.asked("POST", WARM)
    assert call.document == {"model": "llama", "vramGb": 42}
    assert call.headers["idempotency-key"]


def test_it_waits_until_the_model_is_loaded(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WARM, document(request("requested"), 202))
    told = [document(request(status)) for status in ("requested", "loading", "loaded")]
    api.on("GET", f"{WARM}/{ID}", *told)
    ran = sco("warm", "gpu-7", "llama", "--vram-gb", "42", "--wait")
    assert (ran.code, ran.out) == (0, "llama is loaded on gpu-7\n")
    assert len(api.asked("GET", f"{WARM}/{ID}")) == 3


def test_a_load_that_fails_ends_with_its_reason(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WARM, document(request("requested"), 202))
    api.on("GET", f"{WARM}/{ID}", document(request("failed", "42 GB do not fit")))
    ran = sco("warm", "gpu-7", "llama", "--vram-gb", "42", "--wait")
    assert ran.code == 1
    assert "llama was not loaded on gpu-7: 42 GB do not fit" in ran.err


def test_waiting_has_an_end(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WARM, document(request("requested"), 202))
    api.on("GET", f"{WARM}/{ID}", document(request("loading")))
    ran = sco("warm", "gpu-7", "llama", "--vram-gb", "42", "--wait", "--timeout", "5")
    assert ran.code == 4
    assert "llama is loading on gpu-7 after 5 seconds" in ran.err


def test_a_document_is_printed_as_it_came(sco: Sco, api: FakeApi) -> None:
    api.on("POST", WARM, document(request("requested"), 202))
    ran = sco("warm", "gpu-7", "llama", "--vram-gb", "42", "-o", "json")
    assert '"requestedBy": "ada"' in ran.out


@pytest.mark.parametrize(
    "arguments", [("gpu-7", "llama"), ("gpu-7", "llama", "--vram-gb", "0"), ("A", "llama", "--vram-gb", "1")]
)
def test_wrong_usage_sends_nothing(sco: Sco, api: FakeApi, arguments: tuple[str, ...]) -> None:
    assert sco("warm", *arguments).code == 2
    assert api.calls == []


def test_profiles_are_listed_with_what_they_keep(sco: Sco, api: FakeApi) -> None:
    listed = [
        profile(),
        profile(profileId="night", windows=[], inForce=True, copies=1),
        profile(
            profileId="off", windows=[{"days": [], "start": "22:00:00", "until": "06:00:00"}], enabled=False
        ),
    ]
    api.on("GET", PROFILES, document({"items": listed, "nextPageToken": None}))
    ran = sco("get", "warm-profiles")
    rows = [line.split() for line in ran.out.splitlines()[1:]]
    assert rows == [
        ["chat", "no", "2", "48", "llama,", "qwen", "mon,fri", "06:00-18:00"],
        ["night", "yes", "1", "48", "llama,", "qwen", "always"],
        ["off", "off", "2", "48", "llama,", "qwen", "22:00-06:00"],
    ]


def test_no_profile_is_said(sco: Sco, api: FakeApi) -> None:
    api.on("GET", PROFILES, document({"items": [], "nextPageToken": None}))
    ran = sco("get", "warm-profiles")
    assert (ran.code, ran.out) == (0, "")
    assert "no warm profile yet" in ran.err


def test_a_new_profile_is_applied_without_a_version(sco: Sco, api: FakeApi) -> None:
    api.on("GET", f"{PROFILES}/chat", problem(404, "no such profile"))
    api.on("PUT", f"{PROFILES}/chat", document(profile(), 201))
    ran = sco("apply", "-f", EXAMPLE)
    assert (ran.code, ran.out) == (0, "warm profile chat applied\n")
    (call,) = api.asked("PUT", f"{PROFILES}/chat")
    assert "if-match" not in call.headers
    assert call.document["copies"] == 2
    assert not {"apiVersion", "kind", "profileId"} & set(call.document)


def test_a_profile_that_is_there_is_applied_at_its_version(sco: Sco, api: FakeApi) -> None:
    api.on("GET", f"{PROFILES}/chat", document(profile()))
    api.on("PUT", f"{PROFILES}/chat", document(profile(version=4)))
    assert sco("apply", "-f", EXAMPLE).code == 0
    (call,) = api.asked("PUT", f"{PROFILES}/chat")
    assert call.headers["if-match"] == '"3"'


def test_a_refusal_to_read_is_no_absence(sco: Sco, api: FakeApi) -> None:
    api.on("GET", f"{PROFILES}/chat", problem(403, "not allowed"))
    ran = sco("apply", "-f", EXAMPLE)
    assert ran.code == 1
    assert api.asked("PUT", f"{PROFILES}/chat") == []
