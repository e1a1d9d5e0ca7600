"""Fixtures that several rooms' tests share, and what is run together when tests run in several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.stack_fixtures", "tests.database", "tests.estates"]

# Rooms whose files share servers that take long to start, or keep all cores busy by themselves.
TOGETHER = (Path("tests/conformance"), Path("tests/faults"))


# First, because who shares the tests out reads the groups in the same step.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a file, or of a room that shares costly servers, in one process."""
    for item in items:
        path = item.path.relative_to(config.rootpath)
        room = next((one for one in TOGETHER if path.is_relative_to(one)), path)
        item.add_marker(pytest.mark.xdist_group(str(room)))
