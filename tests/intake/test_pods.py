from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.intake.pods import GPU, pod_amounts, pod_size
from domain.intake.shaping import Size
from domain.intake.words import Unclear
from tests.intake.support import container, devices

Spec = dict[str, Any]


def sidecar(cpu: str, memory: str | None = None) -> Spec:
    return {**container("sidecar", cpu=cpu, memory=memory), "restartPolicy": "Always"}


def size(**spec: object) -> Size:
    return pod_size(pod_amounts({"containers": [container(cpu="1", memory="1Gi")], **spec}))


CASES: dict[str, tuple[Spec, Size]] = {
    "containers add up": (
        {"containers": [container(cpu="500m", memory="1Gi"), container(cpu="1500m", memory="512Mi")]},
        Size(2000, 1536, 0),
    ),
    "fractions round up once, after the sum": (
        {"containers": [container(cpu="0.0005", memory="0.4Mi"), container(cpu="0.0005", memory="0.4Mi")]},
        Size(1, 1, 0),
    ),
    "a limit stands in for a missing request": (
        {"containers": [container(limits={"cpu": "2", "memory": "3Gi"}, memory="1Gi")]},
        Size(2000, 1024, 0),
    ),
    "a null request counts as missing": (
        {"containers": [container(limits={"cpu": "2"}, cpu=None, memory="1Gi")]},
        Size(2000, 1024, 0),
    ),
    "GPUs in requests and limits count once": (
        {"containers": [container(limits={GPU: "2"}, cpu="1", memory="1Gi", more={GPU: "2"})]},
        Size(1000, 1024, 2),
    ),
    "GPUs in limits alone count": (
        {"containers": [container(limits={GPU: 1}, cpu="1", memory="1Gi")]},
        Size(1000, 1024, 1),
    ),
    "an init container above the sum wins, resource by resource": (
        {"initContainers": [container("init", cpu="4", memory="128Mi")]},
        Size(4000, 1024, 0),
    ),
    "init containers run one after another": (
        {"initContainers": [container("a", cpu="3"), container("b", cpu="2")]},
        Size(3000, 1024, 0),
    ),
    "a sidecar runs beside the containers": (
        {"initContainers": [sidecar(cpu="500m", memory="256Mi")]},
        Size(1500, 1280, 0),
    ),
    "an init container runs beside the sidecars before it, not those after": (
        {"initContainers": [sidecar(cpu="1"), container("init", cpu="4"), sidecar(cpu="2")]},
        Size(5000, 1024, 0),
    ),
    "the overhead comes on top": (
        {"overhead": {"cpu": "250m", "memory": "120Mi"}},
        Size(1250, 1144, 0),
    ),
    "pod-level requests replace the sum, and the overhead still comes on top": (
        {"resources": {"requests": {"cpu": "500m", "memory": "4Gi"}}, "overhead": {"cpu": "100m"}},
        Size(600, 4096, 0),
    ),
    "a pod-level limit counts only where no container names the resource": (
        {
            "containers": [container(cpu="1")],
            "resources": {"limits": {"cpu": "8", "memory": "4Gi"}},
        },
        Size(1000, 4096, 0),
    ),
    "pod-level devices do not exist": (
        {"resources": {"requests": {GPU: "4"}}},
        Size(1000, 1024, 0),
    ),
    "huge pages and disks are not memory": (
        devices("hugepages-2Mi", "ephemeral-storage", count="8Gi"),
        Size(1000, 1024, 0),
    ),
    "nothing asked for is the smallest unit": ({"containers": [{"name": "c"}]}, Size(1, 1, 0)),
    "null blocks are empty": (
        {"containers": [{"name": "c", "resources": None}], "initContainers": None, "overhead": None},
        Size(1, 1, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_pod_counts_as_the_scheduler_counts_it(case: str) -> None:
    spec, expected = CASES[case]
    assert size(**spec) == expected


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": []}, "spec.containers is missing or empty"),
        ({"containers": {}}, "spec.containers is an object; a list is expected"),
        ({"containers": ["c"]}, "spec.containers[0] is 'c'; an object is expected"),
        ({"containers": [None]}, "spec.containers[0] is null"),
        (
            {"containers": [container("db", memory="4 Gi")]},
            "spec.containers[0] 'db', memory: quantity '4 Gi'",
        ),
        ({"containers": [container("db", cpu="-1")]}, "quantity '-1' is negative"),
        ({"containers": [{"resources": {"requests": ["cpu"]}}]}, "spec.containers[0] requests is a list"),
        ({"initContainers": [container("i", cpu=True)]}, "spec.initContainers[0] 'i', cpu: quantity true"),
        ({"overhead": {"cpu": "lots"}}, "spec.overhead, cpu: quantity 'lots'"),
        ({"containers": [container(more={GPU: "500m"})]}, "nvidia.com/gpu is not a whole number"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place_and_value(spec: Spec, problem: str) -> None:
    with pytest.raises(Unclear) as caught:
        size(**spec)
    assert problem in str(caught.value)


AMOUNTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.integers(0, 64).map(str), "memory": st.integers(0, 2**36), GPU: st.integers(0, 8)}
)
CONTAINERS = st.lists(st.builds(lambda more: container(more=more), AMOUNTS), min_size=1, max_size=5)


@given(CONTAINERS, CONTAINERS, st.randoms(use_true_random=False))
def test_the_order_of_containers_and_of_plain_init_containers_does_not_matter(
    containers: list[Spec], inits: list[Spec], chance: Random
) -> None:
    before = size(containers=containers, initContainers=inits)
    chance.shuffle(containers)
    chance.shuffle(inits)
    assert size(containers=containers, initContainers=inits) == before


@given(CONTAINERS, CONTAINERS)
def test_more_never_asks_for_less(containers: list[Spec], inits: list[Spec]) -> None:
    alone = size(containers=containers)
    with_init = size(containers=containers, initContainers=inits)
    as_sidecars = size(
        containers=containers, initContainers=[{**init, "restartPolicy": "Always"} for init in inits]
    )
    assert all(a <= b <= c for a, b, c in zip(alone, with_init, as_sidecars, strict=True))


@given(CONTAINERS)
def test_a_sidecar_counts_like_a_container(containers: list[Spec]) -> None:
    sidecars = [{**extra, "restartPolicy": "Always"} for extra in containers[1:]]
    assert size(containers=containers[:1], initContainers=sidecars) == size(containers=containers)
