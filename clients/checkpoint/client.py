"""The checkpoints of one workload: write them, find the last whole one, publish the result once."""

from __future__ import annotations

import os
import random
import secrets
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from clients.checkpoint.agent_line import AgentLine
from clients.checkpoint.clock import Clock
from clients.checkpoint.errors import CheckpointError, LeaseLostError, StoreDownError
from clients.checkpoint.generations import Checkpoint, Content, latest, orders, read
from clients.checkpoint.keeping import Keep, prune
from clients.checkpoint.layout import HEAD, Order, attempt_prefix, manifest_key
from clients.checkpoint.lease import Lease, acquire
from clients.checkpoint.manifest import Manifest, seal, write_manifest
from clients.checkpoint.notice import SIGNALS, Notice, NoticeListener
from clients.checkpoint.outputs import Outputs, published
from clients.checkpoint.rooms import Room
from clients.checkpoint.store import Store
from clients.checkpoint.writing import State, named, write_files

AGENT_SOCKET = "/run/sco-agent/agent.sock"
DEADLINE_FILE = "/run/sco-agent/deadline"
PART_BYTES = 16 * 1024 * 1024
MAX_PART_BYTES = 1024 * 1024 * 1024
RENEWALS_PER_LEASE = 3


class Saved(NamedTuple):
    """A generation that exists."""

    generation: int
    bytes: int


class Checkpoints:
    """One writer of one workload's checkpoints. As a context it takes the lease and lets it go."""

    def __init__(
        self,
        store: Store,
        workload: str,
        *,
        prefix: str = "checkpoints",
        keep: Keep | None = None,
        lease_seconds: float = 60.0,
        lease_wait_seconds: float = 90.0,
        part_bytes: int = PART_BYTES,
        agent_socket: str | os.PathLike[str] | None = AGENT_SOCKET,
        deadline_file: str | os.PathLike[str] | None = DEADLINE_FILE,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        """`workload` names the unit of work; a resumed run has the same one. ValueError names what is wrong.

        A lease that nobody renews lapses after `lease_seconds`; `lease_wait_seconds` is how long this writer
        waits for another's. `part_bytes` is what is held in memory at a time.
        """
        if not 0 < part_bytes <= MAX_PART_BYTES:
            raise ValueError(f"part_bytes is {part_bytes}: 1 to {MAX_PART_BYTES} are possible")
        if lease_seconds <= 0 or lease_wait_seconds < 0:
            raise ValueError("lease_seconds must be above 0 and lease_wait_seconds not below")
        self._room = Room(store, prefix, workload)
        self._keep = (keep or Keep()).checked()
        self._lease_seconds, self._lease_wait_seconds = lease_seconds, lease_wait_seconds
        self._part_bytes = part_bytes
        self._clock = clock or Clock()
        self._new_id = new_id or (lambda: secrets.token_hex(8))
        self._writer = self._new_id()
        self._dice = random.Random(self._writer)  # noqa: S311 - spreads attempts, guards nothing
        self._agent = AgentLine(agent_socket)
        self._agent_socket, self._deadline_file = agent_socket, deadline_file
        self._lock = threading.RLock()
        self._lease: Lease | None = None
        self._last_token = 0
        self._generation = 0
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None
        self._outputs = Outputs(self._room, self._hold, self._new_id, part_bytes, self._clock)

    def __enter__(self) -> Self:
        with self._lock:
            self._hold()
        self._ended.clear()
        self._renewing = threading.Thread(target=self._renew, name="checkpoint lease", daemon=True)
        self._renewing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the lease, so that a successor need not wait."""
        self._ended.set()
        with self._lock:
            if self._lease is not None:
                self._lease.release()
            self._lease = None

    def save(self, state: State, *, final: bool = False) -> Saved:
        """Write a new generation. It exists when this returns; after an error it exists whole or not at all.

        StoreDownError: the lease was let go and the agent told; go on working and save again later.
        LeaseLostError: another writer took over; end. OSError: a file of the state cannot be read.
        `final` is for the write upon a notice: it leaves the clearing of old generations to the next.
        """
        files = named(state)
        with self._lock:
            try:
                manifest = self._write(files, final)
            except StoreDownError as error:
                self._let_go(str(error))
                raise
        self._agent.checkpointed(manifest.generation, manifest.bytes, final=final)
        return Saved(manifest.generation, manifest.bytes)

    def latest(self, *, verify: bool = True) -> Checkpoint | None:
        """The newest whole generation, None when there is none; needs no lease.

        `verify` reads every part once and checks it; without it only sizes are compared, and a part that
        turns out to be damaged raises DamagedError when it is read.
        """
        return latest(self._room, verify=verify)

    def on_notice(
        self, callback: Callable[[Notice], None], *, signals: Iterable[signal.Signals] = SIGNALS
    ) -> NoticeListener:
        """Call `callback` in a thread of its own for every notice, change of one, and withdrawal.

        Notices come from the agent's socket, or from its deadline file while there is no socket. The signals
        count as notices too and no longer end the process; pass none to leave them alone. ValueError when
        signals are named outside the main thread.
        """
        listener = NoticeListener(self._agent_socket, self._deadline_file, callback, signals=signals)
        listener.start()
        return listener

    def stage(self, name: str, data: bytes) -> None:
        """Write one result aside, to be seen only once it is published."""
        with self._lock:
            self._outputs.stage(name, data)

    def publish(self) -> Content:
        """Make what was staged the workload's result, unless there is one: then that one is answered."""
        with self._lock:
            return self._outputs.publish()

    def publishes_once(self) -> bool:
        """Whether the store itself refuses to write over a published result; needs the lease.

        False: it takes no conditional writes. Then a run that is held up for a lease period while it
        publishes may replace the result of its successor, which others may have read by then.
        """
        with self._lock:
            return self._hold().is_guarded()

    def published(self) -> Content | None:
        """The workload's result. A run that finds one has nothing left to do."""
        return published(self._room)

    def _write(self, files: dict[str, bytes | os.PathLike[str]], final: bool) -> Manifest:
        lease = self._hold()
        self._generation += 1
        order = Order(lease.token, self._generation, lease.writer)
        attempt = attempt_prefix(order, self._new_id())
        manifest = Manifest(
            workload=self._room.workload,
            token=order.token,
            generation=order.generation,
            writer=order.writer,
            created_at=self._clock.now(),
            final=final,
            files=write_files(self._room, files, attempt, self._part_bytes),
        )
        # Parts may have taken long: whoever was taken over meanwhile must not go on.
        lease.renew()
        self._room.put(manifest_key(order), write_manifest(manifest))
        self._confirm(order, manifest)
        self._after(order, manifest, final)
        return manifest

    def _confirm(self, order: Order, manifest: Manifest) -> None:
        """What the store says it has taken is there."""
        try:
            if read(self._room, order) == manifest:
                Checkpoint(self._room, manifest).check_sizes()
                return
        except CheckpointError as error:
            raise StoreDownError(f"the store does not have what it has taken: {error}") from error
        raise StoreDownError("the store does not have the manifest that it has taken")

    def _after(self, order: Order, manifest: Manifest, final: bool) -> None:
        """The generation exists: nothing that goes wrong from here on changes that."""
        with suppress(CheckpointError):
            self._room.put(HEAD, seal({"manifest": manifest_key(order)}))
            if not final:
                prune(self._room, manifest, self._keep, self._clock.now())

    def _hold(self) -> Lease:
        """The lease, renewed when it has lapsed, taken when it is not held."""
        if self._lease is None:
            lease = acquire(
                self._room,
                self._writer,
                seconds=self._lease_seconds,
                wait_seconds=self._lease_wait_seconds,
                clock=self._clock,
                dice=self._dice,
            )
            self._take_up(lease)
            self._lease = lease
        elif self._lease.has_lapsed():
            self._lease.renew()
        return self._lease

    def _take_up(self, lease: Lease) -> None:
        existing = orders(self._room)
        if self._last_token and any(
            o.token > self._last_token and o.writer != self._writer for o in existing
        ):
            lease.release()
            raise LeaseLostError(
                f"another writer has saved {self._room.workload} since this one let go: stop this one"
            )
        self._last_token = lease.token
        self._generation = max([self._generation, *(order.generation for order in existing)])

    def _let_go(self, reason: str) -> None:
        if self._lease is not None:
            self._lease.release()
        self._lease = None
        self._agent.released(self._generation, reason)

    def _renew(self) -> None:
        while not self._ended.wait(self._lease_seconds / RENEWALS_PER_LEASE):
            # A save in progress renews by itself; a store that is down is met by the next save.
            if not self._lock.acquire(blocking=False):
                continue
            try:
                if self._lease is not None:
                    self._lease.renew()
            except CheckpointError:
                continue
            finally:
                self._lock.release()
