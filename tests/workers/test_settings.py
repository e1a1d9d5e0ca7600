"""Settings of a worker: from the environment, each with its limits, and a secret that stays one."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from workers.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
ADDRESS = "postgresql://sco:hunter2@127.0.0.1/sco"


@pytest.fixture(autouse=True)
def _only_what_is_set_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SCO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SCO_DATABASE_URL", ADDRESS)


def settings() -> WorkerSettings:
    return WorkerSettings()


def test_an_address_of_the_database_is_enough() -> None:
    known = settings()
    assert known.database_url.get_secret_value() == ADDRESS
    assert (known.tenant_id, known.partitions, known.regions) == ("platform", (), ())
    assert (known.nats_url, known.cloud_file, known.metrics_port) == (None, None, 0)


def test_the_password_is_never_shown() -> None:
    assert "hunter2" not in repr(settings())
    assert "hunter2" not in settings().model_dump_json()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("k8s-eu-north", ("k8s-eu-north",)),
        ("k8s-eu-north,slurm-eu-west", ("k8s-eu-north", "slurm-eu-west")),
        (" k8s-eu-north , ,slurm-eu-west,", ("k8s-eu-north", "slurm-eu-west")),
        ("", ()),
    ],
)
def test_lists_are_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch, given: str, read: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SCO_PARTITIONS", given)
    monkeypatch.setenv("SCO_REGIONS", given)
    assert (settings().partitions, settings().regions) == (read, read)


@pytest.mark.parametrize(
    ("name", "allowed", "beyond"),
    [
        ("DATABASE_CONNECTIONS", ("1", "100"), ("0", "101")),
        ("METRICS_PORT", ("0", "65535"), ("-1", "65536")),
        ("SCORING_MINUTES", ("1", "60"), ("0", "61")),
        ("OBSERVATION_SECONDS", ("5", "600"), ("4", "601")),
        ("POLL_SECONDS", ("0.001", "60"), ("0", "60.1")),
    ],
)
def test_every_figure_has_its_limits(
    monkeypatch: pytest.MonkeyPatch, name: str, allowed: tuple[str, ...], beyond: tuple[str, ...]
) -> None:
    for value in allowed:
        monkeypatch.setenv(f"SCO_{name}", value)
        assert float(getattr(settings(), name.lower())) == float(value)
    for value in (*beyond, "many"):
        monkeypatch.setenv(f"SCO_{name}", value)
        with pytest.raises(ValidationError) as refused:
            settings()
        assert [error["loc"] for error in refused.value.errors()] == [(name.lower(),)]


def test_a_rate_is_read_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCO_PROVIDER_CALLS_PER_SECOND", "0.1")
    assert settings().provider_calls_per_second == Decimal("0.1")


def test_settings_do_not_change_while_a_process_runs() -> None:
    with pytest.raises(ValidationError):
        settings().tenant_id = "others"  # type: ignore[misc]


def test_a_process_with_wrong_settings_says_which_and_ends() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCO_")}
    environment |= {"SCO_METRICS_PORT": "many", "SCO_SCORING_MINUTES": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "workers.main"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert (
        said[0] == "sco-worker: SCO_DATABASE_URL: is not set: give the postgresql:// address of the database"
    )
    assert [line.split(":")[1].strip() for line in said] == [
        "SCO_DATABASE_URL",
        "SCO_METRICS_PORT",
        "SCO_SCORING_MINUTES",
    ]
    assert "greater than or equal to 1" in said[2]
