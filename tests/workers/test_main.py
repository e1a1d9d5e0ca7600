"""The worker process says in one line what keeps it from starting, and no secret in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from lab.stack import Stack

SECRET = "do-not-show-this"
NOBODY = "127.0.0.1:1"


def ended(**environment: str) -> tuple[int, str]:
    """Exit code and last words of a worker with these settings."""
    process = subprocess.run(
        [sys.executable, "-m", "workers.main"],
        env={name: value for name, value in os.environ.items() if not name.startswith("SCO_")} | environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return process.returncode, process.stderr


def refused(code: int, said: str, words: str) -> None:
    assert code == 2, said
    assert words in said
    assert "Traceback" not in said
    assert SECRET not in said


@pytest.mark.parametrize("module", ["workers.main", "api.main", "api.grpc.main"])
def test_help_is_given_without_any_setting_and_other_arguments_are_refused(module: str) -> None:
    def run(argument: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", module, argument], capture_output=True, text=True, timeout=90, check=False
        )

    helped = run("--help")
    assert helped.returncode == 0, helped.stderr
    assert "Needed: SCO_DATABASE_URL" in " ".join(helped.stdout.split())
    assert "docs/reference/settings.md" in helped.stdout
    wrong = run("--port=8080")
    assert (wrong.returncode, "unrecognized arguments: --port=8080" in wrong.stderr) == (2, True)


def test_a_missing_setting_is_named() -> None:
    refused(*ended(), words="SCO_DATABASE_URL")


def test_a_wrong_policy_is_named(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("placement: {backoff_seconds: 0}")
    code, said = ended(SCO_DATABASE_URL=f"postgresql://u:{SECRET}@{NOBODY}/x", SCO_POLICY_FILE=str(policy))
    refused(code, said, "SCO_POLICY_FILE")


def test_temporal_away_is_told_without_a_traceback(stack: Stack) -> None:
    code, said = ended(SCO_DATABASE_URL=f"postgresql://u:{SECRET}@{NOBODY}/x", SCO_TEMPORAL_ADDRESS=NOBODY)
    assert code == 1, said
    assert f"a service cannot be reached: Temporal at {NOBODY}" in said
    assert "Traceback" not in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("{", "the whole file"),
        (json.dumps({"auth_url": "nowhere", "password": SECRET}), "auth_url"),
    ],
)
def test_a_wrong_cloud_file_is_refused_without_its_values(
    stack: Stack, service_dsn: str, tmp_path: Path, content: str | None, words: str
) -> None:
    cloud = tmp_path / "cloud.json"
    if content is not None:
        cloud.write_text(content)
    code, said = ended(
        SCO_DATABASE_URL=service_dsn,
        SCO_TEMPORAL_ADDRESS=stack.temporal_address,
        SCO_CLOUD_FILE=str(cloud),
    )
    refused(code, said, f"SCO_CLOUD_FILE: {cloud}")
    assert words in said


def test_a_wrong_node_file_is_refused_without_its_values(
    stack: Stack, service_dsn: str, tmp_path: Path
) -> None:
    cloud, nodes = tmp_path / "cloud.json", tmp_path / "nodes.json"
    login = {"username": "sco", "password": SECRET, "project": "sco"}
    images = {"x86_64": str(UUID(int=1))}
    cloud.write_text(
        json.dumps({"auth_url": f"http://{NOBODY}/v3", "regions": ["here"], "images": images} | login)
    )
    nodes.write_text(json.dumps({"vendordata_secret": [SECRET]}))
    code, said = ended(
        SCO_DATABASE_URL=service_dsn,
        SCO_TEMPORAL_ADDRESS=stack.temporal_address,
        SCO_CLOUD_FILE=str(cloud),
        SCO_NODE_FILE=str(nodes),
        SCO_REGIONS="here",
    )
    refused(code, said, f"SCO_NODE_FILE: {nodes} is refused: api_url: Field required")


def test_a_login_that_row_level_security_does_not_bind_is_refused(stack: Stack, dsn: str) -> None:
    code, said = ended(SCO_DATABASE_URL=dsn, SCO_TEMPORAL_ADDRESS=stack.temporal_address)
    refused(code, said, "SCO_DATABASE_URL: the database login 'sco_owner' is a superuser")
    assert "IN ROLE sco_service" in said
