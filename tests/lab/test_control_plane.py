"""The relay as a process of the laboratory: what it lays down, and that it comes and goes whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.node_settings import read_node_settings
from lab.control_plane import CLOUD, RELAY, ControlPlane
from lab.nodes.plans import PROVIDER_FOLDER
from lab.nodes.provider import BUS_FOLDER
from lab.nodes.running import RunningNodes
from lab.relay.bus import PROGRAM
from lab.stack import Stack
from lab.stack.process import working_in


@pytest.fixture
def plane(own_stack: Stack) -> Iterator[ControlPlane]:
    made = ControlPlane(own_stack)
    yield made
    made.stop_all()


def servers_of_the_bus(plane: ControlPlane) -> int:
    return len(working_in(plane.relay.folder / PROVIDER_FOLDER / BUS_FOLDER, PROGRAM))


def test_the_relay_runs_without_a_node_and_its_cloud_with_it(plane: ControlPlane) -> None:
    plane.start(RELAY)
    assert plane.running(CLOUD)
    assert plane.running(RELAY)
    assert ControlPlane(plane.stack).running(RELAY)
    assert RunningNodes(plane.relay.folder).nodes == ()
    assert servers_of_the_bus(plane) == 1
    plane.stop(RELAY)
    assert not plane.running(RELAY)
    assert servers_of_the_bus(plane) == 0


def test_a_killed_relay_leaves_no_bus_and_comes_back_where_it_was(plane: ControlPlane) -> None:
    plane.start(RELAY)
    told = plane.relay.history_environment()["SCO_NODE_BUS_URL"]
    settings = read_node_settings(plane.relay.node_file(plane.api_url))
    plane.kill(RELAY)
    assert not plane.running(RELAY)
    assert servers_of_the_bus(plane) == 0
    plane.start(RELAY)
    assert plane.running(RELAY)
    assert plane.relay.history_environment()["SCO_NODE_BUS_URL"] == told
    assert read_node_settings(plane.relay.node_file(plane.api_url)) == settings


def test_what_the_control_plane_is_told_of_nodes_is_for_its_own_user(plane: ControlPlane) -> None:
    told = plane.relay.history_environment()
    node_file = plane.relay.node_file(plane.api_url)
    settings = read_node_settings(node_file)
    assert settings.api_url == plane.api_url
    assert all(servers == (told["SCO_NODE_BUS_URL"],) for servers in settings.node_bus.values())
    assert settings.bundle_keys_file is not None
    for path in (node_file, settings.bundle_keys_file, Path(told["SCO_NODE_BUS_CREDENTIALS"])):
        assert path.is_absolute()
        assert path.stat().st_mode & 0o077 == 0
