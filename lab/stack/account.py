"""The account Postgres runs under: itself for an ordinary user, an unprivileged one for root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.stack.errors import StackError

CANDIDATES = ("postgres", "nobody")
CHECK_SECONDS = 10


@dataclass(frozen=True)
class Account:
    """A system user by number; nothing about it is created or changed."""

    name: str
    uid: int
    gid: int


def unprivileged(candidates: Sequence[str] | None = None) -> Account | None:
    """Return the account root drops to, or None when the caller is no root and needs no drop."""
    if os.geteuid() != 0:
        return None
    names = CANDIDATES if candidates is None else candidates
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise StackError(
        f"Postgres refuses to run as root and none of the users {', '.join(names)} exists on this machine. "
        f"Run the lab as an ordinary user, or add one of these users."
    )


def owner_of(path: Path) -> Account | None:
    """Return the account that owns an existing data folder, or None when it is the caller's own.

    Raises StackError when the folder belongs to someone the caller cannot become.
    """
    status = path.stat()
    if status.st_uid == os.geteuid():
        return None
    name = _name_of(status.st_uid)
    if os.geteuid() != 0:
        raise StackError(
            f"{path} belongs to user {name}, not to you. Run the lab as {name} or as root, "
            f"or choose another data folder."
        )
    return Account(name, status.st_uid, status.st_gid)


def can_use(path: Path, account: Account) -> bool:
    """Tell whether the account can enter the folder or execute the file, parents included."""
    finished = subprocess.run(
        ["test", "-x", str(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        check=False,
        timeout=CHECK_SECONDS,
    )
    return finished.returncode == 0


def give(path: Path, account: Account | None) -> None:
    """Make the account the owner of one folder or file; parents keep their owner and mode."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
