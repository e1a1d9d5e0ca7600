"""The bundle that a node holds: newer ones only, by keys that it knows, whatever becomes of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.bundle import CURRENT, PREVIOUS, TRUST, BundleStore
from agent.files import Writer
from agent.metrics import AgentMetrics
from tests.agent.rig import BUNDLE_KEY, NOTICE_KEY, bundle, key
from wire.bundle import write_bundle
from wire.signing import SigningKey

NEW_KEY = key("bundles-2")
BATCH = "b-" + "0f" * 16


def store(folder: Path, boot_copy: Path | None = None) -> BundleStore:
    one = BundleStore(folder, boot_copy, "i-1", Writer(_not_written), AgentMetrics())
    one.load()
    return one


def _not_written(name: str) -> None:
    raise AssertionError(f"{name} was not written")


def signed(version: int, by: SigningKey = BUNDLE_KEY, believed: tuple[SigningKey, ...] = ()) -> bytes:
    return write_bundle(bundle("i-1", version=version, keys=believed), by)


async def test_a_newer_bundle_counts_and_an_older_one_never(tmp_path: Path) -> None:
    one = store(tmp_path)
    assert await one.offer(signed(2)) is None
    refusals = [await one.offer(signed(version)) for version in (1, 2)]
    assert [refusal and refusal.reason for refusal in refusals] == ["older", "older"]
    assert await one.offer(signed(3)) is None
    assert store(tmp_path).version == 3
    assert one.notice_ring().names() == (NOTICE_KEY.key_id,)


async def test_who_signs_is_replaced_by_a_bundle_that_says_so(tmp_path: Path) -> None:
    one = store(tmp_path)
    await one.offer(signed(1))
    refused = await one.offer(signed(2, NEW_KEY, (NEW_KEY,)))
    assert refused is not None
    assert refused.reason == "forged"
    assert await one.offer(signed(2, BUNDLE_KEY, (BUNDLE_KEY, NEW_KEY))) is None
    assert await one.offer(signed(3, NEW_KEY, (NEW_KEY,))) is None
    late = await one.offer(signed(4, BUNDLE_KEY))
    assert late is not None
    assert late.reason == "forged"
    again = store(tmp_path)
    assert again.version == 3
    (tmp_path / CURRENT).write_bytes(b"{")
    assert store(tmp_path).version == 2


async def test_a_node_that_lost_its_newest_bundle_takes_it_again_and_nothing_older(tmp_path: Path) -> None:
    launch = tmp_path / "launch.json"
    launch.write_bytes(signed(1))
    one = store(tmp_path, launch)
    assert one.version == 1
    await one.offer(signed(5))
    for name in (CURRENT, PREVIOUS):
        (tmp_path / name).write_bytes(b"\x00" * 64)
    again = store(tmp_path, launch)
    assert again.version == 1
    replayed = await again.offer(signed(4))
    assert replayed is not None
    assert replayed.reason == "older"
    assert await again.offer(signed(5)) is None


async def test_a_node_from_anothers_disk_believes_the_same_and_counts_from_the_start(tmp_path: Path) -> None:
    await store(tmp_path).offer(signed(7))
    other = BundleStore(tmp_path, None, "i-2", Writer(_not_written), AgentMetrics())
    other.load()
    assert other.bundle is None
    forged = await other.offer(write_bundle(bundle("i-2", version=2), NEW_KEY))
    assert forged is not None
    assert forged.reason == "forged"
    assert await other.offer(write_bundle(bundle("i-2", version=2), BUNDLE_KEY)) is None


async def test_the_launch_copy_of_a_batch_is_this_nodes_and_outlives_the_loss_of_newer_ones(
    tmp_path: Path,
) -> None:
    launch = tmp_path / "launch.json"
    launch.write_bytes(write_bundle(bundle(BATCH), BUNDLE_KEY))
    one = store(tmp_path, launch)
    assert one.bundle is not None
    assert one.bundle.instance_id == "i-1"
    foreign = await one.offer(write_bundle(bundle(BATCH, version=2), BUNDLE_KEY))
    assert foreign is not None
    assert foreign.reason == "foreign"
    assert await one.offer(signed(2)) is None
    launch.unlink()
    (tmp_path / CURRENT).write_bytes(b"{")
    assert store(tmp_path, launch).version == 1


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff" * 300, b'{"bundleKeys": {"a": "?"}, "noticeKeys": {"a": "b"}}']
)
async def test_keys_that_cannot_be_read_cost_no_bundle(tmp_path: Path, content: bytes) -> None:
    await store(tmp_path).offer(signed(1))
    (tmp_path / TRUST).write_bytes(content)
    assert store(tmp_path).version == 1


async def test_a_first_bundle_is_believed_by_keys_that_the_image_laid_down(tmp_path: Path) -> None:
    (tmp_path / TRUST).write_text(bundle("i-1").trust.model_dump_json(by_alias=True))
    one = store(tmp_path)
    refused = await one.offer(signed(1, NEW_KEY, (NEW_KEY,)))
    assert refused is not None
    assert refused.reason == "forged"
    assert one.orders.signal == "TERM"
    assert await one.offer(signed(1)) is None
