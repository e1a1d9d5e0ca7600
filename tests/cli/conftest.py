"""A fake server, and `sco` run against it in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.cli.api import Clock
from clients.cli.main import main
from tests.cli.fake_api import FakeApi, serving


@dataclass(frozen=True)
class Ran:
    """One finished run."""

    code: int
    out: str
    err: str


Sco = Callable[..., Ran]


class FakeClock:
    """Time that passes only by sleeping, and is remembered."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


@pytest.fixture(autouse=True)
def nobody_signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer's shell says of a laboratory is nothing to these tests."""
    for name in [name for name in os.environ if name.startswith("SCO_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def passing_time() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def served_api() -> Iterator[FakeApi]:
    with serving(FakeApi()) as api:
        yield api


@pytest.fixture
def api(served_api: FakeApi) -> FakeApi:
    served_api.reset()
    return served_api


@pytest.fixture
def sco(
    api: FakeApi,
    passing_time: FakeClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Sco:
    """Runs `sco` against the fake server, in an empty directory, on a clock that never waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCO_SERVER", api.url)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments, clock=passing_time.clock)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
