"""The example files count as their README says."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from domain.claim import Demand
from domain.intake import Intake, read_claim
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document
from wire.intake import parse_documents

EXAMPLES = Path(__file__).parents[2] / "examples"


def counted(name: str, workload: str | None) -> Intake:
    intake = read_claim(parse_documents((EXAMPLES / "demand" / name).read_bytes()), workload=workload)
    assert isinstance(intake, Intake), intake
    assert intake.unreadable == ()
    assert intake.notes == ()
    return intake


def totals(demand: Demand) -> tuple[int, int, int, int]:
    return demand.units, demand.vcpu_milli, demand.ram_mib, demand.gpus


def test_orders_daily_is_168_vcpu_and_672_gib() -> None:
    intake = counted("orders-daily-pods.json", "orders-daily")
    assert totals(intake.workloads["orders-daily"]) == (42, 168_000, 672 * 1024, 0)
    assert Counter(one.reason.value for one in intake.left_out) == {
        "not_pending": 1,
        "already_bound": 1,
        "being_deleted": 1,
        "held": 2,
        "other_workload": 1,
    }


def test_the_pod_list_is_what_its_script_writes() -> None:
    script = EXAMPLES / "demand" / "make_orders_daily.py"
    written = subprocess.run([sys.executable, script], capture_output=True, check=True, timeout=60).stdout
    assert written == (EXAMPLES / "demand" / "orders-daily-pods.json").read_bytes()


def test_nightly_train_is_an_array_of_eight_gpus() -> None:
    intake = counted("nightly-train-squeue.json", "nightly-train")
    demand = intake.workloads["nightly-train"]
    assert totals(demand) == (8, 64_000, 512 * 1024, 8)
    assert demand.requirements.gpu_type == "a100"
    assert len(intake.left_out) == 4


def test_the_handwritten_claim() -> None:
    intake = counted("web-claim.yaml", None)
    assert totals(intake.workloads["web"]) == (27, 52_500, 132 * 1024, 0)


@pytest.mark.parametrize("name", ["orders-daily", "nightly-train", "web"])
def test_every_contract_file_can_be_applied(sco: Sco, api: FakeApi, name: str) -> None:
    api.on("PUT", f"/contracts/{name}", document({"contractId": name}, 201))
    api.on("PUT", f"/workloads/{name}", document({"workloadId": name}, 201))
    ran = sco("apply", "-f", str(EXAMPLES / "contracts" / f"{name}.yaml"))
    assert (ran.code, ran.out) == (0, f"contract {name} applied\nworkload {name} applied\n")
