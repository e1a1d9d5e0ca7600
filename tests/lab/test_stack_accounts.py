"""Whoever starts the stack, Postgres never runs as root and no folder above the data changes."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import psycopg
import pytest

from lab.stack import Stack, StackError, account
from lab.stack.account import Account, unprivileged
from lab.stack.stack import SERVERS

ROOT = os.geteuid() == 0
COMMAND_SECONDS = 120

# Imports first and becomes the user then: an interpreter under root's home cannot be opened afterwards.
AS_USER = """
import encodings.ascii, encodings.idna, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import concurrent.futures.thread, psycopg, temporalio.client
from lab.stack import Stack
uid, gid, home = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
os.environ.update(HOME=str(home), TMPDIR=str(home))
os.chdir(home)
stack = Stack.start()
try:
    for server in stack.status():
        owner = Path(f"/proc/{server.pid}").stat().st_uid
        print(server.name, server.state, owner, flush=True)
    with psycopg.connect(stack.postgres_dsn) as connection:
        print("answer", connection.execute("SELECT 41 + 1").fetchone()[0], flush=True)
finally:
    stack.stop()
print("data", (home / ".lab/stack.json").stat().st_uid, flush=True)
"""


def uid_of_postgres(stack: Stack) -> int:
    [pid] = [server.pid for server in stack.status() if server.name == "postgres"]
    return Path(f"/proc/{pid}").stat().st_uid


@pytest.fixture
def closed(folder: Path) -> Iterator[Path]:
    """A folder that only its owner can enter, like root's home; what a stack put elsewhere is removed."""
    inner = folder / "closed"
    inner.mkdir(mode=0o700)
    yield inner
    home = inner / "lab/postgres"
    if home.is_symlink():
        shutil.rmtree(home.resolve())


@pytest.fixture
def installed_for_all(folder: Path) -> Path:
    """The server packages alone, in a place every user can read, as a system-wide install would be."""
    site = folder / "lib/python3/site-packages"
    for kind in SERVERS:
        for file in distribution(kind.package).files or []:
            target = Path(os.path.normpath(site / str(file)))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(str(file.locate())).resolve(), target)
    return site


def test_postgres_does_not_run_as_root(stack: Stack) -> None:
    assert uid_of_postgres(stack) != 0
    assert ROOT or uid_of_postgres(stack) == os.geteuid()


def test_a_folder_closed_to_others_works_and_keeps_its_mode(closed: Path) -> None:
    before = closed.stat()
    stack = Stack.start(closed / "lab")
    try:
        with psycopg.connect(stack.postgres_dsn) as connection:
            connection.execute("CREATE TABLE kept (n int)")
        stack.kill_one("postgres")
        stack.start_one("postgres")
        with psycopg.connect(stack.postgres_dsn) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        assert uid_of_postgres(stack) != 0
    finally:
        stack.stop()
    after = closed.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    home = (closed / "lab/postgres").resolve()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert home.is_relative_to(closed) != ROOT


def test_binaries_closed_to_others_are_copied_for_postgres(
    closed: Path, installed_for_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = closed / "lib"
    installed_for_all.parents[1].rename(private)
    (installed_for_all.parents[2] / "bin").rename(closed / "bin")
    monkeypatch.syspath_prepend(str(private / "python3/site-packages"))
    stack = Stack.start(closed.parent / "lab")
    try:
        assert uid_of_postgres(stack) != 0
        [pid] = [server.pid for server in stack.status() if server.name == "postgres"]
        program = Path(os.readlink(f"/proc/{pid}/exe"))
        assert program.is_relative_to(private) != ROOT
        assert program.is_relative_to(closed.parent)
    finally:
        stack.stop()


def test_an_ordinary_user_starts_and_stops_the_stack(folder: Path, installed_for_all: Path) -> None:
    user = account.unprivileged(["nobody"]) or Account("the caller", os.geteuid(), os.getegid())
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, user.uid, user.gid)

    finished = subprocess.run(
        [sys.executable, "-c", AS_USER, str(installed_for_all), str(user.uid), str(user.gid), str(home)],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [
        *(f"{kind.name} running {user.uid}" for kind in SERVERS),
        "answer 42",
        f"data {user.uid}",
    ]


def test_root_without_a_postgres_user_drops_to_another_account(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "CANDIDATES", ("no-such-user", "nobody"))
    stack = Stack.start(folder / "lab")
    try:
        expected = pwd.getpwnam("nobody").pw_uid if ROOT else os.geteuid()
        assert uid_of_postgres(stack) == expected
    finally:
        stack.stop()


def test_the_first_user_that_exists_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    chosen = unprivileged(["no-such-user", "nobody", "root"])
    assert chosen is not None
    assert chosen.name == "nobody"


def test_root_on_a_machine_without_such_users_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(StackError, match=r"none of the users no-such-user exists.*as an ordinary user"):
        unprivileged(["no-such-user"])


def test_an_ordinary_user_stays_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged() is None
