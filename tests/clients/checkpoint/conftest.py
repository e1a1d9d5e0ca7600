"""Real S3 servers, started once for all tests that ask for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.checkpoint.servers import Rclone, S3Server, SeaweedFS


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    with SeaweedFS() as server:
        yield server


@pytest.fixture(scope="session")
def rclone() -> Iterator[S3Server]:
    with Rclone() as server:
        yield server


@pytest.fixture(params=["seaweedfs", "rclone"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found
