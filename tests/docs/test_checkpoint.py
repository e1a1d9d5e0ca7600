"""The page of the checkpoint protocol says what the code does: another client is written from it."""

from __future__ import annotations

import re
from pathlib import Path

from agent.socket import SocketLimits
from agent.socket_lines import MAX_LINE, MAX_REASON, Refused, read_request
from clients.checkpoint import errors, layout, lease, manifest, notice
from clients.checkpoint.client import AGENT_SOCKET, DEADLINE_FILE
from tests.clients.checkpoint.stores import MemoryStore, checkpoints
from tests.docs.pages import read, rows, section

PROTOCOL, HOWTO = "docs/reference/checkpoint-protocol.md", "docs/howto/checkpoint-a-workload.md"


def keys_of_a_whole_life() -> set[str]:
    store = MemoryStore()
    with checkpoints(store) as writer:
        writer.save({"a": b"x"})
        writer.stage("r", b"y")
        writer.publish()
    return {key.removeprefix("checkpoints/job-1/") for key in store.objects}


def test_the_keys_on_the_page_are_those_that_are_written() -> None:
    forms = {"T": r"\d{16}", "G": r"\d{16}", "W": "[0-9a-f]{16}", "A": "[0-9a-f]{16}"}
    forms |= {"FFFFF": r"\d{5}", "PPPPPP": r"\d{6}"}
    written = keys_of_a_whole_life()
    named = list(rows(PROTOCOL, "Keys"))
    assert len(named) == 6
    for key in named:
        form = re.sub(
            r"\b(T|G|W|A|FFFFF|PPPPPP)\b", lambda found: forms[found[1]], re.escape(key).replace(r"\-", "-")
        )
        matching = {one for one in written if re.fullmatch(form, one)}
        assert matching, key
        written -= matching
    assert not written


def test_the_lines_on_the_page_are_those_that_the_agent_reads() -> None:
    text = section(PROTOCOL, "The agent's socket")
    lines = re.findall(r"`(\{\"op\".*?\})`", text)
    assert len(lines) == 5
    assert not [line for line in lines if isinstance(read_request(line.encode()), str)]
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == {str(reason) for reason in Refused}
    limits = SocketLimits()
    for figure in (
        f"{MAX_LINE} bytes",
        f"{MAX_REASON} characters",
        f"{limits.lines[0]:.0f} lines a second",
        f"{limits.connections_per_uid} connections of the user or {limits.connections} in all",
        f"for {limits.idle_seconds:.0f} s",
    ):
        assert figure in text, figure


def test_the_figures_of_the_protocol_are_those_of_the_code() -> None:
    text = read(PROTOCOL)
    assert f"decimal with {layout.DIGITS} digits" in text
    assert f"less than {lease.SKEW_SECONDS} s" in text
    low, high = lease.STEP_BACK_SECONDS
    assert f"random {low} to {high} s" in text
    assert f"asked for {lease.LOOKS} times, {lease.LOOK_SECONDS} s apart" in text
    assert f'"format": {manifest.FORMAT}' in text
    assert f"at most {manifest.MAX_NAME} characters" in text
    assert AGENT_SOCKET in text
    assert DEADLINE_FILE in text


def test_the_how_to_names_every_error_and_signal() -> None:
    named = set(rows(HOWTO, "When something is in the way"))
    known = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert named == known - {"CheckpointError", "MissingError"}
    for number in notice.SIGNALS:
        assert number.name in read(HOWTO)


def test_the_examples_on_the_page_exist() -> None:
    folder = Path(__file__).parents[2] / "docs/examples/checkpoint"
    assert {f"../examples/checkpoint/{file.name}" for file in folder.iterdir() if file.is_file()} == set(
        re.findall(r"\]\((\.\./examples/checkpoint/[^)]+)\)", read(HOWTO))
    )
