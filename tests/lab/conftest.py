"""Stacks that a test may break, in folders of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.stack import Stack
from tests.stack_fixtures import new_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder outside the repository, removed after the test."""
    path = new_folder()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def shared_folder() -> Iterator[Path]:
    """The folder of a module's `own_stack`; whatever runs there is stopped after the last test."""
    path = new_folder()
    yield path
    Stack.load(path / "lab").stop()
    shutil.rmtree(path)


@pytest.fixture
def own_stack(shared_folder: Path) -> Stack:
    """A running stack of this module, whose servers a test may stop, kill or restart but not spoil."""
    return Stack.start(shared_folder / "lab")


@pytest.fixture
def spoilt_stack(folder: Path) -> Iterator[Stack]:
    """A running stack for one test, which may damage its data."""
    stack = Stack.start(folder / "lab")
    yield stack
    stack.stop()
