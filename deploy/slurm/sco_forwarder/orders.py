"""What a node may ask for itself alone: close it, open what it closed, signal and requeue its jobs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .gate import Node, Refused
from .slurm import CUT_SHORT, ENDED, ON_NODES, Details, Job, NodeState, Slurm

SIGNALS = ("TERM", "USR1", "USR2", "INT", "KILL")
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
MAX_JOBS = 256
MAX_ENDED = 16
# How long a job that was signalled here is known as this node's, although it waits or runs elsewhere by then.
REMEMBERED_SECONDS = 900.0

Body = dict[str, Any]


class Orders:
    """Carries out what an admitted node asks. Refused says why something is not done."""

    def __init__(self, slurm: Slurm, clock: Callable[[], float] = time.monotonic) -> None:
        self._slurm = slurm
        self._clock = clock
        self._lock = threading.Lock()
        self._signalled: dict[tuple[str, str], float] = {}
        self._known = {
            "/v1/drain": self.drain,
            "/v1/resume": self.resume,
            "/v1/jobs": self.jobs,
            "/v1/endings": self.endings,
            "/v1/signal": self.signal,
            "/v1/requeue": self.requeue,
        }

    def carry_out(self, target: str, node: Node, body: Body) -> Body:
        order = self._known.get(target)
        if order is None:
            raise Refused(404, "unknown_order", f"there are {', '.join(self._known)}")
        return order(node, body)

    def drain(self, node: Node, body: Body) -> Body:
        """Close the node, with owner and expiry in the reason. One that others closed stays theirs."""
        owner, until = _owner(body), _until(body)
        found = self._slurm.node(node.name)
        if found.closed and not _closed_by(found, node):
            return {"closed": True, "ours": False, "reason": found.reason}
        reason = f"{_mark(node, owner)} until {until}"
        self._slurm.drain(node.name, reason)
        return {"closed": True, "ours": True, "reason": reason}

    def resume(self, node: Node, body: Body) -> Body:
        """Open the node again, if this owner closed it; what its drain had signalled is forgotten."""
        found = self._slurm.node(node.name)
        if not found.closed or not found.reason.startswith(f"{_mark(node, _owner(body))} "):
            return {"resumed": False, "reason": found.reason}
        self._slurm.resume(node.name)
        self._forget(node)
        return {"resumed": True, "reason": found.reason}

    def jobs(self, node: Node, body: Body) -> Body:
        return {"jobs": [{"id": job.job_id, "state": job.state} for job in self._slurm.jobs(node.name)]}

    def endings(self, node: Node, body: Body) -> Body:
        """How jobs of the node ended: those that are named, or the newest that Slurm remembers."""
        named = None if body.get("jobs") is None else _job_ids(body)
        wanted = self._slurm.ended(node.name) if named is None else named
        found = [self._slurm.details(job_id) for job_id in wanted[:MAX_ENDED]]
        return {"jobs": [_ending(one) for one in found if one.state in ENDED and node.name in one.nodes]}

    def signal(self, node: Node, body: Body) -> Body:
        """Signal all jobs on the node, or those that are named, each of which must be on it."""
        name = body.get("signal")
        if name not in SIGNALS:
            raise Refused(400, "malformed", f"`signal` must be one of {', '.join(SIGNALS)}")
        named = None if body.get("jobs") is None else _job_ids(body)
        self._must_be_closed(node)
        running = {job.job_id for job in self._slurm.jobs(node.name)}
        wanted = sorted(running) if named is None else named
        foreign = sorted(set(wanted) - running)
        if foreign:
            raise Refused(403, "foreign_job", f"job {foreign[0]} does not run on node {node.name}")
        self._remember(node, wanted)
        steps = self._slurm.with_steps()
        return {"jobs": self._signal(wanted, name, steps)}

    def requeue(self, node: Node, body: Body) -> Body:
        """Let jobs of this node begin again elsewhere, at once. What has completed stays completed.

        `signalled` adds those that were signalled here: the agent may have lost its memory since.
        """
        wanted = _job_ids(body)
        self._must_be_closed(node)
        if body.get("signalled") is True:
            wanted = sorted({*wanted, *self._remembered(node)})
        found = {job_id: self._job_of(node, job_id) for job_id in wanted}
        return {"jobs": self._each(wanted, lambda job_id: self._requeue_one(found[job_id]))}

    def _signal(self, wanted: list[str], name: str, steps: set[str]) -> dict[str, str]:
        """All in two commands; where one of them fails, each job on its own."""

        def one(job_id: str) -> str:
            self._slurm.signal([job_id], name, steps=job_id in steps)
            return "signalled"

        try:
            self._slurm.signal([one for one in wanted if one in steps], name, steps=True)
            self._slurm.signal([one for one in wanted if one not in steps], name, steps=False)
        except Refused as refused:
            if refused.reason == "slurm_hangs":
                raise
            return self._each(wanted, one)
        return dict.fromkeys(wanted, "signalled")

    def _requeue_one(self, job: Job) -> str:
        if job.state == "PENDING":
            self._slurm.start_now(job.job_id)
            return "released"
        if job.state not in ON_NODES and job.state not in CUT_SHORT:
            return "left"
        self._slurm.requeue(job.job_id)
        self._slurm.release_later(job.job_id)
        return "requeued"

    def _job_of(self, node: Node, job_id: str) -> Job:
        """A job that is on the node, ended there, or was signalled there; any other is refused."""
        job = self._slurm.job_on(job_id, node.name)
        if job is None and job_id in self._remembered(node):
            job = self._slurm.job(job_id)
            # One that no longer waits is over, or runs elsewhere: nothing is to be done about it here.
            return job if job is not None and job.state == "PENDING" else Job(job_id, "GONE")
        if job is None:
            raise Refused(403, "foreign_job", f"job {job_id} does not run on node {node.name}")
        return job

    def _must_be_closed(self, node: Node) -> None:
        if not self._slurm.node(node.name).closed:
            raise Refused(409, "not_drained", f"node {node.name} must be drained before its jobs are moved")

    def _each(self, job_ids: list[str], act: Callable[[str], str]) -> dict[str, str]:
        """Do it to each job; one that fails (it may have just ended) does not keep the others from it."""
        done: dict[str, str] = {}
        for job_id in job_ids:
            try:
                done[job_id] = act(job_id)
            except Refused as refused:
                if refused.reason == "slurm_hangs":
                    raise
                done[job_id] = f"failed: {refused}"
        return done

    def _remembered(self, node: Node) -> set[str]:
        now = self._clock()
        with self._lock:
            return {
                job_id
                for (instance, job_id), until in self._signalled.items()
                if instance == node.instance and until > now
            }

    def _forget(self, node: Node) -> None:
        with self._lock:
            self._signalled = {key: at for key, at in self._signalled.items() if key[0] != node.instance}

    def _remember(self, node: Node, job_ids: list[str]) -> None:
        now = self._clock()
        with self._lock:
            self._signalled = {key: until for key, until in self._signalled.items() if until > now}
            self._signalled |= {(node.instance, job_id): now + REMEMBERED_SECONDS for job_id in job_ids}


def _ending(job: Details) -> Body:
    """Exit codes as Slurm writes them: `<exit code>:<signal>`."""
    return {
        "id": job.job_id,
        "exitCode": job.exit_code,
        "derivedExitCode": job.derived_exit_code,
        "endedAt": job.ended_at,
    }


def _mark(node: Node, owner: str) -> str:
    """Begins with the instance that signed, so that nobody can pass for another's owner."""
    return f"sco:{node.instance}/{owner}"


def _closed_by(found: NodeState, node: Node) -> bool:
    return found.reason.startswith(f"sco:{node.instance}/")


def _owner(body: Body) -> str:
    owner = body.get("owner")
    if not isinstance(owner, str) or OWNER.fullmatch(owner) is None:
        raise Refused(400, "malformed", "`owner` must be 1 to 80 of A-Z, a-z, 0-9, dot, - and _")
    return owner


def _until(body: Body) -> str:
    try:
        until = datetime.fromisoformat(str(body.get("until")).replace("Z", "+00:00"))
    except ValueError as error:
        raise Refused(400, "malformed", "`until` must be a time such as 2026-11-03T09:05:00Z") from error
    if until.tzinfo is None:
        raise Refused(400, "malformed", "`until` must say its zone, such as 2026-11-03T09:05:00Z")
    return until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _job_ids(body: Body) -> list[str]:
    found = body.get("jobs")
    if not isinstance(found, list) or len(found) > MAX_JOBS:
        raise Refused(400, "malformed", f"`jobs` must be a list of at most {MAX_JOBS} ids")
    for job_id in found:
        if not isinstance(job_id, str) or JOB_ID.fullmatch(job_id) is None:
            raise Refused(400, "malformed", f"{str(job_id)[:40]!r} is no id of a job")
    return sorted(set(found))
