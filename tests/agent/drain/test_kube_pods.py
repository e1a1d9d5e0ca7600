"""Rules about pods: whose they are, how long they get, when a budget stops to count; over many pod sets."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agent.drain.kube_pods import MARGIN_SECONDS, Pod, at_edge, grace_for, left_alone, ours
from agent.drain.kube_processes import processes_of_pods
from tests.agent.drain.cluster import NODE

pods = st.builds(
    Pod,
    namespace=st.sampled_from(["default", "kube-system"]),
    name=st.text("abc", min_size=1, max_size=3),
    uid=st.uuids().map(str),
    node=st.sampled_from([NODE, "n2", ""]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    annotations=st.sampled_from(
        [
            {},
            {"kubernetes.io/config.mirror": "x"},
            {"kubernetes.io/config.source": "file"},
            {"kubernetes.io/config.source": "api"},
        ]
    ),
    controller=st.sampled_from(["", "DaemonSet", "Node", "ReplicaSet", "StatefulSet", "Job"]),
    grace_seconds=st.integers(-1, 3600),
    ending_seconds=st.none() | st.integers(0, 600),
)


@given(st.lists(pods, max_size=12))
def test_what_is_ours_runs_here_and_nothing_that_runs_here_is_forgotten(found: list[Pod]) -> None:
    mine = ours(found, NODE)
    assert all(pod.node == NODE and not left_alone(pod) for pod in mine)
    kept = [pod for pod in found if pod not in mine]
    assert all(pod.node != NODE or left_alone(pod) for pod in kept)
    assert list(mine) == sorted(mine, key=lambda pod: (pod.namespace, pod.name, pod.uid))


@given(pods)
def test_a_pod_is_left_alone_for_one_of_the_known_reasons_only(pod: Pod) -> None:
    static = pod.annotations not in ({}, {"kubernetes.io/config.source": "api"})
    reasons = (static, pod.controller in ("DaemonSet", "Node"), pod.phase in ("Succeeded", "Failed"))
    assert left_alone(pod) == any(reasons)


@given(st.floats(-1e4, 1e4), st.integers(1, 115))
def test_a_grace_is_never_negative_nor_beyond_deadline_or_budget(remaining: float, budget: int) -> None:
    grace = grace_for(remaining, budget)
    assert 1 <= grace <= budget
    assert grace == 1 or grace <= remaining - MARGIN_SECONDS


@given(pods, st.floats(0, 200), st.floats(0, 200), st.integers(1, 115))
def test_past_the_edge_a_pod_stays_past_it(pod: Pod, one: float, other: float, budget: int) -> None:
    later, sooner = sorted((one, other))
    assert at_edge(pod, later, budget) or not at_edge(pod, sooner, budget)
    assert at_edge(pod, MARGIN_SECONDS, budget)


def group(root: Path, path: str, *pids: int) -> None:
    folder = root / path
    folder.mkdir(parents=True)
    for above in folder.parents:
        (above / "cgroup.procs").touch()
        if above == root:
            break
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


UID = "0a1b2c3d-0000-4000-8000-00000000000{}"


def test_processes_of_pods_are_found_whoever_named_their_groups(tmp_path: Path) -> None:
    systemd = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-1.scope"
    group(tmp_path, systemd.format(UID.format(1).replace("-", "_")), 7, 5)
    group(tmp_path, f"kubepods/besteffort/pod{UID.format(2)}/abc", 9)
    group(tmp_path, f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.format(3)}.slice/c", 11)
    group(tmp_path, f"pids/kubepods/pod{'ab' * 16}/c", 13)
    group(tmp_path, f"kubepods/pod{UID.format(4)}/empty")
    group(tmp_path, f"system.slice/pod{UID.format(5)}", 17)
    group(tmp_path, "kubepods/besteffort/podman-1", 19)
    assert processes_of_pods(tmp_path) == {
        UID.format(1): (5, 7),
        UID.format(2): (9,),
        UID.format(3): (11,),
        "ab" * 16: (13,),
    }
    assert processes_of_pods(tmp_path / "nothing") == {}
