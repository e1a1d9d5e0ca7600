"""Fixtures that several rooms' tests share."""

from __future__ import annotations

pytest_plugins = ["tests.stack_fixtures", "tests.database", "tests.estates"]
