"""The commands of Slurm that a drain needs, run with argument lists and a limit, never through a shell."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .gate import Refused
from .hosts import hosts_of
from .shared import Shared

AT_ONCE = 8
MAX_DETAIL = 200
# A job's number, how it is shown, its state, its nodes.
FORMAT = "%A|%i|%T|%N"
# States in which a job still holds its nodes.
ON_NODES = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "SIGNALING", "STOPPED", "STAGE_OUT")
HOLDING = "running,suspended,completing,configuring,signaling,stopped,stage_out"
# States of a job that ended before its work was done, and not because a person wanted it so.
CUT_SHORT = ("FAILED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")
# States of a job that is over: of one that waits or runs again, the exit code of before says nothing.
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "DEADLINE", "NODE_FAIL")
OVER = "completed,failed,timeout,cancelled,out_of_memory,deadline,node_fail"
# Nodes that look for work that failed may be told what was so this long ago.
ENDED_SECONDS = 5.0
RELEASE_SECONDS = 180.0
RELEASE_PAUSE_SECONDS = 0.2

# Each where its line begins: further on, a job's own name or comment could pass for them.
LINES = {
    "state": re.compile(r"^ +JobState=(\S+)", re.MULTILINE),
    "nodes": re.compile(r"^ +NodeList=(\S+)", re.MULTILINE),
    "exit_code": re.compile(r"^ +Requeue=\d+ Restarts=\d+ .*\bExitCode=(\S+)", re.MULTILINE),
    "derived": re.compile(r"^ +DerivedExitCode=(\S+)", re.MULTILINE),
    "ended_at": re.compile(r"^ +StartTime=\S+ EndTime=(\S+)", re.MULTILINE),
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

log = logging.getLogger("sco-forwarder")


class NodeState(NamedTuple):
    """A node's state in lower case as Slurm words it, and the reason that stands beside it."""

    state: str
    reason: str

    @property
    def closed(self) -> bool:
        """Whether no new job lands there."""
        return self.state.startswith(("drain", "down", "fail", "maint"))


class Job(NamedTuple):
    """A job by the id that commands take (that of the leader in a heterogeneous one), and its state."""

    job_id: str
    state: str


class Details(NamedTuple):
    """What Slurm knows of one job. `ended_at` is None while it has no end; `nodes` are its last ones."""

    job_id: str
    state: str
    nodes: frozenset[str]
    exit_code: str
    derived_exit_code: str
    ended_at: str | None


class Slurm:
    """Calls scontrol, scancel, squeue and sinfo. Refused when one fails or does not answer in time."""

    def __init__(self, command_seconds: float) -> None:
        self._seconds = command_seconds
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._nodes = Shared(self._read_nodes)
        self._jobs = Shared(lambda: self._read_jobs(HOLDING))
        self._over = Shared(self._read_over)
        self._over_at: tuple[float, dict[str, set[Job]]] = (-ENDED_SECONDS, {})
        self._steps = Shared(self._read_steps)

    def node(self, name: str) -> NodeState:
        found = self._nodes.get().get(name)
        if found is None:
            raise Refused(502, "slurm", f"Slurm has no node {name!r}")
        return found

    def drain(self, name: str, reason: str) -> None:
        self._run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")

    def resume(self, name: str) -> None:
        self._run("scontrol", "update", f"NodeName={name}", "State=RESUME")

    def jobs(self, name: str) -> list[Job]:
        """Jobs that hold the node, each once, sorted."""
        return sorted(self._jobs.get().get(name, set()))

    def ended(self, name: str) -> list[str]:
        """Jobs that ended on the node of late, the newest first."""
        found = self._over.get().get(name, set())
        return sorted((job.job_id for job in found), key=_number, reverse=True)

    def details(self, job_id: str) -> Details:
        """A job that Slurm does not know (any more) has no state."""
        try:
            return _details_of(job_id, self._run("scontrol", "show", "job", "-d", job_id))
        except Refused as refused:
            if "Invalid job id" in str(refused):
                return Details(job_id, "", frozenset(), "", "", None)
            raise

    def job_on(self, job_id: str, name: str) -> Job | None:
        """A job that holds the node, or held it when it ended; None when it is not, or no longer, known."""
        return self._find(job_id, "-w", name)

    def job(self, job_id: str) -> Job | None:
        """A job wherever it is; None when Slurm no longer knows it."""
        return self._find(job_id)

    def _read_nodes(self) -> dict[str, NodeState]:
        """A node in several partitions comes several times, each time the same."""
        found = {}
        for line in self._run("sinfo", "-h", "-a", "-N", "-o", "%N|%T|%E").splitlines():
            name, state, reason = (part.strip() for part in line.split("|", 2))
            found[name] = NodeState(state.lower(), reason)
        return found

    def _read_over(self) -> dict[str, set[Job]]:
        """Who asks does so all the time, and a large cluster would ask more than it does."""
        at, found = self._over_at
        if time.monotonic() - at >= ENDED_SECONDS:
            found = self._read_jobs(OVER)
            self._over_at = (time.monotonic(), found)
        return found

    def _read_jobs(self, states: str) -> dict[str, set[Job]]:
        """The jobs in these states, by the nodes that each holds or held."""
        found: dict[str, set[Job]] = {}
        for line in self._run("squeue", "-h", "-a", "-t", states, "-o", FORMAT).splitlines():
            try:
                names = hosts_of(line.rpartition("|")[2].strip())
            except ValueError as error:
                raise Refused(502, "slurm", f"squeue names nodes in a way unknown here: {error}") from error
            for name in names:
                found.setdefault(name, set()).add(_job_of(line))
        return found

    def _read_steps(self) -> set[str]:
        steps = self._run("squeue", "-h", "-a", "-s", "-o", "%i").split()
        named = (step.rpartition(".") for step in steps)
        return {job_id for job_id, _, part in named if part.isdigit() or part == "interactive"}

    def _find(self, job_id: str, *where: str) -> Job | None:
        try:
            text = self._run("squeue", "-h", "-a", *where, "-t", "all", "-j", job_id, "-o", FORMAT)
        except Refused as refused:
            if "Invalid job id" in str(refused):
                return None
            raise
        return _job_of(text.splitlines()[0]) if text.strip() else None

    def with_steps(self) -> set[str]:
        """The jobs whose work runs in steps that the batch script started."""
        return self._steps.get()

    def signal(self, job_ids: Sequence[str], name: str, *, steps: bool) -> None:
        """Signal the jobs' steps, or their batch scripts where these do the work themselves.

        Where there are steps the script is left out: a shell that has no trap would end of the signal, and
        with it the job, before the steps have written their state.
        """
        if job_ids:
            self._run("scancel", f"--signal={name}", *(() if steps else ("--batch",)), *job_ids)

    def requeue(self, job_id: str) -> None:
        self._run("scontrol", "requeue", job_id)

    def start_now(self, job_id: str) -> None:
        """Let a job that waits start at once: after a requeue it would wait for its credential to expire."""
        self._run("scontrol", "update", f"JobId={job_id}", "StartTime=now")

    def release_later(self, job_id: str, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait in a thread until a requeued job waits again, and let it start then."""
        threading.Thread(target=self._release, args=(job_id, pause), name="release", daemon=True).start()

    def _release(self, job_id: str, pause: Callable[[float], None]) -> None:
        for _ in range(int(RELEASE_SECONDS / RELEASE_PAUSE_SECONDS)):
            try:
                job = self.job(job_id)
                if job is not None and job.state == "PENDING":
                    self.start_now(job_id)
                    return
                if job is None or job.state in ("RUNNING", "COMPLETED", "CANCELLED"):
                    return
            except Refused as refused:
                log.warning("job %s is not released yet: %s", job_id, refused)
            pause(RELEASE_PAUSE_SECONDS)
        log.error("job %s was requeued and never came to wait", job_id)

    def _run(self, *command: str) -> str:
        if not self._slots.acquire(timeout=self._seconds):
            raise Refused(503, "busy", "too much is asked of Slurm at once")
        try:
            done = self._start(command)
        finally:
            self._slots.release()
        if done.returncode != 0:
            detail = " ".join(done.stderr.split())[:MAX_DETAIL]
            raise Refused(502, "slurm", f"{command[0]} ended with {done.returncode}: {detail}")
        return done.stdout

    def _start(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._seconds,
                check=False,
                # Its times then mean the same everywhere.
                env=os.environ | {"TZ": "UTC"},
            )
        except subprocess.TimeoutExpired as error:
            limit = f"{command[0]} did not answer within {self._seconds:g} s"
            raise Refused(504, "slurm_hangs", limit) from error
        except OSError as error:
            raise Refused(500, "slurm", f"{command[0]} cannot be run: {error}") from error


def _job_of(line: str) -> Job:
    number, shown, state = (part.strip() for part in line.split("|")[:3])
    # A part of a heterogeneous job is requeued and signalled by its leader: `12+1` is part of 12.
    return Job(shown.partition("+")[0] if "+" in shown else number, state.upper())


def _details_of(job_id: str, text: str) -> Details:
    """From what scontrol says; of a heterogeneous job the leader comes first."""
    found = {name: line.search(text) for name, line in LINES.items()}
    said = {name: match[1] if match else "" for name, match in found.items()}
    try:
        nodes = frozenset(hosts_of(said["nodes"]))
    except ValueError as error:
        raise Refused(502, "slurm", f"scontrol names nodes in a way unknown here: {error}") from error
    at = f"{said['ended_at']}Z" if TIME.fullmatch(said["ended_at"]) else None
    return Details(job_id, said["state"], nodes, said["exit_code"], said["derived"], at)


def _number(job_id: str) -> int:
    return int(job_id) if job_id.isdigit() else 0
