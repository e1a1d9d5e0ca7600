"""Carries Nova's versioned notifications of one region to NATS, from its message bus or from a JSONL file.

It runs on the cloud's side, in the cloud's own Python (3.11 or newer): it needs `nats-py`, and for the bus
`oslo.messaging`, which the orchestrator does not have. So it imports nothing of the orchestrator, and the
orchestrator nothing of it. A notification leaves the bus only after JetStream has it; repetitions carry the
same message id and are dropped by whoever reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

MAX_BYTES = 256 * 1024
TROUBLE_SECONDS = 1.0
PUBLISH_SECONDS = 5.0
# A thread waits for JetStream longer than JetStream is waited for, or it would give up too early.
THREAD_SECONDS = 3 * PUBLISH_SECONDS
IDLE_SECONDS = 0.2
REPORT_SECONDS = 60.0
IN_FLIGHT = 16
LINES_AT_ONCE = 500
MESSAGE_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
OBJECTS = ("instance.", "compute_task.")

log = logging.getLogger("notifications-bridge")
Envelope = dict[str, Any]


class Publisher:
    """Publishes envelopes of one region to JetStream and counts what became of them."""

    def __init__(self, client: Client, region: str, projects: frozenset[str]) -> None:
        self._stream = client.jetstream(timeout=PUBLISH_SECONDS)
        self._subject = f"sco.provider.{region}.notifications"
        self._projects = projects
        self.counts: Counter[str] = Counter()

    async def publish(self, envelope: Envelope) -> None:
        """Return once JetStream has it, or it is not wanted; NatsError or TimeoutError otherwise."""
        body = json.dumps(envelope).encode()
        message_id = envelope["message_id"]
        if not wanted(envelope, self._projects):
            self.counts["left_out"] += 1
        elif not isinstance(message_id, str) or MESSAGE_ID.fullmatch(message_id) is None:
            self.counts["broken"] += 1
        elif len(body) > MAX_BYTES:
            self.counts["too_large"] += 1
        else:
            await self._stream.publish(self._subject, body, headers={"Nats-Msg-Id": message_id})
            self.counts["published"] += 1

    async def report(self) -> None:
        """Log the counts now and then, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            log.info("so far: %s", dict(self.counts) or "nothing")


def wanted(envelope: Envelope, projects: frozenset[str]) -> bool:
    """Whether it is about a server, of one of the projects where any are given."""
    if not str(envelope.get("event_type", "")).startswith(OBJECTS):
        return False
    return not projects or project_of(envelope) in projects


def project_of(envelope: Envelope) -> object:
    """The project of the server; a failed task has it in the request that failed."""
    data = _data(envelope.get("payload"))
    return data.get("tenant_id") or _data(data.get("request_spec")).get("project_id")


def _data(value: Any) -> Envelope:
    data = value.get("nova_object.data") if isinstance(value, dict) else None
    return data if isinstance(data, dict) else {}


class BusEndpoint:
    """What oslo.messaging calls, in its own threads, for each notification."""

    def __init__(self, publisher: Publisher, loop: asyncio.AbstractEventLoop, results: Any) -> None:
        self._publisher = publisher
        self._loop = loop
        self._results = results
        self.stopping = threading.Event()
        self.info = self._taker("INFO")
        self.warn = self._taker("WARN")
        self.error = self._taker("ERROR")

    def _taker(self, priority: str) -> Callable[[Any, str, str, Any, Envelope], object]:
        def take(_: Any, publisher_id: str, event_type: str, payload: Any, metadata: Envelope) -> object:
            envelope = {
                "message_id": metadata["message_id"],
                "publisher_id": publisher_id,
                "event_type": event_type,
                "priority": priority,
                "payload": payload,
                "timestamp": metadata["timestamp"],
            }
            return self._carry(envelope)

        return take

    def _carry(self, envelope: Envelope) -> object:
        """Hand it over; what JetStream did not take goes back to the bus, after a moment."""
        try:
            carried = asyncio.run_coroutine_threadsafe(self._publisher.publish(envelope), self._loop)
            carried.result(THREAD_SECONDS)
        except Exception as error:
            self._publisher.counts["given_back"] += 1
            log.warning("%s goes back to the bus: %r", envelope["event_type"], error)
            self.stopping.wait(TROUBLE_SECONDS)
            return self._results.REQUEUE
        return self._results.HANDLED


async def follow_bus(publisher: Publisher, options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Listen on the bus until told to stop. The transport is that of the configuration file."""
    import oslo_messaging  # noqa: PLC0415 - only clouds with a bus have it
    from oslo_config import cfg  # noqa: PLC0415

    conf = cfg.ConfigOpts()
    conf([], project="notifications-bridge", default_config_files=[str(options.config_file)])
    transport = oslo_messaging.get_notification_transport(conf)
    endpoint = BusEndpoint(publisher, asyncio.get_running_loop(), oslo_messaging.NotificationResult)
    listener = oslo_messaging.get_notification_listener(
        transport,
        [oslo_messaging.Target(topic=options.topic)],
        [endpoint],
        executor="threading",
        allow_requeue=True,
        pool=options.pool,
    )
    await asyncio.to_thread(listener.start, override_pool_size=IN_FLIGHT)
    log.info("listening to %s", options.topic)
    await stop.wait()
    endpoint.stopping.set()
    await asyncio.to_thread(listener.stop)
    await asyncio.to_thread(listener.wait)
    await asyncio.to_thread(transport.cleanup)


class Follower:
    """Reads a file that grows, and remembers in a file of its own how far it was carried."""

    def __init__(self, path: Path, state: Path) -> None:
        self._path = path
        self._state = state
        self._identity, self._offset = self._remembered()

    def lines(self) -> Iterator[tuple[bytes, int]]:
        """Complete lines that were not carried yet, each with the offset after it."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._identity or found.st_size < self._offset:
                self._identity, self._offset = found.st_ino, 0
            file.seek(self._offset)
            offset = self._offset
            for _ in range(LINES_AT_ONCE):
                line = file.readline()
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                yield line, offset

    def carried(self, offset: int) -> None:
        self._offset = offset

    def remember(self) -> None:
        draft = self._state.with_suffix(".new")
        draft.write_text(json.dumps({"file": self._identity, "offset": self._offset}))
        draft.replace(self._state)

    def _remembered(self) -> tuple[int, int]:
        try:
            known = json.loads(self._state.read_text())
            return int(known["file"]), int(known["offset"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0


async def follow_file(publisher: Publisher, options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Carry the lines of a file until told to stop; a line that is no notification is left out."""
    state = options.state or options.jsonl.with_suffix(options.jsonl.suffix + ".carried")
    follower = Follower(options.jsonl, state)
    log.info("following %s", options.jsonl)
    while not stop.is_set():
        moved = False
        try:
            for line, offset in follower.lines():
                envelope = _envelope(line)
                if envelope is None:
                    publisher.counts["broken"] += 1
                else:
                    await publisher.publish(envelope)
                follower.carried(offset)
                moved = True
        except (NatsError, TimeoutError, OSError) as error:
            log.warning("waiting for NATS: %r", error)
            await _pause(stop, TROUBLE_SECONDS)
        if moved:
            follower.remember()
        else:
            await _pause(stop, IDLE_SECONDS)


def _envelope(line: bytes) -> Envelope | None:
    try:
        envelope = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return envelope if isinstance(envelope, dict) and "message_id" in envelope else None


async def connect(options: argparse.Namespace, stop: asyncio.Event) -> Client | None:
    """A connection that keeps itself up, or None when told to stop before there was one."""
    while not stop.is_set():
        try:
            return await nats.connect(
                os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
                name="notifications-bridge",
                user_credentials=options.nats_creds,
                connect_timeout=3,
                max_reconnect_attempts=-1,
                reconnect_time_wait=TROUBLE_SECONDS,
                error_cb=_log_trouble,
            )
        except (NatsError, OSError) as error:
            log.warning("waiting for NATS: %r", error)
            await _pause(stop, TROUBLE_SECONDS)
    return None


async def run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    client = await connect(options, stop)
    if client is None:
        return
    publisher = Publisher(client, options.region, frozenset(options.project))
    reporting = asyncio.create_task(publisher.report())
    try:
        await (follow_file if options.jsonl else follow_bus)(publisher, options, stop)
    finally:
        reporting.cancel()
        log.info("stopped: %s", dict(publisher.counts))
        await client.close()


_quiet_until = 0.0


async def _log_trouble(error: Exception) -> None:
    """Say at most once a minute that the connection is down."""
    global _quiet_until  # noqa: PLW0603 - one connection, one process
    if time.monotonic() >= _quiet_until:
        _quiet_until = time.monotonic() + REPORT_SECONDS
        log.warning("NATS: %r", error)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--region", required=True, help="region whose notifications these are")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config-file", type=Path, help="oslo.messaging configuration with transport_url")
    source.add_argument("--jsonl", type=Path, help="file with one notification a line, followed as it grows")
    parser.add_argument("--topic", default="versioned_notifications", help="topic on the bus")
    parser.add_argument("--pool", help="pool of listeners, where others read the same topic")
    parser.add_argument("--state", type=Path, help="where to remember how far the file was carried")
    parser.add_argument("--project", action="append", default=[], help="only servers of this project id")
    parser.add_argument("--nats-creds", help="credentials file for NATS; its address is in NATS_URL")
    return parser


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(run(_parser().parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
