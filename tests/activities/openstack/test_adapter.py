"""The gate to the wire: redirects cost tokens too, and no caller can wait longer than allowed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
import requests
from keystoneauth1.session import Session
from prometheus_client import CollectorRegistry

from activities.openstack.adapter import BudgetAdapter
from activities.openstack.metrics import ProviderMetrics
from domain.circuit import Outcome
from tests.activities.openstack.hands import REGION, CountingBudget


class Answers(BaseHTTPRequestHandler):
    """`/hop/N` redirects N times, `/silent` says nothing, any other path is a status and Retry-After."""

    protocol_version = "HTTP/1.1"
    released = Event()

    def do_GET(self) -> None:
        kind, _, number = self.path.strip("/").partition("/")
        if kind == "silent":
            self.released.wait(30)
        elif kind == "hop" and int(number) > 0:
            self._answer(302, {"Location": f"http://{self.headers['Host']}/hop/{int(number) - 1}"})
        else:
            waits = {"Retry-After": number} if number else {}
            self._answer(200 if kind == "hop" else int(kind), waits)

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    Answers.released.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def budget() -> CountingBudget:
    return CountingBudget()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def http(budget: CountingBudget, registry: CollectorRegistry) -> Iterator[requests.Session]:
    session = requests.Session()
    session.mount(
        "http://",
        BudgetAdapter(
            REGION,
            budget,
            ProviderMetrics(registry),
            timeout_seconds=(1.0, 0.3),
            max_connections=2,
            now=lambda: datetime.now(UTC),
        ),
    )
    yield session
    session.close()


def test_each_redirect_costs_a_token(http: requests.Session, budget: CountingBudget, address: str) -> None:
    assert Session(session=http).get(f"{address}/hop/0", authenticated=False).status_code == 200
    assert budget.taken[REGION] == 1
    assert Session(session=http).get(f"{address}/hop/1", authenticated=False).status_code == 200
    assert budget.taken[REGION] == 3


def test_a_callers_own_limit_does_not_hold(http: requests.Session, address: str) -> None:
    started = time.monotonic()
    with pytest.raises(requests.ReadTimeout):
        http.get(f"{address}/silent", timeout=600)
    assert time.monotonic() - started < 30


def test_each_outcome_is_counted_once(
    http: requests.Session, registry: CollectorRegistry, address: str
) -> None:
    expected = {204: "ok", 404: "refused", 429: "throttled", 413: "throttled", 503: "failed"}
    for status in expected:
        http.get(f"{address}/{status}")
    with pytest.raises(requests.ReadTimeout):
        http.get(f"{address}/silent")
    with pytest.raises(requests.ConnectionError):
        http.get("http://127.0.0.1:1/")
    counted = {
        outcome: registry.get_sample_value("sco_provider_calls_total", {"region": REGION, "outcome": outcome})
        for outcome in ("ok", "refused", "throttled", "failed", "timeout", "unreachable")
    }
    assert counted == {
        "ok": 1,
        "refused": 1,
        "throttled": 2,
        "failed": 1,
        "timeout": 1,
        "unreachable": 1,
    }


def test_each_outcome_is_reported_with_what_a_throttled_answer_asks_for(
    http: requests.Session, budget: CountingBudget, address: str
) -> None:
    for path in ("204", "404/9", "429/7", "413", "503/9"):
        http.get(f"{address}/{path}")
    with pytest.raises(requests.ReadTimeout):
        http.get(f"{address}/silent")
    with pytest.raises(requests.ConnectionError):
        http.get("http://127.0.0.1:1/")
    assert budget.reported == [
        (REGION, Outcome.OK, None),
        (REGION, Outcome.REFUSED, None),
        (REGION, Outcome.THROTTLED, 7.0),
        (REGION, Outcome.THROTTLED, None),
        (REGION, Outcome.FAILED, None),
        (REGION, Outcome.TIMEOUT, None),
        (REGION, Outcome.UNREACHABLE, None),
    ]
    assert budget.taken[REGION] == 7
