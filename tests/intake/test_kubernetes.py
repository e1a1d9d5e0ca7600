from __future__ import annotations

import pytest

from domain.claim import LeftOutReason as Why
from domain.pool import Arch
from tests.intake.support import (
    GIB,
    Json,
    container,
    details,
    devices,
    pod,
    pods,
    problems,
    read_file,
    read_ok,
    reasons,
    refusal,
    sizes,
)

ARCH = "kubernetes.io/arch"
PRODUCT = "nvidia.com/gpu.product"


def test_a_real_list_is_divided_into_demand_left_out_and_unreadable() -> None:
    intake = read_file("pods.json")
    assert intake.source == "kubernetes"
    # orders: 3500m + 250m + sidecar 250m + overhead 250m; memory 15Gi + 100M + 128Mi + 120Mi
    # train: the GPU of train-0; the init containers of orders stay below or at its sum
    assert sizes(intake, "orders-daily") == [(1, 4500, 15 * GIB + 96 + 128 + 120, 0)]
    assert sizes(intake, "train") == [(1, 8000, 64 * GIB, 2)]
    assert intake.workloads["train"].requirements.gpu_type == "a100"
    assert reasons(intake) == {
        "shop/orders-running": Why.NOT_PENDING,
        "shop/orders-pulling": Why.ALREADY_BOUND,
        "shop/orders-leaving": Why.BEING_DELETED,
        "shop/orders-gated": Why.HELD,
        "ml/train-1": Why.UNSUPPORTED_RESOURCE,
        "ml/train-2": Why.UNSUPPORTED_RESOURCE,
        "default/stray": Why.NO_WORKLOAD,
        "monitoring/node-exporter-q7": Why.NODE_PINNED,
        "shop/orders": Why.UNSUPPORTED_KIND,
    }
    assert "kueue.x-k8s.io/admission" in details(intake)["shop/orders-gated"]
    assert "'gpu'" in details(intake)["ml/train-1"]
    assert "'amd.com/gpu'" in details(intake)["ml/train-2"]
    assert list(problems(intake)) == ["ml/train-3"]
    assert "spec.containers[0] 'c', memory: quantity '64GB'" in problems(intake)["ml/train-3"]
    assert any("null in place of a pod" in note and "items[9]" in note for note in intake.notes)


def test_naming_a_workload_returns_that_one_and_gives_it_the_unmarked() -> None:
    intake = read_file("pods.json", "orders-daily")
    assert list(intake.workloads) == ["orders-daily"]
    assert sizes(intake, "orders-daily")[-1] == (1, 1000, 1 * GIB, 0)
    assert reasons(intake)["ml/train-0"] is Why.OTHER_WORKLOAD
    assert details(intake)["ml/train-0"] == "it belongs to workload train"
    assert reasons(intake)["ml/train-3"] is Why.OTHER_WORKLOAD
    assert not intake.unreadable


def test_the_api_leaves_out_the_kind_of_list_items() -> None:
    intake = read_file("podlist-from-the-api.json", "w")
    assert sizes(intake, "w") == [(1, 1000, 1024, 0), (1, 500, 954, 0)]
    assert not intake.notes


def test_manifests_in_several_documents_count_as_pods_to_come() -> None:
    intake = read_file("manifests.yaml")
    assert sizes(intake, "nightly") == [(2, 500, 2048, 0)]
    assert intake.workloads["nightly"].requirements.arch is Arch.ARM64
    assert any("has no status" in note and "first, second-*" in note for note in intake.notes)


def test_forty_two_equal_pods_are_one_shape() -> None:
    spec = {"containers": [container(cpu="4", memory="16Gi")]}
    intake = read_ok(pods(*(pod(f"p{n}", spec=spec) for n in range(42))))
    demand = intake.workloads["w"]
    assert sizes(intake, "w") == [(42, 4000, 16 * GIB, 0)]
    assert (demand.units, demand.vcpu_milli, demand.ram_mib) == (42, 168_000, 672 * GIB)


@pytest.mark.parametrize(
    "document",
    [
        pod(),
        {key: value for key, value in pod().items() if key != "kind"},
        {"kind": None, **{key: value for key, value in pod().items() if key != "kind"}},
        {"kind": "List", "items": [pod()]},
        {"kind": "PodList", "items": [None, pod(), None]},
        {"items": [pod()]},
        [pod()],
        [None, pod()],
    ],
)
def test_one_pod_in_every_wrapping(document: object) -> None:
    assert sizes(read_ok([document]), "w") == [(1, 1000, 1 * GIB, 0)]


def test_an_empty_list_is_no_demand_and_no_error() -> None:
    for document in ({"kind": "List", "items": []}, {"kind": "PodList", "items": None}):
        assert read_ok([document], "w").workloads == {}


def test_a_pod_listed_twice_counts_once() -> None:
    intake = read_ok([*pods(pod(uid="x")), *pods(pod(uid="x"))])
    assert sizes(intake, "w") == [(1, 1000, 1 * GIB, 0)]
    assert any("listed more than once" in note for note in intake.notes)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}, "Deployment shop/web"),
        ({"kind": "Workload", "metadata": {"name": "q"}}, "Workload q"),
        ({"kind": "DeploymentList", "items": []}, "DeploymentList"),
        ({"kind": "List", "items": [{"kind": "Service", "metadata": {"name": "s"}}]}, "Service s"),
        (
            {"kind": "Status", "message": "pods is forbidden"},
            "error of the Kubernetes API (pods is forbidden)",
        ),
        ({"kind": "List", "items": {}}, "items is an object; a list is expected"),
        ({"kind": "PodList", "metadata": {"continue": "abc"}, "items": [pod()]}, "one page of a longer one"),
    ],
)
def test_what_is_no_pod_list_is_refused_by_name(document: object, words: str) -> None:
    problem = refusal([document], "w")
    assert words in problem


@pytest.mark.parametrize(
    ("item", "name", "words"),
    [
        (7, "items[0]", "items[0] is 7; an object is expected"),
        ([], "items[0]", "items[0] is a list"),
        ({}, "items[0]", "spec.containers is missing"),
        (pod(spec={"containers": None}), "ns/p", "spec.containers is missing"),
        ({**pod(), "status": []}, "ns/p", "status is a list"),
        ({**pod(), "status": {"phase": 3}}, "ns/p", "status.phase is 3; a text is expected"),
        ({**pod(), "spec": "x"}, "ns/p", "spec is 'x'"),
        ({**pod(), "metadata": "x"}, "items[0]", "metadata is 'x'"),
        ({**pod(), "kind": 4}, "ns/p", "kind is 4"),
        (pod(workload="Not_A_Name"), "ns/p", "'Not_A_Name' is not a workload name; allowed are"),
        (pod(spec={"nodeSelector": {ARCH: "riscv64"}}), "ns/p", "allowed are amd64 and arm64"),
        (pod(spec={"nodeSelector": {"a": 1}}), "ns/p", "node selector a is 1"),
        (pod(spec={"schedulingGates": [None]}), "ns/p", "spec.schedulingGates[0] is null"),
        (pod(spec={"containers": [container(cpu="9k")]}), "ns/p", "at most 4,096,000"),
        (pod(spec=devices("nvidia.com/gpu", count="65")), "ns/p", "65 GPUs; allowed are at most 64"),
    ],
)  # fmt: skip
def test_an_unreadable_pod_is_named_without_losing_the_rest(item: object, name: str, words: str) -> None:
    intake = read_ok(pods(item, pod("good")), "w")
    assert sizes(intake, "w") == [(1, 1000, 1 * GIB, 0)]
    assert list(problems(intake)) == [name]
    assert words in problems(intake)[name]


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown", "Odd"])
def test_the_phase_decides_whatever_the_conditions_say(phase: str) -> None:
    status = {
        "phase": phase,
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    intake = read_ok(pods({**pod(), "status": status}))
    assert reasons(intake) == {"ns/p": Why.NOT_PENDING}
    assert details(intake) == {"ns/p": f"its phase is {phase}"}


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "n7"}}, Why.NODE_PINNED, "node n7"),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, Why.UNSUPPORTED_RESOURCE, "'windows'"),
        ({"nodeSelector": {PRODUCT: "NVIDIA-A100-40GB-MIG-1g.5gb"}}, Why.UNSUPPORTED_RESOURCE, "share of a"),
        ({"nodeSelector": {PRODUCT: "NVIDIA-L4-SHARED"}}, Why.UNSUPPORTED_RESOURCE, "share of a GPU"),
        (devices("nvidia.com/mig-1g.5gb"), Why.UNSUPPORTED_RESOURCE, "'nvidia.com/mig-1g.5gb'"),
        (devices("nvidia.com/gpu.shared"), Why.UNSUPPORTED_RESOURCE, "'nvidia.com/gpu.shared'"),
        (devices("x.com/fuse", "a.com/eni"), Why.UNSUPPORTED_RESOURCE, "'a.com/eni', 'x.com/fuse'"),
        ({"resourceClaims": [{"name": "cards"}]}, Why.UNSUPPORTED_RESOURCE, "'cards'"),
    ],
)  # fmt: skip
def test_what_no_pool_offers_is_left_out_by_name(spec: Json, reason: Why, words: str) -> None:
    intake = read_ok(pods(pod(spec=spec), pod("good")))
    assert reasons(intake) == {"ns/p": reason}
    assert words in details(intake)["ns/p"]
    assert sizes(intake, "w") == [(1, 1000, 1 * GIB, 0)]


def test_an_extended_resource_of_zero_is_nothing() -> None:
    intake = read_ok(pods(pod(spec=devices("amd.com/gpu", count="0"))))
    assert sizes(intake, "w") == [(1, 1000, 1 * GIB, 0)]


def test_what_is_not_counted_is_noted() -> None:
    more = {"hugepages-2Mi": "1Gi", "ephemeral-storage": "9Gi"}
    spec = {"containers": [container(memory="1Gi", more=more)]}
    notes = read_ok(pods(pod(spec=spec))).notes
    assert any("hugepages-2Mi" in note for note in notes)
    assert any("ephemeral-storage" in note for note in notes)
    assert any("asks for no vCPU" in note for note in notes)


def test_pods_without_a_workload_say_how_to_name_one() -> None:
    intake = read_ok(pods(pod(workload=None)))
    assert reasons(intake) == {"ns/p": Why.NO_WORKLOAD}
    assert "spot-capacity.io/workload=NAME" in details(intake)["ns/p"]


def test_more_units_than_a_claim_may_have_is_said_by_workload() -> None:
    many = pods(*({"metadata": {}, "spec": {"containers": [{}]}} for _ in range(100_001)), pod())
    intake = read_ok(many, "w")
    assert "100,002 units; allowed are at most 100,000" in problems(intake)["workload w"]
    assert intake.workloads == {}
