"""The page about gRPC says what the code says, and the programs beside it run."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from grpc import StatusCode

from api.grpc import admission, batches, calls, health, main, refusals, reports, server, service
from api.grpc.settings import GrpcSettings
from store.engine import Engine
from tests.api.grpc.door import GrpcDoor, grpc_door
from tests.docs.pages import ROOT, fences, read, rows, section
from tests.estates import Clock
from wire.proto import control_pb2 as pb

PAGE, HOWTO = "docs/reference/grpc.md", "docs/howto/place-a-model.md"
PATIENCE_SECONDS = 60


def flat(heading: str) -> str:
    return " ".join(section(PAGE, heading).split())


def test_every_method_is_documented_and_no_other() -> None:
    methods = {one.name for one in pb.DESCRIPTOR.services_by_name["ComputePools"].methods}
    assert set(rows(PAGE, "Methods")) == methods
    for role in service.NEEDS["Place"].roles:
        assert f"`{role}`" in flat("Methods")


def test_every_end_of_a_stream_is_documented() -> None:
    ends = set(pb.StreamEnd.keys()) - {"STREAM_END_UNSPECIFIED"}
    assert set(rows(PAGE, "Reporting")) == {"ended_by"} | ends


def test_every_status_of_the_code_is_documented() -> None:
    files = sorted((ROOT / "api" / "grpc").glob("*.py"))
    used = set(re.findall(r"StatusCode\.([A-Z_]+)", "".join(path.read_text() for path in files)))
    documented = set(rows(PAGE, "Status"))
    # The first are told by way of reasons of reports, the last is the library's own.
    assert used - {"CANCELLED", "OUT_OF_RANGE", "FAILED_PRECONDITION"} == documented - {"UNIMPLEMENTED"}
    assert {code.name for _, code, _ in refusals.TOLD_AS} <= documented


def test_the_figures_are_those_of_the_code() -> None:
    limits = server.Limits()
    text = flat("Deadlines and overload")
    assert f"has {calls.DEFAULT_SECONDS:g} s; more than {calls.MOST_SECONDS:g} s are cut" in text
    assert f"{limits.calls_at_once} calls are worked on at once, {limits.calls_waiting} may wait" in text
    options = dict(server.OPTIONS)
    figures = {name: cells[0] for name, cells in limit_rows().items()}
    assert figures == {
        "open streams, of one tenant at most half of them": f"{limits.streams:,}",
        "calls of all kinds at once": f"{limits.most_calls:,}",
        "size of a message that comes in": f"{options['grpc.max_receive_message_length'] // 1024} KiB",
        "metadata of a call": f"{options['grpc.max_metadata_size'] // 1024} KiB",
        "a connection without any call": (f"closed after {options['grpc.max_connection_idle_ms'] // 1000} s"),
        "pings of a client": (
            f"at most one in {options['grpc.http2.min_ping_interval_without_data_ms'] // 1000} s"
        ),
    }
    told = flat("Reporting")
    assert f"up to {batches.MOST_REPORTS} or what came within {batches.WITHIN_SECONDS:g} s" in told
    assert f"nothing came for {reports.IDLE_SECONDS:g} s" in told
    side = flat("Health and reflection")
    assert f"it looks every {health.LOOK_EVERY_SECONDS:g} s" in side
    assert f"{limits.side_calls} at a time" in side
    assert f"calls at work get {main.STOP_SECONDS:g} s" in side


def limit_rows() -> dict[str, list[str]]:
    found = re.findall(r"^\| ([a-z][^|]*) \| ([^|]*) \|$", section(PAGE, "Deadlines and overload"), re.M)
    return {name: [figure] for name, figure in found}


def test_the_address_is_the_default() -> None:
    fields = GrpcSettings.model_fields
    assert f"`{fields['grpc_host'].default}:{fields['grpc_port'].default}`" in read(PAGE)


@pytest_asyncio.fixture
async def door(engine: Engine, tenant_engine: Engine, clock: Clock) -> AsyncIterator[GrpcDoor]:
    async with grpc_door(engine, tenant_engine, clock) as own:
        yield own


async def run(program: str, door: GrpcDoor, given: str = "") -> tuple[int, str]:
    """How a program of the page ends beside a server, and what it says."""
    token = door.signed()[0][1].removeprefix("Bearer ")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, door.address),
        cwd=ROOT,
        env=os.environ | {"SCO_TOKEN": token},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        said, wrong = await process.communicate(given.encode())
    assert "Traceback" not in wrong.decode(), wrong.decode()
    return process.returncode or 0, said.decode()


async def test_the_program_that_places_a_model_runs(door: GrpcDoor) -> None:
    program, _ = fences(read(HOWTO), "python")
    code, said = await run(program, door)
    assert code == 1
    assert "no pool satisfies the boundary and the regions" in said
    await door.serving.pool()
    code, said = await run(program, door)
    assert code == 0
    assert "serve from https://gpu-1.example.net, first answer in about 40 s" in said
    assert await door.serving.committed() == 0
    assert await door.serving.run("SELECT state FROM model_placements WHERE state <> 'none'") == [
        ("released",)
    ]


async def test_the_program_waits_while_the_server_is_busy(
    door: GrpcDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry policy of the page obeys what a refusal says."""
    await door.serving.pool()
    refused = 0
    turn = admission.Admission.turn

    def busy_once(self: admission.Admission, tenant_id: str) -> object:
        nonlocal refused
        if refused < 1:
            refused += 1
            raise calls.Refused(StatusCode.RESOURCE_EXHAUSTED, "busy", retry=True)
        return turn(self, tenant_id)

    monkeypatch.setattr(admission.Admission, "turn", busy_once)
    program, _ = fences(read(HOWTO), "python")
    code, said = await run(program.replace("timeout=2", "timeout=20"), door)
    assert (code, refused) == (0, 1), said


async def test_the_program_that_reports_runs(door: GrpcDoor) -> None:
    await door.serving.pool(reported=False)
    _, program = fences(read(HOWTO), "python")
    code, said = await run(program, door, "gpu-1 0.35 2\ngpu-9 0.1 0\n")
    assert code == 0
    assert said.startswith("1 accepted, 1 refused\n1 x unknown_pool: ")
    assert await door.serving.run("SELECT queue_depth FROM pool_capacity") == [(2,)]
