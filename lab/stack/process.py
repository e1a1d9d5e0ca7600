"""Server processes that outlive their starter and are never confused with a recycled pid."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.stack.account import Account
from lab.stack.errors import StackError

PROC = Path("/proc")
POLL_SECONDS = 0.02
KILL_SECONDS = 10.0
STATE_FIELD = 0
START_FIELD = 19  # field 22 of proc(5), counted from the one after the command name

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Servers this process started itself: polled so that a dead one does not stay a zombie."""


@dataclass(frozen=True)
class Identity:
    """One process for good: its pid and when it started (boot id and clock ticks since that boot)."""

    pid: int
    started: str


def identify(pid: int) -> Identity | None:
    """Return who has the pid now, or None when nobody has or it is a zombie."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        _children.pop(pid, None)
    try:
        record = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and parentheses; the last one closes it.
    values = record.rpartition(")")[2].split()
    if values[STATE_FIELD] in "ZX" and _threads(pid) <= 1:
        return None
    return Identity(pid, f"{_boot_id()}/{values[START_FIELD]}")


def alive(identity: Identity) -> bool:
    """Tell whether exactly this process still runs."""
    return identify(identity.pid) == identity


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    account: Account | None,
) -> Identity:
    """Start a server in its own session with `folder` as working directory; append its output to `log`.

    The server belongs to no terminal and survives the caller. Raises StackError when it cannot be run.
    """
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
    except OSError as error:
        raise StackError(f"{command[0]} cannot be run: {error.strerror}. Reinstall its package.") from error
    finally:
        os.close(output)
    _children[child.pid] = child
    # A server that died at once still gets an identity: one that is not alive.
    return identify(child.pid) or Identity(child.pid, "never")


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal the process if it still is the same one; tell whether it was."""
    if not alive(identity):
        return False
    try:
        os.kill(identity.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise StackError(
            f"Process {identity.pid} belongs to another user. "
            f"Run the command as the user who started the stack."
        ) from error
    return True


def stop(identity: Identity, number: signal.Signals, grace_seconds: float) -> None:
    """Signal the process, give it time to finish, then kill it. Returns once it is gone."""
    send(identity, number)
    end(identity, grace_seconds)


def end(identity: Identity, grace_seconds: float) -> None:
    """Wait for a process that was signalled; kill it when it takes longer. Returns once it is gone."""
    if not wait_gone(identity, grace_seconds):
        kill(identity)


def kill(identity: Identity) -> None:
    """End the process with SIGKILL and wait until it is gone."""
    send(identity, signal.SIGKILL)
    if not wait_gone(identity, KILL_SECONDS):
        raise StackError(f"Process {identity.pid} is still there {KILL_SECONDS:.0f} s after SIGKILL.")


def wait_gone(identity: Identity, seconds: float) -> bool:
    """Wait at most `seconds` for the process to end; tell whether it did."""
    deadline = time.monotonic() + seconds
    while alive(identity):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def working_in(folder: Path, program: str) -> list[Identity]:
    """Return the processes of the named program whose working directory is the folder, by pid."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and _works_in(entry, folder, program):
            identity = identify(int(entry.name))
            if identity is not None:
                found.append(identity)
    return sorted(found, key=lambda identity: identity.pid)


def _works_in(entry: Path, folder: Path, program: str) -> bool:
    try:
        # A folder removed under a running server, or a program upgraded under it, is marked by the kernel.
        directory = os.readlink(entry / "cwd").removesuffix(" (deleted)")
        executable = os.readlink(entry / "exe").removesuffix(" (deleted)")
    except OSError:
        # Ended meanwhile, or another user's: no server of ours either way.
        return False
    return directory == str(folder) and Path(executable).name == program


def _threads(pid: int) -> int:
    # A killed server's first thread can be a zombie while the others still hold its ports and files.
    try:
        return len(os.listdir(PROC / str(pid) / "task"))
    except OSError:
        return 0


def _boot_id() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown-boot"
