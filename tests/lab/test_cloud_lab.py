"""The lab around the cloud: its clock, its log, its memory and its process."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from openstack.config import OpenStackConfig
from openstack.connection import Connection

from lab.cloud.clock import CloudClock
from lab.cloud.request_log import RequestLog
from lab.cloud.server import LOOPBACK, CloudHandle
from lab.cloud.settings import CloudSettings
from tests.lab.cloud_support import BUILT, HALL, POOL, REGION, create, manual_cloud, names, post_server

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROCESS_SECONDS = 60


@pytest.fixture
def cloud() -> Iterator[CloudHandle]:
    with manual_cloud() as handle:
        yield handle


def test_a_fast_clock_keeps_its_pace_through_changes_of_speed() -> None:
    real = [100.0]
    clock = CloudClock(START, 60.0, lambda: real[0])
    real[0] += 10
    assert clock.now() == START + timedelta(seconds=600)
    clock.set_speed(0)
    real[0] += 1_000
    assert clock.now() == START + timedelta(seconds=600)
    clock.advance(5)
    clock.set_speed(2)
    real[0] += 1
    assert clock.now() == START + timedelta(seconds=607)
    with pytest.raises(ValueError, match="negative"):
        clock.set_speed(-1)


def test_a_faster_cloud_builds_sooner() -> None:
    with CloudHandle.start_in_thread(CloudSettings(speed=5_000)) as cloud:
        connection = cloud.connect()
        server = create(connection)
        ready = connection.compute.wait_for_server(server, interval=0.05, wait=20)

    assert ready.status == "ACTIVE"


def test_the_clock_is_set_from_outside(cloud: CloudHandle) -> None:
    before = datetime.fromisoformat(cloud.admin.clock()["now"])
    cloud.admin.advance(3_600)
    cloud.admin.set_speed(100)

    assert datetime.fromisoformat(cloud.admin.clock()["now"]) >= before + timedelta(hours=1)
    assert cloud.admin.clock()["speed"] == 100
    with pytest.raises(ValueError, match="give 0 or more"):
        cloud.admin.advance(-1)


def test_the_log_counts_calls_by_region(cloud: CloudHandle) -> None:
    north, west = cloud.connect("eu-north"), cloud.connect("eu-west")
    list(north.compute.servers())
    list(west.compute.servers())
    cloud.admin.clear_requests()
    for _ in range(5):
        list(north.compute.servers())
    list(west.compute.servers())
    log = cloud.admin.requests(window_seconds=600, recent=3)

    assert {region: entry["total"] for region, entry in log["regions"].items()} == {
        "eu-north": 5,
        "eu-west": 1,
    }
    assert log["regions"]["eu-north"]["max_in_window"] == 5
    assert sum(log["regions"]["eu-north"]["per_second"]) == 5
    assert log["recent"][0]["region"] == "eu-west"


def test_the_highest_rate_is_that_of_the_busiest_window() -> None:
    now = [0.0]
    log = RequestLog(lambda: now[0])
    for moment in (0.0, 0.9, 1.1, 1.2, 1.8, 2.05, 9.0):
        now[0] = moment
        log.record(REGION, "GET", "/")

    assert log.summary(1.0)["regions"] == {
        REGION: {
            "total": 7,
            "by_method": {"GET": 7},
            "per_second": [2, 3, 1, 0, 0, 0, 0, 0, 0, 1],
            "max_in_window": 4,
        }
    }


def test_a_fleet_survives_a_restart(tmp_path: Path) -> None:
    with manual_cloud(data_dir=tmp_path) as first:
        connection = first.connect()
        active = create(connection, name="active", tags=["x"], metadata={"k": "v"})
        gone = create(connection, name="gone")
        first.admin.advance(BUILT)
        building = create(connection, name="building")
        connection.compute.delete_server(gone)
        first.admin.advance(4)
        first.admin.set_quota(REGION, instances=77)
        first.admin.set_capacity(POOL, 9)
        first.admin.set_hall("eu-south-h2", "lost")
        now, password = first.admin.clock()["now"], first.credentials.password

    with manual_cloud(data_dir=tmp_path) as second:
        connection = second.connect()
        shown = connection.compute.get_server(active.id)
        assert (shown.status, shown.tags, shown.metadata) == ("ACTIVE", ["x"], {"k": "v"})
        assert names(connection) == ["active", "building"]
        assert second.credentials.password == password
        assert second.admin.clock()["now"] >= now
        assert second.admin.capacity()[POOL] | {"region": ""} == {
            "region": "",
            "pool": POOL,
            "total": 9,
            "used": 2,
            "reservable": second.admin.capacity()[POOL]["reservable"],
        }
        limits = connection.compute.get_limits().absolute
        assert (limits.instances, limits.instances_used) == (77, 2)
        second.admin.advance(BUILT)
        assert connection.compute.get_server(building.id).status == "ACTIVE"
        assert {each["name"]: each["status"] for each in second.admin.servers()}["gone"] == "DELETED"
        fresh = create(connection, name="fresh")
        assert fresh.id not in {active.id, building.id, gone.id}
        assert len(connection.reservation.get("/leases").json()["leases"]) == 36
        zones = {zone.name: zone.state for zone in second.connect("eu-south").compute.availability_zones()}
        assert zones["eu-south-h2"] == {"available": False}


def test_a_cloud_saved_with_another_seed_is_not_mixed_in(tmp_path: Path) -> None:
    manual_cloud(data_dir=tmp_path, seed=1).stop()

    with pytest.raises(ValueError, match="seed 1, not 2"):
        manual_cloud(data_dir=tmp_path, seed=2)


def test_as_a_process_it_keeps_its_fleet_and_hides_its_secrets(tmp_path: Path) -> None:
    secrets_file = tmp_path / "cloud.json"

    def run(act: str) -> str:
        command = [
            sys.executable,
            "-m",
            "lab.cloud",
            "--port",
            "0",
            "--data-dir",
            str(tmp_path),
            "--speed",
            "0",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = process.stdout.readline()
            try:
                files = OpenStackConfig(config_files=[str(secrets_file)], load_envvars=False)
                connection = Connection(config=files.get_one("sco", region_name=REGION))
                _wait_until_served(connection)
                if act == "create":
                    create(connection, name="kept")
                found = names(connection)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(PROCESS_SECONDS)
            assert found == ["kept"]
            return said + process.stdout.read() + process.stderr.read()

    said = run("create") + run("look")
    content = json.loads(secrets_file.read_text())

    assert LOOPBACK in content["base_url"]
    for name in ("cloud.json", "state.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert content["clouds"]["sco"]["auth"]["password"] not in said
    assert content["admin"]["token"] not in said


def test_a_taken_port_is_refused_with_the_remedy(cloud: CloudHandle, tmp_path: Path) -> None:
    port = cloud.base_url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "lab.cloud", "--port", port, "--data-dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False)

    assert ended.returncode == 2
    assert f"port {port} on {LOOPBACK} cannot be used" in ended.stderr
    assert "choose another" in ended.stderr


def test_only_loopback_is_served(cloud: CloudHandle) -> None:
    assert cloud.auth_url.startswith(f"http://{LOOPBACK}:")
    assert post_server(cloud.connect(), availability_zone=HALL).headers["Location"].startswith(cloud.base_url)


def _wait_until_served(connection: Connection) -> None:
    deadline = time.monotonic() + PROCESS_SECONDS
    while True:
        try:
            connection.session.get_token()
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
