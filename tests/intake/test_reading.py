from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.intake import Intake, IntakeRefused, read_claim
from tests.intake.support import Json, container, job, jobs, pod, pods, read_ok, refusal
from wire.intake import parse_documents

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.just("\ud800"),
    st.decimals(),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
POD_WORDS = [
    "kind",
    "items",
    "metadata",
    "name",
    "labels",
    "spec",
    "containers",
    "resources",
    "requests",
    "limits",
]
POD_WORDS += ["cpu", "memory", "nvidia.com/gpu", "status", "phase", "nodeSelector", "affinity", "overhead"]
SLURM_WORDS = ["jobs", "errors", "meta", *job()]
OWN_WORDS = ["apiVersion", "kind", "workload", "units", "requirements", "count", "vcpu", "memory", "regions"]
LEAVES = SCALARS | st.sampled_from(
    ["Pod", "List", "Claim", "sco/v1", "Pending", "PENDING", "1Gi", "gpu:2", "0-9%2"]
)


def near(words: list[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(words), inner, max_size=5)
        ),
        max_leaves=25,
    )


def never_raises(documents: list[object], workload: str | None) -> None:
    result = read_claim(documents, workload=workload)
    assert isinstance(result, Intake | IntakeRefused)
    result.model_dump_json()  # what was foreign has become text that can be sent


@settings(max_examples=400)
@given(st.lists(JSON, max_size=3), st.sampled_from([None, "w"]))
def test_any_values_are_read_or_refused(documents: list[object], workload: str | None) -> None:
    never_raises(documents, workload)


@pytest.mark.parametrize("words", [POD_WORDS, SLURM_WORDS, OWN_WORDS], ids=["pods", "jobs", "own"])
def test_values_that_look_nearly_right_are_read_or_refused(words: list[str]) -> None:
    @settings(max_examples=400)
    @given(st.lists(near(words), max_size=3))
    def check(documents: list[object]) -> None:
        never_raises(documents, "w")

    check()


@pytest.mark.parametrize("good", [pod(spec={"overhead": {"cpu": 1}}), job(array_task_string="0-9"), None])
def test_one_wrong_value_anywhere_in_an_entry_never_loses_another(good: Json | None) -> None:
    whole = good if good is not None else job(tres_per_node="gres:gpu:1", memory_per_node=10, shared=[])
    wrap = pods if "spec" in whole else jobs
    rest = pod("other") if "spec" in whole else job(99)

    @settings(max_examples=300)
    @given(st.sampled_from(list(_paths(whole))), JSON)
    def check(path: tuple[str | int, ...], value: object) -> None:
        intake = read_ok(wrap(_replaced(whole, path, value), rest), "w")
        names = [entry.name for entry in intake.left_out] + [entry.name for entry in intake.unreadable]
        assert "ns/other" not in names
        assert "99 j" not in names
        if names and not names[0].startswith("workload "):  # then the wrong entry itself must not count
            assert sum(demand.units for demand in intake.workloads.values()) == 1

    check()


def _paths(value: object, so_far: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path for key, item in inner for path in [(*so_far, key), *_paths(item, (*so_far, key))]]


def _replaced(whole: Json, path: tuple[str | int, ...], value: object) -> Json:
    copy: Json = json.loads(json.dumps(whole))
    place: Any = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "holds no document"),
        ([None], "holds no document"),
        (["NAME READY STATUS"], "the table for people cannot be read"),
        ([3], "the input is 3;"),
        ([{}], "an object with the fields none"),
        ([{"nodes": [], "data": 1}], "an object with the fields 'nodes', 'data'"),
        ([*pods(pod()), *jobs(job())], "mixes documents of kubernetes and slurm"),
    ],
)
def test_what_is_nobodys_is_refused_with_what_is_accepted(documents: list[object], words: str) -> None:
    problem = refusal(documents, "w")
    assert words in problem
    assert "squeue --json" in problem or "one kind at a time" in problem


@pytest.mark.parametrize("workload", ["", "Orders", "-x", "a" * 64, "a/b"])
def test_the_workload_of_the_call_is_checked(workload: str) -> None:
    assert "is not a workload name; allowed are 1 to 63 of a-z, 0-9 and -" in refusal(pods(pod()), workload)


@given(st.randoms(use_true_random=False))
def test_the_order_of_a_list_does_not_matter(chance: Random) -> None:
    entries = [
        pod(f"p{n}", spec={"containers": [container(cpu=n, memory=f"{n * 3}Gi")]}) for n in range(1, 45)
    ]
    before = read_ok(pods(*entries)).workloads
    chance.shuffle(entries)
    assert read_ok(pods(*entries)).workloads == before


def test_rounding_to_fewer_shapes_is_noted_with_what_it_adds() -> None:
    entries = [pod(f"p{n}", spec={"containers": [container(cpu=n, memory="1Gi")]}) for n in range(1, 45)]
    intake = read_ok(pods(*entries))
    demand = intake.workloads["w"]
    assert demand.units == 44
    extra = demand.vcpu_milli / 1000 - sum(range(1, 45))
    (note,) = intake.notes
    assert note.startswith(f"44 different sizes were rounded up to {len(demand.shapes)} shapes")
    assert f"adds {extra:,.1f} vCPU, 0.0 GiB and 0 GPUs" in note


def test_notes_are_bounded_and_say_how_many_are_missing() -> None:
    entries = [pod(f"p{n}", spec={"nodeSelector": {"rack": str(n)}}) for n in range(150)]
    notes = read_ok(pods(*entries)).notes
    assert len(notes) == 101
    assert notes[-1] == "50 further remarks of other kinds are not listed"


def test_names_that_cannot_be_printed_are_escaped() -> None:
    intake = read_ok(pods({**pod("a\x00\ud800\n"), "spec": 1}, pod("x" * 5000, spec={"nodeName": "n"})))
    assert intake.unreadable[0].name == "ns/a\\u0000\\ud800\\u000a"
    assert len(intake.left_out[0].name) == 512


def _seconds_to_read(count: int) -> float:
    specs = [{"containers": [container(cpu=f"{n}m", memory=f"{n}Mi")]} for n in range(1, 60)]
    items = [pod(f"p{n}", f"w{n % 7}", spec=specs[n % 59], uid=str(n)) for n in range(count)]
    body = json.dumps({"kind": "List", "items": items}).encode()
    started = time.perf_counter()
    intake = read_ok(parse_documents(body))
    spent = time.perf_counter() - started
    assert sum(demand.units for demand in intake.workloads.values()) == count
    return spent


def test_fifty_thousand_pods_cost_about_ten_times_five_thousand() -> None:
    """Where the machine has other things to do, it takes more looks to see what reading itself costs."""
    small = large = float("inf")
    for _ in range(5):
        small = min(small, _seconds_to_read(5000))
        large = min(large, _seconds_to_read(50_000))
        if large / small < 20:
            return
    raise AssertionError(f"{large} s for ten times what takes {small} s")
