"""Slurm job lists: `squeue --json` and slurmrestd's jobs, data parsers v0.0.37 to v0.0.44.

Demand is a job in state PENDING that is not held and waits for nothing but resources. A planned start
or node list is no allocation and is not read. The pending record of an array stands for all its waiting
tasks, at most as many as its `%` limit leaves beside the running ones; each component of a heterogeneous
job counts by itself. `sco:workload=NAME` in the comment or the wckey names the workload of a job.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from domain.claim import LeftOutReason, Requirements
from domain.intake.slurm_numbers import array_tasks, number
from domain.intake.slurm_request import read_request
from domain.intake.slurm_units import job_units, remarks
from domain.intake.tally import Ask, Intake, IntakeRefused, Tally, check_size, check_workload
from domain.intake.words import Skip, Unclear, clean, is_mapping, listing, mapping, shown, some, text_of

_MARK = re.compile(r"(?:^|[\s,;*])sco:workload=([^\s,;]*)")
_HOW_TO_MARK = "put sco:workload=NAME into the job's comment or wckey"
_TRY = "give the output of squeue --json or of slurmrestd's jobs"
_NEWEST_PARSER = 44
_STOPPED = ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REVOKED")
_HOLDING = ("COMPLETING", "RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING")
_WAITS = {
    "DEPENDENCY": "it waits for another job",
    "DEPENDENCYNEVERSATISFIED": "it waits for a job that can no longer satisfy it",
    "BEGINTIME": "its begin time has not come",
    "JOBARRAYTASKLIMIT": "its array's limit of tasks at once is used up",
    "LICENSES": "it waits for licences",
    "RESERVATION": "it waits for its reservation",
    "PARTITIONDOWN": "its partition is down",
    "PARTITIONINACTIVE": "its partition is inactive",
}
_HELD_PREFIXES = ("JOBHELD", "JOBHOLD", "ASSOC", "QOS")

Job = dict[str, object]


def looks_like_jobs(document: dict[str, object]) -> bool:
    """Whether a document is Slurm's answer: it has jobs, or the errors and meta of a failed request."""
    return "jobs" in document or ("errors" in document and "meta" in document)


def read_jobs(documents: Sequence[object], workload: str | None) -> Intake | IntakeRefused:
    """Count the jobs of all documents; refused for failures and accounting output."""
    reading = _Reading(Tally(workload))
    try:
        lists = [_jobs(mapping(document, "the input"), reading.tally) for document in documents]
    except Unclear as problem:
        return IntakeRefused(problem=str(problem))
    jobs = [entry for jobs in lists for entry in jobs]
    reading.count_running(jobs)
    for place, job in jobs:
        reading.entry(place, job)
    return reading.tally.result("slurm")


def _jobs(document: dict[str, object], tally: Tally) -> list[tuple[str, object]]:
    """The entries of one answer; raises `Unclear` when the answer as a whole is unusable."""
    errors = _messages(document.get("errors"))
    jobs = document.get("jobs")
    if errors and not jobs:
        raise Unclear(
            f"Slurm reports a failure, not an empty queue: {some(errors)}. Repair it and list again"
        )
    if not isinstance(jobs, list):
        raise Unclear(f"jobs is {shown(jobs)}; a list is expected: {_TRY}")
    if _is_accounting(document, jobs):
        raise Unclear(f"the input is accounting output (sacct or slurmdbd), which is history: {_TRY}")
    for error in errors:
        tally.note(f"Slurm reported an error beside its jobs: {error}", "errors")
    _note_parser(document, tally)
    return [(f"jobs[{index}]", job) for index, job in enumerate(jobs)]


def _messages(errors: object) -> list[str]:
    found = []
    for error in listing(errors, "errors"):
        parts = [error.get("description"), error.get("error")] if is_mapping(error) else [error]
        words = [clean(part, 200) for part in parts if isinstance(part, str) and part]
        found.append(": ".join(words) or shown(error))
    return found


def _is_accounting(document: dict[str, object], jobs: list[object]) -> bool:
    meta = document.get("meta")
    if is_mapping(meta):
        command, plugin = meta.get("command"), meta.get("plugin")
        if isinstance(command, list) and command and _text(command[0]).rpartition("/")[2] == "sacct":
            return True
        if is_mapping(plugin) and "slurmdbd" in _text(plugin.get("type")):
            return True
    return any(
        is_mapping(job) and "job_state" not in job and ("steps" in job or is_mapping(job.get("state")))
        for job in jobs
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _note_parser(document: dict[str, object], tally: Tally) -> None:
    meta = document.get("meta")
    plugin = meta.get("plugin") if is_mapping(meta) else None
    parser = _text(plugin.get("data_parser")) if is_mapping(plugin) else ""
    match = re.search(r"v0\.0\.(\d{1,4})", parser, re.ASCII)
    if match and int(match[1]) > _NEWEST_PARSER:
        tally.note(f"data parser v0.0.{match[1]} is newer than v0.0.{_NEWEST_PARSER}, read alike", "meta")


class _Reading:
    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._array_tasks: Counter[int] = Counter()

    def count_running(self, jobs: list[tuple[str, object]]) -> None:
        """Running tasks use up the limit of their array."""
        for _, job in jobs:
            try:
                if is_mapping(job) and not {"PENDING"} & _states(job) and _states(job) & set(_HOLDING):
                    self._array_tasks[number(job.get("array_job_id"), "array_job_id") or 0] += 1
            except Unclear:
                continue  # the entry itself is reported when it is read

    def entry(self, place: str, job: object) -> None:
        if job is None:
            self.tally.note("null in place of a job was passed over", place)
            return
        name = place
        try:
            record = mapping(job, place)
            name = _name(record, place)
            self._job(name, record)
        except Skip as why:
            self.tally.skip(name, why)
        except Unclear as problem:
            self.tally.unclear(name, problem)

    def _job(self, name: str, job: Job) -> None:
        _check_state(job)
        owner = self.tally.owner(_mark(job), _HOW_TO_MARK)
        job_id = number(job.get("job_id"), "job_id")
        if job_id is not None and self.tally.is_repeat((job.get("cluster"), job_id)):
            self.tally.note("listed more than once, counted once", name)
            return
        nodes = text_of(job.get("required_nodes"), "required_nodes")
        if nodes:
            raise Skip(LeftOutReason.NODE_PINNED, f"it waits for node {clean(nodes)}")
        request = read_request(job)
        units = [(check_size(size), count) for size, count in job_units(request).items()]
        copies = self._copies(name, job)
        places = Requirements(gpu_type=request.gpus.kind)
        found = (*remarks(request), *_unread(job))
        self.tally.count(name, owner, Ask(tuple((size, copies * count) for size, count in units), places))
        for remark in found:
            self.tally.note(remark, name)

    def _copies(self, name: str, job: Job) -> int:
        """How many tasks of an array the record stands for and may start; 1 for any other job."""
        array = number(job.get("array_job_id"), "array_job_id") or 0
        limit = number(job.get("array_max_tasks"), "array_max_tasks") or None
        text = text_of(job.get("array_task_string"), "array_task_string")
        waiting = 1
        if text and not _has_task(job):
            waiting, stated = array_tasks(text, "array_task_string")
            limit = limit or stated
        if not limit or not array:
            return waiting
        free = max(0, limit - self._array_tasks[array])
        if not free:
            raise Skip(LeftOutReason.HELD, f"its array's limit of {limit} tasks at once is used up")
        startable = min(waiting, free)
        if startable < waiting:
            self.tally.note("has a limit of tasks at once: only those that may start are counted", name)
        self._array_tasks[array] += startable
        return startable


def _has_task(job: Job) -> bool:
    return number(job.get("array_task_id"), "array_task_id") is not None


def _name(job: Job, place: str) -> str:
    """`4_[0-9%3] render`, `14+1 solver` or `7 train`, as Slurm writes them, with the job's name."""
    try:
        job_id, array, task, het, offset = (
            number(job.get(key), key)
            for key in ("job_id", "array_job_id", "array_task_id", "het_job_id", "het_job_offset")
        )
    except Unclear:
        return place
    ident = place if job_id is None else str(job_id)
    text = job.get("array_task_string")
    if array and task is not None:
        ident = f"{array}_{task}"
    elif isinstance(text, str) and text:
        ident = f"{ident}_[{clean(text, 40)}]"
    elif het:
        ident = f"{het}+{offset or 0}"
    name = job.get("name")
    return clean(f"{ident} {name}") if isinstance(name, str) and name else ident


def _states(job: Job) -> set[str]:
    value = job.get("job_state")
    words = value if isinstance(value, list) else [value]
    return {part.upper() for word in words for part in text_of(word, "job_state").split(",") if part}


def _check_state(job: Job) -> None:
    """Raises `Skip` unless the job waits for resources."""
    states = _states(job)
    if not states:
        raise Unclear("job_state is missing; PENDING, RUNNING or another state is expected")
    held = sorted(states.intersection(_STOPPED))
    if held:
        raise Skip(LeftOutReason.HELD, f"its state is {held[0]}")
    if "PENDING" not in states:
        bound = "CONFIGURING" in states
        reason = LeftOutReason.ALREADY_BOUND if bound else LeftOutReason.NOT_PENDING
        raise Skip(reason, f"its state is {clean('+'.join(sorted(states)))}")
    for why in _holds(job):
        raise Skip(LeftOutReason.HELD, why)


def _holds(job: Job) -> Iterator[str]:
    reason = text_of(job.get("state_reason"), "state_reason")
    word = reason.upper().replace("_", "")
    if job.get("hold") is True or word.startswith(_HELD_PREFIXES):
        yield f"it is held: {clean(reason) or 'hold'}"
    if "unfulfilled" in text_of(job.get("dependency"), "dependency"):
        yield _WAITS["DEPENDENCY"]
    if number(job.get("priority"), "priority") == 0:
        yield "it is held: its priority is 0"
    requeued = word == "BEGINTIME" and number(job.get("restart_cnt"), "restart_cnt")
    if word in _WAITS and not requeued:
        yield _WAITS[word]


def _mark(job: Job) -> str | None:
    """The workload that the comment or the wckey names; they must not name two."""
    found: list[str] = []
    for field in ("comment", "wckey"):
        names = _MARK.findall(text_of(job.get(field), field))
        found.extend(check_workload(name, f"sco:workload in its {field}") for name in names)
    if len(set(found)) > 1:
        raise Unclear(f"it names several workloads ({some(sorted(set(found)))}); one is expected")
    return found[0] if found else None


def _unread(job: Job) -> list[str]:
    """Wishes that no pool is registered with."""
    features = text_of(job.get("features"), "features")
    return [f"asks for nodes with features {clean(features)}"] if features else []
