"""Expected units are checked against what Slurm 22.05 lists for the same submissions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.intake.shaping import Size
from domain.intake.slurm_numbers import memory_mib, number, tres_list
from domain.intake.slurm_request import read_request
from domain.intake.slurm_units import job_units, remarks
from domain.intake.words import Unclear
from tests.intake.support import Json

Units = dict[tuple[int, int, int], int]


def plain(value: int) -> Json:
    return {"set": True, "infinite": False, "number": value}


# The submission, what a pending record of it says, and the units: (vCPU, MiB, GPUs) -> count.
CASES: dict[str, tuple[Json, Units]] = {
    "-n 8 -c 2 --mem-per-cpu=500": (
        {"tasks": 8, "cpus": 16, "node_count": 8, "minimum_cpus_per_node": 2, "memory_per_cpu": 500,
         "tres_req_str": "cpu=16,mem=8000M,node=1,billing=16"},
        {(2, 1000, 0): 8},
    ),
    "-n 64 --mem-per-cpu=10, on nodes of two CPUs": (
        {"tasks": 64, "cpus": 64, "node_count": 32, "memory_per_cpu": 10,
         "tres_req_str": "cpu=64,mem=640M,node=1,billing=64"},
        {(1, 10, 0): 64},
    ),
    "-N 2 -n 4 --mem=1500": (
        {"tasks": 4, "cpus": 4, "node_count": 2, "max_nodes": 2, "memory_per_node": 1500,
         "tres_req_str": "cpu=4,mem=3000M,node=2,billing=4"},
        {(2, 1500, 0): 2},
    ),
    "-N 4 -n 10 --mem-per-cpu=100": (
        {"tasks": 10, "cpus": 10, "node_count": 4, "max_nodes": 4, "memory_per_cpu": 100,
         "tres_req_str": "cpu=10,mem=1000M,node=4,billing=10"},
        {(3, 300, 0): 2, (2, 200, 0): 2},
    ),
    "-N 1 -n 8 --mem-per-cpu=1G": (
        {"tasks": 8, "cpus": 8, "node_count": 1, "max_nodes": 1, "memory_per_cpu": 1024,
         "tres_req_str": "cpu=8,mem=8G,node=1,billing=8"},
        {(8, 8192, 0): 1},
    ),
    "-n 4 --mem=1000, spread by Slurm's estimate": (
        {"tasks": 4, "cpus": 4, "node_count": 2, "memory_per_node": 1000,
         "tres_req_str": "cpu=4,mem=1000M,node=1,billing=4"},
        {(2, 1000, 0): 2},
    ),
    "-N 2 --ntasks-per-node=2 without memory": (
        {"tasks": 4, "cpus": 4, "node_count": 2, "max_nodes": 2, "tasks_per_node": 2,
         "minimum_cpus_per_node": 2, "tres_req_str": "cpu=4,mem=4000M,node=2,billing=4"},
        {(2, 2000, 0): 2},
    ),
    "--exclusive -N 2 without memory": (
        {"tasks": 2, "cpus": 2, "node_count": 2, "max_nodes": 2, "shared": "none",
         "tres_req_str": "cpu=2,mem=4000M,node=2,billing=2"},
        {(1, 2000, 0): 2},
    ),
    "-n 1 without memory": (
        {"tasks": 1, "cpus": 1, "node_count": 1, "tres_req_str": "cpu=1,mem=2000M,node=1,billing=1"},
        {(1, 2000, 0): 1},
    ),
    "-n 4 --gpus=8 --mem-per-gpu=100": (
        {"tasks": 4, "cpus": 4, "node_count": 2, "memory_per_tres": "gres:gpu:100",
         "tres_per_job": "gres:gpu:8", "tres_req_str": "cpu=4,mem=800M,node=1,billing=4"},
        {(1, 200, 2): 4},
    ),
    "-n 4 --gpus=3 --mem=10": (
        {"tasks": 4, "cpus": 4, "node_count": 2, "memory_per_node": 10, "tres_per_job": "gres:gpu:3",
         "tres_req_str": "cpu=4,mem=10M,node=1,billing=4"},
        {(2, 10, 2): 1, (2, 10, 1): 1},
    ),
    "-N 2 --gpus-per-node=a100:2": (
        {"tasks": 2, "cpus": 2, "node_count": 2, "max_nodes": 2, "tres_per_node": "gres:gpu:a100:2",
         "tres_req_str": "cpu=2,mem=4000M,node=2,billing=2"},
        {(1, 2000, 2): 2},
    ),
    "-n 4 --gpus-per-task=1 --cpus-per-gpu=3": (
        {"tasks": 4, "cpus": 4, "node_count": 2, "cpus_per_tres": "gres:gpu:3", "tres_per_task": "gres:gpu:1",
         "tres_req_str": "cpu=4,mem=2000M,node=1,billing=4"},
        {(3, 500, 1): 4},
    ),
    "-N 2 -n 8 --gpus-per-task=1 --mem=10, estimated at four nodes": (
        {"tasks": 8, "cpus": 8, "node_count": 4, "max_nodes": 2, "memory_per_node": 10,
         "tres_per_task": "gres:gpu:1", "tres_req_str": "cpu=8,mem=20M,node=2,billing=8"},
        {(4, 10, 4): 2},
    ),
    "-N 1 --sockets-per-node=2 --gpus-per-socket=2": (
        {"tasks": 1, "cpus": 1, "node_count": 1, "max_nodes": 1, "sockets_per_node": 2,
         "tres_per_socket": "gres:gpu:2", "tres_req_str": "cpu=1,mem=2000M,node=1,billing=1"},
        {(1, 2000, 4): 1},
    ),
    "-n 2 --mincpus=2 --mem-per-cpu=10": (
        {"tasks": 2, "cpus": 2, "node_count": 1, "minimum_cpus_per_node": 2, "memory_per_cpu": 10,
         "tres_req_str": "cpu=2,mem=20M,node=1,billing=2"},
        {(2, 20, 0): 1},
    ),
    "-N 1-2 -n 2 --mem=100": (
        {"tasks": 2, "cpus": 2, "node_count": "1-2", "max_nodes": 2, "memory_per_node": 100,
         "tres_req_str": "cpu=2,mem=100M,node=1,billing=2"},
        {(2, 100, 0): 1},
    ),
    "GPUs named in tres_req_str alone": (
        {"tasks": 2, "cpus": 2, "memory_per_cpu": 100, "tres_req_str": "cpu=2,gres/gpu=4,gres/gpu:l4=4"},
        {(1, 100, 2): 2},
    ),
    "newer parsers: objects, and CPUs in tres_per_task": (
        {"tasks": plain(3), "cpus": {"set": False, "infinite": False, "number": 0},
         "tres_per_task": "cpu=4,gres/gpu:a100=1", "memory_per_cpu": plain(512)},
        {(4, 2048, 1): 3},
    ),
    "tasks unknown, nodes and tasks per node known": (
        {"node_count": 3, "max_nodes": 3, "tasks_per_node": 4, "memory_per_cpu": 10},
        {(4, 40, 0): 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("submission", CASES)
def test_a_job_is_divided_into_the_smallest_pieces_that_must_fit(submission: str) -> None:
    record, expected = CASES[submission]
    units = job_units(read_request(record))
    assert units == {Size(vcpu * 1000, mib, gpus): count for (vcpu, mib, gpus), count in expected.items()}


def test_whole_nodes_and_missing_memory_are_remarked() -> None:
    found = remarks(read_request(CASES["--exclusive -N 2 without memory"][0]))
    assert [
        words for words in ("no memory", "whole nodes for itself") if any(words in text for text in found)
    ]
    assert len(found) == 2
    assert remarks(read_request(CASES["-N 1 -n 8 --mem-per-cpu=1G"][0])) == []


@pytest.mark.parametrize("shared", [["none"], "none", "NO", "exclusive"])
def test_the_ways_to_say_exclusive(shared: object) -> None:
    assert read_request({"shared": shared, "memory_per_cpu": 1}).is_exclusive


@pytest.mark.parametrize(
    "record", [{"shared": []}, {"shared": None}, {"shared": "user"}, {"exclusive": ["user"]}]
)
def test_sharing_with_some_is_not_exclusive(record: Json) -> None:
    assert not read_request({**record, "memory_per_cpu": 1}).is_exclusive
    assert read_request({**record, "memory_per_cpu": 1, "exclusive": ["true"]}).is_exclusive


@given(
    tasks=st.integers(1, 300),
    vcpu=st.integers(1, 16),
    nodes=st.integers(1, 40),
    gpus=st.integers(0, 50),
    memory=st.integers(1, 10_000),
)
def test_dealing_out_keeps_the_totals_of_the_job(
    tasks: int, vcpu: int, nodes: int, gpus: int, memory: int
) -> None:
    record = {
        "tasks": tasks, "cpus": tasks * vcpu, "cpus_per_task": vcpu, "node_count": nodes, "max_nodes": nodes,
        "tres_per_job": f"gres/gpu:{gpus}" if gpus else "", "memory_per_cpu": memory,
    }  # fmt: skip
    units = job_units(read_request(record))
    assert units.total() == min(nodes, tasks)
    assert sum(size.vcpu_milli * count for size, count in units.items()) == tasks * vcpu * 1000
    assert sum(size.gpus * count for size, count in units.items()) == gpus
    assert sum(size.ram_mib * count for size, count in units.items()) == tasks * vcpu * memory


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4096, 4096), ("4096", 4096), ("4G", 4096), ("4g", 4096), ("1.5G", 1536), ("512K", 1),
        ("2T", 2 << 20), ("4096M", 4096), (0, 0), (None, None), ("UNLIMITED", None), ("", None),
        (65_534, 65_534), (2**64 - 2, None), (plain(7), 7), ({**plain(0), "infinite": True}, None),
        ({**plain(0), "set": False}, None),
    ],
)  # fmt: skip
def test_memory_is_mebibytes_unless_suffixed(value: object, expected: int | None) -> None:
    assert memory_mib(value, "memory") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), ("3", 3), ("2-4", 2), (3.0, 3), (None, None), ("none", None), (65_534, None), (2**32 - 1, None)],
)
def test_numbers_in_every_form(value: object, expected: int | None) -> None:
    assert number(value, "n") == expected


@pytest.mark.parametrize(
    "value", [-1, True, 1.5, float("nan"), float("inf"), [], "x", "1.5", {"set": True, "number": "y"}]
)
def test_no_number_at_all(value: object) -> None:
    with pytest.raises(Unclear, match=r"^n is .*; a whole number"):
        number(value, "n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gres:gpu:a100:2", ("gpu", "a100", "2")),
        ("gres/gpu:a100:2", ("gpu", "a100", "2")),
        ("gres/gpu=2", ("gpu", None, "2")),
        ("gres/gpu:a100=2", ("gpu", "a100", "2")),
        ("gpu:2", ("gpu", None, "2")),
        ("gpu", ("gpu", None, "1")),
        ("gpu:a100", ("gpu", "a100", "1")),
        ("gres:gpu:a100:4(S:0,1)", ("gpu", "a100", "4")),
        ("gres:gpu:(null):2", ("gpu", None, "2")),
        ("mem=16010M", ("mem", None, "16010M")),
    ],
)
def test_trackable_resources_in_every_spelling(text: str, expected: tuple[str, str | None, str]) -> None:
    ((name, kind, amount, _),) = tres_list(text, "t")
    assert (name, kind, amount) == expected


@pytest.mark.parametrize("text", ["", None, "NONE", "N/A", "(null)", ",,"])
def test_no_resources(text: object) -> None:
    assert tres_list(text, "t") == []
