"""One node of the laboratory: a real agent process with a state folder of its own, and its workloads."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.nodes.workloads import PID_FILE, Kind, Stamp, read_stamp
from lab.reclaimer.targets import Node
from lab.stack.errors import StackError
from lab.stack.process import kill as end_process
from lab.stack.process import working_in

READY_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
AGENT_LOG = "agent.log"


class NodeProcess:
    """A node in a folder: `state` and `run` are the agent's, `work/<n>` holds one workload each."""

    def __init__(
        self, folder: Path, node: Node, kinds: Sequence[Kind], environment: Mapping[str, str]
    ) -> None:
        """`environment` is what the agent is told besides where its folders and workloads are."""
        self.node = node
        self.folder = folder
        self.state_dir = folder / "state"
        self.run_dir = folder / "run"
        self.work = tuple(folder / "work" / str(number) for number in range(len(kinds)))
        self._kinds = tuple(kinds)
        self._environment = dict(environment)
        self._workloads: list[subprocess.Popen[bytes]] = []
        self._agent: subprocess.Popen[bytes] | None = None
        for path in (self.state_dir, self.run_dir, *self.work):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def agent_pid(self) -> int | None:
        return None if self._agent is None or self._agent.poll() is not None else self._agent.pid

    def start_workloads(self) -> None:
        """Start them all; each has a session of its own, as a unit or a job has."""
        for kind, folder in zip(self._kinds, self.work, strict=True):
            command = [sys.executable, "-m", "lab.nodes.workloads", "--kind", kind, "--folder", str(folder)]
            self._workloads.append(subprocess.Popen(command, cwd=folder, start_new_session=True))

    def wait_for_workloads(self) -> None:
        """StackError when one is not ready in time."""
        deadline = time.monotonic() + READY_SECONDS
        for folder in self.work:
            while not (folder / PID_FILE).exists():
                if time.monotonic() > deadline:
                    raise StackError(f"the workload in {folder} is not ready after {READY_SECONDS:.0f} s")
                time.sleep(POLL_SECONDS)

    def start_agent(self) -> None:
        """Start the agent, at first or again; its state is where it was."""
        with (self.folder / AGENT_LOG).open("ab") as log:
            self._agent = subprocess.Popen(
                [sys.executable, "-m", "agent.main"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._agent_environment(),
                start_new_session=True,
            )

    def kill_agent(self) -> None:
        """End the agent alone, without warning."""
        _kill(self._agent)

    def end(self) -> None:
        """What the end of the instance is to its processes: all of them, at once, without a word."""
        _kill(self._agent)
        for workload in self._workloads:
            _kill_session(workload)

    def stop(self) -> None:
        """Ask the agent to stop, end the workloads, and wait for all of them."""
        if self._agent is not None and self._agent.poll() is None:
            self._agent.send_signal(signal.SIGTERM)
            try:
                self._agent.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(self._agent)
        for workload in self._workloads:
            _kill_session(workload)

    def tell_workload(self, number: int) -> None:
        """Ask one to end, as a kubelet asks the first process of a container."""
        self._workloads[number].send_signal(signal.SIGTERM)

    def kill_workload(self, number: int) -> None:
        """End one with all that it has started."""
        _kill_session(self._workloads[number])

    def exit_code(self, number: int) -> int | None:
        """That of a workload's first process, below 0 the signal that ended it; None while it runs."""
        return self._workloads[number].poll()

    def workloads_running(self) -> int:
        return sum(one.poll() is None for one in self._workloads)

    def stamps(self) -> tuple[Stamp | None, ...]:
        """When each workload was told to end, None for one that was not."""
        return tuple(read_stamp(folder) for folder in self.work)

    def agent_rss_mb(self) -> float | None:
        """Resident memory of the agent in MiB; None when it does not run."""
        pid = self.agent_pid
        if pid is None:
            return None
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return None

    def _agent_environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SCO_")}
        places = {
            "SCO_AGENT_STATE_DIR": str(self.state_dir),
            "SCO_AGENT_RUN_DIR": str(self.run_dir),
            "SCO_AGENT_PID_FILES": str(self.folder / "work" / "*" / PID_FILE),
        }
        return inherited | places | self._environment


def end_leftovers(folder: Path) -> int:
    """End what an earlier run left behind in the folder of a node; how many processes that were."""
    found = [
        identity
        for place in (folder, *sorted((folder / "work").glob("*")))
        for identity in working_in(place, Path(os.path.realpath(sys.executable)).name)
    ]
    for identity in found:
        end_process(identity)
    return len(found)


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait(STOP_SECONDS)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    # Children may outlive the first of a session; its id stays theirs as long as one of them lives.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
