"""Nodes of a laboratory on servers of its cloud: reclaimed by hand, ended for real, and stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.cloud.server import CloudHandle
from lab.cloud.settings import CloudSettings
from lab.main import app
from lab.nodes.inventory import made_up, of_servers
from lab.nodes.running import RunningNodes, running
from lab.stack.errors import StackError
from lab.stack.process import working_in
from wire.lifecycle import EventType

WORKLOAD = {"sco_workload": "web"}
REGION = "eu-north"
PATIENCE_SECONDS = 60.0


class Laboratory:
    """A cloud with four servers of one workload, and nodes on three of them."""

    def __init__(self, folder: Path, cloud: CloudHandle) -> None:
        self.data_dir = folder
        self.cloud = cloud
        self.nodes = RunningNodes(folder / "nodes")

    def command(self, *words: str) -> str:
        """What a command prints; it must succeed."""
        result = CliRunner().invoke(app, [*words, "--data-dir", str(self.data_dir)])
        assert result.exit_code == 0, result.output
        return result.output

    def told(self, instance_id: str, kind: EventType) -> bool:
        events = self.nodes.events()
        return any(one["instanceId"] == instance_id and one["type"] == kind for one in events)

    def gone(self, instance_id: str) -> bool:
        (server,) = [one for one in self.cloud.admin.servers() if one["id"] == instance_id]
        return bool(server["status"] == "DELETED")


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("laboratory")
    with CloudHandle.start_in_thread(CloudSettings(data_dir=folder / "cloud")) as cloud:
        assert cloud.admin.load(REGION, 4, metadata=WORKLOAD) == 4
        start = ["nodes", "start", "--workload", "web", "--count", "3", "--data-dir", str(folder)]
        result = CliRunner().invoke(app, start)
        try:
            assert result.exit_code == 0, result.output
            yield Laboratory(folder, cloud)
        finally:
            stopped = CliRunner().invoke(app, ["nodes", "stop", "--data-dir", str(folder)])
        assert "stopped" in stopped.output
        assert not running(folder / "nodes")
        python = Path(sys.executable).resolve().name
        left = [one for place in folder.glob("nodes/nodes/*") for one in working_in(place, python)]
        assert left == []


def test_a_notice_drains_the_node_and_its_deadline_ends_the_server(laboratory: Laboratory) -> None:
    node = laboratory.nodes.nodes[0]
    said = laboratory.command("reclaim", "--node", node.instance_id, "--warning-seconds", "6")
    assert f"{node.instance_id}  hard" in said
    until(lambda: laboratory.told(node.instance_id, EventType.DRAINED))
    until(lambda: laboratory.gone(node.instance_id))
    assert f"{node.instance_id}  drained" in laboratory.command("nodes", "story")


def test_a_notice_that_is_withdrawn_ends_no_server(laboratory: Laboratory) -> None:
    node = laboratory.nodes.nodes[1]
    laboratory.command("reclaim", "--node", node.instance_id)
    until(lambda: laboratory.told(node.instance_id, EventType.SIGNALLED))
    said = laboratory.command("reclaim", "--node", node.instance_id, "--withdraw")
    assert f"{node.instance_id}  withdrawal" in said
    until(lambda: laboratory.told(node.instance_id, EventType.WITHDRAWN))
    assert not laboratory.gone(node.instance_id)


def test_an_end_without_notice_is_told_by_nobody(laboratory: Laboratory) -> None:
    node = laboratory.nodes.nodes[2]
    laboratory.command("reclaim", "--node", node.instance_id, "--no-notice")
    until(lambda: laboratory.gone(node.instance_id))
    kinds = {one["type"] for one in laboratory.nodes.events() if one["instanceId"] == node.instance_id}
    assert kinds <= {EventType.READY}


def test_the_nodes_are_shown_and_are_servers_of_the_workload(laboratory: Laboratory) -> None:
    shown = laboratory.command("nodes", "list")
    servers = laboratory.cloud.admin.servers(metadata=WORKLOAD)
    placed = {one["id"]: one["availability_zone"] for one in servers}
    for node in laboratory.nodes.nodes:
        assert node.instance_id in shown
        assert placed[node.instance_id] == node.hall
        assert node.pool_id.startswith(f"{node.hall}-")
        assert node.group_id.startswith(f"{node.hall}-a")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("reclaim", "--node", "nobody"), "no node 'nobody' runs here"),
        (("reclaim", "--pool", "a", "--hall", "b"), "one of --node"),
        (("reclaim", "--hall", "a", "--withdraw", "--advisory"), "exclude each other"),
        (("reclaim", "--hall", "eu-north-h1", "--trace", "none.json"), "none.json cannot be read"),
        (("nodes", "start", "--count", "1"), "Nodes run here already"),
        (("nodes", "start", "--workload", "none"), "has no running server"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    laboratory: Laboratory, words: tuple[str, ...], says: str
) -> None:
    hall = laboratory.nodes.nodes[1].hall
    asked = [hall if word == "eu-north-h1" else word for word in words]
    result = CliRunner().invoke(app, [*asked, "--data-dir", str(laboratory.data_dir)])
    assert result.exit_code == 1
    assert says in " ".join(result.output.split())


def test_without_nodes_the_way_to_start_them_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reclaim", "--hall", "a", "--data-dir", str(tmp_path)])
    assert (result.exit_code, "sco-lab nodes start" in result.output) == (1, True)
    stopped = CliRunner().invoke(app, ["nodes", "stop", "--data-dir", str(tmp_path)])
    assert (stopped.exit_code, stopped.output) == (0, "No nodes run here.\n")
    with pytest.raises(StackError, match="place a workload first"):
        RunningNodes.start(tmp_path / "nodes", ())


def test_made_up_nodes_are_the_same_each_time_and_lie_in_two_halls() -> None:
    nodes = made_up(4)
    assert nodes == made_up(6)[:4]
    assert len({one.instance_id for one in nodes}) == 4
    assert {one.hall for one in nodes} == {"eu-north-h1", "eu-north-h2"}


def test_servers_that_do_not_run_or_are_not_reclaimable_are_no_nodes() -> None:
    told = (
        ("BUILD", "reclaimable"),
        ("ACTIVE", "reclaimable"),
        ("ACTIVE", "committed"),
        ("DELETED", "reclaimable"),
        ("ACTIVE", "reclaimable"),
    )
    servers = [
        {
            "id": f"i-{number}",
            "status": status,
            "availability_zone": "eu-north-h1",
            "group": "eu-north-h1-hn-l",
            "metadata": {"sco_purchase_model": model},
        }
        for number, (status, model) in enumerate(told)
    ]
    assert [(one.instance_id, one.group_id) for one in of_servers(servers, 5)] == [
        ("i-1", "eu-north-h1-a3"),
        ("i-4", "eu-north-h1-a3"),
    ]
    assert len(of_servers(servers, 1)) == 1
