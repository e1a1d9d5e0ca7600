"""`sco` as a process of its own: pipes, full disks, narrow encodings and interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.cli import answers
from tests.cli.fake_api import FakeApi, document

SECONDS = 60
MANY = {"items": [answers.pool(f"p{number}") for number in range(500)], "nextPageToken": None}
POOLS = "/factory/compute-pools"


def start(
    api: FakeApi, *arguments: str, stdout: int | BinaryIO = subprocess.PIPE, encoding: str = "utf-8"
) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], "SCO_SERVER": api.url, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "clients.cli.main", *arguments]
    return subprocess.Popen(command, env=environment, stdout=stdout, stderr=subprocess.PIPE)


def test_a_reader_that_has_enough_ends_it_quietly(api: FakeApi) -> None:
    api.on("GET", POOLS, document(MANY))
    process = start(api, "get", "pools", "-o", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(SECONDS) == 141


@pytest.mark.parametrize("arguments", [("status",), ("get", "pools", "-o", "yaml"), ("--version",)])
def test_a_full_disk_is_told(api: FakeApi, arguments: tuple[str, ...]) -> None:
    api.on("GET", "/status", document(answers.status()))
    api.on("GET", POOLS, document(MANY))
    with Path("/dev/full").open("wb") as full:
        process = start(api, *arguments, stdout=full)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert errors == b"error: the output cannot be written: No space left on device\n"


def test_a_closed_output_is_told(api: FakeApi) -> None:
    environment = {"PATH": os.environ["PATH"], "SCO_SERVER": api.url}
    command = [sys.executable, "-m", "clients.cli.main", "get", "pools"]
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    ended = subprocess.run(shell, env=environment, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert ended.returncode == 2
    assert ended.stderr == b"error: the output cannot be written: it is closed\n"
    assert not api.asked("GET", POOLS)


def test_an_encoding_without_a_letter_does_not_stop_it(api: FakeApi) -> None:
    api.on("GET", "/workloads/orders-daily", document(answers.workload(ownerTeam="größe…")))
    for form in ("table", "json", "yaml"):
        process = start(api, "describe", "workload", "orders-daily", "-o", form, encoding="ascii")
        output, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, errors) == (0, b"")
        assert b"gr\\xf6" in output.lower() or b"gr\\u00f6" in output


def test_an_interrupt_ends_the_wait_and_not_the_placement(api: FakeApi) -> None:
    placed = {"workloadId": "orders-daily", "claimVersion": 1, "placement": answers.launch()}
    api.on("POST", "/placements", document(placed, 202))
    api.on("GET", "/workloads/orders-daily", document(answers.workload("acquiring")))
    # Whoever runs the tests in the background has them ignore interrupts, and what they start would too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start(api, "place", "orders-daily", "--wait")
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=SECONDS)
    assert b"acquiring" in first
    assert process.returncode == 130
    assert rest == b"interrupted; what the server has begun goes on\n"
