"""Both dialects against a real model server: what is loaded, what fails and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pydantic import SecretStr

from activities.serving.http import HttpServing
from activities.serving.ports import Endpoint, ListedModel, ServingError, ServingProblem
from tests.activities.serving.model_servers import DIALECTS, Served, served, terms_for


@pytest.fixture(params=DIALECTS)
def one(request: pytest.FixtureRequest) -> Iterator[Served]:
    with served(request.param) as own:
        yield own


async def test_what_was_loaded_is_listed_until_it_is_unloaded(one: Served) -> None:
    assert await one.names() == []
    await one.serving.load(one.endpoint, "qwen3-8b")
    await one.serving.load(one.endpoint, "b:12gb")
    assert sorted(name.removesuffix(":latest") for name in await one.names()) == ["b:12gb", "qwen3-8b"]
    await one.serving.unload(one.endpoint, "qwen3-8b")
    assert await one.names() == ["b:12gb"]


async def test_memory_is_told_where_the_dialect_has_it() -> None:
    with served("ollama") as own:
        await own.serving.load(own.endpoint, "b:12gb")
        assert await own.serving.list_models(own.endpoint) == (ListedModel("b:12gb", 12),)


async def test_loading_and_unloading_again_changes_nothing(one: Served) -> None:
    for _ in range(2):
        await one.serving.load(one.endpoint, "b:12gb")
    for _ in range(2):
        await one.serving.unload(one.endpoint, "b:12gb")
    assert one.state["loads"] == {"b:12gb": 1}
    assert one.state["unloads"] == {"b:12gb": 1}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_load_returns_when_the_model_is_there_and_callers_share_it(dialect: str) -> None:
    with served(dialect, seconds_per_gb=0.05) as own:
        await asyncio.gather(*(own.serving.load(own.endpoint, "b:12gb") for _ in range(4)))
        assert await own.names() == ["b:12gb"]
        assert own.state["loads"] == {"b:12gb": 1}
        assert own.state["most_used_gb"] == 12


async def test_a_model_that_is_not_there_is_told_apart(one: Served) -> None:
    with pytest.raises(ServingError) as told:
        await one.serving.load(one.endpoint, "nobody-knows-it")
    assert told.value.kind is ServingProblem.UNKNOWN_MODEL
    assert "nobody-knows-it" in told.value.text


@pytest.mark.parametrize(
    ("dialect", "kind"), [("ollama", ServingProblem.NO_MEMORY), ("openai", ServingProblem.FAILED)]
)
async def test_what_does_not_fit_is_refused_and_takes_nothing(dialect: str, kind: ServingProblem) -> None:
    with served(dialect, vram_gb=20) as own:
        await own.serving.load(own.endpoint, "b:12gb")
        with pytest.raises(ServingError) as told:
            await own.serving.load(own.endpoint, "c:12gb")
        assert told.value.kind is kind
        assert (own.state["used_gb"], own.state["most_used_gb"]) == (12, 12)


async def test_a_load_that_fails_may_be_tried_again(one: Served) -> None:
    one.admin("disturb", {"fail_next": 1})
    with pytest.raises(ServingError) as told:
        await one.serving.load(one.endpoint, "b:12gb")
    assert told.value.kind is ServingProblem.FAILED
    assert one.state["used_gb"] == 0
    await one.serving.load(one.endpoint, "b:12gb")
    assert await one.names() == ["b:12gb"]


async def test_an_endpoint_that_answers_passes_its_probe(one: Served) -> None:
    await one.serving.probe(one.endpoint)


async def test_a_credential_that_is_not_taken_is_refused_and_not_told(one: Served) -> None:
    wrong = one.endpoint.model_copy(update={"credential": SecretStr("wr0ng-credential")})
    for call in (one.serving.probe(wrong), one.serving.load(wrong, "b:12gb"), one.serving.list_models(wrong)):
        with pytest.raises(ServingError) as told:
            await call
        assert told.value.kind is ServingProblem.REFUSED
        assert "wr0ng" not in str(told.value)
    assert "wr0ng" not in repr(wrong)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_endpoint_that_hangs_is_given_up(dialect: str) -> None:
    with served(dialect, terms={"answer_seconds": 0.3, "load_seconds": 0.3}) as own:
        own.admin("disturb", {"hang": True})
        for call in (own.serving.probe(own.endpoint), own.serving.load(own.endpoint, "b:12gb")):
            with pytest.raises(ServingError) as told:
                await call
            assert told.value.kind is ServingProblem.TIMEOUT
        own.admin("disturb", {"hang": False})
        await own.serving.probe(own.endpoint)


async def test_an_endpoint_that_is_gone_is_unreachable() -> None:
    with served("ollama") as own:
        pass
    with pytest.raises(ServingError) as told:
        await own.serving.probe(own.endpoint)
    assert told.value.kind is ServingProblem.UNREACHABLE


class OddAnswers(BaseHTTPRequestHandler):
    """Answers every request in the way that its path prefix names."""

    def _answer(self) -> None:
        way = self.path.split("/")[1]
        sent = self.headers.get("Authorization", "")
        bodies = {
            "words": (200, b"hello"),
            "list": (200, b"[1]"),
            "noname": (200, b'{"models": [{}], "data": [{}]}'),
            "wrong": (200, b'{"models": 3, "data": "x"}'),
            "redirect": (307, b""),
            "broken": (500, f'{{"error": "you sent {sent}"}}'.encode()),
            "denied": (403, f'{{"error": {{"message": "no {sent}"}}}}'.encode()),
            "busy": (503, b"<html>busy</html>"),
            "huge": (200, b'{"models": "' + b"x" * 3_000_000 + b'"}'),
            "missing": (404, b"404 page not found"),
        }
        status, body = bodies[way]
        self.send_response(status)
        if way == "redirect":
            self.send_header("Location", "http://169.254.169.254/latest/meta-data")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def odd_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OddAnswers)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("words", ServingProblem.PROTOCOL),
        ("list", ServingProblem.PROTOCOL),
        ("noname", ServingProblem.PROTOCOL),
        ("wrong", ServingProblem.PROTOCOL),
        ("redirect", ServingProblem.PROTOCOL),
        ("broken", ServingProblem.PROTOCOL),
        ("denied", ServingProblem.REFUSED),
        ("busy", ServingProblem.UNREACHABLE),
        ("huge", ServingProblem.PROTOCOL),
        ("missing", ServingProblem.PROTOCOL),
    ],
)
async def test_an_odd_answer_is_no_list_and_repeats_no_credential(
    odd_port: int, dialect: str, way: str, kind: ServingProblem
) -> None:
    serving = HttpServing(terms_for(odd_port))
    endpoint = Endpoint(
        url=f"{dialect}+http://127.0.0.1:{odd_port}/{way}", credential=SecretStr("s3cret-s3cret")
    )
    with pytest.raises(ServingError) as told:
        await serving.list_models(endpoint)
    assert told.value.kind is kind
    assert "s3cret" not in str(told.value)
    assert len(told.value.text) <= 300
