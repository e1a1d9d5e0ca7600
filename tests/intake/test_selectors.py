from __future__ import annotations

import pytest

from domain.claim import Requirements
from domain.intake.gpus import gpu_type
from domain.pool import Arch
from tests.intake.support import Json, devices, pod, pods, problems, read_ok, sizes

ARCH = "kubernetes.io/arch"
REGION = "topology.kubernetes.io/region"
PRODUCT = "nvidia.com/gpu.product"
ONE_GPU = devices("nvidia.com/gpu")


def rule(key: str, *values: str, operator: str = "In") -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def required(*terms: Json) -> Json:
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": node}


def only(*rules: Json) -> Json:
    return required({"matchExpressions": list(rules)})


def requirements(spec: Json) -> Requirements:
    return read_ok(pods(pod(spec=spec))).workloads["w"].requirements


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Requirements()),
        ({"nodeSelector": {ARCH: "arm64"}}, Requirements(arch=Arch.ARM64)),
        ({"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}}, Requirements(arch=Arch.X86_64)),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, Requirements()),
        ({"nodeSelector": {REGION: "eu-north"}}, Requirements(regions=("eu-north",))),
        (
            {"affinity": only(rule(REGION, "b", "a"))},
            Requirements(regions=("a", "b")),
        ),
        ({"affinity": only(rule(ARCH, "arm64"))}, Requirements(arch=Arch.ARM64)),
        ({"affinity": only(rule(ARCH, "arm64", "amd64"))}, Requirements()),
        (
            {
                "nodeSelector": {ARCH: "arm64"},
                "affinity": only(rule(ARCH, "amd64", "arm64")),
            },
            Requirements(arch=Arch.ARM64),
        ),
        ({"nodeSelector": {PRODUCT: "NVIDIA-L4"}}, Requirements(gpu_type="l4")),
        ({"affinity": None}, Requirements()),
        ({"affinity": {"podAffinity": {}}}, Requirements()),
    ],
)  # fmt: skip
def test_labels_become_requirements(spec: Json, expected: Requirements) -> None:
    assert requirements(spec) == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "asks for nodes labelled disk=ssd"),
        ({"affinity": only(rule("disk", operator="Exists"))}, "affinity on disk is not read"),
        ({"affinity": required({}, {})}, "2 alternatives is not read"),
        ({"nodeSelector": {PRODUCT: "NVIDIA-A100-SXM4-80GB"}}, "is read as type a100"),
        ({"nodeSelector": {PRODUCT: "Voodoo-2"}}, "only pools with GPU type voodoo-2"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_noted_with_the_pod(spec: Json, words: str) -> None:
    notes = read_ok(pods(pod(spec=spec))).notes
    assert any(words in note and "(ns/p)" in note for note in notes), notes


def test_selector_and_affinity_that_exclude_each_other_are_unreadable() -> None:
    spec = {
        "nodeSelector": {ARCH: "arm64"},
        "affinity": only(rule(ARCH, "amd64")),
    }
    assert "no common value of kubernetes.io/arch" in problems(read_ok(pods(pod(spec=spec))))["ns/p"]


@pytest.mark.parametrize(
    ("product", "kind", "is_certain"),
    [
        ("a100", "a100", True),
        ("NVIDIA-L4", "l4", True),
        ("Tesla-T4", "t4", True),
        ("NVIDIA-A100-SXM4-80GB", "a100", False),
        ("nvidia_h100_pcie", "h100", False),
        ("NVIDIA-L40S", "l40s", True),
        ("NVIDIA-GeForce-RTX-3090", "nvidia-geforce-rtx-3090", False),
        ("///", "unknown", False),
    ],
)
def test_gpu_products_become_types(product: str, kind: str, is_certain: bool) -> None:
    read = gpu_type(product)
    assert read.name == kind
    assert (read.remark == "") is is_certain


def test_pods_of_one_workload_that_need_different_architectures_are_an_error_naming_them() -> None:
    arm = {"nodeSelector": {ARCH: "arm64"}}
    intake = read_ok(pods(pod("a"), pod("b", spec=arm), pod("c"), pod("d"), pod("e"), pod("x", "other")))
    assert list(intake.workloads) == ["other"]
    problem = problems(intake)["workload w"]
    assert "arch x86_64 (ns/a, ns/c, ns/d and 1 more)" in problem
    assert "arch arm64 (ns/b)" in problem
    assert "divide it into workloads" in problem


def test_pods_of_one_workload_that_need_different_gpus_are_an_error_naming_them() -> None:
    def on(product: str) -> Json:
        return {"nodeSelector": {PRODUCT: product}, **ONE_GPU}

    intake = read_ok(pods(pod("a", spec=on("NVIDIA-L4")), pod("b", spec=on("NVIDIA-A100-PCIE-40GB"))))
    assert "gpu_type l4 (ns/a), gpu_type a100 (ns/b)" in problems(intake)["workload w"]


def test_pods_that_leave_the_gpu_open_take_the_type_that_others_ask_for() -> None:
    typed = {"nodeSelector": {PRODUCT: "NVIDIA-L4"}, **ONE_GPU}
    intake = read_ok(pods(pod("a", spec=ONE_GPU), pod("b", spec=typed)))
    assert sizes(intake, "w") == [(2, 1000, 1024, 1)]
    assert intake.workloads["w"].requirements.gpu_type == "l4"
    assert any("placed on GPU type l4 as well" in note and "ns/a" in note for note in intake.notes)


def test_units_with_and_without_gpus_in_one_workload_are_noted() -> None:
    intake = read_ok(pods(pod("driver"), pod("worker", spec=ONE_GPU)))
    assert any("with and without GPUs" in note for note in intake.notes)
