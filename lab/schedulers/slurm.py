"""A real Slurm on loopback: munged, slurmctld and a slurmd for each node, from the distribution's packages.

No systemd and no control groups are needed. It runs as whoever starts it; jobs of other users need root.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from lab.schedulers.slurm_conf import Layout, Version, slurm_conf, version_of
from lab.stack.ports import any_free

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "scancel", "squeue", "sinfo", "sbatch")
SEARCHED = "/usr/sbin:/usr/local/sbin:/usr/bin:/bin"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
COMMAND_SECONDS = 20.0
PAUSE_SECONDS = 0.05


class SlurmError(Exception):
    """Slurm is not installed, or did not do what it was asked."""


class Slurm:
    """One cluster. Use it as a context manager; all it starts ends with it."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("n1", "n2")) -> None:
        """SlurmError names the programs that are missing. `folder` must be short: sockets lie in it."""
        missing = [name for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]
        if missing:
            raise SlurmError(f"{', '.join(missing)} not found. Run: bash tests/real/install.sh")
        self.folder = folder
        self.nodes = tuple(nodes)
        self.version: Version = version_of(self._output("slurmctld", "-V"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment: Mapping[str, str] = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ.get('PATH', '')}:{SEARCHED}",
        }

    def start(self) -> Slurm:
        """All nodes are idle when it returns."""
        self._write_files()
        run, log = self.folder / "run", self.folder / "log"
        self._spawn(
            "munged",
            *("--foreground", "--force", "--num-threads=1", f"--key-file={self.folder / 'munge.key'}"),
            *(f"--socket={run / 'munge.sock'}", f"--pid-file={run / 'munged.pid'}"),
            *(f"--log-file={log / 'munged.log'}", f"--seed-file={run / 'munged.seed'}"),
        )
        self.wait_for("munged", (run / "munge.sock").exists)
        self._spawn("slurmctld", "-D", "-c")
        for node in self.nodes:
            self._spawn("slurmd", "-D", "-N", node, label=f"slurmd-{node}")
        self.wait_for("idle nodes", lambda: self.idle() == len(self.nodes))
        return self

    def run(self, *command: str) -> str:
        """What a command prints. SlurmError when it fails."""
        return self._output(*command)

    def submit(self, script: Path, *arguments: str, options: Sequence[str] = ()) -> str:
        """Submit a batch script and return the job's id."""
        output = f"--output={self.folder / 'log'}/job-%j.out"
        return self.run("sbatch", "--parsable", output, *options, str(script), *arguments).strip()

    def job(self, job_id: str) -> tuple[str, str]:
        """State and node of a job."""
        state, _, node = (
            self.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T|%N").strip().partition("|")
        )
        return state, node

    def node(self, name: str) -> tuple[str, str]:
        """State and reason of a node, whether or not it has answered since it was changed."""
        first = self.run("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").splitlines()[0]
        state, _, reason = first.partition("|")
        return state.rstrip("*"), reason

    def signal(self, label: str, number: signal.Signals) -> None:
        """Signal one of the daemons: `slurmctld`, or `slurmd-` and the node's name."""
        self._processes[label].send_signal(number)

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        ends_at = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > ends_at:
                raise SlurmError(f"no {what} within {seconds:g} s; see {self.folder / 'log'}")
            time.sleep(PAUSE_SECONDS)

    def start_forwarder(self, package: Path, nodes: Mapping[str, Mapping[str, str]], python: str) -> str:
        """Start the forwarder for these registered nodes and return its address."""
        registered = self.folder / "nodes.json"
        registered.write_text(json.dumps(nodes))
        port = any_free({})
        self._spawn(
            python,
            *("-m", package.name, "--nodes", str(registered), "--port", str(port)),
            label="forwarder",
            folder=package.parent,
        )
        log = self.folder / "log" / "forwarder.out"
        self.wait_for("forwarder", lambda: "listening" in log.read_text())
        return f"http://127.0.0.1:{port}"

    def end_jobs(self, seconds: float = START_SECONDS) -> None:
        """End every job, and return when none holds a node any more."""
        mine = f"--user={getpass.getuser()}"
        for command in (("scancel", "--signal=KILL", "--full", mine), ("scancel", mine)):
            # It complains of jobs that end meanwhile.
            with suppress(SlurmError):
                self.run(*command)
        self.wait_for("end of jobs", lambda: not self.run("squeue", "-h").strip(), seconds)

    def stop(self) -> None:
        """End jobs first, since their steps outlive the daemons that started them."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
        with suppress(SlurmError):
            self.end_jobs(STOP_SECONDS)
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Slurm:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write_files(self) -> None:
        for name in ("state", "log", "run"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        ports: dict[str, int] = {}
        for name in ("slurmctld", *self.nodes):
            ports[name] = any_free(ports)
        layout = Layout(self.folder, getpass.getuser(), self.nodes, ports)
        for name, text in slurm_conf(layout, self.version).items():
            (self.folder / name).write_text(text)

    def _spawn(self, program: str, *arguments: str, label: str = "", folder: Path | None = None) -> None:
        label = label or program
        path = shutil.which(program, path=f"{SEARCHED}:{os.environ.get('PATH', '')}") or program
        with (self.folder / "log" / f"{label}.out").open("wb") as out:
            self._processes[label] = subprocess.Popen(
                [path, *arguments],
                env=self.environment,
                cwd=folder or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def idle(self) -> int:
        """How many nodes are idle and answer."""
        try:
            return int(self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() or 0)
        except SlurmError:
            return 0

    def _output(self, *command: str) -> str:
        environment = getattr(self, "environment", os.environ | {"PATH": SEARCHED})
        path = shutil.which(command[0], path=SEARCHED) or command[0]
        try:
            done = subprocess.run(
                [path, *command[1:]],
                env=environment,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"{command[0]} did not answer within {COMMAND_SECONDS:g} s") from error
        if done.returncode != 0:
            raise SlurmError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout
