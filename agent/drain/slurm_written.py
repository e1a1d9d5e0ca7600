"""Which jobs have written their last checkpoint, as their own processes say on the agent's socket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from agent.drain.processes import PROC
from agent.drain.slurm_local import Jobs

MOST_JOBS = 1024


def _uid_of(pid: int) -> int | None:
    try:
        return os.stat(PROC / str(pid)).st_uid
    except OSError:
        return None


class Written:
    """Remembers when each job last said so. Only what comes from a process of the job itself counts."""

    def __init__(
        self,
        processes: Callable[[], Jobs],
        *,
        uid_of: Callable[[int], int | None] = _uid_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processes, self._uid_of, self._clock = processes, uid_of, clock
        self._at: dict[str, float] = {}

    def take(self, pid: int, uid: int) -> str | None:
        """Take a report of this process and user, and return the job that it is of; None for nobody's.

        May look at every process of the node.
        """
        for job, pids in self._processes().items():
            # A process can claim by its environment to be of a job; that of another user never is.
            if pid in pids and {self._uid_of(one) for one in pids} - {None} == {uid}:
                self._at.pop(job, None)
                self._at[job] = self._clock()
                if len(self._at) > MOST_JOBS:
                    del self._at[next(iter(self._at))]
                return job
        return None

    def since(self, job: str, moment: float) -> bool:
        at = self._at.get(job)
        return at is not None and at >= moment
