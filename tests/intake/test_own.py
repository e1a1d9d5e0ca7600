from __future__ import annotations

import pytest

from domain.claim import LeftOutReason as Why
from domain.claim import Requirements
from domain.intake import own
from domain.pool import Arch, SecurityBoundary
from tests.intake.support import GIB, Json, problems, read_file, read_ok, reasons, refusal, sizes
from wire.intake import parse_documents


def claim(**fields: object) -> Json:
    units = {"count": 2, "vcpu": 1, "memory": "1Gi"}
    return {"apiVersion": "sco/v1", "kind": "Claim", "workload": "w", "units": units, **fields}


def units(**fields: object) -> Json:
    return claim(units={"count": 2, "vcpu": 1, "memory": "1Gi", **fields})


def test_one_group_of_units() -> None:
    intake = read_file("claim.yaml")
    assert intake.source == "sco"
    assert sizes(intake, "orders-daily") == [(42, 4000, 16 * GIB, 0)]
    assert intake.workloads["orders-daily"].requirements == Requirements(
        regions=("eu-north",), boundaries=(SecurityBoundary.REGIONAL,), arch=Arch.X86_64
    )


def test_several_groups_and_every_requirement() -> None:
    intake = read_file("claim-groups.yaml")
    assert sizes(intake, "train") == [(8, 8000, 64 * GIB, 1), (1, 500, 2 * GIB, 0)]
    assert intake.workloads["train"].requirements == Requirements(
        regions=("eu-north", "eu-west"),
        boundaries=(SecurityBoundary.PRIVATE, SecurityBoundary.REGIONAL),
        gpu_type="a100",
        nvme=True,
        min_nic_gbps=25,
        max_price_per_unit_hour_usd="0.35",
    )


def test_the_example_of_the_documentation_is_valid() -> None:
    assert own.__doc__ is not None
    text = "\n".join(line[4:] for line in own.__doc__.splitlines() if line.startswith("    "))
    intake = read_ok(parse_documents(text.encode()))
    assert intake.workloads["orders-daily"].units == 42
    assert intake.workloads["orders-daily"].requirements.gpu_type == "a100"


def test_claims_of_one_workload_add_up_and_lists_in_another_order_agree() -> None:
    first = claim(requirements={"regions": ["a", "b"]})
    second = claim(requirements={"regions": ["b", "a"]})
    assert sizes(read_ok([first, second]), "w") == [(4, 1000, 1024, 0)]
    third = claim(requirements={"regions": ["c"]})
    assert (
        "regions a+b (document 1 (w)), regions c (document 2 (w))"
        in problems(read_ok([first, third]))["workload w"]
    )


def test_the_workload_may_come_with_the_claim_or_with_the_call() -> None:
    unnamed = claim(workload=None)
    assert sizes(read_ok([unnamed], "x"), "x") == [(2, 1000, 1024, 0)]
    assert reasons(read_ok([unnamed])) == {"document 1": Why.NO_WORKLOAD}
    assert reasons(read_ok([claim()], "x")) == {"document 1 (w)": Why.OTHER_WORKLOAD}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (claim(apiVersion="sco/v2"), "apiVersion is 'sco/v2'; sco/v1 is expected"),
        (claim(kind="claim"), "kind is 'claim'; Claim is expected"),
        ({"kind": "Claim"}, "apiVersion is null; sco/v1 is expected"),
        (claim(workload="Orders"), "workload 'Orders' is not a workload name; allowed are 1 to 63"),
        (claim(workload=5), "workload is 5; a text is expected"),
        (claim(unit={}), "unknown field 'unit'; allowed are apiVersion, kind, workload, units, requirements"),
        (claim(units=None), "units is missing or empty"),
        (claim(units=[]), "units is missing or empty"),
        (claim(units=[{"count": 1, "vcpu": 1, "memory": "1Gi"}, 3]), "units[1] is 3; an object"),
        (units(count=0), "units.count is 0; a whole number from 1 to 100,000"),
        (units(count="2"), "units.count is '2'"),
        (units(count=True), "units.count is true"),
        (units(vcpu=0), "units.vcpu is 0; at least 0.001"),
        (units(vcpu=None), "units.vcpu is missing"),
        (units(vcpu="4 cores"), "units.vcpu: quantity '4 cores'"),
        (units(memory=16), "units.memory is 16 bytes; write the unit"),
        (units(memory="16GB"), "units.memory: quantity '16GB'"),
        (units(gpus=1.5), "units.gpus is 1.5"),
        (units(gpus=65), "65 GPUs; allowed are at most 64"),
        (units(ram="1Gi"), "units has unknown field 'ram'; allowed are count, vcpu, memory, gpus"),
        (claim(requirements=[]), "requirements is a list; an object is expected"),
        (claim(requirements={"region": "x"}), "unknown field 'region'; allowed are arch, regions"),
        (
            claim(requirements={"arch": "amd64"}),
            "requirements.arch is 'amd64': Input should be 'x86_64' or 'arm64'",
        ),
        (claim(requirements={"regions": []}), "requirements.regions is an empty list; leave it out"),
        (claim(requirements={"regions": "eu"}), "requirements.regions is 'eu'"),
        (claim(requirements={"gpuType": "A 100"}), "requirements.gpuType is 'A 100'"),
        (claim(requirements={"maxPricePerUnitHourUsd": -1}), "requirements.maxPricePerUnitHourUsd is '-1'"),
    ],
)
def test_a_mistake_is_said_with_its_place_its_value_and_what_is_allowed(document: Json, words: str) -> None:
    assert words in refusal([document])
    beside_a_good_one = read_ok([document, claim(workload="good")])
    assert sizes(beside_a_good_one, "good") == [(2, 1000, 1024, 0)]
    assert len(beside_a_good_one.unreadable) == 1
