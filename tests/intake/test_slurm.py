from __future__ import annotations

import json

import pytest

from domain.claim import LeftOutReason as Why
from domain.claim import Requirements
from tests.intake.support import (
    DATA,
    Json,
    details,
    job,
    jobs,
    problems,
    read_file,
    read_ok,
    reasons,
    refusal,
    sizes,
)

PARSERS = [37, 38, 39, 40, 42, 44]


@pytest.mark.parametrize("parser", PARSERS)
def test_every_data_parser_says_the_same(parser: int) -> None:
    intake = read_file(f"squeue-v0.0.{parser}.json", "train")
    assert intake.source == "slurm"
    assert sizes(intake, "train") == [
        (2, 8000, 65_536, 2),  # train: a node's share with its GPUs
        (2, 2000, 16_384, 0),  # mesh: two nodes, four tasks, memory per node
        (8, 2000, 4096, 0),  # solver: eight tasks of two CPUs, memory per CPU
        (2, 1000, 4096, 0),  # sweep: nine tasks wait, its limit of three has one running
        (1, 1000, 1024, 0),  # coupled, first component
        (3, 1000, 512, 0),  # coupled, second component
    ]
    assert intake.workloads["train"].requirements == Requirements(gpu_type="a100")
    assert reasons(intake) == {
        "1203_1 sweep": Why.NOT_PENDING,
        "1208 held": Why.HELD,
        "1209 after": Why.HELD,
        "1210 theirs": Why.OTHER_WORKLOAD,
        "1211 whole": Why.UNSUPPORTED_RESOURCE,
        "1212 halves": Why.UNSUPPORTED_RESOURCE,
    }
    assert "all memory of a node (0)" in details(intake)["1211 whole"]
    assert "a share of a GPU: shard" in details(intake)["1212 halves"]
    assert problems(intake) == {"1213 odd": "tasks is 'many'; a whole number, NONE or UNLIMITED is expected"}


def test_jobs_name_their_workload_in_comment_or_wckey() -> None:
    intake = read_ok(
        jobs(
            job(1, comment="sco:workload=a"),
            job(2, comment="see ticket 7, sco:workload=a; nightly"),
            job(3, comment=None, wckey="*sco:workload=b"),
            job(4, comment="xsco:workload=a"),
            job(5, comment="sco:workload=a", wckey="sco:workload=b"),
            job(6, comment="sco:workload="),
        )
    )
    assert {name: demand.units for name, demand in intake.workloads.items()} == {"a": 2, "b": 1}
    assert reasons(intake) == {"4 j": Why.NO_WORKLOAD}
    assert "sco:workload=NAME" in details(intake)["4 j"]
    assert "several workloads (a, b)" in problems(intake)["5 j"]
    assert "'' is not a workload name" in problems(intake)["6 j"]


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        ({"job_state": "RUNNING"}, Why.NOT_PENDING, "RUNNING"),
        ({"job_state": ["COMPLETED", "REQUEUED"]}, Why.NOT_PENDING, "COMPLETED+REQUEUED"),
        ({"job_state": ["RUNNING", "CONFIGURING"]}, Why.ALREADY_BOUND, "CONFIGURING"),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"]}, Why.HELD, "REQUEUE_HOLD"),
        ({"job_state": "SPECIAL_EXIT"}, Why.HELD, "SPECIAL_EXIT"),
        ({"state_reason": "JobHeldAdmin"}, Why.HELD, "JobHeldAdmin"),
        ({"hold": True}, Why.HELD, "held"),
        ({"priority": 0}, Why.HELD, "priority is 0"),
        ({"state_reason": "QOSMaxJobsPerUserLimit"}, Why.HELD, "QOSMaxJobsPerUserLimit"),
        ({"state_reason": "AssocGrpCpuLimit"}, Why.HELD, "AssocGrpCpuLimit"),
        ({"state_reason": "Dependency"}, Why.HELD, "waits for another job"),
        ({"dependency": "afterok:5(unfulfilled)"}, Why.HELD, "waits for another job"),
        ({"state_reason": "BeginTime"}, Why.HELD, "begin time"),
        ({"state_reason": "JobArrayTaskLimit"}, Why.HELD, "limit of tasks"),
        ({"required_nodes": "n[1-2]"}, Why.NODE_PINNED, "n[1-2]"),
        ({"tres_per_node": "gres/fpga:1"}, Why.UNSUPPORTED_RESOURCE, "fpga in tres_per_node"),
        ({"tres_per_node": "gres:mps:50"}, Why.UNSUPPORTED_RESOURCE, "a share of a GPU: mps"),
        ({"tres_req_str": "cpu=1,gres/shard=2"}, Why.UNSUPPORTED_RESOURCE, "a share of a GPU: shard"),
        ({"tres_per_node": "gres:gpu:1g.10gb:1"}, Why.UNSUPPORTED_RESOURCE, "share of a GPU"),
        ({"tres_per_node": "gpu:a100:1,gpu:l4:1"}, Why.UNSUPPORTED_RESOURCE, "several GPU types (a100, l4)"),
        ({"tres_per_socket": "gres:gpu:1"}, Why.UNSUPPORTED_RESOURCE, "how many sockets"),
        ({"memory_per_cpu": None}, Why.UNSUPPORTED_RESOURCE, "all memory of a node (0)"),
        ({"memory_per_cpu": 0, "memory_per_node": 0}, Why.UNSUPPORTED_RESOURCE, "--mem"),
    ],
)
def test_a_job_that_is_no_demand_is_left_out_with_its_reason(fields: Json, reason: Why, words: str) -> None:
    intake = read_ok(jobs(job(1, **fields), job(2)))
    assert reasons(intake) == {"1 j": reason}
    assert words in details(intake)["1 j"]
    assert sizes(intake, "w") == [(1, 1000, 1024, 0)]


@pytest.mark.parametrize(
    "fields",
    [
        {"job_state": "pending"},
        {"job_state": ["PENDING", "COMPLETING"]},
        {
            "state_reason": "Priority",
            "start_time": "2026-11-29T12:00:00",
            "scheduled_nodes": "n1",
            "nodes": "n1",
        },
        {"state_reason": "BeginTime", "restart_cnt": 1},
        {"state_reason": "ReqNodeNotAvail, UnavailableNodes:n1"},
        {"priority": {"set": False, "infinite": True, "number": 0}},
        {"time_limit": "UNLIMITED", "max_nodes": "NONE", "cpus_per_task": "N/A"},
        {"cpus_per_task": 65534, "max_nodes": 4294967294, "tasks_per_node": 65535},
    ],
)
def test_a_plan_an_odd_reason_or_an_unset_number_does_not_stop_demand(fields: Json) -> None:
    assert sizes(read_ok(jobs(job(1, **fields))), "w") == [(1, 1000, 1024, 0)]


@pytest.mark.parametrize(
    ("fields", "name", "words"),
    [
        ({"job_state": None}, "1 j", "job_state is missing"),
        ({"job_state": [None, 3]}, "1 j", "job_state is 3"),
        ({"tasks": -1}, "1 j", "tasks is -1; a whole number of 0 or more"),
        ({"tasks": True}, "1 j", "tasks is true"),
        ({"tasks": 2.5}, "1 j", "tasks is 2.5"),
        ({"tasks": {"set": True, "number": []}}, "1 j", "tasks is a list"),
        ({"tasks": 200_000}, "1 j", "tasks is 200,000; allowed are at most 100,000"),
        ({"memory_per_cpu": "lots"}, "1 j", "memory_per_cpu is 'lots'"),
        ({"tres_req_str": "cpu=1,=3"}, "1 j", "tres_req_str has '=3'"),
        ({"tres_req_str": 7}, "1 j", "tres_req_str is 7; a text is expected"),
        ({"tres_per_node": "gpu:1.5"}, "1 j", "tres_per_node has '1.5' for gpu"),
        ({"tres_per_node": "gpu:" + "1," * 5000}, "1 j", "allowed are at most 4,096"),
        ({"tres_per_node": "gpu:65"}, "1 j", "65 GPUs; allowed are at most 64"),
        ({"job_id": "x"}, "jobs[0]", "job_id is 'x'"),
        ({"comment": {"job": "x"}}, "1 j", "comment is an object; a text is expected"),
        ({"features": 3}, "1 j", "features is 3"),
    ],
)
def test_an_unreadable_job_is_named_without_losing_the_rest(fields: Json, name: str, words: str) -> None:
    intake = read_ok(jobs({**job(1), **fields}, job(2)), "w")
    assert sizes(intake, "w") == [(1, 1000, 1024, 0)]
    assert list(problems(intake)) == [name]
    assert words in problems(intake)[name]


def test_entries_that_are_no_objects() -> None:
    intake = read_ok(jobs(None, 3, job(1)))
    assert list(problems(intake)) == ["jobs[1]"]
    assert any("null in place of a job" in note for note in intake.notes)


def array(text: str, **fields: object) -> Json:
    return job(7, array_job_id=7, array_task_id=None, array_task_string=text, **fields)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("0-9", 10),
        ("0-9%3", 3),
        ("5", 1),
        ("1,3,5-9:2", 5),
        ("[1-4]", 4),
        ("0-100:7,400", 16),
        ("0x1f", 5),
        ("0-99999", 100_000),
    ],
)
def test_a_pending_array_record_stands_for_its_tasks(text: str, units: int) -> None:
    intake = read_ok(jobs(array(text)))
    assert sizes(intake, "w") == [(units, 1000, 1024, 0)]
    assert any("limit of tasks at once" in note for note in intake.notes) is ("%" in text)


def test_running_and_separate_tasks_use_up_the_limit_of_their_array() -> None:
    running = [job(70 + n, array_job_id=7, array_task_id=n, job_state=["RUNNING"]) for n in range(2)]
    alone = job(80, array_job_id=7, array_task_id=5, array_max_tasks=4)
    other = job(90, array_job_id=9, array_task_id=0, job_state=["RUNNING"])
    intake = read_ok(jobs(*running, alone, array("6-9", array_max_tasks=4), other))
    assert sizes(intake, "w") == [(2, 1000, 1024, 0)]
    intake = read_ok(jobs(*running, array("6-9%2")))
    assert reasons(intake)["7_[6-9%2] j"] is Why.HELD
    assert "limit of 2 tasks at once is used up" in details(intake)["7_[6-9%2] j"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,7,14,21...", "SLURM_BITSTR_LEN=0"),
        ("9-1", "task numbers such as"),
        ("a-b", "task numbers such as"),
        ("0-9:0", "task numbers such as"),
        ("0-9%x", "a limit that is not a number"),
        ("0-9999999999", "10,000,000,000 units; allowed are at most 100,000"),
    ],
)
def test_an_array_that_cannot_be_counted_is_unreadable(text: str, words: str) -> None:
    intake = read_ok(jobs(array(text)))
    ((_, problem),) = problems(intake).items()
    assert words in problem


def test_a_job_listed_twice_counts_once_and_clusters_are_apart() -> None:
    intake = read_ok([*jobs(job(1, cluster="a")), *jobs(job(1, cluster="a"), job(1, cluster="b"))])
    assert sizes(intake, "w") == [(2, 1000, 1024, 0)]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"jobs": [], "errors": ["Unable to contact slurm controller"]},
            "Unable to contact slurm controller",
        ),
        ({"errors": [{"error": "Access denied", "error_number": 2}], "meta": {}}, "Access denied"),
        ({"errors": [{"error_number": 2}], "jobs": []}, "a failure, not an empty queue: an object"),
        ({"errors": [], "meta": {}}, "jobs is null; a list is expected"),
        ({"jobs": {}}, "jobs is an object"),
        ({"jobs": [], "errors": 3}, "errors is 3"),
        ({"jobs": [], "meta": {"command": ["sacct", "--json"]}}, "accounting output"),
        ({"jobs": [], "meta": {"plugin": {"type": "openapi/slurmdbd"}}}, "accounting output"),
        ({"jobs": [{"job_id": 1, "state": {"current": ["PENDING"]}}]}, "accounting output"),
    ],
)
def test_a_failure_or_history_is_refused_not_read_as_zero(document: Json, words: str) -> None:
    assert words in refusal([document], "w")


@pytest.mark.parametrize("name", ["slurmrestd-failure.json", "sacct.json"])
def test_real_failures_and_history_are_refused(name: str) -> None:
    problem = refusal([json.loads((DATA / name).read_text())], "train")
    assert "squeue --json" in problem or "Protocol authentication error" in problem


def test_an_empty_queue_is_no_demand_and_no_error() -> None:
    assert read_ok([{"jobs": [], "errors": [], "meta": {"command": ["squeue"]}}], "w").workloads == {}


def test_errors_beside_jobs_and_newer_parsers_are_noted() -> None:
    document = {
        "jobs": [job()],
        "errors": ["one partition unknown"],
        "meta": {"plugin": {"data_parser": "data_parser/v0.0.45"}},
    }
    notes = read_ok([document]).notes
    assert any("one partition unknown" in note for note in notes)
    assert any("v0.0.45 is newer than v0.0.44" in note for note in notes)


def test_features_are_noted_and_a_bare_list_of_jobs_is_read() -> None:
    intake = read_ok([[job(features="nvme&ib")]])
    assert sizes(intake, "w") == [(1, 1000, 1024, 0)]
    assert any("features nvme&ib" in note for note in intake.notes)
