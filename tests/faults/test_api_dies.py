"""The API is killed while claims come in: whoever asks again with the same key has claimed once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import httpx2 as httpx
import pytest

from clients.cli.credential import find_credential
from lab.control_plane import API
from tests.faults.plant import PARTITION, Plant
from tests.faults.test_crashes import age

WORKLOADS, UNITS = 8, 4
GIVE_UP_SECONDS = 60.0
CLAIM = f"""
apiVersion: sco/v1
kind: Claim
workload: NAME
units: {{count: {UNITS}, vcpu: 4, memory: 16Gi}}
requirements: {{regions: [eu-north]}}
"""


@pytest.fixture
def plant_with_api(plant: Plant) -> Iterator[Plant]:
    plant.plane.start(API)
    yield plant
    plant.plane.kill(API)


def token_of(plant: Plant) -> str:
    """As `sco` fetches it."""
    plane = plant.plane
    credential = find_credential(
        plane.cli_environment(), plane.api_url, timeout_seconds=10, monotonic=time.monotonic
    )
    assert credential is not None
    return credential.token()


def submit(plant: Plant, workload_id: str, token: str) -> dict[str, object]:
    """Claim until the API answers, always with the same key, as a client does that got no answer."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < deadline:
        try:
            answer = httpx.post(
                f"{plant.plane.api_url}/workloads/{workload_id}/claims",
                content=CLAIM.replace("NAME", workload_id),
                headers={
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/yaml",
                    "Idempotency-Key": f"claim-{workload_id}",
                },
                timeout=10,
            )
        except httpx.HTTPError:
            time.sleep(0.05)
            continue
        if answer.status_code == HTTPStatus.ACCEPTED:
            claimed: dict[str, object] = answer.json()
            return claimed
        assert answer.status_code in (HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE), answer.text
        time.sleep(0.05)
    raise AssertionError(f"{workload_id} was not answered within {GIVE_UP_SECONDS:g} s")


def test_a_claim_is_taken_once_however_often_the_api_dies(plant_with_api: Plant) -> None:
    plant = plant_with_api
    names = [plant.register() for _ in range(WORKLOADS)]
    token = token_of(plant)
    with ThreadPoolExecutor(WORKLOADS) as callers:
        answers = [callers.submit(submit, plant, name, token) for name in names]
        for pause_seconds in (0.02, 0.1):
            time.sleep(pause_seconds)
            plant.plane.kill(API)
            plant.plane.start(API)
        versions = [answer.result()["claimVersion"] for answer in answers]

    assert versions == [1] * WORKLOADS
    stored = plant.rows("SELECT workload_id FROM claims WHERE workload_id = ANY(%s)", names)
    assert sorted(row[0] for row in stored) == sorted(names)
    # A claim whose start died with the API is found by the sweep.
    for name in names:
        if name not in plant.outcomes(names):
            age(plant, name)
    plant.trigger(f"placement-sweep/{PARTITION}")
    assert plant.settle(*names) == dict.fromkeys(names, ("placed", 0, None))
