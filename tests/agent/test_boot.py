"""The copy that a node is launched with becomes its own, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.boot import read_boot_copy
from tests.agent.rig import BUNDLE_KEY, bundle, letter, node, notice, until
from tests.wire.letters import BUNDLE, KEY, NEXT_KEY, RING, spoiled
from wire.bundle import Bundle, BundleRefusal, BundleRefusedAs, write_bundle

BATCH = "b-" + "0f" * 16
COPY = BUNDLE.model_copy(update={"instance_id": BATCH, "version": 1})
LETTER = write_bundle(COPY, KEY)


def test_what_is_signed_for_the_batch_is_the_instances() -> None:
    assert read_boot_copy(LETTER, RING, "server-9") == COPY.model_copy(update={"instance_id": "server-9"})
    assert read_boot_copy(write_bundle(BUNDLE, KEY), RING, BUNDLE.instance_id) == BUNDLE


@pytest.mark.parametrize("other", ["b-0f", "b-" + "0F" * 16, BATCH + "0", "x" + BATCH, "server-2"])
def test_what_is_for_another_instance_stays_foreign(other: str) -> None:
    letter = write_bundle(BUNDLE.model_copy(update={"instance_id": other}), KEY)
    told = read_boot_copy(letter, RING, "server-9")
    assert isinstance(told, BundleRefusal)
    assert told.reason is BundleRefusedAs.FOREIGN


def test_a_spoiled_copy_says_nothing_else() -> None:
    own = COPY.model_copy(update={"instance_id": "server-9"})
    for raw in spoiled(LETTER):
        read = read_boot_copy(raw, RING, "server-9")
        assert isinstance(read, BundleRefusal) or read == own


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 50_000,
        b"\xff",
        json.dumps({"payload": {"instanceId": BATCH}}).encode(),
        json.dumps({"payload": []}).encode(),
        write_bundle(COPY, NEXT_KEY),
    ],
    ids=len,
)
def test_what_nobody_signed_is_refused(raw: bytes) -> None:
    assert not isinstance(read_boot_copy(raw, RING, "server-9"), Bundle)


def test_an_agent_drains_with_nothing_but_the_copy_for_its_batch_on_disk(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.launch_bundle.write_bytes(write_bundle(bundle(BATCH), BUNDLE_KEY))
        one.settings["SCO_AGENT_BUS_SERVERS"] = "nats://127.0.0.1:9"
        work = one.work("checkpoints")
        one.start()
        one.metadata.letters = [letter(notice(one.instance_id))]
        until(lambda: one.phase() == "finished")
        assert work.said("SIGUSR1")
        assert one.story() == ["notice", "signalled", "work_ended", "drained"]
        assert {event["instanceId"] for event in one.events()} == {one.instance_id}
