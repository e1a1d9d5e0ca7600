"""One bus for all tests of the agent, which speak to instances of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.rig import Relay


@pytest.fixture(scope="session")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    one = Relay(Path(tmp_path_factory.mktemp("relay")))
    yield one
    one.stop()
