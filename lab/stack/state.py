"""What the stack remembers between commands: ports, processes, one lock, one password."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab.stack.errors import StackBusyError, StackError
from lab.stack.ports import Ports
from lab.stack.process import Identity

STATE_FILE = "stack.json"
LOCK_FILE = "stack.lock"
SECRETS = "secrets"
OWNER_PASSWORD = "postgres-password"  # noqa: S105 - a file name
PASSWORD_FILE = f"{SECRETS}/{OWNER_PASSWORD}"
STATE_VERSION = 1
LOCK_SECONDS = 90.0
LOCK_POLL_SECONDS = 0.05


@dataclass
class State:
    """The content of `stack.json`: ports by name and the process of every server that was started."""

    ports: Ports = field(default_factory=Ports)
    servers: dict[str, Identity] = field(default_factory=dict)

    @classmethod
    def read(cls, data_dir: Path) -> State | None:
        """Return what the folder remembers, or None when no stack was started there."""
        path = data_dir / STATE_FILE
        try:
            content = json.loads(path.read_bytes())
            if content["version"] != STATE_VERSION:
                raise StackError(
                    f"{path} has version {content['version']}; this release reads {STATE_VERSION}."
                )
            return cls(
                ports=Ports(**content["ports"]),
                servers={name: Identity(**identity) for name, identity in content["servers"].items()},
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StackError(
                f"{path} is damaged ({error!r}). Remove it and start again: data is kept, and servers "
                f"that still run are found by their working folder."
            ) from error

    def write(self, data_dir: Path, urls: Mapping[str, str]) -> None:
        """Replace `stack.json` in one step, so that a reader never sees half of it."""
        content = {
            "version": STATE_VERSION,
            "ports": asdict(self.ports),
            "servers": {name: asdict(identity) for name, identity in sorted(self.servers.items())},
            "urls": dict(urls),
        }
        temporary = data_dir / f"{STATE_FILE}.new"
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary.replace(data_dir / STATE_FILE)


@contextmanager
def locked(data_dir: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the folder's lock: one process at a time starts or stops servers. The kernel frees it on death."""
    path = data_dir / LOCK_FILE
    try:
        handle = path.open("a+", encoding="ascii")
    except PermissionError as error:
        raise StackError(
            f"{data_dir} cannot be written by you. Run the command as the user who started the stack, "
            f"or choose another data folder."
        ) from error
    with handle:
        _acquire(handle.fileno(), path, seconds)
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def _acquire(descriptor: int, path: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = path.read_text(encoding="ascii").strip() or "unknown"
                raise StackBusyError(
                    f"Process {holder} has been starting or stopping the stack in {path.parent} for more "
                    f"than {seconds:.0f} s. Wait for it or end it, then try again."
                ) from None
            time.sleep(LOCK_POLL_SECONDS)
        else:
            return


def create_password(data_dir: Path, name: str = OWNER_PASSWORD) -> str:
    """Return a password of this folder; the first time, make a random one only its owner can read."""
    path = data_dir / SECRETS / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
    return read_password(data_dir, name)


def read_password(data_dir: Path, name: str = OWNER_PASSWORD) -> str:
    """Return the password of an existing login, the owner's by default. StackError when its file is gone."""
    path = data_dir / SECRETS / name
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        raise StackError(
            f"{path} is missing, so the existing database cannot be opened. Restore the file, or stop the "
            f"stack and remove {data_dir} to begin with an empty one."
        ) from None
